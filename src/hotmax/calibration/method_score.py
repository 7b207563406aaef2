"""What a calibrator gives on rows that it was not fitted to: metrics with intervals, a verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import BINS, CONFIDENCE, CORRECT, ROWS, width_edges
from hotmax.calibration.bootstrap import REPLICATES, basic_bootstrap
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.reliability import Reliability, reliability_of, wilson
from hotmax.calibration.score_sums import BRIER, FINE_BINS, GAP, NLL, ScoreSums
from hotmax.calibration.verdict import sentence_of, verdict_of

BOOTSTRAP_CELLS = FINE_BINS  # of confidence, whose rows are resampled together
UNCALIBRATED = "none"  # the name of identity, which is no calibrator


@dataclass(frozen=True, eq=False)
class MethodScore:
    """What a calibrator gives on the scoring rows.

    Attributes:
        method: "none", or a method of `Calibrator`.
        fitted_rows: The rows it was fitted to.
        accuracy: With its Wilson interval.
        confidence: The mean confidence.
        gap: Mean confidence - accuracy.
        nll, brier: Means over rows, in nats and from 0 to 2.
        nll_change: nll less that of "none", from the differences in each row.
        ece: With a bootstrap interval.
        ece_by_chance: What 95 of 100 calibrated models would stay below on so many rows.
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
    reliability: Reliability

    @property
    def verdict(self) -> str:
        """Overconfident, underconfident or neither: see `hotmax.calibration.verdict`."""
        return verdict_of(self.gap, self.ece.value, self.ece_by_chance)

    @property
    def verdict_sentence(self) -> str:
        """The verdict with the mean confidence and the accuracy."""
        return sentence_of(self.verdict, self.confidence, self.accuracy.value)


def share_estimate(hits: float, rows: float) -> Estimate:
    low, high = wilson(np.array([hits]), np.array([rows]))
    return Estimate(float(hits / rows), (float(low[0]), float(high[0])))


def cell_error(rows: Array, confidence: Array, hits: Array) -> Array:
    """The ECE from (..., cells): rows, sums of confidence and sums of hits of each cell."""
    cells_per_bin = rows.shape[-1] // BINS
    gap = (confidence - hits).reshape(*rows.shape[:-1], BINS, cells_per_bin).sum(-1)
    error: Array = np.abs(gap).sum(-1) / rows.sum(-1)
    return error


def ece_estimate(cells: Array, value: float, rng: np.random.Generator) -> tuple[Estimate, float]:
    """(the ECE with its bootstrap interval, the ECE that 95 of 100 calibrated models stay below).

    `cells` are the sums of BOOTSTRAP_CELLS. Rows of one cell that are all right, or all wrong, are
    drawn together, and count as having the mean confidence of the cell.
    """
    right = np.rint(cells[:, CORRECT])
    wrong = cells[:, ROWS] - right
    with np.errstate(invalid="ignore"):
        mean = np.clip(np.nan_to_num(cells[:, CONFIDENCE] / cells[:, ROWS]), 0.0, 1.0)

    def statistic(drawn: Array) -> float:
        hits, misses = drawn[:BOOTSTRAP_CELLS], drawn[BOOTSTRAP_CELLS:]
        return float(cell_error(hits + misses, (hits + misses) * mean, hits))

    estimate = basic_bootstrap(value, np.concatenate([right, wrong]), statistic, rng, (0.0, 1.0))
    count = cells[:, ROWS].astype(np.int64)
    hits = rng.binomial(count, mean, (REPLICATES, BOOTSTRAP_CELLS))
    errors = cell_error(np.broadcast_to(count, hits.shape), count * mean, hits)
    return estimate, float(np.quantile(errors, 0.95))


def union_of_cells(cells: Array, edges: Array, bins: int) -> Array:
    """The sums of bins of equal width, each a union of cells."""
    starts = np.searchsorted(edges, width_edges(bins)[:-1])
    sums: Array = np.add.reduceat(cells, starts, axis=0)
    return sums


def method_score(
    method: str, fitted_rows: int, sums: ScoreSums, number: int, rng: np.random.Generator
) -> MethodScore:
    """The score of the method with this number among those that were summed."""
    cells = sums.cells[number].values()
    bins = union_of_cells(cells, sums.edges, BINS)
    full = cells[cells[:, ROWS] > 0]
    positions = full[:, CONFIDENCE] / full[:, ROWS]
    diagram = reliability_of(width_edges(BINS), bins, positions, full[:, ROWS], full[:, CORRECT])
    fine = union_of_cells(cells, sums.edges, BOOTSTRAP_CELLS)
    ece, by_chance = ece_estimate(fine, diagram.ece, rng)
    return MethodScore(
        method=method,
        fitted_rows=fitted_rows,
        accuracy=share_estimate(float(full[:, CORRECT].sum()), sums.rows),
        confidence=float(full[:, CONFIDENCE].sum()) / sums.rows,
        gap=sums.estimate(number, GAP),
        nll=sums.estimate(number, NLL),
        nll_change=sums.change(number),
        brier=sums.estimate(number, BRIER),
        ece=ece,
        ece_by_chance=by_chance,
        reliability=diagram,
    )
