"""Modules that are imported when something of them is first used.

Commands name NumPy and hotmax throughout, but `hotmax --help` and an error in the options need
neither: with both imported they would take 1.2 s instead of 0.3.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """Stands for a module, and imports it at the first attribute."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


np = Deferred("numpy")
