"""The keywords of every metric, and its answer: a number, or one with a bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_bool, as_seed
from hotmax.calibration.bootstrap import basic_bootstrap
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.examples import Examples, one_temperature, read
from hotmax.calibration.scores import Scores, score


class MetricOptions(TypedDict, total=False):
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

        def resampled(drawn: Array) -> float:
            weights_drawn = np.zeros(weights.size)
            weights_drawn[there] = drawn * weights[there]
            return statistic(weights_drawn)

        rng = np.random.default_rng(self.seed)
        return basic_bootstrap(value, np.ones(there.size), resampled, rng, (low, high))


def request(logits: object, targets: object, options: MetricOptions) -> Request:
    rest = dict(options)
    temperature = one_temperature(rest.pop("temperature", 1.0))
    interval, seed = rest.pop("interval", False), rest.pop("seed", 0)
    interval, seed = as_bool(interval, "interval"), as_seed(seed)
    examples = read(logits, targets, **rest)  # type: ignore[arg-type]
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
