"""Rows of Dask arrays and frames, block by block, with what lies beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.base import compute, is_dask_collection
from dask.delayed import delayed

from hotmax._backends.dask_tasks import DaskRunner
from hotmax._core import threads
from hotmax._core.arrays import Array, refuse_masked


class RowBlocks(NamedTuple):
    """The blocks of a collection: consecutive rows."""

    blocks: Sequence[tuple[Any, Any, Any]]  # logits, labels, weights: lazy, arrays or None
    lengths: Sequence[int]
    classes: int
    dtype: Any
    name: str
    load: Callable[..., tuple[Any, ...]]  # the values of lazy arrays
    runner: Callable[..., Any]  # (work, parts, tell): see `calibration.passes`


def row_blocks(logits: Any, targets: Any, sample_weight: Any, name: str) -> RowBlocks:
    """The blocks of a Dask array or frame, with targets and weights beside them.

    Where the lengths of blocks are not known, each is counted first, which computes them once more.
    """
    x = as_dask_array(logits, "logits")
    if x.ndim != 2 or math.isnan(x.shape[1]):
        raise ValueError(f"logits must be a Dask array of shape (rows, classes), got {x.shape}")
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    lengths = block_lengths(x)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    labels = beside(targets, name, x, offsets)
    weights = beside(sample_weight, "sample_weight", x, offsets)
    blocks = zip(x.to_delayed()[:, 0], labels, weights, strict=True)
    return RowBlocks(
        [*blocks], lengths, int(x.shape[1]), x.dtype, "the Dask collection", loaded, DaskRunner()
    )


def loaded(*arrays: Any) -> tuple[Any, ...]:
    """The values of lazy arrays, in this process."""
    values: tuple[Any, ...] = compute(*arrays)
    return values


def as_dask_array(value: Any, name: str) -> Any:
    if hasattr(value, "to_dask_array"):
        return value.to_dask_array()
    if not hasattr(value, "to_delayed") or not hasattr(value, "chunks"):
        raise TypeError(f"{name} must be an array or a frame of Dask, got {type(value).__name__}")
    return value


def block_lengths(x: Any) -> list[int]:
    lengths = x.chunks[0]
    if any(math.isnan(length) for length in lengths):
        lengths = compute(*(delayed(len)(block) for block in x.to_delayed()[:, 0]))
    return [int(length) for length in lengths]


def beside(value: Any, name: str, x: Any, offsets: list[int]) -> list[Any]:
    """What belongs to each block of x: blocks of another collection, or slices of an array."""
    count = len(offsets) - 1
    if value is None:
        return [None] * count
    if not is_dask_collection(value):
        refuse_masked(value, name)
        array = np.asarray(value)
        if len(array) != offsets[-1]:
            raise ValueError(f"{name} must have {offsets[-1]} rows, got {len(array)}")
        return [array[offsets[i] : offsets[i + 1]] for i in range(count)]
    array = as_dask_array(value, name)
    known = not any(math.isnan(length) for length in (*array.chunks[0], *x.chunks[0]))
    if known:
        if array.shape[0] != offsets[-1]:
            raise ValueError(f"{name} must have {offsets[-1]} rows, got {array.shape[0]}")
        chunks = {0: x.chunks[0], **({1: -1} if array.ndim == 2 else {})}
        array = array.rechunk(chunks)
    elif len(array.chunks[0]) != count:
        raise ValueError(
            f"{name} must be cut into blocks as the logits are, whose lengths are not known: got "
            f"{len(array.chunks[0])} blocks beside {count}"
        )
    return list(array.to_delayed().reshape(count, -1)[:, 0])


def map_rows(function: Any, logits: Any, where: Any, classes: int) -> Any:
    """A function of rows on the blocks of a Dask array, lazily; errors name block and row."""
    x = as_dask_array(logits, "logits")
    if x.ndim != 2 or (x.shape[1] != classes and not math.isnan(x.shape[1])):
        raise ValueError(f"logits must have shape (rows, {classes}), got {x.shape}")
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    return x.map_blocks(
        mapped_block, function=function, where=where, dtype=np.float64, meta=np.empty((0, 0))
    )


def mapped_block(x: Any, function: Any, where: Any, block_info: Any = None) -> Array:
    if not len(x):
        return np.empty(x.shape)
    with threads.one_thread():
        try:
            result: Array = function(np.asarray(x), where=where)
        except ValueError as error:
            place = block_info[0]["chunk-location"][0] if block_info else 0
            raise ValueError(f"block {place}: {error}") from None
    return result
