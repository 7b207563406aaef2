"""A proper score split into what a temperature repairs and what none does."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import is_one_of
from hotmax.calibration.examples import Examples, step_of
from hotmax.calibration.request import MetricOptions, Request, average, request
from hotmax.calibration.row_sums import BRIER, NLL
from hotmax.calibration.temperature import fit_rows

LOG_TEMPERATURE_STEP = 0.5  # in log T. A row's score goes from one limit to the other over some 3
FINEST = 1e-9  # of the largest gap between two logits: what lies closer counts as a tie


@dataclass(frozen=True)
class Decomposition:
    """A proper score as calibration + refinement.

    `refinement` is what remains at the best temperature, `calibration` what that temperature gains.
    """

    score: str
    total: float
    calibration: float
    refinement: float
    temperature: float

    def __str__(self) -> str:
        return (
            f"{self.score} {self.total:.6g} = calibration {self.calibration:.6g} + refinement "
            f"{self.refinement:.6g} (at temperature {self.temperature:.6g})"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the two parts as one bar on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_decomposition

        return plot_decomposition(self, ax=ax)


def decompose(
    logits: object, targets: object, *, score: str = "nll", **options: Unpack[MetricOptions]
) -> Decomposition:
    """Split a proper score: calibration = score(1) - min over T of score(T); refinement the rest.

    Calibration is what a change of temperature repairs; refinement is what no temperature does.
    A temperature is one parameter, so that fitting it on the same rows flatters little. The Brier
    score may have several minima over T: all of them are compared, the limits 0 and inf too.

    Args:
        logits, targets, **options: As in `nll`, without interval and seed.
        score: "nll" or "brier".

    Example:
        >>> import numpy as np, hotmax as hm
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> print(hm.calibration.decompose(logits, [0, 0, 1, 1]))
        nll 1.01815 = calibration 0.455815 + refinement 0.562335 (at temperature 3.64096)

    Reference:
        Berta, Holzmueller, Jordan and Bach, Rethinking early stopping: refine, then calibrate,
        2025.
    """
    if not is_one_of(score, ("nll", "brier")):
        raise ValueError(f'score must be "nll" or "brier", got {score!r}')
    asked = request(logits, targets, options)
    if asked.interval:
        raise ValueError("decompose has no interval")
    if score == "nll":
        fit = fit_rows(asked.rows)
        total = mean_loss(asked, NLL)
        return Decomposition(score, total, total - fit.nll, fit.nll, fit.temperature)

    def at(temperature: float) -> float:
        return mean_loss(Request(asked.rows, temperature, False, 0), BRIER)

    total = at(asked.temperature)
    candidates = {asked.temperature: total, 0.0: at(0.0), math.inf: at(math.inf)}
    grid = log_temperatures(asked.in_memory("the decomposition of the Brier score"))
    for log_t, value in minima(lambda log_t: at(math.exp(log_t)), grid):
        candidates[math.exp(log_t)] = value
    best = min(candidates, key=lambda temperature: candidates[temperature])
    refinement = candidates[best]
    return Decomposition(score, total, total - refinement, refinement, best)


def mean_loss(asked: Request, first: int) -> float:
    if asked.large:
        return float(asked.mean(first))
    rows = asked.scores()
    return average(rows.nll if first == NLL else rows.brier, rows.weights)


def log_temperatures(examples: Examples) -> Array:
    """Logarithms of T so close that no minimum hides between; empty if all logits are equal."""
    low, high = math.inf, 0.0
    step = step_of(examples.classes)
    there = examples.weight_of_rows() > 0
    for start in range(0, examples.rows, step):
        x = examples.block(start, start + step)[there[start : start + step]].astype(np.float64)
        gaps = x.max(1, keepdims=True, initial=-np.inf) - x
        gaps = gaps[(gaps > 0.0) & (gaps < np.inf)]
        low, high = float(gaps.min(initial=low)), float(gaps.max(initial=high))
    if high == 0.0:
        return np.empty(0)
    # Below the first T the score is that at 0. Above the last but one it is a parabola in 1 / T.
    first, last = math.log(max(low, FINEST * high) / 40), math.log(high * 20)
    return np.append(
        np.linspace(first, last, math.ceil((last - first) / LOG_TEMPERATURE_STEP) + 1), last + 18
    )


def minima(function: Callable[[float], float], grid: Array) -> list[tuple[float, float]]:
    """(x, function(x)) at each minimum, searched around each that the points of a grid show."""
    values = np.array([function(float(x)) for x in grid])
    padded = np.concatenate([[np.inf], values, [np.inf]])
    lows = np.flatnonzero((values <= padded[:-2]) & (values < padded[2:]))
    below, above = grid[np.maximum(lows - 1, 0)], grid[np.minimum(lows + 1, grid.size - 1)]
    pairs = zip(below, above, strict=True)
    return [section(function, float(low), float(high)) for low, high in pairs]


def section(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """(x, function(x)) at the minimum between low and high, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > 1e-6:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left <= at_right else (right, at_right)
