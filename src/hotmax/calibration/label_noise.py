"""How much the labels of rows with weights, or of soft labels, vary: what a test compares with.

The null hypothesis is E[target | prediction, weight] = prediction. The correctness s of a row, the
probability that its target gives to the predicted class, has then the mean c, its confidence. If
targets are drawn labels, the variance of sum w s is sum w**2 c (1 - c): rows of unequal weight vary
as (sum w)**2 / sum w**2 equal ones do. Of soft labels the variance is not known: shares of three
annotators vary by a third of it, true probabilities not at all, and c (1 - c) is only a bound. So
the ratio of both variances, the dispersion, is estimated from the residuals s - c less their mean
in each bin of confidence. Bins with few rows are drawn to the ratio of all rows, and that of few
rows to 1. For soft labels of equal weight it is at most 1. For drawn labels with weights it is at
least 1, and above that where weights depend on labels, such as weights of classes. If these go
with few wrong rows, false verdicts are more frequent than stated.
"""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels
from hotmax.calibration.binning import BINS, CONFIDENCE, CORRECT, SQUARES, WEIGHT, width_edges
from hotmax.calibration.exact_sums import CellSums

PRIOR_VARIANCE = 3.0  # in favour of a ratio of 1: that of 12 rows of confidence 1/2
SQUARED_RIGHT, SQUARED_SURE, SQUARED_RESIDUAL = range(3)  # sums of w**2 times s, c, (s - c)**2


class ResidualSums:
    """Squares of residuals in bins of confidence, summed over rows."""

    def __init__(self) -> None:
        self.cells = CellSums(BINS, (2, 2, 2))

    def merge(self, other: ResidualSums) -> ResidualSums:
        self.cells.merge(other.cells)
        return self

    def add(self, confidence: Array, correct: Array, weights: Array, dtype: object) -> None:
        inner = width_edges(BINS, dtype)[1:-1]
        place = np.searchsorted(inner, confidence, side="left")
        self.cells.prepare(weights)
        units, squares = self.cells.units(2), weights * weights
        residual = correct - confidence
        for field, amount in enumerate((correct, confidence, residual * residual)):
            terms = np.ascontiguousarray(squares * amount)
            kernels.add_labels(place, terms, units, self.cells.digits, field)

    def dispersion(self, bins: Array, *, soft: bool, weighted: bool) -> Array:
        """For each bin, the variance of correctness over that of labels which are drawn."""
        ratio = dispersion_of(bins, self.cells.values())
        if not soft:
            return np.maximum(ratio, 1.0)
        return ratio if weighted else np.minimum(ratio, 1.0)


def dispersion_of(bins: Array, residuals: Array) -> Array:
    """The ratio of variances in each bin, from the sums of `binning` and of ResidualSums."""
    weight, squares = bins[:, WEIGHT], bins[:, SQUARES]
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = weight**2 / squares
        mean = (bins[:, CORRECT] - bins[:, CONFIDENCE]) / weight
        total = residuals[:, SQUARED_RESIDUAL] - 2 * mean * (
            residuals[:, SQUARED_RIGHT] - residuals[:, SQUARED_SURE]
        )
        own = np.maximum(total + mean**2 * squares, 0.0) / squares * rows / (rows - 1.0)
        right = np.clip(bins[:, CORRECT] / weight, 0.0, 1.0)
        drawn = right * (1.0 - right) + own / rows  # the last term: right varies too
    known = (squares > 0.0) & (rows > 1.0 + 1e-9)
    seen = np.where(known, own * squares, 0.0)
    drawn = np.where(known, drawn * squares, 0.0)
    more = PRIOR_VARIANCE * (squares.sum() / weight.sum()) ** 2
    overall = (seen.sum() + more) / (drawn.sum() + more)
    ratio: Array = (seen + more * overall) / (drawn + more)
    return ratio


def rows_of_equal_weight(weight: float, squares: float) -> float:
    """So many rows of equal weight have means that vary as those of rows with these sums."""
    return weight * weight / squares if squares > 0.0 else 0.0


def drawn_sums(rng: np.random.Generator, cells: Array, dispersion: Array, samples: int) -> Array:
    """(samples, cells): sums of w s that calibrated predictions could have had.

    A cell counts as k rows of one weight and one of a smaller weight, with the sum of weights that
    it has, and the variance that it has by its squared weights and its dispersion.
    """
    weight, said = cells[:, WEIGHT], cells[:, CONFIDENCE]
    square = np.minimum(cells[:, SQUARES] * np.minimum(dispersion, 1.0), weight**2)
    with np.errstate(divide="ignore"):  # squares of the smallest weights of all are rounded to 0
        whole = np.clip(np.floor(weight**2 / square * (1 + 1e-12)), 1.0, 2.0**62)
    root = np.sqrt(np.maximum(square * (whole + 1.0) - weight**2, 0.0) / whole)
    equal = (weight + root) / (whole + 1.0)
    last = np.maximum(weight - whole * equal, 0.0)
    share = np.clip(said / weight, 0.0, 1.0)
    drawn = equal * rng.binomial(whole.astype(np.int64), share, (samples, weight.size))
    drawn = drawn + last * (rng.random((samples, weight.size)) < share)
    sums: Array = said + (drawn - said) * np.sqrt(np.maximum(dispersion, 1.0))
    return sums
