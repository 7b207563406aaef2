"""Which kernel computes which rows, by their length and type, and on which threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._core import rows as row_plan, threads
from hotmax._core.arrays import FLOAT32, Array
from hotmax._core.rows import LONG
from hotmax._core.shared_rows import out_of_memory, share_rows
from hotmax._kernels.compiler.compiling import Entry
from hotmax._kernels.pool.calls import alone_call
from hotmax._kernels.softmax.float32 import (
    L1_CHUNK,
    row_maximum,
    store_fence,
)
from hotmax._kernels.softmax.rows import SUM_BLOCK, add_sums, block_sums

ANY_LENGTH = sys.maxsize
MOST_KNOWN = 1000  # lengths of rows whose kernels are remembered
STREAM_ROW = 6144  # bytes of a row from which it is streamed: streaming holds up reads for a while

Routes = tuple[tuple[int, Entry], ...]  # the longest row in classes, and the kernel up to there


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one function of rows."""

    name: str
    float32: Routes
    float64: Routes
    finish: Callable[..., Any] | None  # from maximum and sums: writes a block, or gives a number
    reduces: bool  # one number for each row, or one for each entry
    empty: float | None  # for a row with nothing allowed; None: as the kernel has it
    # Over rows side by side whose classes are strided; none for lengths past the last.
    columns32: Routes = ()
    columns64: Routes = ()
    # Addresses of kernels by the length of rows, as calls come by.
    addresses32: dict[int, int] = field(default_factory=dict)
    addresses64: dict[int, int] = field(default_factory=dict)


def address_of_kernel(kernels: KernelSet, x: Array) -> int:
    """The kernel for the rows of x."""
    # By size: arrays that were pickled have types that equal FLOAT32 and are other objects.
    is_float32 = x.itemsize == 4
    return known_address(kernels, is_float32, x.shape[-1])


def known_address(kernels: KernelSet, is_float32: bool, classes: int) -> int:
    known = kernels.addresses32 if is_float32 else kernels.addresses64
    return known.get(classes) or route_of(kernels, is_float32, classes)


def route_of(kernels: KernelSet, is_float32: bool, classes: int) -> int:
    """The address of the kernel for float32 or float64 rows of this length."""
    for longest, entry in kernels.float32 if is_float32 else kernels.float64:
        if classes <= longest:
            known = kernels.addresses32 if is_float32 else kernels.addresses64
            if len(known) < MOST_KNOWN:
                known[classes] = entry.address
            return entry.address
    raise AssertionError(kernels.name)  # the last kernel takes rows of any length


def address_of_columns(kernels: KernelSet, is_float32: bool, classes: int) -> int:
    """The kernel for columns of this length; 0 if there is none."""
    for longest, entry in kernels.columns32 if is_float32 else kernels.columns64:
        if classes <= longest:
            return entry.address
    return 0


def compute(kernels: KernelSet, x2: Array, out: Array, temperatures: Array) -> None:
    """All rows of a contiguous x2, in the calling thread; one temperature for all or for each."""
    call = alone_call(x2.dtype, x2.ndim, out.ndim, per_row=True)
    if not call(address_of_kernel(kernels, x2), x2, out, temperatures):
        raise out_of_memory()


def compute_all(kernels: KernelSet, x2: Array, out: Array, temperature: Array | float) -> None:
    """All rows of a contiguous x2, over threads."""
    classes = x2.shape[-1]
    streamed = out.nbytes >= row_plan.STREAM and classes * out.itemsize >= STREAM_ROW
    if classes >= LONG and kernels.finish is not None:
        compute_long_rows(kernels, x2, out, temperature, streamed)
        return
    share_rows(address_of_kernel(kernels, x2), x2, out, temperature, streamed)


def compute_long_rows(
    kernels: KernelSet, x2: Array, out: Array, temperature: Array | float, streamed: bool
) -> None:
    """One long row after the other, each over threads."""
    classes = x2.shape[-1]
    rows = x2.reshape(-1, classes)
    results = out if kernels.reduces else out.reshape(rows.shape)
    temperatures = np.broadcast_to(temperature, len(rows))
    for r, t in enumerate(temperatures.tolist()):
        number = compute_long(kernels.reduces, kernels.finish, rows[r], results[r], t, streamed)  # type: ignore[arg-type]
        if kernels.reduces:
            with np.errstate(all="ignore"):
                results[r] = number


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
