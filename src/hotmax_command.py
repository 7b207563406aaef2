"""The `hotmax` command, outside of the package.

So Ctrl-C is caught while that is imported; and `hotmax --help`, `--version` and an error in the
options come without importing NumPy, Numba and all functions, which takes a second.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class DeferredPackage(ModuleType):
    """A package whose modules can be imported, and whose `__init__` runs at its first attribute."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if spec is None or spec.loader is None or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(self)
        return getattr(self, name)


def defer(name: str) -> None:
    """Import a package, but run its `__init__` only when something of it is asked for."""
    spec = importlib.util.find_spec(name)
    if name not in sys.modules and spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = DeferredPackage
        sys.modules[name] = package


def main() -> int:
    """Import the command line, and run it."""
    try:
        defer("hotmax")
        from hotmax.view.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("hotmax: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
