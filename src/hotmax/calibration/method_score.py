"""What a calibrator gives on rows that it was not fitted to: metrics, intervals, `verdict`'s."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import (
    BINS,
    CONFIDENCE,
    CORRECT,
    FINE_BINS,
    SQUARES,
    WEIGHT,
    width_edges,
)
from hotmax.calibration.chance import CalibrationTest, calibration_test
from hotmax.calibration.error_interval import binned_interval
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.reliability import Reliability, reliability_of, wilson
from hotmax.calibration.score_sums import BRIER, NLL, ScoreSums
from hotmax.calibration.verdict import sentence_of, verdict_of
from hotmax.calibration.weighted_sums import WeightedSums, Weighting

UNCALIBRATED = "none"  # the name of identity, which is no calibrator


@dataclass(frozen=True, eq=False)
class MethodScore:
    """What a calibrator gives on the scoring rows.

    Attributes:
        method: "none", or a method of `Calibrator`.
        fitted_rows: The rows it was fitted to.
        accuracy: With its Wilson interval.
        confidence: The mean confidence.
        gap: Mean confidence - accuracy; its interval is that of the accuracy.
        nll, brier: Means over rows, in nats and from 0 to 2.
        nll_change: nll less that of "none", from the differences in each row.
        ece: With an interval that covers the true error.
        ece_by_chance: The ECE of 95 of 100 calibrated models is no higher on so many rows.
        test: Of the hypothesis that the predictions are calibrated; the verdict is taken from it.
        reliability: Accuracy against confidence.
    """

    method: str
    fitted_rows: int
    accuracy: Estimate
    confidence: float
    gap: Estimate
    nll: Estimate
    nll_change: Estimate
    brier: Estimate
    ece: Estimate
    ece_by_chance: float
    test: CalibrationTest
    reliability: Reliability

    @property
    def verdict(self) -> str:
        """Overconfident, underconfident or neither: see `hotmax.calibration.verdict`."""
        return verdict_of(self.test)

    @property
    def verdict_sentence(self) -> str:
        """The verdict with the mean confidence and the accuracy."""
        return sentence_of(self.verdict, self.confidence, self.accuracy.value)


def share_estimate(hits: float, rows: float) -> Estimate:
    low, high = wilson(np.array([hits]), np.array([rows]))
    return Estimate(float(hits / rows), (float(low[0]), float(high[0])))


def union_of_cells(cells: Array, edges: Array, bins: int) -> Array:
    """The sums of bins of equal width, each a union of cells."""
    starts = np.searchsorted(edges, width_edges(bins)[:-1])
    sums: Array = np.add.reduceat(cells, starts, axis=0)
    return sums


def method_score(
    method: str,
    fitted_rows: int,
    sums: ScoreSums,
    number: int,
    rng: np.random.Generator,
    weighting: Weighting | None = None,
) -> MethodScore:
    """The score of the method with this number among those that were summed.

    `weighting`: of rows with weights or soft labels, whose sums are WeightedSums.
    """
    cells = sums.cells[number].values()
    bins = union_of_cells(cells, sums.edges, BINS)
    full = cells[cells[:, WEIGHT] > 0]
    weight = full[:, WEIGHT]
    fine = union_of_cells(cells, sums.edges, FINE_BINS)
    dispersion, shown = None, bins
    if weighting is None:
        accuracy = share_estimate(float(full[:, CORRECT].sum()), sums.rows)
        total: float = sums.rows
    else:
        assert isinstance(sums, WeightedSums)
        dispersion = sums.residuals[number].dispersion(
            bins, soft=weighting.soft, weighted=weighting.weighted
        )
        shown = bins.copy()
        shown[:, SQUARES] *= dispersion
        accuracy, total = sums.accuracy(number), float(weight.sum())
    diagram = reliability_of(
        width_edges(BINS), shown, full[:, CONFIDENCE] / weight, weight, full[:, CORRECT]
    )
    test = calibration_test(fine, rng, dispersion=dispersion)
    confidence = float(full[:, CONFIDENCE].sum()) / total
    low, high = accuracy.interval
    return MethodScore(
        method=method,
        fitted_rows=fitted_rows,
        accuracy=accuracy,
        confidence=confidence,
        gap=Estimate(test.gap, (confidence - high, confidence - low)),
        nll=sums.estimate(number, NLL),
        nll_change=sums.change(number),
        brier=sums.estimate(number, BRIER),
        ece=binned_interval(bins, diagram.ece, "l1", rng, dispersion),
        ece_by_chance=test.ece_by_chance,
        test=test,
        reliability=diagram,
    )
