"""`python -m hotmax` is the command line."""

import sys

from hotmax.view.cli import main

if __name__ == "__main__":
    sys.exit(main())
