"""The verdict on labelled predictions: overconfident, underconfident, or neither.

Reports and `hotmax calibrate` both take it from here.
"""

from __future__ import annotations

from hotmax.calibration.chance import CalibrationTest

OVERCONFIDENT = "overconfident"
UNDERCONFIDENT = "underconfident"
MISCALIBRATED = "miscalibrated in places"
NOT_FOUND = "no miscalibration found"


def verdict_of(test: CalibrationTest) -> str:
    """The words for a test, at its family-wise level.

    A closed test: where both statistics together are no chance, the gap by itself says whether
    predictions are too confident or not enough. Otherwise some are and others are not.
    """
    if test.p_value > test.level:
        return NOT_FOUND
    if test.gap_p_value > test.level:
        return MISCALIBRATED
    return OVERCONFIDENT if test.gap > 0.0 else UNDERCONFIDENT


def sentence_of(verdict: str, confidence: float, accuracy: float) -> str:
    """A verdict with the mean confidence and the accuracy that it is about."""
    return f"{verdict}: says {100 * confidence:.1f} %, is right {100 * accuracy:.1f} %"


def level_of(test: CalibrationTest) -> str:
    """How sure a verdict is, in words."""
    smallest = 0.001
    value = f"p < {smallest:g}" if test.p_value <= smallest else f"p = {test.p_value:.3f}"
    return (
        f"{value}; of 100 calibrated models the test would find fault with "
        f"{100 * test.level:g} at most"
    )
