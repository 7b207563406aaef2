"""Which kernel runs on which rows, and on which thread.

A contiguous array goes to its kernel as it is. Anything else is staged: some rows at a time are
gathered into a small contiguous buffer, computed, and put back, so that a mask, a stride or a
half-precision type costs a little time and next to no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import (
    FLOAT32,
    FLOAT64,
    Array,
    Axis,
    Rows,
    check_out,
    common_case,
    compute_type,
    give_back,
    split_mask,
)
from hotmax._core.conversion import put
from hotmax._core.workspace import borrow, release
from hotmax._kernels.simd.memory import LINE_BYTES
from hotmax._kernels.simd.staging import hide, turned
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.softmax.columns import FACTS, STRIP, SUMS
from hotmax._kernels.softmax.float32 import CHUNK, FACTORS, settle, top
from hotmax._kernels.softmax.grouped import GROUP
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.overlapped import KEEP
from hotmax._kernels.softmax.rows import BLOCK, add_sums, block_sums
from hotmax._kernels.softmax.short import SHORT

STEP = 1 << 18  # entries that one range of rows holds at least: some 150 microseconds of work
GROUPED, GROUPED_CACHED = 255, 1023  # see `longest_grouped`
STAGE = 1 << 17  # entries of a staging buffer
COLUMNS = 3 << 18  # bytes of it, if classes lie apart: the more side by side, the fewer visits
LONG = 1 << 20  # classes from which the blocks of one row are shared among threads
STREAM = 1 << 23  # bytes from which a result is written past the caches
STREAM_ROW = 6144  # and of a row: what is written past the caches holds up reading for a while


@dataclass(frozen=True)
class Operation:
    """The kernels of one function."""

    name: str
    rows: Callable[..., None]  # over many rows
    short: Callable[..., None]  # over short float32 rows, side by side
    lanes: Callable[..., None] | None  # over short float64 rows, side by side
    finish: Callable[..., Any] | None  # from maximum and sums: writes a block, or gives a number
    reduces: bool  # one number for each row, or one for each entry
    empty: float | None  # for a row with nothing allowed; None: as the kernel has it
    grouped: Callable[..., None] | None = None  # over float32 rows, with room for GROUP rows
    overlapped: Callable[..., None] | None = None  # over longer ones, with room for one row
    wide: Callable[..., None] | None = None  # over float64 rows, with room for one row
    columns: Callable[..., bool] | None = None  # over float32 rows side by side, classes apart
    short_classes: int = SHORT  # up to which a float32 row is short


def compute(
    operation: Operation,
    x2: Array,
    out: Array,
    temperature: Array,
    start: int,
    stop: int,
    streamed: bool = False,
) -> None:
    """Rows start..stop of a contiguous x2, in the calling thread."""
    classes = x2.shape[1]
    narrow = x2.dtype == FLOAT32
    if narrow and classes <= operation.short_classes:
        operation.short(x2, out, temperature, start, stop)
    elif operation.lanes is None:
        operation.rows(x2, out, temperature, start, stop)
    elif classes <= SHORT:
        operation.lanes(x2, out, temperature, start, stop, np.empty(classes * LANES))
    elif narrow and operation.grouped is not None and classes <= longest_grouped(x2):
        exps = np.empty((GROUP * -(-classes // LINE) + 1) * LINE, FLOAT32)
        operation.grouped(x2, out, temperature, start, stop, exps, streamed)
    elif overlaps_rows(operation, x2):
        cuts, turn = np.array([start, stop]), np.zeros(1, np.int64)
        compute_claimed(operation, x2, out, temperature, cuts, turn, streamed)
    elif narrow:
        operation.rows(x2, out, temperature, start, stop, np.empty(CHUNK, FLOAT32), streamed)
    elif operation.wide is not None and classes <= BLOCK:
        terms = borrow("exps", classes, FLOAT64)
        operation.wide(x2, out, temperature, start, stop, terms, streamed)
        release("exps", terms)
    else:
        operation.rows(x2, out, temperature, start, stop, None, streamed)


def longest_grouped(x2: Array) -> int:
    """Classes of the longest rows that are worth going in groups.

    A large array waits for memory, which groups do not hide.
    """
    return GROUPED_CACHED if x2.size <= STEP else GROUPED


def overlaps_rows(operation: Operation, x2: Array) -> bool:
    """Is each row written while the next one is computed?"""
    return (
        operation.overlapped is not None
        and x2.dtype == FLOAT32
        and longest_grouped(x2) < x2.shape[1] <= KEEP
    )


def compute_claimed(
    operation: Operation,
    x2: Array,
    out: Array,
    temperature: Array,
    cuts: Array,
    turn: Array,
    streamed: bool,
) -> None:
    """The ranges of rows, from cut to cut, that the calling thread gets hold of before others."""
    exps = borrow("exps", x2.shape[1])
    operation.overlapped(x2, out, temperature, cuts, turn, exps, streamed)  # type: ignore[misc]
    release("exps", exps)


def compute_long(
    reduces: bool,
    finish: Callable[..., Any],
    x: Array,
    out: Any,
    temperature: float,
    streamed: bool,
) -> Any:
    """One long row, its blocks over threads: the same steps, so the same bits, as in a kernel."""
    n = x.size
    blocks = -(-n // BLOCK)
    tops, sums = np.empty(blocks), np.empty((blocks, 3))
    sign = x.dtype.type(np.copysign(1.0, temperature))

    narrow = x.dtype == FLOAT32

    def find_top(first: int, last: int) -> None:
        for b in range(first, last):
            tops[b] = top(x[b * BLOCK : (b + 1) * BLOCK], sign)

    def find_sums(first: int, last: int) -> None:
        exps = np.empty(CHUNK, np.float32) if narrow else None
        for b in range(first, last):
            block = x[b * BLOCK : (b + 1) * BLOCK]
            sums[b] = block_sums(block, exps, m, temperature, block[:0])

    def write(first: int, last: int) -> None:
        part = slice(first * BLOCK, last * BLOCK)
        exps = np.empty(BLOCK, np.float32) if narrow else None
        finish(x[part], out[part], exps, m, temperature, total, streamed)
        settle()

    threads.for_ranges(find_top, blocks, 4)
    m = float(np.max(tops))
    threads.for_ranges(find_sums, blocks, 2)
    total = (0.0, 0.0, 0.0)
    for block in sums:
        total = add_sums(total, (block[0], block[1], block[2]))
    if reduces:
        return finish(m, temperature, total)
    threads.for_ranges(write, blocks, 2)
    return None


def compute_all(operation: Operation, x2: Array, out: Array, temperature: Array) -> None:
    """All rows of a contiguous x2, over threads."""
    rows, classes = x2.shape
    streamed = out.nbytes >= STREAM and classes * out.itemsize >= STREAM_ROW
    if classes >= LONG and operation.finish is not None:
        for r in range(rows):
            t = float(temperature[r if temperature.size > 1 else 0])
            number = compute_long(operation.reduces, operation.finish, x2[r], out[r], t, streamed)
            if operation.reduces:
                with np.errstate(all="ignore"):
                    out[r] = number
        return

    def work(start: int, stop: int) -> None:
        compute(operation, x2, out, temperature, start, stop, streamed)

    if x2.size <= STEP:
        work(0, rows)
        return
    least = max(STEP // classes, 1)
    cuts = threads.shrinking(rows, least, max(8 * STEP // classes, least))
    if overlaps_rows(operation, x2):
        edges, turn = np.array(cuts), np.zeros(1, np.int64)

        def take_turns() -> bool:
            compute_claimed(operation, x2, out, temperature, edges, turn, streamed)
            return bool(turn[0] < len(cuts) - 1)

        threads.together(take_turns, len(cuts) - 1)
    else:
        threads.for_cuts(work, cuts)


def range_of(rows: int, classes: int) -> int:
    """Rows in one range: enough to be worth a thread, few enough to balance and to interrupt."""
    step = max(STEP // classes, min(rows // 32, 8 * STEP // classes), 1)
    return -(-step // LANES) * LANES if classes <= SHORT else step


def pieces(start: int, stop: int, inner: int) -> Iterator[tuple[int, slice, slice]]:
    """Rows start..stop as (outer, inner rows, rows): none crosses from one outer to the next."""
    while start < stop:
        outer, first = divmod(start, inner)
        last = min(first + stop - start, inner)
        yield outer, slice(first, last), slice(start, start + last - first)
        start += last - first


def for_stages(work: Callable[[int, int], None], rows: Rows, step: int = 0) -> None:
    """Rows over threads in ranges of `step`, or as suits a staging buffer; long ones one by one."""
    if rows.classes >= LONG:
        for r in range(rows.count):
            work(r, r + 1)
    else:
        threads.for_ranges(work, rows.count, step or max(STAGE // max(rows.classes, 1), 1))


def is_beside(array: Array) -> bool:
    """Rows side by side in memory, their classes apart?"""
    return array.shape[-2] > 1 and array.strides[-2] == array.itemsize


def is_at_lines(array: Array) -> bool:
    """Does each row begin at a cache line?"""
    return array.ctypes.data % LINE_BYTES == 0 and array.strides[0] % LINE_BYTES == 0


def compute_columns(
    columns: Callable[..., bool], x: Array, out: Array, temperature: float, streamed: bool
) -> bool:
    """Whole cache lines of columns as they lie; False, with nothing done, if it cannot be done."""
    width = x.shape[1]
    if width % (LINE_BYTES // 4):
        return False
    facts, sums = np.empty((FACTS + FACTORS, width), np.float32), np.empty((SUMS, width))
    return columns(x, out, temperature, facts, sums, streamed and is_at_lines(out))


def run_staged(operation: Operation, rows: Rows, out3: Array) -> None:
    """Some rows at a time through a contiguous buffer."""
    kind = compute_type(rows.x.dtype)
    x3, where3, heat = rows.view(rows.x), rows.mask_view(), rows.temperature
    if x3.shape[1] == 1:  # all rows as one piece, instead of one piece for each
        x3, out3 = x3.swapaxes(0, 1), out3.swapaxes(0, 1)
        where3 = None if where3 is None else where3.swapaxes(0, 1)
    inner = x3.shape[1]
    beside = rows.x.dtype == kind and is_beside(x3)
    step = max((COLUMNS // kind.itemsize if beside else STAGE) // max(rows.classes, 1), 1)
    in_columns = operation.columns if kind == FLOAT32 and beside and where3 is None else None
    if in_columns is not None and (
        rows.classes <= SHORT or heat.size > 1 or out3.dtype != kind or not is_beside(out3)
    ):
        in_columns = None

    streamed = out3.nbytes >= STREAM

    def work(start: int, stop: int) -> None:
        for outer, part, _ in pieces(start, stop, inner):
            x, out = x3[outer, part].T, out3[outer, part].T
            if in_columns is None or not compute_columns(in_columns, x, out, heat[0], streamed):
                for first in range(part.start, part.stop, step):
                    here = slice(first, min(first + step, part.stop))
                    whole = outer * inner
                    t = heat if heat.size == 1 else heat[whole + here.start : whole + here.stop]
                    stage((outer, here), t)

    def stage(place: tuple[int, slice], temperature: Array) -> None:
        source, target = x3[place], out3[place]
        buffer = borrow("stage", source.size, kind).reshape(source.shape)
        if beside:
            turned(source.T, buffer, False)
        else:
            put(source, buffer)
        present = np.ones(len(buffer), np.bool_)
        if where3 is not None:
            absent = np.where(np.signbit(temperature), np.inf, -np.inf).astype(kind)
            hide(buffer, np.ascontiguousarray(where3[place]), absent, present)
        result = np.empty(target.shape, kind) if operation.reduces else buffer
        if rows.classes >= LONG:
            compute_all(operation, buffer, result, temperature)
        else:
            compute(operation, buffer, result, temperature, 0, len(buffer))
        if where3 is not None and operation.empty is not None:
            result[~present] = operation.empty
        if target.dtype == kind and target.ndim == 2 and is_beside(target):
            turned(result, target.T, streamed and is_at_lines(target.T))
        else:
            put(result, target)
        release("stage", buffer)

    for_stages(work, rows, step if in_columns is None else max(STRIP, step // STRIP * STRIP))


def map_entries(
    operation: Operation, x: object, axis: Axis, temperature: object, where: object, out: object
) -> Any:
    """A function with one result for each entry."""
    common = common_case(x, axis, temperature, where)
    if common is not None and (out is None or is_as_it_lies(out, x)):
        target: Array = np.empty(x.shape, x.dtype) if out is None else out  # type: ignore
        x2, heat = common
        compute_all(operation, x2, target.reshape(x2.shape), heat)
        return target
    rows = Rows(x, axis, temperature, where)
    given = check_out(out, rows.shape, rows.dtype)
    if given is not None and given.flags.carray and not overlaps(given, rows):
        target = given
    else:
        target = np.empty(rows.shape, rows.dtype)
    if target.size and rows.is_direct():
        shape = (rows.count, rows.classes)
        compute_all(operation, rows.x.reshape(shape), target.reshape(shape), rows.temperature)
    elif target.size:
        out3 = rows.view(target)
        run_staged(operation, rows, out3)
        if not np.may_share_memory(out3, target):  # axes that lie apart: the view was a copy
            turned = rows.turn(target)
            turned[...] = out3.reshape(turned.shape)
    if given is None:
        return target if target.ndim else target[()]
    if target is not given:
        given[...] = target
    return given


def is_as_it_lies(out: object, x: Any) -> bool:
    """May the kernels write to out as it lies, without a further look?"""
    return (
        type(out) is np.ndarray
        and out.dtype is x.dtype
        and out.shape == x.shape
        and out.flags.carray
        and (out is x or not np.may_share_memory(out, x))
    )


def overlaps(out: Array, rows: Rows) -> bool:
    """Would writing to out destroy what is still to be read? Not if out is x itself."""
    x, mask = rows.x, rows.where
    if mask is not None and np.may_share_memory(out, mask):
        return True
    same = out.ctypes.data == x.ctypes.data and out.strides == x.strides and out.dtype == x.dtype
    return bool(np.may_share_memory(out, x)) and not same


def reduce_rows(
    operation: Operation,
    x: object,
    axis: Axis,
    temperature: object,
    where: object,
    keepdims: bool,
    out: object,
) -> Any:
    """A function with one result for each row."""
    common = common_case(x, axis, temperature, where) if out is None and not keepdims else None
    if common is not None:
        numbers = np.empty(len(common[0]), common[0].dtype)
        compute_all(operation, common[0], numbers, common[1])
        return give_back(numbers, x.shape[:-1], numbers.dtype, None)  # type: ignore[attr-defined]
    rows = Rows(x, axis, temperature, where)
    shape = rows.shape_of_numbers(keepdims)
    given = check_out(out, shape, rows.dtype)
    numbers = np.empty(rows.count, compute_type(rows.x.dtype))
    if rows.classes == 0 and operation.empty is not None:
        numbers[:] = operation.empty
    elif rows.is_direct():
        x2 = rows.x.reshape(rows.count, rows.classes)
        compute_all(operation, x2, numbers, rows.temperature)
    else:
        run_staged(operation, rows, numbers.reshape(rows.view(rows.x).shape[:2]))
    return give_back(numbers, shape, rows.dtype, given)


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
    (array, present), (factor, weighed) = split_mask(x), split_mask(weights, "weights")
    if weighed is not None:  # a class of weight 0 is not there
        factor = np.where(weighed, factor, 0)
    try:
        together = np.broadcast_shapes(array.shape, factor.shape)
    except ValueError:
        raise ValueError(
            f"weights must broadcast against x, of shape {array.shape}, got shape {factor.shape}"
        ) from None
    spread = np.broadcast_to(array, together)
    if present is not None:
        spread = np.ma.MaskedArray(spread, ~np.broadcast_to(present, together))
    rows = Rows(spread, axis, temperature, where)
    shape = rows.shape_of_numbers(keepdims)
    given = check_out(out, shape, rows.dtype)
    x3, weights3 = rows.view(rows.x), rows.view(np.broadcast_to(factor, together))
    where3, heat = rows.mask_view(), rows.temperature
    numbers, signs = np.empty(rows.count), np.empty(rows.count)

    def work(start: int, stop: int) -> None:
        for outer, part, those in pieces(start, stop, x3.shape[1]):
            row = x3[outer, part].astype(np.float64, order="C")
            factors = weights3[outer, part].astype(np.float64, order="C")
            if where3 is not None:
                factors[~where3[outer, part]] = 0.0
            t = heat if heat.size == 1 else heat[those]
            kernel(row, factors, numbers[those], signs[those], t, 0, len(row))

    for_stages(work, rows)
    if not return_sign:
        numbers[signs < 0] = np.nan  # the logarithm of a negative sum
    result = give_back(numbers, shape, rows.dtype, given)
    return (result, give_back(signs, shape, rows.dtype, None)) if return_sign else result
