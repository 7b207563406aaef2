"""The row plan: an array of any layout as contiguous rows, with its mask applied, and the way back.

A contiguous float32 or float64 array with its classes last goes to the kernels as it is. Anything
else is staged: a block of rows at a time is copied into a small contiguous buffer, computed there
and written back, so that a mask, a stride or a half-precision type costs a little time and next to
no memory. Every function over rows uses this one loop; the softmax family does the same in compiled
code where it can, in `staged_rows.py`.

A mask is applied here: `Staging.stage` fills the classes that `where` excludes with -inf (inf below
temperature 0), which the kernels take for classes that are not there. `hide_masked` in
`_kernels/pool/staged.py` does the same in compiled code. Attention masks its own scores, in
`_kernels/attention/scores.py`; generic formulas mask in `_softmax/generic.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import (
    FLOAT32,
    FLOAT64,
    Array,
    Axis,
    as_temperature,
    broadcast_mask,
    compute_type,
    normalize_axes,
    result_type,
    split_mask,
    unlocked,
)
from hotmax._core.conversion import put
from hotmax._core.workspace import borrow, release
from hotmax._kernels.simd.memory import LINE_BYTES
from hotmax._kernels.simd.staging import mask_rows, transpose as transpose_into
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.short import SHORT

STEP = 1 << 18  # entries that one range of rows holds at least: some 150 microseconds of work
STAGE = 1 << 17  # entries of a staging buffer
COLUMNS = 3 << 18  # bytes of it where classes are strided: the wider, the fewer passes over memory
LONG = 1 << 20  # classes from which staged rows go one at a time, each shared among threads
STREAM = 1 << 23  # bytes from which a result is written past the caches


class Block(NamedTuple):
    """Some rows: what a kernel reads and writes, all contiguous and of one type."""

    x: Array  # (rows, classes)
    others: tuple[Array, ...]  # further inputs of the same shape
    outs: tuple[Array, ...]  # results for each entry
    rows: slice  # which rows of the plan these are
    temperatures: Array  # one for all, or one for each row
    present: Array | None  # with a mask: which rows have a class that is allowed


class RowPlan:
    """x as (outer, inner, classes), with its mask and one temperature for each row.

    Attributes:
        x, name: The values, never written to, and what the argument is called.
        axes: The axes of the classes, sorted and not negative.
        classes, count: How many classes a row has, and how many rows there are.
        row_shape: The shape of one number for each row; reduced_shape has 1 along the axes too.
        dtype, compute_dtype: The type of results, and the one that kernels compute in.
        temperatures: float64, one for all rows or one for each.
        where: Bools in the shape of x, or None.
        is_direct: May the kernels read x as it lies?
    """

    def __init__(
        self,
        x: object,
        axis: Axis,
        temperature: object = 1.0,
        where: object = None,
        name: str = "x",
    ) -> None:
        values, present = split_mask(x, name)
        self.name = name
        self.x = values if values.flags.writeable else unlocked(values)
        self.shape = shape = values.shape
        self.axes = axes = normalize_axes(axis, len(shape))
        self.row_shape = tuple(n for a, n in enumerate(shape) if a not in axes)
        self.reduced_shape = tuple(1 if a in axes else n for a, n in enumerate(shape))
        self.classes = math.prod(shape[a] for a in axes)
        self.count = math.prod(self.row_shape)
        is_float = values.dtype == FLOAT32 or values.dtype == FLOAT64
        self.dtype = values.dtype if is_float else result_type(values.dtype)
        self.compute_dtype = self.dtype if is_float else compute_type(values.dtype)
        if type(temperature) is float and temperature == temperature:
            self.temperatures = np.array([temperature])
        else:
            self.temperatures = self._per_row(as_temperature(temperature))
        self.where = None if where is None else broadcast_mask(where, shape, name)
        flags = values.flags
        self.is_direct = (
            where is None
            and is_float
            and flags.c_contiguous
            and flags.aligned
            and axes == tuple(range(len(shape) - len(axes), len(shape)))
        )
        if present is not None:
            self.exclude(present)

    def exclude(self, present: Array) -> None:
        """Leave out the classes where `present`, in the shape of x, is False."""
        self.where = present if self.where is None else present & self.where
        self.is_direct = False

    def set_temperature(self, temperature: Array) -> None:
        """Another temperature, which broadcasts to reduced_shape."""
        self.temperatures = self._per_row(temperature)

    def _per_row(self, temperature: Array) -> Array:
        if temperature.size == 1 and temperature.ndim <= self.x.ndim:
            return unlocked(temperature.reshape(1))
        try:
            broadcast = np.broadcast_to(temperature, self.reduced_shape)
        except ValueError:
            raise ValueError(
                f"temperature must be a number or broadcast to {self.reduced_shape} (the shape of "
                f"{self.name} with 1 along axis), got shape {temperature.shape}"
            ) from None
        return unlocked(np.ascontiguousarray(self.grid(broadcast, 1)).reshape(-1))

    def grid(self, array: Array, classes: int | None = None) -> Array:
        """`array` as (outer, inner, classes): no copy of a contiguous array if the axes adjoin.

        classes: 1 for an array of length 1 along each axis.
        """
        size = self.classes if classes is None else classes
        first, last = (self.axes[0], self.axes[-1]) if self.axes else (0, -1)
        if last - first + 1 == len(self.axes):
            outer, inner = math.prod(array.shape[:first]), math.prod(array.shape[last + 1 :])
            return array.reshape(outer, size, inner).transpose(0, 2, 1)
        return self.classes_last(array).reshape(1, self.count, size)

    def matrix(self, array: Array) -> Array:
        """`array` as (rows, classes): a copy unless the classes lie last."""
        return self.grid(array).reshape(self.count, self.classes)

    def classes_last(self, array: Array) -> Array:
        """A view of `array` with the axes of the classes last."""
        others = [a for a in range(array.ndim) if a not in self.axes]
        return array.transpose(*others, *self.axes)

    def write_back(self, rows: Array, target: Array) -> None:
        """target[...] = rows, which are in the order of the plan; the target is shaped like x."""
        view = self.classes_last(target)
        view[...] = rows.reshape(view.shape)

    @property
    def empty_rows(self) -> Array | None:
        """Which rows have no class that `where` allows; None without a mask or without classes."""
        if self.where is None or not self.classes:
            return None
        empty: Array = ~self.grid(self.where).any(axis=-1).reshape(-1)
        return empty

    def for_blocks(
        self,
        visit: Callable[[Block], None],
        dtype: np.dtype[Any] | None = None,
        others: Sequence[Array] = (),
        outs: Sequence[Array] = (),
        least: int = 1,
    ) -> None:
        """Call visit(block) until all rows are done, over threads.

        A class that `where` excludes is -inf in the block (inf, where T < 0), and 0 in every
        result.

        Args:
            visit: Computes one block.
            dtype: The type of all arrays in a block; None for compute_dtype.
            others, outs: Arrays in the shape of x, that are read and written beside it.
            least: Long rows that a block holds at least, if they share scratch memory.
        """
        if self.count == 0 or self.classes == 0:
            return
        kind = dtype or self.compute_dtype
        if not self.is_direct or not all(
            a.dtype == kind and a.flags.c_contiguous and a.flags.aligned
            for a in (self.x, *others, *outs)
        ):
            Staging(self, visit, kind, others, outs, fill=0.0).run()
            return
        shape = (self.count, self.classes)
        x2 = self.x.reshape(shape)
        others2 = [unlocked(a).reshape(shape) for a in others]
        outs2 = [a.reshape(shape) for a in outs]

        if x2.size <= STEP:
            rows = slice(0, self.count)
            visit(Block(x2, tuple(others2), tuple(outs2), rows, self.temperatures, None))
            return

        def work(start: int, stop: int) -> None:
            rows = slice(start, stop)
            temperatures = self.temperatures
            if temperatures.size > 1:
                temperatures = temperatures[rows]
            inputs, results = tuple(a[rows] for a in others2), tuple(a[rows] for a in outs2)
            visit(Block(x2[rows], inputs, results, rows, temperatures, None))

        step = max(rows_in_range(*shape), min(self.count // 8, least))
        threads.for_ranges(work, self.count, step)


class Staging:
    """The rows of a plan through small contiguous buffers, some at a time, over threads.

    fill: What results hold where the mask excludes a class; None for what `visit` computes.
    in_place: There is one result, and it is computed in the buffer of x.
    """

    def __init__(
        self,
        plan: RowPlan,
        visit: Callable[[Block], None],
        dtype: np.dtype[Any],
        others: Sequence[Array] = (),
        outs: Sequence[Array] = (),
        *,
        fill: float | None,
        in_place: bool = False,
    ) -> None:
        self.plan, self.visit, self.dtype = plan, visit, dtype
        self.targets, self.fill, self.in_place = outs, fill, in_place
        self.x, self.where = (
            plan.grid(plan.x),
            None if plan.where is None else plan.grid(plan.where),
        )
        self.others, self.outs = [plan.grid(a) for a in others], [plan.grid(a) for a in outs]
        if self.x.shape[1] == 1:  # make all rows one piece, instead of one piece for each row
            self.x = self.x.swapaxes(0, 1)
            self.where = None if self.where is None else self.where.swapaxes(0, 1)
            self.others = [a.swapaxes(0, 1) for a in self.others]
            self.outs = [a.swapaxes(0, 1) for a in self.outs]
        self.transposed = self.x.dtype == dtype and lies_side_by_side(self.x)
        entries = COLUMNS // dtype.itemsize if self.transposed else STAGE
        self.step = max(entries // max(plan.classes, 1), 1)
        self.streamed = bool(outs) and outs[0].nbytes >= STREAM

    def run(self) -> None:
        plan = self.plan
        if plan.classes >= LONG:
            for r in range(plan.count):
                self.work(r, r + 1)
        else:
            threads.for_ranges(self.work, plan.count, self.step)
        for out, target in zip(self.outs, self.targets, strict=True):
            if not np.may_share_memory(out, target):  # axes that do not adjoin: the grid is a copy
                plan.write_back(out, target)

    def work(self, start: int, stop: int) -> None:
        """Rows start..stop, in pieces that do not cross from one outer to the next."""
        inner = self.x.shape[1]
        while start < stop:
            outer, first = divmod(start, inner)
            last = min(first + stop - start, inner)
            start += last - first
            for begin in range(first, last, self.step):
                end = min(begin + self.step, last)
                rows = slice(outer * inner + begin, outer * inner + end)
                self.stage((outer, slice(begin, end)), rows)

    def stage(self, index: tuple[int, slice], rows: slice) -> None:
        """One block: gathered, masked, computed and written back."""
        source, temperatures = self.x[index], self.plan.temperatures
        if temperatures.size > 1:
            temperatures = temperatures[rows]
        buffer = borrow("stage", source.size, self.dtype).reshape(source.shape)
        if self.transposed:
            transpose_into(source.T, buffer, False)
        else:
            put(source, buffer)
        present = None
        if self.where is not None:
            mask, present = np.ascontiguousarray(self.where[index]), np.empty(len(buffer), np.bool_)
            absent = np.where(np.signbit(temperatures), np.inf, -np.inf).astype(self.dtype)
            mask_rows(buffer, mask, absent, present)
        others = tuple(load_rows(a[index], np.empty(source.shape, self.dtype)) for a in self.others)
        if self.in_place:
            results: tuple[Array, ...] = (buffer,)
        else:
            results = tuple(np.empty(source.shape, self.dtype) for _ in self.outs)
        self.visit(Block(buffer, others, results, rows, temperatures, present))
        for result, out in zip(results, self.outs, strict=True):
            if self.where is not None and self.fill is not None:
                result[~mask] = self.fill
            store_rows(result, out[index], self.streamed)
        release("stage", buffer)


def lies_side_by_side(array: Array) -> bool:
    """Whether rows are neighbours in memory, and the classes of each row are strided."""
    return array.shape[-2] > 1 and array.strides[-2] == array.itemsize


def starts_at_lines(array: Array) -> bool:
    """Whether each row begins at a cache line."""
    return array.ctypes.data % LINE_BYTES == 0 and array.strides[0] % LINE_BYTES == 0


def load_rows(source: Array, buffer: Array) -> Array:
    """buffer[...] = source, of another type or layout."""
    if source.dtype == buffer.dtype and lies_side_by_side(source):
        transpose_into(source.T, buffer, False)
    else:
        put(source, buffer)
    return buffer


def store_rows(result: Array, target: Array, streamed: bool) -> None:
    """target[...] = result; past the caches if it is streamed and the layout allows it."""
    if target.dtype == result.dtype and lies_side_by_side(target):
        transpose_into(result, target.T, streamed and starts_at_lines(target.T))
    else:
        put(result, target)


def rows_in_range(rows: int, classes: int) -> int:
    """Rows in one range: enough to be worth a thread, few enough to balance and to interrupt."""
    step = max(STEP // classes, min(rows // 32, 8 * STEP // classes), 1)
    return -(-step // LANES) * LANES if classes <= SHORT else step
