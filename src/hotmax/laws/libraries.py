"""The arrays of each library: how they are made and read, and how that is written."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array

FULL_FLOATS = ("float64", "float32")
HALVES = ("float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
TYPES = (*FULL_FLOATS, *HALVES, *INTEGERS)


@dataclass(frozen=True)
class Library:
    """`make` takes a NumPy array; `write` is the same as an expression, from its values."""

    name: str
    imports: str
    make: Callable[[Array], Any]
    back: Callable[[Any], Array]
    write: str  # of {values} and {dtype}
    write_full: str  # of {shape}, {value} and {dtype}
    write_back: str  # of {call}
    types: Callable[[], tuple[str, ...]]

    def dtypes(self) -> tuple[str, ...]:
        """The types that its arrays may have, here and now."""
        return self.types()

    def written(self, array: Array) -> str:
        """An array as an expression of its library."""
        dtype = array.dtype.name
        if array.size == 0 or (array.size > 8 and (array == array.flat[0]).all()):
            value = array.flat[0].item() if array.size else 0
            return self.write_full.format(shape=array.shape, value=value, dtype=dtype)
        exact = array.astype(np.float64) if dtype == "bfloat16" else array
        return self.write.format(values=exact.tolist(), dtype=dtype)


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """A NumPy dtype by name; bfloat16 is that of ml_dtypes."""
    if name == "bfloat16":
        bfloat16: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return bfloat16
    return np.dtype(name)


def _numpy_types() -> tuple[str, ...]:
    halves = HALVES if importlib.util.find_spec("ml_dtypes") else HALVES[:1]
    return (*FULL_FLOATS, *halves, *INTEGERS)


def _jax_types() -> tuple[str, ...]:
    has_float64 = importlib.import_module("jax").config.jax_enable_x64
    return TYPES if has_float64 else tuple(name for name in TYPES if not name.endswith("64"))


def _to_torch(array: Array) -> Any:
    torch = importlib.import_module("torch")
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).to(torch.bfloat16)
    return torch.tensor(array)


def _to_float64(array: Any) -> Array:
    return np.asarray(array, np.float64)


ARRAY_LIBRARIES = {
    each.name: each
    for each in (
        Library(
            "numpy",
            "",
            lambda array: array.copy(),
            _to_float64,
            "np.array({values}, {dtype!r})",
            "np.full({shape}, {value}, {dtype!r})",
            "np.asarray({call}, float)",
            _numpy_types,
        ),
        Library(
            "torch",
            "import torch",
            _to_torch,
            lambda tensor: tensor.detach().double().numpy(),
            "torch.tensor({values}, dtype=torch.{dtype})",
            "torch.full({shape}, {value}, dtype=torch.{dtype})",
            "{call}.double().numpy()",
            _numpy_types,  # tensors are made from arrays
        ),
        Library(
            "jax",
            "import jax",
            lambda array: importlib.import_module("jax").numpy.asarray(array.copy()),
            _to_float64,
            "jax.numpy.array({values}, {dtype!r})",
            "jax.numpy.full({shape}, {value}, {dtype!r})",
            "np.asarray({call}, float)",
            _jax_types,
        ),
        Library(
            "dask",
            "import dask.array",
            lambda array: importlib.import_module("dask.array").from_array(array.copy()),
            lambda array: _to_float64(array.compute()),
            "dask.array.from_array(np.array({values}, {dtype!r}))",
            "dask.array.from_array(np.full({shape}, {value}, {dtype!r}))",
            "np.asarray({call}.compute(), float)",
            _numpy_types,
        ),
        Library(
            "array_api_strict",
            "import array_api_strict",
            lambda array: importlib.import_module("array_api_strict").asarray(array.copy()),
            _to_float64,
            "array_api_strict.asarray(np.array({values}, {dtype!r}))",
            "array_api_strict.asarray(np.full({shape}, {value}, {dtype!r}))",
            "np.asarray({call}, float)",
            lambda: (*FULL_FLOATS, *INTEGERS),
        ),
    )
}
