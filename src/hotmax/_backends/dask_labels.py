"""Labels of dask arrays: in the blocks of their rows, checked when they are computed."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_class_numbers, as_ignored


def label_blocks(
    targets: Any,
    shape: tuple[int, ...],
    chunks: tuple[tuple[int, ...], ...],
    classes: int,
    ignore_index: object,
) -> da.Array:
    """Class numbers in blocks like those of the rows, -1 where they are ignored.

    An array in memory is checked at once. Of a lazy one only type and shape are: its numbers are
    checked in the blocks, with errors that name the block.
    """
    if not isinstance(targets, da.Array):
        numbers = as_class_numbers(targets, shape, classes, ignore_index)
        return da.from_array(numbers.reshape(shape), chunks=chunks)
    if ignore_index is not None:
        as_ignored(ignore_index)
    # Zeros without memory of their own: they stand for labels whose type or shape is wrong.
    same = targets.shape == shape
    some = tuple(min(n, 1) for n in shape) if same else targets.shape
    zeros = np.broadcast_to(np.zeros((), targets.dtype), some)
    as_class_numbers(zeros, some if same else shape, max(classes, 1))
    return targets.rechunk(chunks).map_blocks(
        checked_labels,
        classes=classes,
        ignore_index=ignore_index,
        dtype=np.int64,
        meta=np.empty((0,) * len(shape), np.int64),
    )


def checked_labels(
    labels: Array, *, classes: int, ignore_index: object, block_info: Any = None
) -> Array:
    try:
        numbers = as_class_numbers(labels, labels.shape, classes, ignore_index)
    except ValueError as error:
        place = block_info[0]["chunk-location"] if block_info else ()
        raise ValueError(f"block {place}: {error}") from None
    return numbers.reshape(labels.shape)
