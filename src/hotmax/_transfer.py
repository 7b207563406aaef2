"""Tensors of torch and arrays of jax: read as NumPy arrays, and results given back in their kind.

Draws and diagnoses have no derivative, so that is all they need.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hotmax._boundary import library_of


def numpy_of(x: object, name: str = "x") -> Any:
    """x for NumPy, without a copy if it lies on the CPU; what is of no library stays as it is."""
    library = library_of(x)
    thing: Any = x
    if library == "torch":
        torch = sys.modules["torch"]
        tensor = thing.detach().cpu()
        return tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()
    if library == "jax":
        if isinstance(x, sys.modules["jax"].core.Tracer):
            raise TypeError(f"{name} is traced, as inside jax.jit: call this outside of it")
        return np.asarray(thing)
    return x


def like(result: Any, x: object, keep_type: bool = False) -> Any:
    """A NumPy result as an array of x's library, where x is; in its float type if keep_type."""
    library = library_of(x)
    thing: Any = x
    if library == "torch":
        torch = sys.modules["torch"]
        tensor = torch.from_numpy(np.asarray(result)).to(thing.device)
        return tensor.to(thing.dtype) if keep_type and thing.is_floating_point() else tensor
    if library == "jax":
        jax = sys.modules["jax"]
        array = np.asarray(result)
        kind = jax.dtypes.canonicalize_dtype(array.dtype)
        if keep_type and jax.numpy.issubdtype(thing.dtype, jax.numpy.floating):
            kind = thing.dtype
        return jax.numpy.asarray(array.astype(kind))
    return result
