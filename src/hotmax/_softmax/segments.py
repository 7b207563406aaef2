"""Softmax and logsumexp over groups of entries: ragged, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import LABELS, NATIVE, dispatch, operation
from hotmax._core.arrays import FLOAT64, Array, as_array
from hotmax._core.checks import as_integer, check_segments
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.softmax.segments import (
    segment_logsumexp_rows,
    segment_softmax_rows,
)
from hotmax._softmax import generic_derivatives


def _segments(
    x: object,
    segment_ids: object,
    num_segments: object,
    axis: object,
    temperature: object,
    where: object,
) -> tuple[RowPlan, Array, Array]:
    plan = RowPlan(x, as_integer(axis, "axis"), temperature, where)
    ids = as_array(segment_ids, "segment_ids")
    return plan, *check_segments(ids, plan.classes, num_segments)


@operation(LABELS, generic_derivatives.segment_softmax)
def segment_softmax(
    x: object,
    segment_ids: object,
    *,
    num_segments: int | None = None,
    axis: int = -1,
    temperature: object = 1.0,
    where: object = None,
) -> Any:
    """Softmax within groups: exp(x / T) over the sum of exp(x / T) of the entry's own group.

    Args:
        x, temperature, where: As in `softmax`.
        segment_ids: Integers, one for each entry along `axis`: the groups, in any order.
        num_segments: How many groups there are, if the last ones are empty.
        axis: The entries: an int.

    Returns:
        Probabilities in the shape and float type of x, which add up to 1 over each group.

    Example:
        >>> import hotmax as hm
        >>> hm.segment_softmax([0.0, 5.0, 0.0, 1.0], [0, 1, 0, 1]).round(4)
        array([0.5  , 0.982, 0.5  , 0.018])

    The same in NumPy, as long as nothing overflows:
        np.exp(x / T) / (np.exp(x / T) @ (ids[:, None] == ids))
    """
    if type(x) not in NATIVE:
        return dispatch(segment_softmax, locals())
    plan, order, starts = _segments(x, segment_ids, num_segments, axis, temperature, where)
    out = np.empty(plan.shape, plan.dtype)

    def visit(block: Block) -> None:
        segment_softmax_rows(block.x, order, starts, *block.outs, block.temperatures)

    plan.for_blocks(visit, FLOAT64, outs=(out,))
    return out if out.ndim else out[()]


@operation(LABELS, generic_derivatives.segment_logsumexp)
def segment_logsumexp(
    x: object,
    segment_ids: object,
    *,
    num_segments: int | None = None,
    axis: int = -1,
    temperature: object = 1.0,
    where: object = None,
) -> Any:
    """log sum exp(x / T) of each group; -inf for a group without entries.

    Args:
        x, segment_ids, axis, temperature, where: As in `segment_softmax`.
        num_segments: How many groups there are; one more than the largest id, if not given.

    Returns:
        The shape and float type of x, with `axis` holding the groups.

    Example:
        >>> import hotmax as hm
        >>> hm.segment_logsumexp([0.0, 5.0, 0.0], [0, 2, 0]).round(4)
        array([0.6931,   -inf, 5.    ])

    The same in NumPy, as long as nothing overflows:
        np.log(np.exp(x / T) @ (ids[:, None] == np.arange(ids.max() + 1)))
    """
    if type(x) not in NATIVE:
        return dispatch(segment_logsumexp, locals())
    plan, order, starts = _segments(x, segment_ids, num_segments, axis, temperature, where)
    values = np.full((plan.count, starts.size - 1), -np.inf)

    def visit(block: Block) -> None:
        part = values[block.rows]
        segment_logsumexp_rows(block.x, order, starts, part, block.temperatures)

    plan.for_blocks(visit, FLOAT64)
    with np.errstate(all="ignore"):
        result = values.astype(plan.dtype).reshape(*plan.row_shape, starts.size - 1)
    return np.moveaxis(result, -1, plan.axes[0]) if plan.axes else result
