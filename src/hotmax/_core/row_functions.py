"""Functions of rows on NumPy arrays: one result for each entry, or one for each row.

A mask is applied by the row plan, in `rows.py`, or in compiled code, by `staged_rows.py`. What a
row without any class gives is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._core.arrays import (
    FLOAT32,
    FLOAT64,
    Array,
    Axis,
    check_out,
    is_small_int,
    result_or_out,
    split_mask,
)
from hotmax._core.checks import as_bool
from hotmax._core.kernel_choice import KernelSet, compute, compute_all, route_of
from hotmax._core.rows import (
    LONG,
    Block,
    RowPlan,
    Staging,
)
from hotmax._core.shared_rows import out_of_memory
from hotmax._core.staged_rows import compute_halves, compute_staged, type_of
from hotmax._kernels.pool.calls import MOST_DIMENSIONS, small_call

ndarray, empty = np.ndarray, np.empty
LAST = -1  # Python has one object for it, so `is` tells it from -1.0 at once
SMALL = 1 << 16  # bytes that are not worth sharing (over 3 microseconds), nor releasing the GIL for

# Calls of kernels on small arrays, by the number of dimensions: None until they are needed.
Calls = list[Callable[..., bool] | None]
_small32: Calls = [None] * 65
_small64: Calls = [None] * 65
_small_reduction32: Calls = [None] * 65
_small_reduction64: Calls = [None] * 65


def map_entries(
    kernels: KernelSet, x: Any, axis: Axis, temperature: Any, where: object, out: object
) -> Any:
    """A function with one result for each entry."""
    # The everyday call: contiguous floats, their last axis, one temperature. For a small array the
    # way to the kernel is most of the time, so it is written out here.
    if (
        type(x) is ndarray
        and axis is LAST
        and where is None
        and ((kind := x.dtype) is FLOAT32 or kind is FLOAT64 or is_half(x))
        and (x.flags.carray or is_readable(x))
        and (size := x.nbytes) > 0
        and (dimensions := x.ndim)
        and (
            t := temperature
            if type(temperature) is float and temperature == temperature
            else direct_temperature(temperature, x)
        )
        is not None
        and (out is None or can_write_directly(out, x))
    ):
        shape = x.shape
        target: Any = empty(shape, kind) if out is None else out
        if size > SMALL or type(t) is not float:
            compute_direct(kernels, x, target, t)
            return target
        if kind is FLOAT32:
            calls, known = _small32, kernels.addresses32
        elif kind is FLOAT64:
            calls, known = _small64, kernels.addresses64
        else:
            compute_direct(kernels, x, target, t)
            return target
        call = calls[dimensions] or small_call_of(calls, x, dimensions)
        address = known.get(shape[-1]) or route_of(kernels, kind is FLOAT32, shape[-1])
        if not call(address, x, target, t):
            raise out_of_memory()
        return target
    plan = RowPlan(x, axis, temperature, where)
    given = None if out is None else check_out(out, plan.shape, plan.dtype)
    if given is not None and given.flags.carray and not overlaps(given, plan):
        target = given
    else:
        target = np.empty(plan.shape, plan.dtype)
    if target.size and plan.is_direct:
        shape = (plan.count, plan.classes)
        compute_direct(kernels, plan.x.reshape(shape), target.reshape(shape), plan.temperatures)
    elif target.size and not compute_staged(kernels, plan, target):
        map_staged(kernels, plan, target)
    if given is None:
        return target if target.ndim else target[()]
    if target is not given:
        given[...] = target
    return given


def is_half(x: Array) -> bool:
    """Half precision that compiled code reads, and rows that threads need not share."""
    return bool(type_of(x.dtype) and x.ndim and x.shape[-1] < LONG)


def direct_temperature(temperature: object, x: Array) -> float | Array | None:
    """A number, or a float64 for each row, whose classes are last; None if a plan is to look."""
    if is_small_int(temperature) or isinstance(temperature, float | np.float32):
        number = float(temperature)  # type: ignore[arg-type]
    elif type(temperature) is not ndarray or temperature.dtype not in (FLOAT32, FLOAT64):
        return None
    elif temperature.size == 1 and temperature.ndim <= x.ndim:
        number = temperature.item()
    elif temperature.shape == (*x.shape[:-1], 1):
        numbers = temperature.astype(FLOAT64, order="C").reshape(-1)  # a copy: out may overlap it
        return None if np.isnan(numbers).any() else numbers
    else:
        return None
    return number if number == number else None


def compute_direct(kernels: KernelSet, x: Array, out: Array, temperature: float | Array) -> None:
    """A contiguous array with the classes last, one temperature for all rows or one for each."""
    kind = type_of(x.dtype)
    if kind:
        compute_halves(kernels, kind, x, out, temperature)
    elif isinstance(temperature, float):
        compute_all(kernels, x, out, temperature)
    else:
        rows = x.reshape(-1, x.shape[-1])
        results = out if kernels.reduces else out.reshape(rows.shape)
        small = x.nbytes <= SMALL
        (compute if small else compute_all)(kernels, rows, results, temperature)


def is_readable(x: Array) -> bool:
    """Can the kernels read x, though it is read-only?"""
    return x.flags.c_contiguous and x.flags.aligned


def small_call_of(calls: Calls, x: Array, out_dimensions: int) -> Callable[..., bool]:
    """The call of kernels on small arrays like x, compiled or loaded."""
    if x.ndim <= MOST_DIMENSIONS:
        call = small_call(x.dtype, x.ndim, out_dimensions)
    else:
        flat = small_call(x.dtype, 2, min(out_dimensions, 2))

        def call(function: int, x: Array, out: Array, temperature: float) -> bool:
            rows = x.reshape(-1, x.shape[-1])
            out = out if out.ndim == 1 else out.reshape(rows.shape)
            return flat(function, rows, out, temperature)  # type: ignore[no-any-return]

    calls[x.ndim] = call
    return call


def map_staged(kernels: KernelSet, plan: RowPlan, target: Array) -> None:
    """The same through buffers filled by NumPy: other types, and rows that threads share."""

    def visit(block: Block) -> None:
        if plan.classes >= LONG:
            compute_all(kernels, block.x, block.x, block.temperatures)
        else:
            compute(kernels, block.x, block.x, block.temperatures)
        if block.present is not None and kernels.empty is not None:
            block.x[~block.present] = kernels.empty

    Staging(plan, visit, plan.compute_dtype, (), (target,), fill=None, in_place=True).run()


def can_write_directly(out: object, x: Any) -> bool:
    """May the kernels write to out as it lies, without a further look?"""
    return (
        type(out) is np.ndarray
        and out.dtype is x.dtype
        and out.shape == x.shape
        and out.flags.carray
        and (out is x or not np.may_share_memory(out, x))
    )


def overlaps(out: Array, plan: RowPlan) -> bool:
    """Would writing to out destroy what is still to be read? Not if out is x itself."""
    x, mask = plan.x, plan.where
    if mask is not None and np.may_share_memory(out, mask):
        return True
    same = out.ctypes.data == x.ctypes.data and out.strides == x.strides and out.dtype == x.dtype
    return bool(np.may_share_memory(out, x)) and not same


def reduce_rows(
    kernels: KernelSet,
    x: Any,
    axis: Axis,
    temperature: Any,
    where: object,
    keepdims: bool,
    out: object,
) -> Any:
    """A function with one result for each row."""
    if keepdims is not False:
        keepdims = as_bool(keepdims, "keepdims")
    if (
        type(x) is ndarray
        and axis is LAST
        and where is None
        and ((kind := x.dtype) is FLOAT32 or kind is FLOAT64 or is_half(x))
        and (x.flags.carray or is_readable(x))
        and (size := x.size) > 0
        and (dimensions := x.ndim)
        and (
            t := temperature
            if type(temperature) is float and temperature == temperature
            else direct_temperature(temperature, x)
        )
        is not None
        and out is None
        and not keepdims
    ):
        classes = x.shape[-1]
        half = kind is not FLOAT32 and kind is not FLOAT64
        numbers = empty(size // classes, FLOAT32 if half else kind)
        if x.nbytes > SMALL or type(t) is not float or half:
            compute_direct(kernels, x, numbers, t)
            if half:
                return result_or_out(numbers, x.shape[:-1], kind)
        else:
            if kind is FLOAT32:
                calls, known = _small_reduction32, kernels.addresses32
            else:
                calls, known = _small_reduction64, kernels.addresses64
            call = calls[dimensions] or small_call_of(calls, x, 1)
            address = known.get(classes) or route_of(kernels, kind is FLOAT32, classes)
            if not call(address, x, numbers, t):
                raise out_of_memory()
        if dimensions == 2:
            return numbers
        return numbers.reshape(x.shape[:-1]) if dimensions > 2 else numbers[0]
    plan = RowPlan(x, axis, temperature, where)
    shape = plan.reduced_shape if keepdims else plan.row_shape
    given = None if out is None else check_out(out, shape, plan.dtype)
    numbers = np.empty(plan.count, plan.compute_dtype)
    if plan.count == 0:
        pass
    elif plan.classes == 0 and kernels.empty is not None:
        numbers[:] = kernels.empty
    elif plan.classes == 0:  # as if there were one class, which is absent
        absent = np.where(np.signbit(plan.temperatures), np.inf, -np.inf)
        nothing = np.empty((plan.count, 1), plan.compute_dtype)
        nothing[:, 0] = absent
        compute(kernels, nothing, numbers, plan.temperatures)
    elif plan.is_direct:
        rows = plan.x.reshape(plan.count, plan.classes)
        compute_direct(kernels, rows, numbers, plan.temperatures)
    elif not compute_staged(kernels, plan, numbers):
        reduce_staged(kernels, plan, numbers)
    return result_or_out(numbers, shape, plan.dtype, given)


def reduce_staged(kernels: KernelSet, plan: RowPlan, numbers: Array) -> None:
    """The same through buffers."""

    def visit(block: Block) -> None:
        results = numbers[block.rows]
        if plan.classes >= LONG:
            compute_all(kernels, block.x, results, block.temperatures)
        else:
            compute(kernels, block.x, results, block.temperatures)
        if block.present is not None and kernels.empty is not None:
            results[~block.present] = kernels.empty

    Staging(plan, visit, plan.compute_dtype, fill=None).run()


def reduce_weighted(
    kernel: Callable[..., None],
    x: object,
    weights: object,
    axis: Axis,
    temperature: object,
    where: object,
    return_sign: bool,
    keepdims: bool,
    out: object,
) -> Any:
    """logsumexp with weights: x and weights broadcast against each other, as in scipy."""
    keepdims = as_bool(keepdims, "keepdims")
    (array, present), (factors, weighted) = split_mask(x), split_mask(weights, "weights")
    if weighted is not None:  # a class of weight 0 is not there
        factors = np.where(weighted, factors, 0)
    try:
        shape = np.broadcast_shapes(array.shape, factors.shape)
    except ValueError:
        raise ValueError(
            f"weights must broadcast against x, of shape {array.shape}, got shape {factors.shape}"
        ) from None
    plan = RowPlan(np.broadcast_to(array, shape), axis, temperature, where)
    if present is not None:
        plan.exclude(np.broadcast_to(present, shape))
    factors = np.broadcast_to(factors, shape)
    if plan.where is not None:
        factors = np.where(plan.where, factors, 0)
    row_shape = plan.reduced_shape if keepdims else plan.row_shape
    given = None if out is None else check_out(out, row_shape, plan.dtype)
    numbers, signs = np.full(plan.count, -np.inf), np.zeros(plan.count)

    def visit(block: Block) -> None:
        results = numbers[block.rows], signs[block.rows]
        kernel(block.x, *block.others, *results, block.temperatures, 0, len(block.x))

    plan.for_blocks(visit, FLOAT64, (factors,))
    if not return_sign:
        numbers[signs < 0] = np.nan  # the logarithm of a negative sum
    result = result_or_out(numbers, row_shape, plan.dtype, given)
    if not return_sign:
        return result
    return result, result_or_out(signs, row_shape, plan.dtype)
