"""What several calibrators give on rows that have weights or soft labels: `score_sums` for these.

Standard errors are those of rows as they came, whatever their weight: the root of the sum of
(w (value - mean))**2. A row of weight 2 gives the means of two rows, and the certainty of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels
from hotmax.calibration.binning import add_to_cells
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.exact_sums import CellSums, ExactSums, as_float
from hotmax.calibration.examples import Examples
from hotmax.calibration.label_noise import (
    PRIOR_VARIANCE,
    ResidualSums,
    rows_of_equal_weight,
)
from hotmax.calibration.one_standard_error import LossComparison, differences
from hotmax.calibration.reliability import wilson
from hotmax.calibration.row_parts import Split
from hotmax.calibration.score_sums import CLASS_FIELDS, NLL, ScoreSums
from hotmax.calibration.scores import Scores

# For each method, sums over rows of w v, w**2 v and (w v)**2, of these values v.
CORRECTNESS, WEIGHTED_VALUES = 2, 3  # beside NLL and BRIER


@dataclass(frozen=True)
class Weighting:
    """Whether rows have weights, and soft labels."""

    weighted: bool
    soft: bool


class WeightTotals:
    """The number of rows that have weight, the sum of their weights, and of the squares."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums = ExactSums(2)
        self.whole = True  # whether all weights are whole numbers

    def merge(self, other: WeightTotals) -> WeightTotals:
        self.rows += other.rows
        self.sums.merge(other.sums)
        self.whole = self.whole and other.whole
        return self

    def add(self, weights: Array) -> WeightTotals:
        w = weights[weights > 0]
        self.rows += w.size
        self.sums.add(np.stack([w, w * w]))
        self.whole = self.whole and bool((w == np.rint(w)).all())
        return self

    @property
    def weight(self) -> float:
        return self.sums.value(0)

    @property
    def squares(self) -> float:
        return self.sums.value(1)

    @property
    def effective(self) -> float:
        """(sum of weights)**2 / sum of squared weights: rows of equal weight."""
        return rows_of_equal_weight(self.weight, self.squares)


@dataclass(frozen=True)
class TotalWeights:
    """The job that sums the weights of the rows of a split."""

    split: Split

    def __call__(self, examples: Examples) -> WeightTotals:
        return WeightTotals().add(np.asarray(self.split.of(examples).weight_of_rows()))


class WeightedSums(ScoreSums):
    """The sums of all methods over rows that have weights or soft labels."""

    def __init__(self, methods: int, classes: int) -> None:
        super().__init__(methods, classes)
        self.totals = WeightTotals()
        self.values = ExactSums(3 * WEIGHTED_VALUES * methods)
        self.excess = ExactSums(3 * len(self.pairs))
        self.residuals = [ResidualSums() for _ in range(methods)]
        self.class_rows = CellSums(classes, (0, 2))  # rows, and squared weights

    def merge(self, other: ScoreSums) -> WeightedSums:
        assert isinstance(other, WeightedSums)
        super().merge(other)
        self.totals.merge(other.totals)
        for mine, theirs in zip(self.residuals, other.residuals, strict=True):
            mine.merge(theirs)
        self.class_rows.merge(other.class_rows)
        return self

    def add(self, scores: list[Scores]) -> None:
        rows = scores[0].confidence.size
        w = np.ascontiguousarray(np.broadcast_to(scores[0].weights, (rows,)), np.float64)
        self.rows += rows
        self.totals.add(w)
        values: list[Array] = []
        for number, part in enumerate(scores):
            edges = self.edges.astype(part.dtype).astype(np.float64)
            add_to_cells(self.cells[number], part.confidence, part.correct, w, edges)
            self.residuals[number].add(part.confidence, part.correct, w, part.dtype)
            values += [part.nll, part.brier, part.correct]
        self.values.add(weighted_terms(values, w))
        if self.pairs:
            with np.errstate(invalid="ignore"):
                gaps = [differences(scores[i].nll, scores[j].nll) for i, j in self.pairs]
            self.excess.add(weighted_terms(gaps, w))
        self._add_classes(scores, w)

    def _add_classes(self, scores: list[Scores], w: Array) -> None:
        self.classes.prepare(w)
        self.class_rows.prepare(w)
        units, digits = self.classes.units(1), self.classes.digits
        for place, part in enumerate(scores[:2]):
            for field, amount in enumerate((w, w * part.confidence, w * part.correct)):
                at = place * CLASS_FIELDS + field
                kernels.add_labels(part.predictions, amount, units, digits, at)
        first, own = scores[0].predictions, self.class_rows
        kernels.add_labels(first, np.ones(1), own.units(0), own.digits, 0)
        kernels.add_labels(first, w * w, own.units(2), own.digits, 1)

    # --- results ---

    def estimate(self, method: int, value: int) -> Estimate:
        """The mean of a value over rows, with 1.96 standard errors."""
        mean, error = self._mean(self.values, 3 * (WEIGHTED_VALUES * method + value))
        if math.isnan(error):
            return Estimate(mean, (mean, mean))
        return Estimate(mean, (mean - NORMAL * error, mean + NORMAL * error))

    def _mean(self, sums: ExactSums, first: int, sign: int = 1) -> tuple[float, float]:
        """A mean and its standard error: nan if the mean is no number, inf of a single row."""
        parts = [sums.fraction(first + k) for k in range(3)]
        weight, squares = (self.totals.sums.fraction(k) for k in range(2))
        assert weight is not None
        assert squares is not None
        if parts[0] is None:
            return sums.value(first), math.nan
        mean = parts[0] / weight
        if parts[1] is None or parts[2] is None or self.rows < 2:
            return sign * as_float(mean), math.inf
        variance = (parts[2] - 2 * mean * parts[1] + mean * mean * squares) / weight / weight
        variance *= Fraction(self.rows, self.rows - 1)
        return sign * as_float(mean), math.sqrt(max(as_float(variance), 0.0))

    def _excess(self, method: int, other: int) -> tuple[float, float]:
        """The mean of the nll of a method less that of another, and its standard error."""
        if method == other:
            return 0.0, 0.0
        low, high = sorted((method, other))
        return self._mean(
            self.excess, 3 * self.pairs.index((low, high)), 1 if method < other else -1
        )

    def change(self, method: int) -> Estimate:
        mean, error = self._excess(method, 0)
        if math.isnan(error):
            mean = self.estimate(method, NLL).value - self.estimate(0, NLL).value
            return Estimate(mean, (mean, mean))
        return Estimate(mean, (mean - NORMAL * error, mean + NORMAL * error))

    def compared(self, names: Sequence[str], numbers: Sequence[int]) -> LossComparison:
        best = min(numbers, key=lambda method: self.estimate(method, NLL).value)
        excess: dict[str, tuple[float, float]] = {}
        for method, name in zip(numbers, names, strict=True):
            mean, error = self._excess(method, best)
            if not math.isfinite(error):
                excess[name] = math.inf, math.nan
                continue
            excess[name] = mean, error * math.sqrt((self.rows - 1) / self.rows)
        excess[names[list(numbers).index(best)]] = 0.0, 0.0
        chosen = next(name for name, (mean, error) in excess.items() if mean <= error)
        return LossComparison(chosen, names[list(numbers).index(best)], excess)

    def accuracy(self, method: int) -> Estimate:
        """The mean correctness, with Wilson's interval of as many rows as its variance is that of.

        With few rows that are wrong the variance is not known, and is drawn to that of drawn labels
        of rows with these weights.
        """
        mean, error = self._mean(self.values, 3 * (WEIGHTED_VALUES * method + CORRECTNESS))
        mean = min(max(mean, 0.0), 1.0)
        weight, squares = self.totals.weight, self.totals.squares
        rows, more = self.totals.effective, PRIOR_VARIANCE * (squares / weight) ** 2
        if math.isfinite(error):
            seen = error**2 * weight**2 * (self.rows - 1) / self.rows
            rows /= (seen + more) / (squares * mean * (1.0 - mean) + more)
        low, high = wilson(np.array([mean * rows]), np.array([rows]))
        return Estimate(mean, (min(float(low[0]), mean), max(float(high[0]), mean)))


def weighted_terms(values: Sequence[Array], w: Array) -> Array:
    """For each value v of rows with weights w: w v, w**2 v and (w v)**2."""
    terms = np.empty((3 * len(values), w.size))
    for number, value in enumerate(values):
        with np.errstate(over="ignore", invalid="ignore"):
            weighted = np.multiply(w, value, out=terms[3 * number])
            np.multiply(w, weighted, out=terms[3 * number + 1])
            np.multiply(weighted, weighted, out=terms[3 * number + 2])
    return terms
