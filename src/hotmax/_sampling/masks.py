"""Which classes are allowed: bools, or packed bits as grammar engines hand them over.

The row plan in `_core/rows.py` applies them.
"""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import Array, broadcast_mask, is_other_library
from hotmax._core.rows import RowPlan


def exclude_where(plan: RowPlan, where: object) -> None:
    """Leave out the classes of a plan that `where` forbids."""
    if where is None:
        return
    if not is_other_library(where) and _is_packed(where):
        plan.exclude(np.broadcast_to(unpacked(np.asarray(where), plan), plan.shape))
    else:
        plan.exclude(broadcast_mask(where, plan.shape, plan.name))


def _is_packed(where: object) -> bool:
    return (
        isinstance(where, np.ndarray)
        and where.dtype.kind in "iu"
        and not isinstance(where, np.ma.MaskedArray)
    )


def unpacked(bits: Array, plan: RowPlan) -> Array:
    """Bools of packed bits: bit b of word w is class w * (bits of a word) + b."""
    width = 8 * bits.itemsize
    words = -(-plan.classes // width)
    fits = bits.shape[-1:] == (words,) and plan.axes == (len(plan.shape) - 1,)
    if not fits or bits.ndim > len(plan.shape):
        raise TypeError(
            f"where must hold bools in the shape of {plan.name}, or along the last axis packed "
            f"bits, {words} words of {width} bits for {plan.classes} classes; got {bits.dtype} of "
            f"shape {bits.shape}"
        )
    little = np.ascontiguousarray(bits, bits.dtype.newbyteorder("<")).view(np.uint8)
    mask = np.unpackbits(little, axis=-1, count=plan.classes, bitorder="little").view(np.bool_)
    try:
        return np.broadcast_to(mask, plan.shape)
    except ValueError:
        raise ValueError(
            f"where must have packed bits for each row or for all, rows of shape "
            f"{plan.row_shape}, got shape {bits.shape}"
        ) from None
