"""Whose array it is, what a public function declares, and what hotmax asks of an array library.

One subclass of `Backend` for each array library, in a module of its own, which is imported at the
first of its arrays. Nothing else in hotmax names a library.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from hotmax._core.arrays import RECOGNISERS, is_other_library
from hotmax._core.kernel_choice import KernelSet

Array = Any
Arguments = dict[str, Any]
Formula = Callable[..., Any]

# name, module that is loaded if there are such arrays, their class in it
LIBRARIES = (
    ("torch", "torch", "Tensor"),
    ("jax", "jax", "Array"),
    ("dask", "dask.array", "Array"),
)


class KernelGradient(NamedTuple):
    """A forward and a backward pass by kernels, on NumPy arrays, for a library's autograd.

    names      the arguments that it can be differentiated by
    forward    arguments -> (result, numbers of each row), or None where it has no gradient
    backward   (arguments, what forward gave, gradients, wanted names) -> gradients by name
    """

    names: tuple[str, ...]
    forward: Callable[[Arguments], tuple[Any, Any] | None]
    backward: Callable[..., Arguments]


@dataclass(frozen=True)
class ArrayOperation:
    """What a public function declares by `@operation`."""

    name: str
    function: Callable[..., Any]  # on NumPy arrays
    first: str  # the argument that says whose arrays they are
    works: Mapping[str, str]  # by the name of a backend: see `operation.py`
    formula: Formula | None  # with the arguments of the function, on any array library
    kernels: KernelSet | None  # of a function of rows
    row_formula: Formula | None  # of the softmax family: (xp, rows, temperature, mask) -> rows
    reduces: bool  # one number for each row
    class_axes: (
        int  # dimensions of the result in place of `axis`, each as long as there are classes
    )
    differentiable: tuple[str, ...]  # what `return_grad` gives gradients for
    rowwise: bool  # is each row's gradient a multiple of the one that `return_grad` gives?
    kernel_gradient: KernelGradient | None
    typed_by: tuple[str, ...]  # the result has the common float type of these arguments
    formula_only: bool  # other libraries never take the NumPy function
    composed_of: str | None  # the operation that is called with the arrays, whatever they are
    float64_losses: Callable[..., Any] | None  # the losses of rows before they are rounded

    def takes_row_formula(self, arguments: Arguments) -> bool:
        """Does this call belong to the softmax family? logsumexp with weights does not."""
        return self.row_formula is not None and (
            self.formula is None or (arguments["weights"] is None and not arguments["return_sign"])
        )


class Backend:
    """An array library. What stands here holds for any that keeps to the array API."""

    name: str
    takes_values = False  # do draws and diagnoses, which have no derivative, take its arrays?

    def to_numpy(self, x: Array, name: str = "x") -> Any:
        """The values of x for NumPy, without a copy if they lie on the CPU."""
        return np.asarray(x)

    def from_numpy(self, array: Any, like: Array, keep_type: bool = False) -> Array:
        """A NumPy result as an array where `like` is; in its float type if keep_type."""
        raise NotImplementedError

    def writable(self, out: Array) -> Any:
        """The memory of `out` as a NumPy array to write to; None for `written` to copy into it."""
        raise TypeError(
            f"out must be an array of NumPy, or a tensor of torch on the CPU, got a "
            f"{type(out).__module__}.{type(out).__qualname__}"
        )

    def written(self, out: Array, result: Any) -> Array:
        """`out`, after a result was written to what `writable` gave, or is to be copied."""
        return out

    def is_direct(self, x: Array) -> bool:
        """May the kernels read the memory of x?"""
        return False

    def is_traced(self, x: Array) -> bool:
        """Is x a stand-in for values that are not known yet?"""
        return False

    def hides_values(self, x: Array) -> bool:
        """Must checks of values be left out, since they would break a transformation of x?"""
        return self.is_traced(x)

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

        Intermediate results are not kept for a derivative, but computed again.
        """
        cuts = [slice(first, first + step) for first in range(0, rows.shape[0], step)]
        parts = [function(rows[cut, :], labels[cut], *shared) for cut in cuts]
        return array_namespace(rows).concat(parts)

    def vjp(self, formula: Formula, points: Arguments, options: Arguments, g: Array) -> Arguments:
        """The derivatives of formula(**points, **options) by the points, times g."""
        raise NotImplementedError

    def call_everyday(self, operation: ArrayOperation, arguments: Arguments) -> Any:
        """The operation on a small array in the shortest way, if its kernels can read the memory.

        None in every other case, which `call` then sees to.
        """
        return None

    def call(self, operation: ArrayOperation, arguments: Arguments) -> Any:
        """The operation on arrays of this library: by its formula, unless a library knows better.

        `arguments` holds all arguments but `out`, checked for masked arrays of NumPy.
        """
        if arguments.pop("return_grad", False):
            raise TypeError("return_grad needs arrays of NumPy, torch or jax")
        assert operation.formula is not None
        with np.errstate(all="ignore"):  # strict arrays are NumPy's underneath
            return operation.formula(**arguments)


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
    return _load(_library_of(x) or "array_api") if is_other_library(x) else None


def _load(name: str) -> Backend:
    backend: Backend = importlib.import_module(f"hotmax._backends.{name}").BACKEND
    return backend


def is_traced(x: object) -> bool:
    """Is x a stand-in for values that are not known yet?"""
    backend = backend_of(x)
    return backend is not None and backend.is_traced(x)


def hides_values(*arrays: object) -> bool:
    """Must checks of the values of any of these be left out?"""
    backends = [backend_of(x) for x in arrays]
    return any(b is not None and b.hides_values(x) for b, x in zip(backends, arrays, strict=True))


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


def to_numpy(x: object, name: str = "x") -> Any:
    """x for a function without derivatives; what NumPy or nobody can convert stays as it is."""
    backend = backend_of(x)
    return x if backend is None or not backend.takes_values else backend.to_numpy(x, name)


def from_numpy(result: Any, x: object, keep_type: bool = False) -> Any:
    """A NumPy result as an array of x's library, where x is; in its float type if keep_type."""
    backend = backend_of(x)
    return result if backend is None else backend.from_numpy(result, x, keep_type)
