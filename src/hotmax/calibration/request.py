"""The keywords of every metric, and its answer: a number, or one with a bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_bool, as_seed
from hotmax.calibration.binning import BINS, CONFIDENCE, CORRECT, ROWS, WEIGHT
from hotmax.calibration.bootstrap import basic_bootstrap
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.exact_sums import ExactSums
from hotmax.calibration.examples import Examples, no_rows, one_temperature
from hotmax.calibration.row_parts import RowParts, row_parts
from hotmax.calibration.row_sums import RowSums, RowSumsAt
from hotmax.calibration.scores import Scores, score

MOST_SCORED = 1 << 20  # rows up to which metrics look at each row by itself
MOST_ENTRIES = 1 << 24  # logits that are brought into memory for what cannot be summed


class MetricOptions(TypedDict, total=False):
    """What every metric takes by keyword.

    sample_weight: The weight of each row.
    class_names: Names of the classes, for labels that are text or categories.
    ignore_index: A label whose rows are left out, whatever their logits hold.
    where: Bools that broadcast against logits; classes at False are not there.
    input: "logits" (the default) or "probabilities".
    temperature: Of the logits; 1 by default.
    interval: Give an Estimate, with a 95 % interval: by the bootstrap over rows; of more than
        1,048,576 rows by 1.96 standard errors for means, and over cells of confidence for others.
    seed: Of the bootstrap; 0 by default.
    """

    sample_weight: object
    class_names: object
    ignore_index: int | None
    where: object
    input: str
    temperature: object
    interval: bool
    seed: int


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """The scores of rows that are few enough to keep: pairs of the first row and its block."""

    kept: list[tuple[int, Scores]]

    def merge(self, other: ScoredRows) -> ScoredRows:
        return ScoredRows(self.kept + other.kept)

    def scores(self) -> Scores:
        parts = [part for _, part in sorted(self.kept, key=lambda pair: pair[0])]
        arrays = ("confidence", "correct", "nll", "brier", "predictions")
        joined = [np.concatenate([getattr(part, name) for part in parts]) for name in arrays]
        plain = all(part.weights.size == 1 and part.weights[0] == 1.0 for part in parts)
        weights = [np.broadcast_to(part.weights, part.confidence.shape) for part in parts]
        confidence, correct, nll, brier, predictions = joined
        weight = np.ones(1) if plain else np.concatenate(weights)
        return Scores(confidence, correct, nll, brier, predictions, weight, parts[0].dtype)


@dataclass(frozen=True)
class ScoresAt:
    """The job that scores rows at a temperature."""

    temperature: float

    def __call__(self, examples: Examples) -> ScoredRows:
        return ScoredRows([(examples.offset, score(examples, self.temperature))])


class Request:
    """The keywords of a metric, read."""

    def __init__(self, rows: RowParts, temperature: float, interval: bool, seed: int) -> None:
        self.rows, self.temperature = rows, temperature
        self.interval, self.seed = interval, seed

    @property
    def large(self) -> bool:
        """Are there more rows than are scored one by one? Then sums over cells take their place."""
        return self.rows.rows > MOST_SCORED

    def scores(self) -> Scores:
        scores: Scores = self.rows.run(ScoresAt(self.temperature)).scores()
        if not np.any(scores.weights > 0):
            raise no_rows()
        return scores

    def sums(self, bins: int = BINS, classwise: bool = False) -> RowSums:
        sums: RowSums = self.rows.run(RowSumsAt(self.temperature, bins, classwise))
        if sums.weight == 0.0:
            raise no_rows()
        return sums

    def in_memory(self, what: str) -> Examples:
        """All rows at once, for what cannot be summed; an error if they are too many."""
        if self.rows.whole is None and self.rows.rows * self.rows.classes > MOST_ENTRIES:
            raise ValueError(
                f"{what} needs all logits in memory, and takes up to {MOST_ENTRIES} of them from a "
                f"Source or a Dask array; there are {self.rows.rows * self.rows.classes}"
            )
        return self.rows.all_rows()

    def answer(
        self,
        statistic: Callable[[Array], float],
        weights: Array,
        low: float = 0.0,
        high: float = math.inf,
    ) -> float | Estimate:
        """statistic(weights of rows), and its bootstrap interval if asked for."""
        value = statistic(weights)
        if not self.interval:
            return value
        given = np.broadcast_to(weights, (self.rows.rows,))
        there = np.flatnonzero(given > 0)

        def resampled(drawn: Array) -> float:
            weights_drawn = np.zeros(given.size)
            weights_drawn[there] = drawn * given[there]
            return statistic(weights_drawn)

        rng = np.random.default_rng(self.seed)
        return basic_bootstrap(value, np.ones(there.size), resampled, rng, (low, high))

    def mean(self, first: int, high: float = math.inf) -> float | Estimate:
        """The mean of a loss of many rows; its interval is 1.96 standard errors wide each way."""
        value, error = self.sums().mean_loss(first)
        if not self.interval:
            return value
        if not math.isfinite(value):
            return Estimate(value, (value, value))
        return Estimate(
            value, (max(value - NORMAL * error, 0.0), min(value + NORMAL * error, high))
        )

    def from_cells(self, statistic: Callable[[Array], float], high: float) -> float | Estimate:
        """A statistic of the sums of cells of many rows; its interval resamples their rows."""
        cells = self.sums().cells.values()
        value = statistic(cells[cells[:, WEIGHT] > 0])
        if not self.interval:
            return value
        full = cells[cells[:, WEIGHT] > 0]
        each = full[:, WEIGHT] / full[:, ROWS]
        position = full[:, CONFIDENCE] / full[:, WEIGHT]
        right = np.rint(full[:, ROWS] * np.clip(full[:, CORRECT] / full[:, WEIGHT], 0.0, 1.0))

        def resampled(drawn: Array) -> float:
            hits, misses = drawn[: len(full)], drawn[len(full) :]
            rows = hits + misses
            weight = rows * each
            sums = np.stack([weight, weight * position, hits * each, rows, weight * each], axis=1)
            return statistic(sums[rows > 0])

        rng = np.random.default_rng(self.seed)
        counts = np.concatenate([right, full[:, ROWS] - right])
        return basic_bootstrap(value, counts, resampled, rng, (0.0, high))


def request(logits: object, targets: object, options: MetricOptions) -> Request:
    rest = dict(options)
    temperature = one_temperature(rest.pop("temperature", 1.0))
    interval, seed = rest.pop("interval", False), rest.pop("seed", 0)
    interval, seed = as_bool(interval, "interval"), as_seed(seed)
    rows = row_parts(logits, targets, **rest)  # type: ignore[arg-type]
    return Request(rows, temperature, bool(interval), int(seed))


def average(values: Array, weights: Array) -> float:
    """The weighted mean of rows: a sum that is exact until it is rounded."""
    there = np.broadcast_to(weights > 0, values.shape)
    terms = np.zeros((2, values.size))
    terms[1] = weights
    with np.errstate(over="ignore", invalid="ignore"):
        terms[0] = np.where(there, values * weights, 0.0)
    sums = ExactSums(2)
    sums.add(terms)
    mean = sums.ratio(0, 1)
    if mean is not None:
        return mean
    with np.errstate(over="ignore", invalid="ignore"):  # a product may be inf, and the mean not
        shares = np.broadcast_to(weights, values.shape)[there]
        return float(np.dot(values[there], shares / shares.sum()))
