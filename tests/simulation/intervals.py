"""How often the intervals of ECE and smooth ECE hold the true error.

Two classes. A prediction of confidence c is right with probability c - d: overconfident by d
everywhere ("one sign"), or by d and by -d in turn over nine ranges of confidence ("both signs").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import hotmax as hm

ERRORS = (0.0, 0.015, 0.05, 0.13)
ROWS = (200, 1000, 10_000)
SHAPES = ("one sign", "both signs", "sure")


def confidences(shape: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    if shape == "sure":
        return 1.0 - 0.4 * rng.random(rows) ** 6
    return 0.5 + 0.5 * rng.random(rows)


def right_with(confidence: np.ndarray, shape: str, error: float) -> np.ndarray:
    sign = np.where((confidence * 18).astype(int) % 2, 1.0, -1.0) if shape == "both signs" else 1.0
    return np.clip(confidence - sign * error, 0.0, 1.0)


def rows_of(confidence: np.ndarray) -> np.ndarray:
    return np.stack([confidence, 1.0 - confidence], axis=1)


def true_error(metric: Callable[..., float], shape: str, error: float) -> float:
    """That of the whole population: 200,000 rows, whose labels are their probabilities."""
    c = confidences(shape, 200_000, np.random.default_rng(99))
    truth = rows_of(right_with(c, shape, error))
    return metric(rows_of(c), truth, input="probabilities")


def coverage(
    metric: Callable[..., hm.calibration.Estimate],
    shape: str,
    error: float,
    rows: int,
    sets: int,
    seed: int,
) -> tuple[float, float, float]:
    """(the share of intervals that hold the true error, that contain their estimate, mean width)"""
    true = true_error(metric, shape, error)
    rng = np.random.default_rng(seed)
    held = own = wide = 0.0
    for _ in range(sets):
        c = confidences(shape, rows, rng)
        labels = (rng.random(rows) >= right_with(c, shape, error)).astype(int)
        one = metric(rows_of(c), labels, input="probabilities", interval=True)
        low, high = one.interval
        held += low <= true <= high
        own += low <= one.value <= high
        wide += high - low
    return held / sets, own / sets, wide / sets
