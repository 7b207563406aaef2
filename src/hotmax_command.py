"""The `hotmax` command, outside of the package: so Ctrl-C is caught while that is imported.

Help, the version and a wrong option are answered before `hotmax` is imported, which takes 0.7 s,
most of it Numba's.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """A package whose `__init__` runs when a name that it defines is first asked for.

    Its modules can be imported before that. `importlib.util.LazyLoader` would run `__init__` for
    any of them.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)


def defer(package: str) -> None:
    """Put a package that is not imported yet in its place, to be run when it is needed."""
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is not None:
        module = sys.modules[package] = importlib.util.module_from_spec(spec)
        module.__class__ = Deferred


def main() -> int:
    """Run the command line."""
    try:
        defer("hotmax")
        from hotmax.view.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("hotmax: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
