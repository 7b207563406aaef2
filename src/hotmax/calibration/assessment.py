"""The numbers behind a report: labelled predictions before and after calibration.

Rows are split once, at random: one half fits the calibrators, the other scores them. Large data is
read in blocks, and never copied as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration import conformal
from hotmax.calibration.binning import CONFIDENCE, ROWS, bin_sums, width_edges
from hotmax.calibration.estimate import REPLICATES, Estimate
from hotmax.calibration.examples import Examples, step_of
from hotmax.calibration.families import FAMILIES, Parameters, logits_of
from hotmax.calibration.ranks import Ranked, groups_aurc, groups_risk
from hotmax.calibration.reliability import (
    NORMAL,
    Reliability,
    RiskCoverage,
    reliability_of,
    wilson,
)
from hotmax.calibration.scores import Scores, score, score_probabilities
from hotmax.calibration.temperature import curve_of, fit_examples
from hotmax.calibration.temperature_fit import TemperatureFit

BINS = 15
CELLS = 480  # of confidence, whose rows are resampled together: a multiple of BINS
MOST_ROWS = 20_000  # to fit a calibrator with many parameters to
MOST_LOGITS = 1 << 22  # in those rows
MOST_CLASSES = {"matrix": 30, "dirichlet": 30, "histogram": 100, "isotonic": 100}
WORST = 10  # classes to show
LEAST = 10  # rows in which a class must be predicted to be among them
COVERAGES = (0.9, 0.95, 0.99)
NONE = "none"  # the name of identity, which is no calibrator

Progress = Callable[[str, float], None]


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


@dataclass(frozen=True)
class ClassScore:
    """The rows in which one class is predicted: how sure, and how often right.

    `accuracy` has a Wilson interval; `gap_after` is the gap at the fitted temperature.
    """

    number: int
    rows: int
    confidence: float
    accuracy: Estimate
    gap: float
    gap_after: float


@dataclass(frozen=True)
class SetScore:
    """Conformal sets on the scoring rows: `coverage` with a Wilson interval, and their sizes."""

    method: str
    promised: float
    coverage: Estimate
    mean_size: float
    single: float
    rows: int


@dataclass(frozen=True, eq=False)
class Assessment:
    """All that a report says about labelled predictions.

    Attributes:
        fit_rows, score_rows: The two halves.
        fit: The temperature of the first.
        scores: On the second; "none" first, then from the simplest on.
        advised: The simplest method within one standard error of the best nll.
        left_out: (method, why) of calibrators that were not tried.
        classes: The most overconfident of those with LEAST rows or more, the surest first.
        risk: The risk-coverage curve before calibration.
        sets: Conformal sets.
        set_rows: (rows of their fit, rows of their score).
    """

    fit_rows: int
    score_rows: int
    fit: TemperatureFit
    scores: tuple[MethodScore, ...]
    advised: str
    left_out: tuple[tuple[str, str], ...]
    classes: tuple[ClassScore, ...]
    risk: RiskCoverage
    sets: tuple[SetScore, ...]
    set_rows: tuple[int, int]

    @property
    def before(self) -> MethodScore:
        return self.scores[0]

    def score(self, method: str) -> MethodScore:
        return next(one for one in self.scores if one.method == method)

    @property
    def verdict(self) -> str:
        """One word, or a few."""
        low, high = self.before.gap.interval
        if low > 0.0:
            return "overconfident"
        if high < 0.0:
            return "underconfident"
        if self.before.ece.value > self.before.ece_by_chance:
            return "miscalibrated in places"
        return "no miscalibration found"


# --- one method -------------------------------------------------------------------------------


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


def differences(after: Array, before: Array) -> Array:
    """after - before; 0 where both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(after == before, 0.0, after - before)


def cell_error(rows: Array, confidence: Array, hits: Array) -> Array:
    """The ECE of each replicate, from (replicates, cells): rows, sums of confidence and of hits."""
    per = rows.shape[-1] // BINS
    gap = (confidence - hits).reshape(*rows.shape[:-1], BINS, per).sum(-1)
    error: Array = np.abs(gap).sum(-1) / rows.sum(-1)
    return error


def error_estimate(rows: Scores, value: float, rng: np.random.Generator) -> tuple[Estimate, float]:
    """(the ECE with its basic bootstrap interval, what chance alone would give).

    Rows of one narrow cell of confidence are drawn together, by a multinomial: the rows within it
    count as having its mean confidence.
    """
    edges = width_edges(CELLS)
    one = np.ones(1)
    sums = [
        bin_sums(rows.confidence[part], rows.correct[part], one, edges)
        for part in (rows.correct > 0.5, rows.correct <= 0.5)
    ]
    right, wrong = sums[0][:, ROWS], sums[1][:, ROWS]
    total = int(right.sum() + wrong.sum())
    with np.errstate(invalid="ignore"):
        means = [np.nan_to_num(part[:, CONFIDENCE] / part[:, ROWS]) for part in sums]
    drawn = rng.multinomial(total, np.concatenate([right, wrong]) / total, REPLICATES)
    hits, misses = drawn[:, :CELLS], drawn[:, CELLS:]
    resampled = cell_error(hits + misses, hits * means[0] + misses * means[1], hits)
    bottom, top = np.quantile(resampled, [0.025, 0.975])
    low, high = np.clip([2 * value - top, 2 * value - bottom], 0.0, 1.0)
    count = (right + wrong).astype(np.int64)
    with np.errstate(invalid="ignore"):
        mean = np.clip(np.nan_to_num((right * means[0] + wrong * means[1]) / count), 0.0, 1.0)
    lucky = rng.binomial(count, mean, (REPLICATES, CELLS))
    calibrated = cell_error(np.broadcast_to(count, lucky.shape), count * mean, lucky)
    return Estimate(value, (float(low), float(high))), float(np.quantile(calibrated, 0.95))


def method_score(
    method: str, fitted_rows: int, rows: Scores, before: Array, rng: np.random.Generator
) -> MethodScore:
    edges = width_edges(BINS)
    sums = bin_sums(rows.confidence, rows.correct, np.ones(1), edges)
    weights = np.ones(rows.confidence.size)
    diagram = reliability_of(edges, sums, rows.confidence, weights, rows.correct)
    ece, by_chance = error_estimate(rows, diagram.ece, rng)
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


def taken(rows: Scores, keep: Array) -> Scores:
    return Scores(
        rows.confidence[keep],
        rows.correct[keep],
        rows.nll[keep],
        rows.brier[keep],
        rows.predictions[keep],
        np.ones(1),
        rows.dtype,
    )


def scores_at(examples: Examples, kept: Array, temperature: float) -> Scores:
    """Rows where `kept`, at a temperature."""
    return taken(score(replace(examples, weights=kept.astype(np.float64)), temperature), kept)


def scores_by(examples: Examples, kept: Array, method: str, parameters: Parameters) -> Scores:
    """Rows where `kept`, after a calibrator, some at a time."""
    count = int(kept.sum())
    scores, predictions = np.empty((kernels.SCORED, count)), np.empty(count, np.int64)
    step, at = step_of(examples.classes), 0
    for start in range(0, examples.rows, step):
        index = start + np.flatnonzero(kept[start : start + step])
        part = examples.taking(index)
        p = FAMILIES[method].apply(logits_of(part), parameters)
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


# --- all of them ------------------------------------------------------------------------------


def some(where: Array, most: int, rng: np.random.Generator) -> Array:
    """Numbers of rows where True: all, or `most` of them drawn at random, in order."""
    index = np.flatnonzero(where)
    return index if index.size <= most else np.sort(rng.choice(index, most, replace=False))


def row_limit(classes: int) -> int:
    return max(min(MOST_ROWS, MOST_LOGITS // classes), 1)


def candidates(classes: int) -> tuple[list[str], list[tuple[str, str]]]:
    """(methods to try, those left out and why), from the simplest on."""
    tried, left_out = [], []
    order = sorted(FAMILIES, key=lambda method: FAMILIES[method].size(classes, BINS))
    for method in order:
        if method in ("identity", "temperature"):
            continue
        if FAMILIES[method].two_classes and classes != 2:
            left_out.append((method, "is for two classes"))
        elif classes > MOST_CLASSES.get(method, classes):
            left_out.append((method, f"is tried on up to {MOST_CLASSES[method]} classes"))
        else:
            tried.append(method)
    return tried, left_out


def class_scores(before: Scores, after: Scores, classes: int) -> tuple[ClassScore, ...]:
    rows = np.bincount(before.predictions, minlength=classes)
    hits = np.bincount(before.predictions, before.correct, classes)
    sure = np.bincount(before.predictions, before.confidence, classes)
    later = np.bincount(after.predictions, after.confidence - after.correct, classes)
    later_rows = np.bincount(after.predictions, minlength=classes)
    there = np.flatnonzero(rows >= LEAST)
    _, high = wilson(hits[there], rows[there].astype(np.float64))
    surely = sure[there] / rows[there] - high  # the gap, at least
    found = []
    for c in there[np.argsort(-surely, kind="stable")][:WORST]:
        confidence = float(sure[c] / rows[c])
        found.append(
            ClassScore(
                number=int(c),
                rows=int(rows[c]),
                confidence=confidence,
                accuracy=share_estimate(float(hits[c]), float(rows[c])),
                gap=confidence - float(hits[c] / rows[c]),
                gap_after=float(later[c] / later_rows[c]) if later_rows[c] else math.nan,
            )
        )
    return tuple(found)


def set_scores(
    examples: Examples, fitting: Array, scoring: Array, rng: np.random.Generator
) -> tuple[tuple[SetScore, ...], tuple[int, int]]:
    most = max(MOST_LOGITS // examples.classes, 1)
    parts = [examples.taking(some(where, most, rng)) for where in (fitting, scoring)]
    (z, y), (test, truth) = ((logits_of(part), part.labels) for part in parts)
    found = []
    for method in ("lac", "aps"):
        for coverage in COVERAGES:
            fitted = conformal.fit(z, y, coverage=coverage, method=method)
            result = fitted.evaluate(test, truth)
            found.append(
                SetScore(
                    method=method,
                    promised=coverage,
                    coverage=share_estimate(result.coverage * result.rows, result.rows),
                    mean_size=result.mean_size,
                    single=float(result.sizes[1] / result.rows),
                    rows=result.rows,
                )
            )
    return tuple(found), (len(y), len(truth))


def advised_of(losses: dict[str, Array]) -> str:
    """The first, which is the simplest, whose nll is within one standard error of the least."""
    means = {method: float(values.mean()) for method, values in losses.items()}
    best = min(means, key=lambda method: means[method])
    for method, values in losses.items():
        excess = differences(values, losses[best])
        error = float(excess.std(ddof=1)) / math.sqrt(excess.size) if excess.size > 1 else 0.0
        if float(excess.mean()) <= error:
            return method
    return best


def assess(examples: Examples, seed: int, progress: Progress) -> Assessment:
    """Split, fit, score."""
    rows, classes = examples.rows, examples.classes
    if rows < 2:
        raise ValueError("labels need at least 2 rows: one half to fit on, one half to score on")
    rng = np.random.default_rng(seed)
    fitting = np.zeros(rows, np.bool_)
    fitting[rng.permutation(rows)[: rows // 2]] = True
    scoring = ~fitting
    first = replace(examples, weights=fitting.astype(np.float64))
    progress("fitting the temperature", 0.35)
    fit = fit_examples(first)
    fit = replace(fit, curve=curve_of(first, fit))
    progress("scoring", 0.45)
    before = scores_at(examples, scoring, 1.0)
    after = scores_at(examples, scoring, fit.temperature)
    losses = {NONE: before.nll, "temperature": after.nll}
    scores = [
        method_score(NONE, 0, before, before.nll, rng),
        method_score("temperature", int(fitting.sum()), after, before.nll, rng),
    ]
    tried, left_out = candidates(classes)
    sample = examples.taking(some(fitting, row_limit(classes), rng))
    for number, method in enumerate(tried):
        progress(f"fitting {method}", 0.5 + 0.4 * number / len(tried))
        try:
            parameters = FAMILIES[method].fit(sample, 1.0, BINS)
        except ImportError as error:
            left_out.append((method, str(error)))
            continue
        result = scores_by(examples, scoring, method, parameters)
        losses[method] = result.nll
        scores.append(method_score(method, sample.rows, result, before.nll, rng))
    progress("prediction sets", 0.9)
    sets, set_rows = set_scores(examples, fitting, scoring, rng)
    ranked = Ranked(before).sums(np.ones(1))
    return Assessment(
        fit_rows=int(fitting.sum()),
        score_rows=int(scoring.sum()),
        fit=fit,
        scores=tuple(scores),
        advised=advised_of(losses),
        left_out=tuple(left_out),
        classes=class_scores(before, after, classes),
        risk=RiskCoverage(*groups_risk(ranked), groups_aurc(ranked)),
        sets=sets,
        set_rows=set_rows,
    )
