"""Matrices packed into the panels that the kernels multiply by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.attention.gemm import are_finite, lanes_of, pack_columns, pack_rows
from hotmax._kernels.attention.scores import TILE_KEYS


def ready(array: Array, kind: np.dtype[Any]) -> bool:
    """Can a kernel read the array without a copy?"""
    return bool(array.dtype == kind and array.flags.carray)


def contiguous(array: Array, kind: np.dtype[Any]) -> Array:
    """The array if a kernel can read it, else a copy."""
    if ready(array, kind):
        return array
    with np.errstate(all="ignore"):
        return np.array(array, kind, order="C")


def in_parts(array: Array, kind: np.dtype[Any]) -> Iterator[tuple[slice, Array]]:
    """(rows, matrix) for the kernels: the whole matrix, or a copy of TILE_KEYS rows at a time."""
    if ready(array, kind):
        yield slice(0, len(array)), array
        return
    for first in range(0, len(array), TILE_KEYS):
        part = slice(first, min(first + TILE_KEYS, len(array)))
        yield part, contiguous(array[part], kind)


def packed_rows(array: Array, kind: np.dtype[Any], panels: Array | None = None) -> Array:
    """A (length, features) matrix, transposed, in panels (see _kernels/attention/gemm.py)."""
    length, features = array.shape
    lanes = lanes_of(kind)
    if panels is None:
        panels = np.empty((-(-length // lanes), features, lanes), kind)
    for part, rows in in_parts(array, kind):
        pack_rows(rows, panels[part.start // lanes : -(-part.stop // lanes)])
    return panels


def packed_columns(
    array: Array, kind: np.dtype[Any], panels: Array | None = None, finite: Array | None = None
) -> Array:
    """A (length, features) matrix in panels; `finite` gets whether each tile of keys is finite."""
    length, features = array.shape
    lanes = lanes_of(kind)
    if panels is None:
        panels = np.empty((-(-features // lanes), length, lanes), kind)
    for part, rows in in_parts(array, kind):
        pack_columns(rows, panels, part.start)
        if finite is not None:
            are_finite(rows, TILE_KEYS, finite[part.start // TILE_KEYS :])
    return panels
