"""penalize and add_bias: logits made smaller at tokens that came before, or changed at some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._core.arrays import Array, check_out, fill_masked, normalize_axes, result_type
from hotmax._core.checks import as_integer
from hotmax._core.rows import RowPlan
from hotmax._kernels.sampling.edits import count_tokens
from hotmax._sampling.edits import (
    Biases,
    Ragged,
    as_history,
    as_penalties,
    bias_lines,
    check_penalties,
)


@operation(IN_MEMORY)
def penalize(
    logits: object,
    tokens: object,
    *,
    offsets: object = None,
    repetition: object = 1.0,
    frequency: object = 0.0,
    presence: object = 0.0,
    axis: int = -1,
    out: object = None,
) -> Any:
    """Logits made smaller at tokens that came before.

    First a logit x of such a token becomes x / repetition if positive, else x * repetition; then
    frequency * count + presence is taken off.

    Args:
        logits: Logits of any shape.
        tokens: Those so far: a sequence of ints for all rows, or an array of ints in the shape of
            the rows, with one more dimension at the end. Numbers below 0 are padding. For a batch
            also a list with a sequence for each row, of any lengths.
        offsets: Where each row's tokens begin, and the end of the last, if `tokens` is one sequence
            that holds those of all rows one after the other.
        repetition: A number above 0, or one for each row; above 1 discourages.
        frequency: Taken off once for each time that a token came; or one for each row.
        presence: Taken off if it came at all; or one for each row.
        axis: The classes, one axis.
        out: An array of the shape of logits and the result's dtype to write to; it may be logits.

    Returns:
        Logits in the shape and float type of the input.

    Example:
        >>> import hotmax as hm
        >>> hm.penalize([2.0, -1.0, 0.5], [0, 1, 1], repetition=2.0, frequency=0.25)
        array([ 0.75, -2.5 ,  0.5 ])
        >>> hm.penalize([[2.0, 1.0], [2.0, 1.0]], [0, 1, 1], offsets=[0, 1, 3], presence=[0.5, 1.0])
        array([[1.5, 1. ],
               [2. , 0. ]])

    Reference:
        Keskar et al., CTRL, 2019 (repetition); the frequency and presence penalties are OpenAI's.
    """
    if not NATIVE.issuperset(
        map(type, (logits, tokens, offsets, repetition, frequency, presence, out))
    ):
        return dispatch(penalize, locals())
    given = check_penalties(
        {"repetition": repetition, "frequency": frequency, "presence": presence}
    )
    array = fill_masked(logits, "logits", -np.inf)
    result = _result_array(array, out)
    moved = np.moveaxis(np.atleast_1d(result), _one_axis(axis, result.ndim), -1)
    plan = RowPlan(np.broadcast_to(np.float64(0.0), moved.shape), -1)
    history = as_history(tokens, offsets, plan.row_shape, plan.classes)
    numbers = as_penalties(given, plan)
    rows, classes, counts = _counted(history, plan)
    _assign(result, array)
    at = (*np.unravel_index(rows, plan.row_shape), classes) if plan.row_shape else (classes,)
    factor, often, once = numbers[rows if len(numbers) > 1 else 0].T
    with np.errstate(all="ignore"):  # a number beyond the type is inf, without a word
        x = moved[at].astype(np.float64)
        scaled = np.where(x < 0, x * factor, x / factor)
        moved[at] = np.where(np.isinf(scaled), scaled, scaled - (often * counts + once))
    return result


def _counted(history: Ragged, plan: RowPlan) -> tuple[Array, Array, Array]:
    """(rows, classes, how often) of the tokens that came."""
    most = history.flat.size * (plan.count if len(history.bounds) == 1 else 1)
    found = np.empty((most, 3), np.int64)
    scratch = np.zeros(plan.classes, np.int64)
    number = count_tokens(history.flat, history.bounds, plan.count, scratch, found)
    return tuple(found[:number].T)


def _one_axis(axis: object, ndim: int) -> int:
    return normalize_axes(as_integer(axis, "axis"), max(ndim, 1))[0]


def _result_array(array: Array, out: object) -> Array:
    kind = result_type(array.dtype)
    return np.empty(array.shape, kind) if out is None else check_out(out, array.shape, kind)


def _assign(target: Array, array: Array) -> None:
    if target is not array:
        with np.errstate(all="ignore"):
            target[...] = array


@operation(IN_MEMORY)
def add_bias(
    logits: object, tokens: Biases | Sequence[Biases], *, axis: int = -1, out: object = None
) -> Any:
    """Logits with a number added to some classes.

    Args:
        logits: Logits of any shape.
        tokens: What to add to which class, as {class: number}; -inf forbids a class. A sequence of
            classes forbids them all. For logits of two dimensions also a list of such, one for each
            row.
        axis: The classes, one axis.
        out: An array of the shape of logits and the result's dtype to write to; it may be logits.

    Returns:
        Logits in the shape and float type of the input.

    Example:
        >>> import hotmax as hm
        >>> hm.add_bias([1.0, 2.0, 3.0], {0: 0.5, 2: float("-inf")})
        array([ 1.5,  2. , -inf])
        >>> hm.add_bias([1.0, 2.0, 3.0], [1])
        array([  1., -inf,   3.])
        >>> hm.add_bias([[1.0, 2.0], [1.0, 2.0]], [{1: 2.0}, {}])
        array([[1., 4.],
               [1., 2.]])
    """
    if not NATIVE.issuperset(map(type, (logits, tokens, out))):
        return dispatch(add_bias, locals())
    array = fill_masked(logits, "logits", -np.inf)
    result = _result_array(array, out)
    moved = np.moveaxis(np.atleast_1d(result), _one_axis(axis, result.ndim), -1)
    each = bias_lines(tokens, moved.shape[:-1], moved.shape[-1], "tokens")
    _assign(result, array)
    if len(each) == 1:
        _add(moved, each[0])
    else:
        for row, numbers in zip(moved, each, strict=True):
            _add(row, numbers)
    return result


def _add(logits: Array, numbers: dict[int, Any]) -> None:
    """Add a number to each class named. -inf forbids any; no other changes what is infinite."""
    for token, number in numbers.items():
        x = logits[..., token]
        with np.errstate(invalid="ignore", over="ignore"):
            shifted = np.where(np.isinf(x), x, x + number)
        logits[..., token] = -np.inf if number == -np.inf else shifted
