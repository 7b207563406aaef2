"""Calls of a kernel on arrays from Python, without Numba's look at the types of the arguments.

A call is compiled for the type and number of dimensions of its arrays, once for all functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hotmax._kernels.compiler.compiling import python_entry
from hotmax._kernels.pool.jobs import compute_alone, compute_at, compute_small
from hotmax._kernels.pool.serving import abandon_job, continue_job, serve, share_job
from hotmax._kernels.pool.staged import share_staged

Call = Callable[..., Any]
# Each number of dimensions is a call of its own, compiled and shipped. Arrays with more dimensions
# are reshaped to rows first.
MOST_DIMENSIONS = 5
_INTEGERS = np.dtype(np.int64), 1
# Of rows and results that `staged_call` is for; halves are uint16, and reduced in float32.
_UINT16, _FLOAT32, _FLOAT64 = np.dtype(np.uint16), np.dtype(np.float32), np.dtype(np.float64)
STAGED_TYPES: tuple[tuple[np.dtype[Any], np.dtype[Any]], ...] = (
    (_UINT16, _UINT16),
    (_UINT16, _FLOAT32),
    (_FLOAT32, _FLOAT32),
    (_FLOAT64, _FLOAT64),
)


def _temperature(per_row: bool) -> Any:
    return (np.dtype(np.float64), 1) if per_row else float


@cache
def small_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int) -> Call:
    """(function, x, out, temperature): a small x, with the GIL held."""
    arrays = (dtype, dimensions), (dtype, out_dimensions)
    return python_entry(compute_small, int, *arrays, float)


@cache
def address_call() -> Call:
    """(function, x, out, rows, classes, temperature, first, second): arrays by their addresses.

    `first` and `second` are further inputs, 0 if the function has none.
    """
    return python_entry(compute_at, *[int] * 5, float, int, int)


@cache
def alone_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int, per_row: bool) -> Call:
    """(function, x, out, temperature): in the calling thread."""
    arrays = (dtype, dimensions), (dtype, out_dimensions)
    return python_entry(compute_alone, int, *arrays, _temperature(per_row))


@cache
def shared_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int, per_row: bool) -> Call:
    """(state, function, job, x, out, temperature, step, streamed): over threads."""
    arrays = (dtype, dimensions), (dtype, out_dimensions)
    return python_entry(
        share_job, _INTEGERS, int, _INTEGERS, *arrays, _temperature(per_row), int, int
    )


@cache
def staged_call(dtype: np.dtype[Any], out_dtype: np.dtype[Any]) -> Call:
    """(state, function, job, kernel, columns, x, out, mask, temperatures, fields): over threads.

    x, out and mask are (outer, inner, classes), of any layout; see `staged.py` for the fields.
    """
    arrays = (dtype, 3, "A"), (out_dtype, 3, "A"), (np.dtype(np.uint8), 3, "A")
    fixed = _INTEGERS, int, _INTEGERS, int, int
    return python_entry(share_staged, *fixed, *arrays, _temperature(True), *[int] * 5, float)


@cache
def continuing_call() -> Call:
    return python_entry(continue_job, _INTEGERS, int, _INTEGERS)


@cache
def abandoning_call() -> Call:
    return python_entry(abandon_job, _INTEGERS, _INTEGERS)


@cache
def serving_call() -> Call:
    return python_entry(serve, _INTEGERS, int, int)
