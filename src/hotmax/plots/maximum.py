"""Soft versions of max and argmax: log-sum-exp between its bounds, and softargmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array, as_temperature
from hotmax.plots.probabilities import one_row
from hotmax.plots.style import BLUE, INK, MUTED, SKY, VERMILION, axes_of, row_text, styled


@dataclass(frozen=True, eq=False)
class SmoothmaxBounds:
    """smoothmax between its bounds, as one logit moves past others that stay.

    Attributes:
        moving: The logit that moves.
        others: Those that stay.
        temperature: Above 0.
        lower, smoothmax, upper: max, T logsumexp(x / T), and max + T log n.
    """

    moving: Array
    others: Array
    temperature: float
    lower: Array
    smoothmax: Array
    upper: Array


def smoothmax_bounds(
    others: object = (0.0, 0.0), *, temperature: float = 1.0, points: int = 201
) -> SmoothmaxBounds:
    """smoothmax, max and max + T log n over one logit that moves, to be drawn.

    Example:
        >>> from hotmax import plots
        >>> found = plots.smoothmax_bounds([0.0], points=3)
        >>> found.moving.tolist(), found.smoothmax.round(3).tolist()
        ([-6.0, 0.0, 6.0], [0.002, 0.693, 6.002])
    """
    still = one_row(others, "others")
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    if not 0.0 < temperature < np.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {temperature}")
    if not np.isfinite(still).all():
        raise ValueError(f"others must be finite, got {others!r}")
    top = float(still.max())
    moving = np.linspace(top - 6.0, top + 6.0, points)
    rows = np.column_stack([moving, np.broadcast_to(still, (points, still.size))])
    lower = rows.max(1)
    return SmoothmaxBounds(
        moving,
        still,
        float(temperature),
        lower,
        hm.smoothmax(rows, temperature=temperature),
        lower + temperature * np.log(rows.shape[1]),
    )


@styled
def plot_smoothmax_bounds(result: SmoothmaxBounds, *, ax: Any = None) -> Any:
    """log-sum-exp between max and max + T log n: it touches the upper bound where all are equal."""
    ax = axes_of(ax)
    t, n = result.temperature, result.others.size + 1
    ax.fill_between(result.moving, result.lower, result.upper, color=SKY, alpha=0.25, linewidth=0)
    ax.plot(result.moving, result.upper, color=VERMILION, linestyle=(0, (5, 2)),
            label=f"max + {'' if t == 1.0 else 'T '}log {n}")  # fmt: skip
    ax.plot(result.moving, result.smoothmax, color=BLUE, linewidth=2.2,
            label="log sum exp(x)" if t == 1.0 else "T log sum exp(x / T)")  # fmt: skip
    ax.plot(result.moving, result.lower, color=INK, linestyle=(0, (1.5, 1.5)), label="max")
    ax.set_xlim(result.moving[0], result.moving[-1])
    still = ", ".join(f"{x:g}" for x in result.others[:4])
    more = ", ..." if result.others.size > 4 else ""
    ax.set_xlabel(f"one logit; the others stay at {still}{more}")
    ax.set_ylabel("value")
    what = "Log-sum-exp" if t == 1.0 else f"The smooth maximum at T = {t:g}"
    ax.set_title(f"{what} lies between its bounds")
    ax.legend(loc="upper left")
    return ax


@dataclass(frozen=True, eq=False)
class SoftargmaxSweep:
    """The mean index under softmax over temperatures.

    Attributes:
        logits: The row.
        temperatures: Above 0.
        softargmax: At each temperature.
        argmax: Its limit at 0: the index of the largest logit, the mean index of ties.
        middle: Its limit at infinity: the mean of all indices.
    """

    logits: Array
    temperatures: Array
    softargmax: Array
    argmax: float
    middle: float


def softargmax_sweep(
    logits: object, temperatures: Sequence[float] | Array | None = None
) -> SoftargmaxSweep:
    """softargmax of one row over temperatures: by default 121 from 0.01 to 100.

    Example:
        >>> from hotmax import plots
        >>> found = plots.softargmax_sweep([2.0, 4.0, 18.0, 3.0], [1.0, 100.0])
        >>> found.softargmax.round(3), found.argmax, found.middle
        (array([2.   , 1.522]), 2.0, 1.5)
    """
    x = one_row(logits)
    if temperatures is None:
        t = np.geomspace(0.01, 100.0, 121)
    else:
        t = np.atleast_1d(as_temperature(temperatures, "temperatures"))
        if t.ndim != 1 or not ((t > 0.0) & (t < np.inf)).all() or t.size == 0:
            raise ValueError(f"temperatures must be a list of numbers above 0, got {temperatures}")
    rows = np.broadcast_to(x, (t.size, x.size))
    ends = hm.softargmax(x, temperature=0.0), hm.softargmax(x, temperature=np.inf)
    return SoftargmaxSweep(
        x, t, hm.softargmax(rows, temperature=t[:, None]), float(ends[0]), float(ends[1])
    )


@styled
def plot_softargmax(result: SoftargmaxSweep, *, ax: Any = None) -> Any:
    """softargmax over temperature: from the index of the largest logit to the middle."""
    ax = axes_of(ax)
    ax.plot(result.temperatures, result.softargmax, color=BLUE, linewidth=2.2)
    low, high = float(result.temperatures.min()), float(result.temperatures.max())
    up = result.argmax >= result.middle
    for value, text, side, above in (
        (result.argmax, f"argmax = {result.argmax:g}", "right", up),
        (result.middle, f"mean of the indices = {result.middle:g}", "left", not up),
    ):
        ax.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        ax.annotate(text, (high if side == "right" else low, value), (0, 3 if above else -3),
                    textcoords="offset points", fontsize=8, ha=side,
                    va="bottom" if above else "top")  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(low, high if high > low else 2 * low)
    span = max(abs(result.argmax - result.middle), float(np.ptp(result.softargmax)), 0.1)
    ends = result.argmax, result.middle, *result.softargmax
    ax.set_ylim(min(ends) - 0.2 * span, max(ends) + 0.2 * span)
    ax.set_xlabel("temperature")
    ax.set_ylabel("softargmax, the mean index")
    ax.set_title(f"softargmax of {row_text(result.logits, 24)} over temperature")
    return ax
