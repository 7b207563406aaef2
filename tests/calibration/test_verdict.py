"""The verdict: which intervals of the gap, and which calibration errors, give which words."""

from __future__ import annotations

import pytest

from hotmax.calibration.estimate import Estimate
from hotmax.calibration.verdict import sentence_of, verdict_of

TINY = 1e-12


@pytest.mark.parametrize(
    ("interval", "ece", "verdict"),
    [
        ((TINY, 0.2), 0.0, "overconfident"),
        ((TINY, 0.2), 1.0, "overconfident"),
        ((-0.2, -TINY), 0.0, "underconfident"),
        ((0.0, 0.2), 0.05, "no miscalibration found"),
        ((-0.2, 0.0), 0.05, "no miscalibration found"),
        ((-0.1, 0.1), 0.05 + TINY, "miscalibrated in places"),
    ],
)
def test_the_verdict(interval, ece, verdict):
    """Over- or underconfident where the interval of the gap leaves 0 out, however narrowly."""
    gap = Estimate(sum(interval) / 2.0, interval)
    assert verdict_of(gap, ece, 0.05) == verdict


def test_the_sentence():
    assert (
        sentence_of("overconfident", 0.86, 0.731) == "overconfident: says 86.0 %, is right 73.1 %"
    )
