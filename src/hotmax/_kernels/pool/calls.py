"""Calls of a kernel on arrays from Python, without Numba's look at the types of the arguments.

A call is compiled for the type and number of dimensions of its arrays, once for all functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types

from hotmax._kernels.compiler.compiling import python_entry
from hotmax._kernels.pool.jobs import compute_alone, compute_at, compute_small
from hotmax._kernels.pool.serving import abandon_job, continue_job, serve, share_job
from hotmax._kernels.softmax.pullback import pull_back_at32, pull_back_at64

Call = Callable[..., Any]
_INTEGERS = types.Array(types.int64, 1, "C")


def _array(dtype: np.dtype[Any], dimensions: int) -> Any:
    kind = types.float32 if dtype == np.float32 else types.float64
    return types.Array(kind, dimensions, "C")


def _temperature(per_row: bool) -> Any:
    return types.Array(types.float64, 1, "C") if per_row else types.float64


@cache
def small_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int) -> Call:
    """(function, x, out, temperature): a small x, with the GIL held."""
    arrays = _array(dtype, dimensions), _array(dtype, out_dimensions)
    return python_entry(compute_small, types.intp, *arrays, types.float64)


@cache
def address_call() -> Call:
    """(function, x, out, rows, classes, temperature): arrays that are known by their addresses."""
    return python_entry(compute_at, *[types.intp] * 5, types.float64)


@cache
def pullback_call(is_float32: bool) -> Call:
    """(x, p, g, out, rows, classes, temperature): the derivative of softmax, by addresses."""
    compiled = pull_back_at32 if is_float32 else pull_back_at64
    return python_entry(compiled, *[types.intp] * 6, types.float64)


@cache
def alone_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int, per_row: bool) -> Call:
    """(function, x, out, temperature): in the calling thread."""
    arrays = _array(dtype, dimensions), _array(dtype, out_dimensions)
    return python_entry(compute_alone, types.intp, *arrays, _temperature(per_row))


@cache
def shared_call(dtype: np.dtype[Any], dimensions: int, out_dimensions: int, per_row: bool) -> Call:
    """(state, function, job, x, out, temperature, step, streamed): over threads."""
    arrays = _array(dtype, dimensions), _array(dtype, out_dimensions)
    sizes = types.int64, types.int64
    return python_entry(
        share_job, _INTEGERS, types.intp, _INTEGERS, *arrays, _temperature(per_row), *sizes
    )


@cache
def continuing_call() -> Call:
    return python_entry(continue_job, _INTEGERS, types.intp, _INTEGERS)


@cache
def abandoning_call() -> Call:
    return python_entry(abandon_job, _INTEGERS, _INTEGERS)


@cache
def serving_call() -> Call:
    return python_entry(serve, _INTEGERS, types.int64, types.int64)
