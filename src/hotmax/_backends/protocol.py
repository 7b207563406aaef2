"""Whose array it is, and what hotmax asks of its library.

One subclass of `Backend` for each array library, in a module of its own, which is imported at the
first of its arrays. Nothing else in hotmax names a library.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._core.arrays import RECOGNISERS, Axis, is_foreign

Array = Any
Arguments = dict[str, Any]

# name, module that is loaded if there are such arrays, their class in it
LIBRARIES = (("torch", "torch", "Tensor"), ("jax", "jax", "Array"), ("dask", "dask.array", "Array"))


class Backend:
    """An array library. What stands here holds for any that keeps to the array API."""

    name: str
    has_gradients = False  # can results be differentiated?
    takes_values = False  # do draws and diagnoses, which have no derivative, take its arrays?

    def to_numpy(self, x: Array, name: str = "x") -> Any:
        """The values of x for NumPy, without a copy if they lie on the CPU."""
        return np.asarray(x)

    def from_numpy(self, array: Any, like: Array, keep_type: bool = False) -> Array:
        """A NumPy result as an array where `like` is; in its float type if keep_type."""
        raise NotImplementedError

    def is_direct(self, x: Array) -> bool:
        """May the kernels read the memory of x?"""
        return False

    def is_traced(self, x: Array) -> bool:
        """Is x a stand-in for values that are not known yet?"""
        return False

    def refuse_masked(self, x: Array, name: str) -> None:
        """Raise if x has a mask of its own, which the formulas would not see."""

    def stop_gradient(self, x: Array) -> Array:
        """x as a constant, which no derivative goes through."""
        return x

    def placement(self, like: Array) -> dict[str, Any]:
        """The keywords that put a new array where `like` is."""
        device = getattr(like, "device", None)
        return {} if device is None else {"device": device}

    def widest_float(self, xp: Any) -> Any:
        """float64, or what the library has instead."""
        return xp.float64

    def map_tiles(
        self,
        function: Callable[..., Array],
        rows: Array,
        labels: Array,
        shared: tuple[Any, ...],
        step: int,
    ) -> Array:
        """function(rows, labels, *shared), `step` rows at a time, in one array.

        What it computes on the way is not kept for a derivative, but computed again.
        """
        cuts = [slice(first, first + step) for first in range(0, rows.shape[0], step)]
        parts = [function(rows[cut, :], labels[cut], *shared) for cut in cuts]
        return array_namespace(rows).concat(parts)

    def vjp(self, function: Callable[[Arguments], Array], points: Arguments, g: Array) -> Arguments:
        """The derivatives of function(points) by the points, times g."""
        raise NotImplementedError

    def run(
        self, operation: Any, x: Array, axis: Axis, temperature: Any, where: Any, keepdims: bool
    ) -> Any:
        """One of the softmax family."""
        raise NotImplementedError

    def run_weighted(
        self,
        x: Array,
        weights: Any,
        axis: Axis,
        temperature: Any,
        where: Any,
        return_sign: bool,
        keepdims: bool,
    ) -> Any:
        """logsumexp with weights."""
        raise NotImplementedError

    def call(
        self,
        function: Callable[..., Any],
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        return_grad: bool,
    ) -> Any:
        """A function that is written for NumPy, beside a formula for any array library.

        `by` names the arguments that it gives gradients for.
        """
        if return_grad:
            raise TypeError("return_grad needs arrays of NumPy, torch or jax")
        with np.errstate(all="ignore"):  # strict arrays are NumPy's underneath
            return formula(**arguments)

    def attend(
        self, function: Callable[..., Any], formula: Callable[..., Any], arguments: Arguments
    ) -> Any:
        """attention, its weights or its gradient."""
        return self.call(function, formula, (), arguments, False)


_backends: dict[type, Backend | None] = {np.ndarray: None, float: None, int: None, list: None}


def backend_of(x: object) -> Backend | None:
    """The backend of an array; None for NumPy's own, numbers, lists and columns of tables.

    No library is imported to find out: x can only be an array of one that already is.
    """
    kind = type(x)
    try:
        return _backends[kind]
    except KeyError:
        backend = _backends[kind] = _recognise(x)
        return backend


def _library_of(x: object) -> str | None:
    for name, module, attribute in LIBRARIES:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(x, getattr(loaded, attribute)):
            return name
    return None


RECOGNISERS.append(lambda x: _library_of(x) is not None)


def _recognise(x: object) -> Backend | None:
    return _load(_library_of(x) or "array_api") if is_foreign(x) else None


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"hotmax._backends.{name}").BACKEND
    return backend


def is_traced(x: object) -> bool:
    """Is x a stand-in for values that are not known yet?"""
    backend = backend_of(x)
    return backend is not None and backend.is_traced(x)


def stop_gradient(x: Array) -> Array:
    """x as a constant, which no derivative goes through."""
    backend = backend_of(x)
    return x if backend is None else backend.stop_gradient(x)


def values_of(x: Array, name: str = "x") -> Any:
    """The values of an array of any library, for NumPy."""
    backend = backend_of(x)
    return np.asarray(x) if backend is None else backend.to_numpy(x, name)


def placement(like: Array) -> dict[str, Any]:
    """The keywords that put a new array where `like` is; none for NumPy."""
    backend = backend_of(like)
    return {} if backend is None else backend.placement(like)


def widest_float(xp: Any, like: Array) -> Any:
    """float64, or what the library of `like` has instead."""
    backend = backend_of(like)
    return xp.float64 if backend is None else backend.widest_float(xp)


def numpy_of(x: object, name: str = "x") -> Any:
    """x for a function without derivatives; what NumPy or nobody can convert stays as it is."""
    backend = backend_of(x)
    return x if backend is None or not backend.takes_values else backend.to_numpy(x, name)


def like(result: Any, x: object, keep_type: bool = False) -> Any:
    """A NumPy result as an array of x's library, where x is; in its float type if keep_type."""
    backend = backend_of(x)
    return result if backend is None else backend.from_numpy(result, x, keep_type)
