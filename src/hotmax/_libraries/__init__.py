"""Any array in, the same kind of array out. One module for each library that needs its own way.

NumPy     the kernels
torch     the kernels on CPU tensors, inside autograd; else the generic path
jax       the generic path, with derivative rules
dask      the kernels, block by block; blocks along the classes merge their sums
other     the generic path (array_api_strict, cupy and whatever keeps to the array API)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from hotmax._boundary import Axis, library_of
from hotmax._dispatch import Operation, map_entries, reduce_rows, reduce_weighted

_modules: dict[str, Any] = {}

# softmax(x, temperature) of a few rows, or None, by the type of x: a library's short way in.
FEW: dict[type, Callable[[Any, object], Any]] = {}


def module_of(library: str) -> Any:
    """The module that knows a library; imported at the first of its arrays."""
    if library not in _modules:
        _modules[library] = importlib.import_module(f"hotmax._libraries.{library}")
    return _modules[library]


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
    library = library_of(x)
    if library is not None:
        if out is not None:
            refuse_out(x)
        module = _modules.get(library) or module_of(library)
        return module.run(operation, x, axis, temperature, where, keepdims)
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
    library = library_of(x)
    if library is not None:
        if out is not None:
            refuse_out(x)
        module = module_of(library)
        return module.run_weighted(x, weights, axis, temperature, where, return_sign, keepdims)
    return reduce_weighted(kernel, x, weights, axis, temperature, where, return_sign, keepdims, out)
