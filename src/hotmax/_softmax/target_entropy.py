"""The temperature at which softmax has a given entropy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._backends.operation import NATIVE, NUMBERS, dispatch, operation
from hotmax._core.arrays import Array, Axis, as_array
from hotmax._core.checks import as_bool
from hotmax._core.rows import RowPlan
from hotmax._kernels.numeric.arithmetic import LARGEST_FLOAT64
from hotmax._softmax.functions import entropy, softmax

MOST_ITERATIONS = 200  # enough for bisection over all of float64, to the last bit


@operation(NUMBERS, typed_by=())
def temperature_for_entropy(
    logits: object,
    target: object,
    *,
    axis: Axis = -1,
    where: object = None,
    per_row: bool = False,
) -> Any:
    """The temperature T at which the mean of entropy(logits / T) over all rows is the target.

    Entropy grows with the temperature, from the log of the number of ties at 0 to log n at inf, so
    there is one such temperature or none.

    Args:
        logits: Logits of any shape; -inf is a class that is not there.
        target: The entropy in nats: a number, or with `per_row` also an array that broadcasts to
            one number for each row.
        axis, where: As in `softmax`. A row with nothing allowed does not count.
        per_row: A temperature for each row, at which that row's entropy is the target.

    Returns:
        A float; with `per_row` an array with one number for each row, nan for a row of nothing. It
        is inf where the temperature is beyond float64.

    Example:
        >>> import hotmax as hm
        >>> logits = [1.0, 2.0, 4.0]
        >>> temperature = hm.temperature_for_entropy(logits, 0.9)
        >>> round(temperature, 6)
        1.966837
        >>> round(float(hm.entropy(logits, temperature=temperature)), 12)
        0.9
    """
    if not NATIVE.issuperset(map(type, (logits, target, where))):
        return dispatch(temperature_for_entropy, locals())
    per_row = as_bool(per_row, "per_row")
    plan = RowPlan(logits, axis, 1.0, where, "logits")
    aim = as_array(target, "target").astype(np.float64)
    if aim.ndim and not per_row:
        raise ValueError(
            f"target must be a number unless per_row=True, got an array of shape {aim.shape}"
        )
    x = plan.matrix(plan.x).astype(np.float64)
    if plan.where is not None:
        x = np.where(plan.matrix(plan.where), x, -np.inf)
    if np.isnan(x).any() or np.isposinf(x).any():
        raise ValueError("logits must not hold nan or +inf where they are not masked")
    shape = plan.row_shape
    try:
        aims = np.broadcast_to(aim, shape).reshape(-1)
    except ValueError:
        raise ValueError(
            f"target must broadcast to one number for each row, {shape}, got shape {aim.shape}"
        ) from None
    some = (x > -np.inf).any(-1)
    if not some.any():
        raise ValueError("logits must have a row with something in it")
    if not per_row:
        return float(solve_temperature(x[some][None], aims[some][:1])[0])
    result = np.full(plan.count, np.nan)
    result[some] = solve_temperature(x[some][:, None], aims[some])
    return result.reshape(shape) if shape else float(result[0])


def limits(x: Array) -> tuple[Array, Array]:
    """The mean entropy of each group at temperature 0 and at infinity."""
    low = np.asarray(entropy(x, temperature=0.0)).mean(-1)
    return low, np.asarray(entropy(x, temperature=math.inf)).mean(-1)


def solve_temperature(x: Array, target: Array) -> Array:
    """The temperature of each group of rows (groups, rows, classes) for its mean entropy."""
    low, high = limits(x)
    near = np.isclose(target, high, rtol=4e-16, atol=0.0)  # log n, in anybody's rounding
    if not ((target >= low) & ((target <= high) | near)).all():
        bad = int(np.argmin((target >= low) & ((target <= high) | near)))
        raise ValueError(
            f"target must lie between {float(low[bad])!r} (temperature 0) and {float(high[bad])!r} "
            f"(infinite temperature), got {float(target[bad])!r}"
        )
    result = np.where(target == low, 0.0, np.inf)
    open_ = np.flatnonzero((target > low) & (target < high) & ~near)
    if open_.size:
        result[open_] = newton(x[open_], target[open_], low[open_])
    return result


def newton(x: Array, target: Array, low: Array) -> Array:
    """Newton's method in log T, halved (in log T) where a step leaves the bracket.

    Where the entropy can be 0 its logarithm is the smoother function of log T.
    A temperature beyond float64 is inf.
    """
    given = x
    present = x > -np.inf
    with np.errstate(over="ignore"):  # a gap between logits near the largest numbers
        beyond = (present & np.isinf(x - x.max(-1, keepdims=True))).any((-1, -2), keepdims=True)
        scale = np.where(beyond, 0.25, 1.0)
        x = x * scale
        gaps = np.where(present, x - x.max(-1, keepdims=True), 0.0)
        temperature = np.sqrt((gaps**2).sum((-1, -2)) / present.sum((-1, -2)))
    temperature = np.clip(temperature, 1e-300, 1e300)
    below, above = np.full(temperature.shape, 5e-324), np.full(temperature.shape, LARGEST_FLOAT64)
    active = np.arange(len(temperature))
    logarithmic = low == 0.0
    for _ in range(MOST_ITERATIONS):
        t = temperature[active]
        column = t[:, None, None]
        p = softmax(x[active], temperature=column)
        got = np.asarray(entropy(x[active], temperature=t[:, None, None])).mean(-1)
        with np.errstate(all="ignore"):
            z = np.where(p > 0.0, gaps[active] / column, 0.0)
            slope = ((p * z * z).sum(-1) - (p * z).sum(-1) ** 2).mean(-1)
            off = np.where(
                logarithmic[active],
                np.log(got / target[active]) * got,
                got - target[active],
            )
            step = -off / slope
            over = got > target[active]
            above[active] = np.where(over, np.minimum(above[active], t), above[active])
            below[active] = np.where(over, below[active], np.maximum(below[active], t))
            middle = np.sqrt(below[active]) * np.sqrt(above[active])
            new = t * np.exp(step)
            inside = (new > below[active]) & (new < above[active])
        done = np.abs(step) <= 2.0**-52
        done |= (middle <= below[active]) | (middle >= above[active]) | (got == target[active])
        temperature[active] = np.where(
            done, np.where(inside & (got != target[active]), new, t), np.where(inside, new, middle)
        )
        active = active[~done]
        if not active.size:
            break
    with np.errstate(over="ignore"):
        temperature = temperature / scale[:, 0, 0]
    large = np.flatnonzero(temperature > LARGEST_FLOAT64 / 8)
    if large.size:  # the bracket ends here, and the temperature may lie beyond float64
        reached = np.asarray(entropy(given[large], temperature=LARGEST_FLOAT64)).mean(-1)
        temperature[large] = np.where(reached < target[large], np.inf, temperature[large])
    return np.asarray(temperature)
