"""One way in for the arrays of every library: `@operation` declares, `dispatch` calls.

Every public function over arrays is written for NumPy, and begins

    if type(logits) not in NATIVE:
        return dispatch(cross_entropy, locals())

NATIVE holds the types that NumPy reads itself, so a call with NumPy arrays costs one look-up and no
Python function. `@operation` registers what else there is to know, and returns the function as it
is: the formula that any array library can run, the arguments that can be differentiated, and what
works where:

gradients   the same kind of array comes back, and can be differentiated
lazy        the same kind comes back, and nothing is computed before it is asked for
values      the same kind comes back
numbers     what comes back is no array
no          a TypeError names the kind; convert with np.asarray
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from hotmax._backends import without_kernels
from hotmax._backends.protocol import (
    ArrayOperation,
    Backend,
    Formula,
    KernelGradient,
    backend_of,
)
from hotmax._core.arrays import as_mask, refuse_masked
from hotmax._core.checks import as_bool
from hotmax._core.kernel_choice import KernelSet
from hotmax._kernels.compiler.compiling import HAS_NUMBA

Result = TypeVar("Result")
F = TypeVar("F", bound=Callable[..., Any])
Works = Mapping[str, str]

EVERYWHERE = {
    "numpy": "values",
    "torch": "gradients",
    "jax": "gradients",
    "dask": "lazy",
    "array_api": "values",
}
LABELS = {**EVERYWHERE, "dask": "values"}  # labels are checked before any work, so Dask computes
VALUES = dict.fromkeys(EVERYWHERE, "values")
NOT_DASK = {**EVERYWHERE, "dask": "no"}
AUTOGRAD = {**NOT_DASK, "array_api": "no"}
IN_MEMORY = {**AUTOGRAD, "torch": "values", "jax": "values"}
NUMBERS = {**IN_MEMORY, "numpy": "numbers", "torch": "numbers", "jax": "numbers"}

OPERATIONS: dict[str, ArrayOperation] = {}

MAY_BE_MASKED = (np.ma.MaskedArray, list, tuple)
FLAGS = ("keepdims", "return_sign", "return_grad", "return_logsumexp")

# Types that NumPy reads itself, or that mean nothing to any library; new types are added when seen.
NATIVE: set[type] = {np.ndarray, float, int, list, tuple, bool, type(None)}
if not HAS_NUMBA:
    NATIVE = without_kernels.NativeTypes(NATIVE)


def operation(
    works: Works,
    formula: Formula | None = None,
    *,
    row_formula: Formula | None = None,
    kernels: KernelSet | None = None,
    reduces: bool = False,
    class_axes: int = 1,
    differentiable: tuple[str, ...] = (),
    rowwise: bool = True,
    kernel_gradient: KernelGradient | None = None,
    typed_by: tuple[str, ...] | None = None,
    formula_only: bool = False,
    composed_of: str | None = None,
    float64_losses: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Register a public function: see `ArrayOperation`. The function comes back unchanged.

    One without a formula works on values: arrays of other libraries are converted, and so is the
    result. One that is composed of another operation hands its arrays on, and needs no dispatch.
    """

    def register(function: F) -> F:
        name = function.__name__
        first = next(iter(inspect.signature(function).parameters))
        OPERATIONS[name] = ArrayOperation(
            name=name,
            function=function,
            first=first,
            works=works,
            formula=formula,
            row_formula=row_formula,
            kernels=kernels,
            reduces=reduces,
            class_axes=class_axes,
            differentiable=differentiable,
            rowwise=rowwise,
            kernel_gradient=kernel_gradient,
            typed_by=(first,) if typed_by is None else typed_by,
            formula_only=formula_only,
            composed_of=composed_of,
            float64_losses=float64_losses,
        )
        return function

    return register


def dispatch(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """function(**arguments), by the backend of its first argument."""
    declared = OPERATIONS[function.__name__]
    first = arguments[declared.first]
    backend = backend_of(first)
    if declared.formula is None and declared.row_formula is None:
        result: Result = call_on_values(declared, backend, arguments)
        return result
    if backend is None:
        NATIVE.add(type(first))
        if not HAS_NUMBA:
            check_flags(arguments)
            computed: Result = without_kernels.call(declared, arguments)
            return computed
        return function(**arguments)
    if declared.kernels is not None:
        everyday: Result | None = backend.call_everyday(declared, arguments)
        if everyday is not None:
            return everyday
    if declared.works[backend.name] == "no":
        raise not_taken(first, declared.first)
    if arguments.pop("out", None) is not None:
        raise TypeError(
            f"out is for NumPy arrays, and {declared.first} is a "
            f"{type(first).__module__}.{type(first).__qualname__}: leave it out"
        )
    for name, value in arguments.items():  # libraries drop the masks of NumPy's masked arrays
        if isinstance(value, MAY_BE_MASKED):
            if name == "where" and isinstance(value, np.ma.MaskedArray):
                arguments[name] = as_mask(value)
            else:
                refuse_masked(value, name)
    check_flags(arguments)
    result = backend.call(declared, arguments)
    return result


def check_flags(arguments: dict[str, Any]) -> None:
    for name in FLAGS:
        if name in arguments:
            arguments[name] = as_bool(arguments[name], name)


def call_on_values(
    declared: ArrayOperation, backend: Backend | None, arguments: dict[str, Any]
) -> Any:
    """A function without derivatives, on the values of its arguments.

    `backend` is that of the first argument, and so of the result.
    """
    values, out = {}, arguments.get("out")
    for name, value in arguments.items():
        its = backend_of(value)
        if its is None:
            NATIVE.add(type(value))
        if its is None:
            values[name] = value
        elif name == "out":
            values[name] = its.writable(value)
        elif declared.works[its.name] == "no":
            raise not_taken(value, name)
        else:
            values[name] = its.to_numpy(value, name)
    result = declared.function(**values)
    its = backend_of(out)
    if its is not None:
        return its.written(out, result)
    if backend is None or out is not None:
        return result
    first, typed = arguments[declared.first], bool(declared.typed_by)

    def converted(part: Any) -> Any:
        if not isinstance(part, (np.ndarray, np.generic)):
            return part
        return backend.from_numpy(part, first, keep_type=typed and part.dtype.kind in "fV")

    if not isinstance(result, tuple):
        return converted(result)
    parts = map(converted, result)
    return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)


def not_taken(x: object, name: str) -> TypeError:
    return TypeError(
        f"{name} is a {type(x).__module__}.{type(x).__qualname__}, and is taken here only as a "
        f"NumPy array or a nested sequence of numbers: convert it, as in np.asarray({name})"
    )
