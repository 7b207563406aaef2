"""What every metric is asked, and what it answers: a number, or one with a bootstrap interval."""

from __future__ import annotations

import html
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.examples import Examples, one_temperature, read
from hotmax.calibration.scores import Scores, score

REPLICATES = 400  # of a bootstrap


class Given(TypedDict, total=False):
    """What every metric takes by keyword.

    sample_weight: The weight of each row.
    ignore_index: A label whose rows are left out, whatever their logits hold.
    where: Bools that broadcast against logits; classes at False are not there.
    input: "logits" (the default) or "probabilities".
    temperature: Of the logits; 1 by default.
    interval: Give an Estimate, with a 95 % bootstrap interval.
    seed: Of the bootstrap; 0 by default.
    """

    sample_weight: object
    ignore_index: int | None
    where: object
    input: str
    temperature: object
    interval: bool
    seed: int


@dataclass(frozen=True)
class Estimate:
    """A metric and its 95 % interval, by the basic bootstrap over rows.

    The basic bootstrap reflects the resampled values in the estimate. A calibration error is biased
    upwards by noise, and again by resampling; reflection takes the second bias off the first.
    """

    value: float
    interval: tuple[float, float]

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.6g} (95 %: {low:.6g} to {high:.6g})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Request:
    """The keywords of a metric, read."""

    examples: Examples
    temperature: float
    interval: bool
    seed: int

    def scores(self) -> Scores:
        return score(self.examples, self.temperature)

    def answer(
        self, statistic: Callable[[Array], float], low: float = 0.0, high: float = math.inf
    ) -> float | Estimate:
        """statistic(weights of rows), and its bootstrap interval if asked for."""
        value = statistic(self.examples.weights)
        if not self.interval:
            return value
        weights = self.examples.weight_of_rows()
        there = np.flatnonzero(weights > 0)
        rng = np.random.default_rng(self.seed)
        resampled = np.empty(REPLICATES)
        for i in range(REPLICATES):
            drawn = np.zeros(weights.size)
            picks = there[rng.integers(0, there.size, there.size)]
            drawn[:] = np.bincount(picks, minlength=weights.size)
            resampled[i] = statistic(drawn * weights)
        if not np.isfinite(value):
            return Estimate(value, (value, value))
        bottom, top = np.quantile(resampled, [0.025, 0.975])
        clip = np.clip([2 * value - top, 2 * value - bottom], low, high)
        return Estimate(value, (float(clip[0]), float(clip[1])))


def request(logits: object, labels: object, given: Given) -> Request:
    rest = dict(given)
    temperature = one_temperature(rest.pop("temperature", 1.0))
    interval, seed = rest.pop("interval", False), rest.pop("seed", 0)
    if not isinstance(interval, bool | np.bool_):
        raise TypeError(f"interval must be a bool, got {interval!r}")
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise TypeError(f"seed must be an int, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    examples = read(logits, labels, **rest)  # type: ignore[arg-type]
    return Request(examples, temperature, bool(interval), int(seed))


def average(values: Array, weights: Array) -> float:
    there = np.broadcast_to(weights > 0, values.shape)
    with np.errstate(over="ignore"):
        if weights.size == 1:
            mean = float(values.mean())
        else:
            mean = float(np.dot(values[there], weights[there]) / weights.sum())
        if math.isinf(mean):  # the sum may be, and the mean not
            shares = np.broadcast_to(weights, values.shape)[there]
            mean = float(np.dot(values[there], shares / shares.sum()))
    return mean
