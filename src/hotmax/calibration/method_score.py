"""What a calibrator gives on rows that it was not fitted to: metrics with intervals, a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration.binning import BINS, CONFIDENCE, ROWS, bin_sums, width_edges
from hotmax.calibration.bootstrap import REPLICATES, basic_bootstrap
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.examples import Examples, step_of
from hotmax.calibration.families import FAMILIES, SMALLEST_POSITIVE, Parameters, logits_of
from hotmax.calibration.one_standard_error import differences
from hotmax.calibration.reliability import NORMAL, Reliability, reliability_of, wilson
from hotmax.calibration.scores import Scores, score, score_probabilities
from hotmax.calibration.verdict import sentence_of, verdict_of

BOOTSTRAP_CELLS = 480  # of confidence, whose rows are resampled together: a multiple of BINS
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


def normal_estimate(values: Array) -> Estimate:
    """The mean of rows, with 1.96 standard errors."""
    mean = float(values.mean())
    if not math.isfinite(mean):
        return Estimate(mean, (mean, mean))
    width = NORMAL * float(values.std(ddof=1)) / math.sqrt(values.size) if values.size > 1 else 0.0
    return Estimate(
        mean, (mean - width, mean + width) if values.size > 1 else (-math.inf, math.inf)
    )


def share_estimate(hits: float, rows: float) -> Estimate:
    low, high = wilson(np.array([hits]), np.array([rows]))
    return Estimate(float(hits / rows), (float(low[0]), float(high[0])))


def cell_error(rows: Array, confidence: Array, hits: Array) -> Array:
    """The ECE from (..., cells): rows, sums of confidence and sums of hits of each cell."""
    cells_per_bin = rows.shape[-1] // BINS
    gap = (confidence - hits).reshape(*rows.shape[:-1], BINS, cells_per_bin).sum(-1)
    error: Array = np.abs(gap).sum(-1) / rows.sum(-1)
    return error


def ece_estimate(rows: Scores, value: float, rng: np.random.Generator) -> tuple[Estimate, float]:
    """(the ECE with its bootstrap interval, the ECE that 95 of 100 calibrated models stay below).

    Rows of one narrow cell of confidence that are all right, or all wrong, are drawn together, and
    count as having their mean confidence.
    """
    edges = width_edges(BOOTSTRAP_CELLS)
    right, wrong = (
        bin_sums(rows.confidence[part], rows.correct[part], np.ones(1), edges)
        for part in (rows.correct > 0.5, rows.correct <= 0.5)
    )
    with np.errstate(invalid="ignore"):
        means = [np.nan_to_num(part[:, CONFIDENCE] / part[:, ROWS]) for part in (right, wrong)]

    def statistic(drawn: Array) -> float:
        hits, misses = drawn[:BOOTSTRAP_CELLS], drawn[BOOTSTRAP_CELLS:]
        return float(cell_error(hits + misses, hits * means[0] + misses * means[1], hits))

    groups = np.concatenate([right[:, ROWS], wrong[:, ROWS]])
    estimate = basic_bootstrap(value, groups, statistic, rng, (0.0, 1.0))
    return estimate, ece_by_chance(right[:, ROWS], wrong[:, ROWS], means, rng)


def ece_by_chance(
    right: Array, wrong: Array, means: list[Array], rng: np.random.Generator
) -> float:
    """The ECE that 95 of 100 calibrated models with these confidences stay below."""
    count = (right + wrong).astype(np.int64)
    with np.errstate(invalid="ignore"):
        mean = np.clip(np.nan_to_num((right * means[0] + wrong * means[1]) / count), 0.0, 1.0)
    hits = rng.binomial(count, mean, (REPLICATES, BOOTSTRAP_CELLS))
    errors = cell_error(np.broadcast_to(count, hits.shape), count * mean, hits)
    return float(np.quantile(errors, 0.95))


def method_score(
    method: str, fitted_rows: int, rows: Scores, before: Array, rng: np.random.Generator
) -> MethodScore:
    edges = width_edges(BINS)
    sums = bin_sums(rows.confidence, rows.correct, np.ones(1), edges)
    weights = np.ones(rows.confidence.size)
    diagram = reliability_of(edges, sums, rows.confidence, weights, rows.correct)
    ece, by_chance = ece_estimate(rows, diagram.ece, rng)
    return MethodScore(
        method=method,
        fitted_rows=fitted_rows,
        accuracy=share_estimate(float(rows.correct.sum()), rows.correct.size),
        confidence=float(rows.confidence.mean()),
        gap=normal_estimate(rows.confidence - rows.correct),
        nll=normal_estimate(rows.nll),
        nll_change=normal_estimate(differences(rows.nll, before)),
        brier=normal_estimate(rows.brier),
        ece=ece,
        ece_by_chance=by_chance,
        reliability=diagram,
    )


def taken(rows: Scores, kept: Array) -> Scores:
    return Scores(
        rows.confidence[kept],
        rows.correct[kept],
        rows.nll[kept],
        rows.brier[kept],
        rows.predictions[kept],
        np.ones(1),
        rows.dtype,
    )


def scores_at(examples: Examples, kept: Array, temperature: float) -> Scores:
    """Rows where `kept`, at a temperature."""
    return taken(score(replace(examples, weights=kept.astype(np.float64)), temperature), kept)


def scores_by(examples: Examples, kept: Array, method: str, parameters: Parameters) -> Scores:
    """Rows where `kept`, after a calibrator, in blocks."""
    count = int(kept.sum())
    scores, predictions = np.empty((kernels.SCORED, count)), np.empty(count, np.int64)
    step, at = step_of(examples.classes), 0
    for start in range(0, examples.rows, step):
        index = start + np.flatnonzero(kept[start : start + step])
        part = examples.taking(index)
        p = np.maximum(FAMILIES[method].apply(logits_of(part), parameters), SMALLEST_POSITIVE)
        here = slice(at, at + index.size)
        score_probabilities(p, part.labels, part.soft, predictions[here], scores[:, here])
        at += index.size
    return Scores(
        scores[kernels.CONFIDENCE],
        scores[kernels.CORRECT],
        scores[kernels.LOSS],
        scores[kernels.BRIER],
        predictions,
        np.ones(1),
        np.float64,
    )
