"""Rows of other types and layouts in compiled code: through buffers, by the same kernels.

What `_kernels/pool/staged.py` reads: native float16, bfloat16, float32 and float64 with any axis,
gaps and masks. Other types, and rows so long that threads share each, go through `rows.Staging`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._core import rows as row_plan
from hotmax._core.arrays import Array
from hotmax._core.kernel_choice import STREAM_ROW, KernelSet, address_of_columns, known_address
from hotmax._core.rows import LONG, RowPlan
from hotmax._core.shared_rows import share_staged
from hotmax._kernels.pool.staged import BFLOAT16, FLOAT16, SAME, staged64_job, staged_job
from hotmax._kernels.simd.vectors import LINE

NEAR = 1 << 14  # entries of a block: they stay in the first two levels of the cache
NEAR_COLUMNS = 1 << 16  # the same of strided classes: wide, so that whole cache lines are read
TYPES = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": SAME, "float64": SAME}
UINT8, UINT16 = np.dtype(np.uint8), np.dtype(np.uint16)
NO_MASK = np.empty((0, 0, 0), UINT8)

_types: dict[np.dtype[Any], int | None] = {}


def type_of(dtype: np.dtype[Any]) -> int | None:
    """What compiled code calls a type, 0 for its own; None if it does not read it."""
    try:
        return _types[dtype]
    except KeyError:
        found = _types[dtype] = TYPES.get(dtype.name) if dtype.isnative else None
        return found


def compute_staged(kernels: KernelSet, plan: RowPlan, results: Array) -> bool:
    """All rows of a plan over threads; False, with nothing done, if compiled code cannot read them.

    results: In the shape of x, contiguous and in its type; or one number for each row.
    """
    x, mask, kind = plan.x, plan.where, type_of(plan.x.dtype)
    if kind is None or plan.classes >= LONG or not x.flags.aligned:
        return False
    if min(x.strides, default=0) < 0 or (mask is not None and min(mask.strides, default=0) < 0):
        return False
    grid = plan.grid(x)
    out = results.reshape((*grid.shape[:2], 1)) if kernels.reduces else plan.grid(results)
    masked = NO_MASK if mask is None else plan.grid(mask).view(UINT8)
    share(kernels, kind, grid, out, masked, plan.temperatures)
    if not kernels.reduces and not np.may_share_memory(out, results):
        plan.write_back(out, results)  # axes that do not adjoin: the grid is a copy
    return True


def compute_halves(
    kernels: KernelSet, kind: int, x: Array, results: Array, temperature: float | Array
) -> None:
    """All rows of contiguous halves with the classes last."""
    shape = (-1, 1, x.shape[-1])
    out = results.reshape((-1, 1, 1) if kernels.reduces else shape)
    temperatures = np.array([temperature]) if type(temperature) is float else temperature
    share(kernels, kind, x.reshape(shape), out, NO_MASK, temperatures)


def share(
    kernels: KernelSet, kind: int, x: Array, out: Array, mask: Array, temperatures: Any
) -> None:
    """Rows as (outer, inner, classes) over threads, in blocks that stay in the cache."""
    classes, itemsize = x.shape[2], x.itemsize
    is_float32 = itemsize < 8
    columns = x.strides[2] != itemsize and adjoin(x)
    if columns:
        block, least = max(NEAR_COLUMNS // classes & -LINE, LINE), LINE
    else:
        block, least = max(NEAR // classes, 1), 1
        block = block & -LINE if block > LINE else block
    streamed = out.nbytes >= row_plan.STREAM and (columns or classes * out.itemsize >= STREAM_ROW)
    lies_ready = out.itemsize > 2 and out.flags.c_contiguous
    own = 1 if kernels.reduces else classes if lies_ready else 0  # written by the kernel itself
    columns_address = 0
    if columns and not kind and not mask.size and (kernels.reduces or adjoin(out)):
        columns_address = address_of_columns(kernels, is_float32, classes)
    if itemsize == 2:
        x = x.view(UINT16)
        out = out if kernels.reduces else out.view(UINT16)
    share_staged(
        (staged_job if is_float32 else staged64_job).address,
        known_address(kernels, is_float32, classes),
        columns_address,
        x,
        out,
        mask,
        temperatures,
        kind,
        block,
        least,
        streamed,
        own,
        math.nan if kernels.empty is None else kernels.empty,
    )


def adjoin(rows: Array) -> bool:
    """Are rows neighbours in memory? With one inner row, outer ones count as inner."""
    return rows.strides[1 if rows.shape[1] > 1 else 0] == rows.itemsize
