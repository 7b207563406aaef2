"""How often the verdict finds fault: with calibrated models, and with overconfident ones.

The test is written anew here in NumPy, for many sets of labels at once that share their logits and
the null distribution. `real_share` runs hotmax's own function, to show that both agree.
"""

from __future__ import annotations

import numpy as np

from hotmax.calibration.method_score import method_score
from hotmax.calibration.row_parts import row_parts
from hotmax.calibration.score_sums import Method, ScoreMethods
from hotmax.calibration.verdict import NOT_FOUND
from simulation.models import draw_labels, logits_of, probabilities_of

LEVEL, SAMPLES, BINS = 0.05, 999, 15


def statistics(confidence: np.ndarray, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(|gap|, ECE) of sets of hits, which share their confidences."""
    place = np.minimum(np.ceil(confidence * BINS).astype(int) - 1, BINS - 1)
    inside = (place[:, None] == np.arange(BINS)).astype(np.float32)
    right = hits.astype(np.float32) @ inside  # counts, which float32 holds exactly
    gaps = (confidence @ inside.astype(np.float64) - right) / confidence.size
    return np.round(np.abs(gaps.sum(1)), 12), np.round(np.abs(gaps).sum(1), 12)


def shares_above(values: np.ndarray, null: np.ndarray) -> np.ndarray:
    """p-values: the share of the null distribution, and of the value itself, that is no smaller."""
    below = np.searchsorted(np.sort(null), values, side="left")
    return (null.size - below + 1) / (null.size + 1)


def false_share(
    kind: str, classes: int, rows: int, sets: int, seed: int, temperature: float = 1.0
) -> float:
    """The share of sets in which the test rejects, by NumPy: the labels have this temperature."""
    rng = np.random.default_rng(seed)
    groups = 20 if sets >= 400 else 10
    rejected = 0
    for _ in range(groups):
        z = logits_of(kind, rows, classes, rng)
        p = probabilities_of(z)
        confidence, best = p.max(1), p.argmax(1)
        right = probabilities_of(z, temperature)[np.arange(rows), best]
        hits = rng.random((sets // groups, rows)) < right
        null = rng.random((SAMPLES, rows), np.float32) < confidence.astype(np.float32)
        p_null, p_here = [], []
        for here, there in zip(
            statistics(confidence, hits), statistics(confidence, null), strict=True
        ):
            p_here.append(shares_above(here, there))
            p_null.append(shares_above(there, there))
        least = -np.min(p_here, axis=0)
        rejected += int((shares_above(least, -np.min(p_null, axis=0)) <= LEVEL).sum())
    return rejected / (sets // groups * groups)


def real_share(
    kind: str, classes: int, rows: int, sets: int, seed: int, temperature: float = 1.0
) -> float:
    """The same by the function that `hotmax report` and `hotmax calibrate` call."""
    rng = np.random.default_rng(seed)
    found = 0
    for number in range(sets):
        z = logits_of(kind, rows, classes, rng)
        sums = row_parts(z, draw_labels(z, rng, temperature)).run(
            ScoreMethods((Method("none", 1.0),), None)
        )
        score = method_score("none", 0, sums, 0, np.random.default_rng(number))
        found += score.verdict != NOT_FOUND
    return found / sets
