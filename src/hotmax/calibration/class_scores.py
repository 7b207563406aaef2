"""The classes whose predictions are most overconfident."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.reliability import wilson
from hotmax.calibration.score_sums import HITS, ROWS, SURE, ScoreSums
from hotmax.calibration.weighted_sums import WeightedSums

WORST = 10  # classes to show
LEAST_CLASS_ROWS = 10  # rows in which a class must be predicted to be among them


@dataclass(frozen=True)
class ClassScore:
    """The rows in which one class is predicted: how sure, and how often right.

    `accuracy` has a Wilson interval; `gap_after` is the gap at the fitted temperature. Rows of
    unequal weight count as fewer equal ones, and soft labels as labels that are drawn.
    """

    number: int
    rows: int
    confidence: float
    accuracy: Estimate
    gap: float
    gap_after: float


def class_rows(sums: ScoreSums) -> tuple[Array, Array]:
    """(rows in which each class is predicted, rows of equal weight that are as certain)."""
    weight = sums.classes.values()[:, ROWS]
    if not isinstance(sums, WeightedSums):
        return weight, weight
    rows, squares = sums.class_rows.values().T
    with np.errstate(invalid="ignore", divide="ignore"):
        return rows, np.where(squares > 0, weight**2 / squares, 0.0)


def class_scores(sums: ScoreSums) -> tuple[ClassScore, ...]:
    before, after = np.split(sums.classes.values(), 2, axis=1)
    weight, hits, sure = before[:, ROWS], before[:, HITS], before[:, SURE]
    rows, effective = class_rows(sums)
    there = np.flatnonzero(effective >= LEAST_CLASS_ROWS)
    share = hits[there] / weight[there]
    certain = hits if effective is rows else hits / np.where(weight > 0, weight, 1.0) * effective
    low, high = wilson(certain[there], effective[there])
    surely = sure[there] / weight[there] - high  # the gap, at least
    found = []
    for at in np.argsort(-surely, kind="stable")[:WORST]:
        c = there[at]
        confidence = float(sure[c] / weight[c])
        later = after[c, ROWS]
        found.append(
            ClassScore(
                number=int(c),
                rows=int(rows[c]),
                confidence=confidence,
                accuracy=Estimate(float(share[at]), (float(low[at]), float(high[at]))),
                gap=confidence - float(share[at]),
                gap_after=float((after[c, SURE] - after[c, HITS]) / later) if later else math.nan,
            )
        )
    return tuple(found)
