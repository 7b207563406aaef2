"""Which kernel computes which rows, by their length and type, and on which threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core import rows as row_plan, threads
from hotmax._core.arrays import FLOAT32, FLOAT64, Array
from hotmax._core.rows import LONG, STEP, starts_at_lines
from hotmax._core.workspace import borrow, release
from hotmax._kernels.simd.memory import LINE_BYTES
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.softmax.columns import FACTS, SUMS
from hotmax._kernels.softmax.float32 import (
    FACTORS,
    L1_CHUNK,
    row_maximum,
    store_fence,
)
from hotmax._kernels.softmax.grouped import ROW_GROUP
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.overlapped import LONGEST_BUFFERED
from hotmax._kernels.softmax.rows import SUM_BLOCK, add_sums, block_sums
from hotmax._kernels.softmax.short import SHORT

GROUPED, GROUPED_CACHED = 255, 1023  # see `longest_grouped`
STREAM_ROW = 6144  # bytes of a row from which it is streamed: streaming holds up reads for a while


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one function of rows."""

    name: str
    rows: Callable[..., None]  # over many rows
    short: Callable[..., None]  # over short float32 rows, side by side
    lanes: Callable[..., None] | None  # over short float64 rows, side by side
    finish: Callable[..., Any] | None  # from maximum and sums: writes a block, or gives a number
    reduces: bool  # one number for each row, or one for each entry
    empty: float | None  # for a row with nothing allowed; None: as the kernel has it
    grouped: Callable[..., None] | None = None  # over float32 rows; scratch memory for a group
    overlapped: Callable[..., None] | None = None  # over longer ones; scratch memory for one row
    float64: Callable[..., None] | None = None  # over float64 rows; scratch memory for one row
    columns: Callable[..., bool] | None = None  # over float32 rows side by side, classes apart
    short_classes: int = SHORT  # up to which a float32 row is short


def compute(
    kernels: KernelSet,
    x2: Array,
    out: Array,
    temperature: Array,
    start: int,
    stop: int,
    streamed: bool = False,
) -> None:
    """Rows start..stop of a contiguous x2, in the calling thread."""
    classes = x2.shape[1]
    is_float32 = x2.dtype == FLOAT32
    if is_float32 and classes <= kernels.short_classes:
        kernels.short(x2, out, temperature, start, stop)
    elif kernels.lanes is None:
        kernels.rows(x2, out, temperature, start, stop)
    elif classes <= SHORT:
        kernels.lanes(x2, out, temperature, start, stop, np.empty(classes * LANES))
    elif is_float32 and kernels.grouped is not None and classes <= longest_grouped(x2):
        exps = np.empty((ROW_GROUP * -(-classes // LINE) + 1) * LINE, FLOAT32)
        kernels.grouped(x2, out, temperature, start, stop, exps, streamed)
    elif overlaps_rows(kernels, x2):
        cuts, turn = np.array([start, stop]), np.zeros(1, np.int64)
        compute_claimed(kernels, x2, out, temperature, cuts, turn, streamed)
    elif is_float32:
        kernels.rows(x2, out, temperature, start, stop, np.empty(L1_CHUNK, FLOAT32), streamed)
    elif kernels.float64 is not None and classes <= SUM_BLOCK:
        terms = borrow("exps", classes, FLOAT64)
        kernels.float64(x2, out, temperature, start, stop, terms, streamed)
        release("exps", terms)
    else:
        kernels.rows(x2, out, temperature, start, stop, None, streamed)


def longest_grouped(x2: Array) -> int:
    """Classes of the longest rows that are worth going in groups.

    A large array waits for memory, which groups do not hide.
    """
    return GROUPED_CACHED if x2.size <= STEP else GROUPED


def overlaps_rows(kernels: KernelSet, x2: Array) -> bool:
    """Is each row written while the next one is computed?"""
    return (
        kernels.overlapped is not None
        and x2.dtype == FLOAT32
        and longest_grouped(x2) < x2.shape[1] <= LONGEST_BUFFERED
    )


def compute_claimed(
    kernels: KernelSet,
    x2: Array,
    out: Array,
    temperature: Array,
    cuts: Array,
    turn: Array,
    streamed: bool,
) -> None:
    """The ranges of rows, from cut to cut, that the calling thread gets hold of before others."""
    exps = borrow("exps", x2.shape[1])
    kernels.overlapped(x2, out, temperature, cuts, turn, exps, streamed)  # type: ignore[misc]
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
    blocks = -(-n // SUM_BLOCK)
    tops, sums = np.empty(blocks), np.empty((blocks, 3))
    sign = x.dtype.type(np.copysign(1.0, temperature))

    is_float32 = x.dtype == FLOAT32

    def find_top(first: int, last: int) -> None:
        for b in range(first, last):
            tops[b] = row_maximum(x[b * SUM_BLOCK : (b + 1) * SUM_BLOCK], sign)

    def find_sums(first: int, last: int) -> None:
        exps = np.empty(L1_CHUNK, np.float32) if is_float32 else None
        for b in range(first, last):
            block = x[b * SUM_BLOCK : (b + 1) * SUM_BLOCK]
            sums[b] = block_sums(block, exps, m, temperature, block[:0])

    def write(first: int, last: int) -> None:
        part = slice(first * SUM_BLOCK, last * SUM_BLOCK)
        exps = np.empty(SUM_BLOCK, np.float32) if is_float32 else None
        finish(x[part], out[part], exps, m, temperature, total, streamed)
        store_fence()

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


def compute_all(kernels: KernelSet, x2: Array, out: Array, temperature: Array) -> None:
    """All rows of a contiguous x2, over threads."""
    rows, classes = x2.shape
    streamed = out.nbytes >= row_plan.STREAM and classes * out.itemsize >= STREAM_ROW
    if classes >= LONG and kernels.finish is not None:
        for r in range(rows):
            t = float(temperature[r if temperature.size > 1 else 0])
            number = compute_long(kernels.reduces, kernels.finish, x2[r], out[r], t, streamed)
            if kernels.reduces:
                with np.errstate(all="ignore"):
                    out[r] = number
        return

    def work(start: int, stop: int) -> None:
        compute(kernels, x2, out, temperature, start, stop, streamed)

    if x2.size <= STEP:
        work(0, rows)
        return
    least = max(STEP // classes, 1)
    cuts = threads.shrinking(rows, least, max(8 * STEP // classes, least))
    if overlaps_rows(kernels, x2):
        edges, turn = np.array(cuts), np.zeros(1, np.int64)

        def take_turns() -> bool:
            compute_claimed(kernels, x2, out, temperature, edges, turn, streamed)
            return bool(turn[0] < len(cuts) - 1)

        threads.together(take_turns, len(cuts) - 1)
    else:
        threads.for_cuts(work, cuts)


def compute_columns(
    columns: Callable[..., bool], x: Array, out: Array, temperature: float, streamed: bool
) -> bool:
    """Whole cache lines of columns as they lie; False, with nothing done, if it cannot be done."""
    width = x.shape[1]
    if width % (LINE_BYTES // 4):
        return False
    facts, sums = np.empty((FACTS + FACTORS, width), np.float32), np.empty((SUMS, width))
    return columns(x, out, temperature, facts, sums, streamed and starts_at_lines(out))
