"""The verdict on labelled predictions: overconfident, underconfident, or neither.

Reports and `hotmax calibrate` both take it from here.
"""

from __future__ import annotations

from hotmax.calibration.estimate import Estimate

OVERCONFIDENT = "overconfident"
UNDERCONFIDENT = "underconfident"
MISCALIBRATED = "miscalibrated in places"
NOT_FOUND = "no miscalibration found"


def verdict_of(gap: Estimate, ece: float, ece_by_chance: float) -> str:
    """Judge a gap and a calibration error, each at the 5 % level.

    Args:
        gap: Mean confidence - accuracy, with its 95 % interval. An interval that leaves 0 out
            makes predictions over- or underconfident.
        ece: The expected calibration error. Where the gap leaves it open, an error above
            `ece_by_chance` means that some predictions are too confident and others not enough.
        ece_by_chance: What 95 of 100 calibrated models would stay below on as many rows.
    """
    low, high = gap.interval
    if low > 0.0:
        return OVERCONFIDENT
    if high < 0.0:
        return UNDERCONFIDENT
    return MISCALIBRATED if ece > ece_by_chance else NOT_FOUND


def sentence_of(verdict: str, confidence: float, accuracy: float) -> str:
    """A verdict with the mean confidence and the accuracy that it is about."""
    return f"{verdict}: says {100 * confidence:.1f} %, is right {100 * accuracy:.1f} %"
