"""Any array in, the same kind of array out. One module for each library that needs its own way.

NumPy     the kernels
torch     the kernels on CPU tensors, inside autograd; else the generic path
jax       the generic path, with derivative rules
dask      the kernels, block by block; blocks along the classes merge their sums
array API the generic path (array_api_strict, cupy and whatever keeps to the array API)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hotmax._backends.protocol import backend_of
from hotmax._core.arrays import Axis, refuse_masked
from hotmax._core.dispatch import Operation, map_entries, reduce_rows, reduce_weighted

# softmax(x, temperature) of a few rows, or None, by the type of x: a library's short way in.
FEW: dict[type, Callable[[Any, object], Any]] = {}


def refuse_out(x: object) -> None:
    raise TypeError(
        f"out is for NumPy arrays, and x is a {type(x).__module__}.{type(x).__qualname__}: "
        f"leave it out"
    )


def run(
    operation: Operation,
    x: object,
    axis: Axis,
    temperature: object,
    where: object,
    out: object,
    keepdims: bool = False,
) -> Any:
    """One of the functions over logits, on whatever kind of array x is."""
    backend = backend_of(x)
    if backend is not None:
        if out is not None:
            refuse_out(x)
        return backend.run(operation, x, axis, temperature, where, keepdims)
    if operation.reduces:
        return reduce_rows(operation, x, axis, temperature, where, keepdims, out)
    return map_entries(operation, x, axis, temperature, where, out)


def run_weighted(
    kernel: Any,
    x: object,
    weights: object,
    axis: Axis,
    temperature: object,
    where: object,
    return_sign: bool,
    keepdims: bool,
    out: object,
) -> Any:
    """logsumexp with weights, likewise."""
    backend = backend_of(x)
    if backend is not None:
        if out is not None:
            refuse_out(x)
        refuse_masked(weights, "weights")
        return backend.run_weighted(x, weights, axis, temperature, where, return_sign, keepdims)
    return reduce_weighted(kernel, x, weights, axis, temperature, where, return_sign, keepdims, out)
