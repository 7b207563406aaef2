"""Libraries that not every Python has. Tests import torch, and what needs it, from here.

    from optional import library, torch

    checkpoint = library("torch.utils.checkpoint").checkpoint

Where torch is not installed, a test that is marked `torch`, has something of it as a parameter, or
calls something of it is skipped (the first two by conftest.py); all others run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

# What pyproject.toml asks for on some versions of Python only.
OPTIONAL = ("torch", "transformers", "torchmetrics")
MISSING = tuple(name for name in OPTIONAL if importlib.util.find_spec(name) is None)

SOURCE = Path(__file__).parents[1] / "src" / "hotmax"
# Modules that import torch at their top, and so cannot be read for their examples without it.
OF_TORCH = (
    "torch.py",
    "_backends/torch.py",
    "_backends/torch_softmax.py",
    "_backends/torch_losses.py",
    "_backends/torch_attention.py",
    "_backends/torch_tensors.py",
    "_backends/torch_calibrators.py",
    "_backends/torch_operators.py",
    "integrations/transformers.py",
    "integrations/vllm.py",
)


class Absent:
    """Stands for a library that is not installed, or for anything in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Skip the test. Outside of one, a module is just being imported."""
        if "PYTEST_CURRENT_TEST" in os.environ:
            pytest.skip(f"needs {self._name}")
        return Absent(f"{self._name}(...)")

    def __instancecheck__(self, instance: object) -> bool:
        return False  # nothing is of a class that is not there

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()  # and a class may derive from it

    def __repr__(self) -> str:
        return self._name


def library(name: str) -> Any:
    """A module by its name, or what stands for it if it needs a library that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MISSING:
            raise
        return Absent(name)


torch = library("torch")
