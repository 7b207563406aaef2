"""Log-probabilities of the likeliest classes, or of those chosen, in one visit to a row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotmax._backends.operation import NATIVE, VALUES, dispatch, operation
from hotmax._core.arrays import FLOAT32, Array, Axis, result_or_out, split_mask
from hotmax._core.checks import as_integer
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.sampling.logprobs import chosen_logprob_rows, top_logprob_rows
from hotmax._kernels.softmax.float32 import L1_CHUNK
from hotmax._sampling.drawing import ROWS_TOGETHER, plan_rows


class TopLogprobs(NamedTuple):
    """The likeliest classes of each row.

    Attributes:
        logprobs: Log-probabilities, (..., k), the largest first, in the float type of the logits.
        tokens: Their classes, int64. Of equal ones the first comes first.
    """

    logprobs: Any
    tokens: Any


class ChosenLogprobs(NamedTuple):
    """What the model thinks of tokens.

    Attributes:
        logprobs: Their log-probabilities, in the shape of the tokens; nan where there is none.
        ranks: 1 for the likeliest class, int64; equal ones share the better rank; 0 where there is
            none.
    """

    logprobs: Any
    ranks: Any


def _scratch(plan: RowPlan) -> Array | None:
    return np.empty(L1_CHUNK, np.float32) if plan.compute_dtype == FLOAT32 else None


@operation(VALUES)
def top_logprobs(
    logits: object,
    k: int,
    *,
    temperature: object = 1.0,
    where: object = None,
    axis: Axis = -1,
) -> TopLogprobs:
    """The k largest of log_softmax(logits / T) in each row, and their classes.

    Each row is read once, and nothing of its length is written. The numbers are as
    exact as those of `log_softmax`, also where one class is nearly certain.

    Args:
        logits: As x in `softmax`.
        k: How many, from 1 to the number of classes.
        temperature: As in `softmax`, or of shape (rows,).
        where: As in `sample`: bools or packed bits.
        axis: As in `softmax`.

    Returns:
        TopLogprobs(logprobs, tokens), in the shape of logits without `axis` and with k at the end.

    Example:
        >>> import hotmax as hm
        >>> logprobs, tokens = hm.top_logprobs([[0.0, 40.0, -1.0]], 2)
        >>> tokens, logprobs
        (array([[1, 0]]), array([[-5.81123644e-18, -4.00000000e+01]]))

    The same in NumPy, as long as nothing overflows or is lost:
        (-np.sort(-x / T)[:, :k] - np.log(np.exp(x / T).sum(-1, keepdims=True)),
        np.argsort(-x)[:, :k])
    """
    if not NATIVE.issuperset(map(type, (logits, k, temperature, where))):
        return dispatch(top_logprobs, locals())
    plan = plan_rows(logits, axis, temperature, where)
    count = as_integer(k, "k", 1)
    if count > plan.classes:
        raise ValueError(f"k must be at most the number of classes, {plan.classes}, got {count}")
    logs = np.empty((plan.count, count), plan.compute_dtype)
    tokens = np.empty((plan.count, count), np.int64)

    def visit(block: Block) -> None:
        part, rows = (logs[block.rows], tokens[block.rows]), block.rows
        top_logprob_rows(block.x, part[1], part[0], block.temperatures, _scratch(plan))
        if block.present is not None:
            logs[rows][~block.present] = -np.inf

    plan.for_blocks(visit, least=ROWS_TOGETHER)
    shape = (*plan.row_shape, count)
    return TopLogprobs(result_or_out(logs, shape, plan.dtype), tokens.reshape(shape))


@operation(VALUES)
def chosen_logprobs(
    logits: object,
    tokens: object,
    *,
    temperature: object = 1.0,
    where: object = None,
    axis: Axis = -1,
) -> ChosenLogprobs:
    """log_softmax(logits / T) at the given classes, and how many are likelier.

    Args:
        logits: As x in `softmax`.
        tokens: Classes, integers in the shape of logits without `axis`, or with several for each
            row in one more dimension at the end. One below 0 is none.
        temperature, where, axis: As in `top_logprobs`.

    Returns:
        ChosenLogprobs(logprobs, ranks), in the shape of tokens.

    Example:
        >>> import hotmax as hm
        >>> logprobs, ranks = hm.chosen_logprobs([[0.0, 40.0, -1.0], [1.0, 1.0, 3.0]], [1, 0])
        >>> ranks.tolist(), logprobs
        ([1, 2], array([-5.81123644e-18, -2.23954477e+00]))

    The same in NumPy, as long as nothing overflows or is lost:
        (x[np.arange(len(y)), y] / T - np.log(np.exp(x / T).sum(-1)),
        1 + (x > x[np.arange(len(y)), y, None]).sum(-1))
    """
    if not NATIVE.issuperset(map(type, (logits, tokens, temperature, where))):
        return dispatch(chosen_logprobs, locals())
    plan = plan_rows(logits, axis, temperature, where)
    chosen = as_chosen(tokens, plan)
    logs = np.empty(chosen.shape, plan.compute_dtype)
    ranks = np.empty(chosen.shape, np.int64)
    shape: tuple[int, ...] = np.shape(tokens)  # type: ignore[call-overload]

    def visit(block: Block) -> None:
        rows = block.rows
        chosen_logprob_rows(
            block.x, chosen[rows], logs[rows], ranks[rows], block.temperatures, _scratch(plan)
        )
        if block.present is not None:
            logs[rows][~block.present[:, None] & (chosen[rows] >= 0)] = -np.inf

    if plan.classes:
        plan.for_blocks(visit, least=ROWS_TOGETHER)
    else:
        logs[:], ranks[:] = np.nan, 0
    return ChosenLogprobs(
        result_or_out(logs, shape, plan.dtype), result_or_out(ranks, shape, np.int64)
    )


def as_chosen(tokens: object, plan: RowPlan) -> Array:
    """Classes as (rows, how many for each); -1 where there is none, or where it is masked."""
    array, present = split_mask(tokens, "tokens")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"tokens must hold ints, the numbers of classes, got {array.dtype}")
    depth = len(plan.row_shape)
    if array.shape[:depth] != plan.row_shape or array.ndim > depth + 1:
        raise ValueError(
            f"tokens must have the shape of the rows, {plan.row_shape}, or several for each row at "
            f"the end, got shape {array.shape}"
        )
    if present is not None:
        array = np.where(present, array, -1)
    if array.size and int(array.max()) >= plan.classes:
        at = np.unravel_index(int(np.argmax(array)), array.shape)[:depth]
        row = int(at[0]) if depth == 1 else tuple(map(int, at))
        place = f" in row {row}" if depth else ""
        raise ValueError(
            f"tokens must be below the number of classes, {plan.classes}, got "
            f"{int(array.max())}{place}"
        )
    size = int(np.prod(array.shape[depth:]))
    signed = array.astype(np.int64) if array.dtype != np.int64 else array
    return np.ascontiguousarray(signed).reshape(plan.count, size)
