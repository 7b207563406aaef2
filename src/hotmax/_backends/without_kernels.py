"""NumPy arrays where Numba is not installed: the generic formulas, as for any array-API library.

What formulas do not have (gradients by `return_grad`, masked arrays, bfloat16, draws) is computed
by the kernels as plain Python: the same results, and slow. `hotmax doctor` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hotmax._backends.array_api import BACKEND
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._core.arrays import PLAIN_DTYPES, as_array, check_out

_as_plain_python: ContextVar[bool] = ContextVar("kernels run as plain Python", default=False)


class NativeTypes(set[type]):
    """`type(x) in NATIVE` holds only while kernels run: else every call is dispatched."""

    def __contains__(self, kind: object) -> bool:
        return _as_plain_python.get() and super().__contains__(kind)


@contextmanager
def kernels_as_plain_python() -> Iterator[None]:
    token = _as_plain_python.set(True)
    try:
        yield
    finally:
        _as_plain_python.reset(token)


def call(operation: ArrayOperation, arguments: Arguments) -> Any:
    """An operation on NumPy arrays, numbers and sequences."""
    if not has_formula(operation, arguments):
        with kernels_as_plain_python():
            return operation.function(**arguments)
    out = arguments.pop("out", None)
    first = arguments[operation.first]
    if type(first) is not np.ndarray:
        arguments[operation.first] = as_array(first, operation.first)
    result = BACKEND.call(operation, arguments)
    if isinstance(result, tuple):
        return tuple(part[()] for part in result)
    if out is not None:
        target = check_out(out, result.shape, result.dtype)
        target[...] = result
        return target
    return result[()] if isinstance(result, np.ndarray) else result


def has_formula(operation: ArrayOperation, arguments: Arguments) -> bool:
    first = arguments[operation.first]
    return (
        operation.works["array_api"] != "no"
        and arguments.get("return_grad", False) is False
        and (type(first) is not np.ndarray or first.dtype in PLAIN_DTYPES)
        and not any(isinstance(value, np.ma.MaskedArray) for value in arguments.values())
    )
