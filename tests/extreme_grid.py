"""Rows beside temperatures of all sizes and signs, and errors in the units of their terms.

Every row of a table meets every temperature, and each pair is one row of a batch, so that one call
covers them all. The truth is mpmath's. A result may be off by some roundings of the terms that it
is the sum of, and by some smallest numbers over T, since probabilities below those are 0.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import reference_derivatives as truth

INF, NAN = math.inf, math.nan
ALL, NONE = [True] * 4, [False] * 4


class Size(NamedTuple):
    """What is large and what is small in a float type."""

    dtype: type
    huge: float  # twice of it overflows
    tiny: float  # subnormal
    temperatures: tuple[float, ...]


SIZES = {
    "float32": Size(np.float32, 3e38, 1e-39, (0.0, 1e-44, 1e-39, 1e-20, 1e-3, 1.0, 1e3, 2e37, INF)),
    "float64": Size(
        np.float64, 1e308, 1e-310, (0.0, 5e-324, 1e-310, 1e-39, 1e-3, 1.0, 1e3, 1e300, 2e307, INF)
    ),
}
each_size = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)


def rows_of(size: Size) -> list[tuple[list[float], list[bool]]]:
    huge, tiny = size.huge, size.tiny
    return [
        ([0.0, 1.0, 1e9, 2.0], ALL),
        ([0.0, -1e9, 1.0, -2.0], ALL),
        ([0.0, 20.0, -20.0, 3.0], ALL),
        ([1.0, 1.0, 1.0, 0.0], ALL),
        ([0.0, 0.0, 0.0, 0.0], ALL),
        ([huge, -huge, 0.0, 1.0], ALL),
        ([-huge, huge, huge, -huge], ALL),
        ([-huge, -huge, -0.9 * huge, 0.0], ALL),
        ([0.0, tiny, 3 * tiny, -2 * tiny], ALL),
        ([INF, 0.0, 1.0, 5.0], [False, True, True, True]),
        ([NAN, 0.0, 1e9, 5.0], [False, True, True, True]),
        ([0.0, huge, -huge, 20.0], [True, True, False, True]),
        ([1.0, 2.0, 3.0, huge], [True, False, False, False]),
        ([1.0, NAN, INF, -INF], NONE),
    ]


class Grid(NamedTuple):
    """Each row beside each temperature."""

    dtype: type
    flush: bool  # subnormal numbers count as 0
    x: np.ndarray  # (cases, 4)
    temperature: np.ndarray  # (cases, 1)
    where: np.ndarray
    rows: list[truth.Row | None]  # None at the limits of temperature


@cache
def grid_of(dtype: type, flush: bool = False) -> Grid:
    size = SIZES[np.dtype(dtype).name]
    temperatures = [sign * t for t in size.temperatures for sign in (1.0, -1.0)]
    cases = [(x, mask, t) for x, mask in rows_of(size) for t in temperatures]
    for t in temperatures:  # a class that is not there, at either sign
        cases.append(([0.0, 20.0, -math.copysign(INF, t), 3.0], ALL, t))
    x = np.array([case[0] for case in cases], dtype)
    where = np.array([case[1] for case in cases])
    temperature = np.array([[case[2]] for case in cases], dtype)
    if flush:
        tiny = np.finfo(dtype).tiny
        x[np.abs(x) < tiny] = 0.0
        temperature[np.abs(temperature) < tiny] *= 0.0
    rows = [
        truth.Row(r.tolist(), t, m.tolist()) if 0.0 < abs(t) < INF else None
        for r, (t,), m in zip(x.astype(float), temperature.astype(float), where, strict=True)
    ]
    return Grid(dtype, flush, x, temperature, where, rows)


class Truth(NamedTuple):
    value: np.ndarray  # inf if it is beyond the type
    error: np.ndarray


def truth_of(grid: Grid, function, roundings: float, largest: float = 1.0) -> Truth:
    """From function(row): values, and for each the size of the terms that it is a sum of.

    `largest`: what a probability is multiplied by.
    """
    info, mp = np.finfo(grid.dtype), truth.mp
    eps, most = float(info.eps), mp.mpf(float(info.max))
    least = float(info.tiny if grid.flush else info.smallest_subnormal)
    found = {i: function(row) for i, row in enumerate(grid.rows) if row is not None}
    shape = (len(grid.rows), *np.shape(next(iter(found.values()))[0]))
    result = Truth(np.zeros(shape), np.zeros(shape))
    for i, (values, terms) in found.items():
        inverse = abs(1 / grid.rows[i].t)
        square = min(inverse**2, 1e30 if grid.dtype is np.float32 else 1e80)
        floor = 1000 * least * max(largest, 1.0) * (1 + inverse + square)
        values, terms = np.asarray(values, object), np.asarray(terms, object)
        for place in np.ndindex(values.shape):
            true, allowed = values[place], roundings * eps * terms[place] + floor
            beyond = abs(true) > most * (1 - 2 * eps)
            result.value[(i, *place)] = mp.sign(true) * INF if beyond else float(true)
            result.error[(i, *place)] = float(min(allowed, most))
    return result


def check(
    got, true: Truth, grid: Grid, what: str, limits: bool = True, endless: bool = False
) -> None:
    """`limits`: is it 0 at those of temperature? `endless`: terms of either sign may overflow."""
    got = np.asarray(got, np.float64)
    most = float(np.finfo(grid.dtype).max)
    assert got.shape == true.value.shape
    beyond = np.abs(true.value) == INF
    with np.errstate(invalid="ignore"):
        good = np.abs(got - true.value) <= true.error
    good |= (np.abs(got) > 0.99 * most) & (beyond | (true.error >= most))
    good &= ~beyond | (np.signbit(got) == np.signbit(true.value))
    if endless:
        good |= beyond & ~(np.abs(got) < 0.1 * most)
    if not limits:
        at_limit = np.array([row is None for row in grid.rows])
        good[at_limit] = ~np.isnan(got[at_limit])
    bad = np.argwhere(~good)
    if bad.size:
        i = bad[0][0]
        place = tuple(bad[0])
        raise AssertionError(
            f"{what} of {grid.x[i]} at T = {grid.temperature[i, 0]} where {grid.where[i]}: "
            f"{got[i]}, not {true.value[i]}, +- {true.error[place]:.3g}; {len(bad)} are bad"
        )
