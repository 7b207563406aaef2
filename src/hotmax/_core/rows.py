"""Some rows at a time to a kernel that reads and writes several arrays.

Losses and derivatives read logits beside a second array of their shape (probabilities, a
direction), and write results for each entry beside numbers for each row. As in `_dispatch`, a
contiguous array is passed on as it is, and anything else goes through a small contiguous buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import Array, Rows
from hotmax._core.conversion import put
from hotmax._core.dispatch import STEP, for_stages, is_beside, pieces, range_of
from hotmax._kernels.simd.staging import turned


@dataclass(frozen=True)
class Batch:
    """Some rows: what a kernel reads and writes, all contiguous."""

    x: Array  # (rows, classes)
    others: tuple[Array, ...]  # further inputs of the same shape
    outs: tuple[Array, ...]  # results for each entry
    numbers: slice  # which of all rows these are
    temperature: Array  # one for all, or one for each row


def for_batches(
    rows: Rows,
    visit: Callable[[Batch], None],
    kind: np.dtype[Any],
    others: Sequence[Array] = (),
    outs: Sequence[Array] = (),
) -> None:
    """Call visit(batch) until all rows are done, over threads; arrays in it are of type `kind`.

    A class that `where` excludes is -inf in the batch (inf, where T < 0), and 0 in every result.
    """
    if rows.count == 0 or rows.classes == 0:
        return
    arrays = [rows.x, *others, *outs]
    if rows.is_direct() and all(
        a.dtype == kind and a.flags.c_contiguous and a.flags.aligned for a in arrays
    ):
        _direct(rows, visit, others, outs)
    else:
        _staged(rows, visit, kind, others, outs)


def _direct(
    rows: Rows, visit: Callable[[Batch], None], others: Sequence[Array], outs: Sequence[Array]
) -> None:
    shape, heat = (rows.count, rows.classes), rows.temperature
    x2 = rows.x.reshape(shape)
    others2, outs2 = ([a.reshape(shape) for a in group] for group in (others, outs))

    def work(start: int, stop: int) -> None:
        these = slice(start, stop)
        visit(
            Batch(
                x2[these],
                tuple(a[these] for a in others2),
                tuple(a[these] for a in outs2),
                these,
                heat if heat.size == 1 else heat[these],
            )
        )

    if x2.size <= STEP:
        work(0, rows.count)
    else:
        threads.for_ranges(work, rows.count, range_of(*shape))


def _staged(
    rows: Rows,
    visit: Callable[[Batch], None],
    kind: np.dtype[Any],
    others: Sequence[Array],
    outs: Sequence[Array],
) -> None:
    heat, where3 = rows.temperature, rows.mask_view()
    x3, others3, outs3 = ([rows.view(a) for a in group] for group in ([rows.x], others, outs))

    def work(start: int, stop: int) -> None:
        for outer, part, numbers in pieces(start, stop, x3[0].shape[1]):
            stage((outer, part), numbers, heat if heat.size == 1 else heat[numbers])

    def stage(place: tuple[int, slice], numbers: slice, temperature: Array) -> None:
        x = _fetch(x3[0][place], kind)
        if where3 is not None:  # a masked entry becomes one that is not there
            absent = np.where(np.signbit(temperature), np.inf, -np.inf)[:, None]
            np.copyto(x, absent, where=~where3[place], casting="same_kind")
        results = tuple(np.empty(x.shape, kind) for _ in outs3)
        visit(
            Batch(x, tuple(_fetch(a[place], kind) for a in others3), results, numbers, temperature)
        )
        for result, out3 in zip(results, outs3, strict=True):
            if where3 is not None:
                result[~where3[place]] = 0.0
            _store(result, out3[place])

    for_stages(work, rows)
    for out3, out in zip(outs3, outs, strict=True):
        if not np.may_share_memory(out3, out):  # axes that lie apart: the view was a copy
            turned = rows.turn(out)
            turned[...] = out3.reshape(turned.shape)


def _fetch(source: Array, kind: np.dtype[Any]) -> Array:
    buffer = np.empty(source.shape, kind)
    if source.dtype == kind and is_beside(source):
        turned(source.T, buffer, False)
    else:
        put(source, buffer)
    return buffer


def _store(result: Array, target: Array) -> None:
    if target.dtype == result.dtype and is_beside(target):
        turned(result, target.T, False)
    else:
        put(result, target)
