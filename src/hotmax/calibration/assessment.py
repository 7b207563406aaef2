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
from hotmax.calibration import conformal
from hotmax.calibration.binning import BINS
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.examples import Examples
from hotmax.calibration.families import FAMILIES, logits_of
from hotmax.calibration.holdout import held_out
from hotmax.calibration.method_score import (
    UNCALIBRATED,
    MethodScore,
    method_score,
    scores_at,
    scores_by,
    share_estimate,
)
from hotmax.calibration.one_standard_error import compare_losses
from hotmax.calibration.ranks import Ranked, groups_aurc, groups_risk
from hotmax.calibration.reliability import RiskCoverage, wilson
from hotmax.calibration.scores import Scores
from hotmax.calibration.temperature import curve_of, fit_examples
from hotmax.calibration.temperature_fit import TemperatureFit

MOST_ROWS = 20_000  # to fit a calibrator with many parameters to
MOST_LOGITS = 1 << 22  # in those rows
MOST_CLASSES = {"matrix": 30, "dirichlet": 30, "histogram": 100, "isotonic": 100}
WORST = 10  # classes to show
LEAST_CLASS_ROWS = 10  # rows in which a class must be predicted to be among them
COVERAGES = (0.9, 0.95, 0.99)

Progress = Callable[[str, float], None]


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
        worst_classes: The most overconfident classes of those predicted in LEAST_CLASS_ROWS rows
            or more, the surest first.
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
    worst_classes: tuple[ClassScore, ...]
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
        """That on the predictions before calibration."""
        return self.before.verdict


def sampled_rows(where: Array, most: int, rng: np.random.Generator) -> Array:
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
    there = np.flatnonzero(rows >= LEAST_CLASS_ROWS)
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
    parts = [examples.taking(sampled_rows(where, most, rng)) for where in (fitting, scoring)]
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


def assess(examples: Examples, seed: int, progress: Progress) -> Assessment:
    """Split, fit, score."""
    rows, classes = examples.rows, examples.classes
    if rows < 2:
        raise ValueError("labels need at least 2 rows: one half to fit on, one half to score on")
    rng = np.random.default_rng(seed)
    scoring = held_out(rows, 0.5, rng)
    fitting = ~scoring
    first = replace(examples, weights=fitting.astype(np.float64))
    progress("fitting the temperature", 0.35)
    fit = fit_examples(first)
    fit = replace(fit, curve=curve_of(first, fit))
    progress("scoring", 0.45)
    before = scores_at(examples, scoring, 1.0)
    after = scores_at(examples, scoring, fit.temperature)
    losses = {UNCALIBRATED: before.nll, "temperature": after.nll}
    scores = [
        method_score(UNCALIBRATED, 0, before, before.nll, rng),
        method_score("temperature", int(fitting.sum()), after, before.nll, rng),
    ]
    tried, left_out = candidates(classes)
    sample = examples.taking(sampled_rows(fitting, row_limit(classes), rng))
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
        advised=compare_losses(losses, np.full(before.nll.size, 1.0 / before.nll.size)).chosen,
        left_out=tuple(left_out),
        worst_classes=class_scores(before, after, classes),
        risk=RiskCoverage(*groups_risk(ranked), groups_aurc(ranked)),
        sets=sets,
        set_rows=set_rows,
    )
