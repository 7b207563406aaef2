"""Thresholds on confidence tested one after the other, from strict to lenient, by exact tests.

A pilot lays down the sequence, and other rows test it up to the first threshold that fails, so that
the level holds for all of them together. Counts are (rows, right ones) of each cell of confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binomial import binomial_tail

MOST_THRESHOLDS = 200  # in a sequence


def above(counts: Array) -> Array:
    """For each lower edge of a cell, (rows, right ones) of a confidence above it."""
    cumulative: Array = counts[::-1].cumsum(0)[::-1]
    return cumulative


def sequence_of(pilot: Array, testing_rows: int, error: float) -> list[int]:
    """The cells at whose lower edges thresholds are tried, from strict to lenient.

    The first is the one that the pilot expects the clearest result of.
    """
    tail = above(pilot)
    total = int(tail[0, 0])
    if not total:
        return []
    aims = np.unique(
        np.ceil(np.arange(1, MOST_THRESHOLDS + 1) / MOST_THRESHOLDS * total).astype(np.int64)
    )
    # The strictest edge above which so many rows lie.
    at = sorted({int(np.flatnonzero(tail[:, 0] >= aim)[-1]) for aim in aims}, reverse=True)

    def clarity(cell: int) -> float:
        rows, right = tail[cell]
        expected = (rows - right + 0.5) / (rows + 1.0)
        if expected >= error:
            return 0.0
        n = testing_rows * rows / total
        gain = expected * math.log(expected / error)
        gain += (1 - expected) * math.log((1 - expected) / (1 - error))
        return float(n * gain)

    clearest = max(range(len(at)), key=lambda i: clarity(at[i]))
    return at[clearest:]


def passed(testing: Array, sequence: Sequence[int], error: float, level: float) -> int | None:
    """The last cell of the sequence before the first one that fails; None if that is the first."""
    tail, found = above(testing), None
    for cell in sequence:
        rows, right = map(int, tail[cell])
        if not rows or binomial_tail(rows - right, rows, error) > level:
            break
        found = cell
    return found
