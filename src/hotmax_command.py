"""The `hotmax` command, outside of the package: so Ctrl-C is caught while that is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Import the command line, which takes half a second, and run it."""
    try:
        from hotmax.view.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("hotmax: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
