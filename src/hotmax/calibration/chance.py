"""The test of calibration: could these labels have been drawn from the model's own probabilities?

Under the null hypothesis each prediction is right with the probability that it states. The numbers
of right predictions are then drawn anew, SAMPLES times, from the sums of cells of confidence, and
two statistics are compared with what they give: the gap, mean confidence - accuracy, and the ECE.
For rows with weights and soft labels the draws have the variance that `label_noise` states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import BINS, CONFIDENCE, CORRECT, ROWS, WEIGHT
from hotmax.calibration.label_noise import drawn_sums

LEVEL = 0.05  # of all tests together: a calibrated model is found wanting no more often
SAMPLES = 999  # so that the smallest p-value is 0.001


@dataclass(frozen=True)
class CalibrationTest:
    """The test of the hypothesis that predictions are calibrated.

    Attributes:
        gap: Mean confidence - accuracy.
        p_value: That of both tests together: the smaller p-value of the two, compared with the
            smaller ones of the samples. At most `level` in at most this share of calibrated models.
        gap_p_value, ece_p_value: Those of the gap, two-sided, and of the ECE, each by itself.
        gap_by_chance: The gaps of 95 of 100 calibrated models lie in this range.
        ece_by_chance: The ECE of 95 of 100 calibrated models is no higher.
        level: The family-wise level of the verdict.
    """

    gap: float
    p_value: float
    gap_p_value: float
    ece_p_value: float
    gap_by_chance: tuple[float, float]
    ece_by_chance: float
    level: float = LEVEL


def calibration_test(
    cells: Array,
    rng: np.random.Generator,
    samples: int = SAMPLES,
    dispersion: Array | None = None,
) -> CalibrationTest:
    """Test sums of cells of confidence of equal width, whose number is a multiple of BINS.

    Rows of one cell count as having its mean confidence. With 32 cells in each bin that changes
    the variance of the gap by less than 1e-6. `dispersion`: of each bin, where rows have weights or
    soft labels.
    """
    full = np.flatnonzero(cells[:, WEIGHT] > 0)
    said, place = cells[full, CONFIDENCE], full // (len(cells) // BINS)
    hits = np.empty((samples + 1, full.size))
    hits[0] = cells[full, CORRECT]  # those that came, then those that are drawn
    if dispersion is None:
        count = cells[full, ROWS].astype(np.int64)
        total: float = int(count.sum())
        hits[1:] = rng.binomial(count, np.clip(said / count, 0.0, 1.0), (samples, full.size))
    else:
        total = float(cells[full, WEIGHT].sum())
        hits[1:] = drawn_sums(rng, cells[full], dispersion[place], samples)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    gaps = np.add.reduceat(said - hits, starts, axis=1) / total
    gap, ece = gaps.sum(axis=1), np.abs(gaps).sum(axis=1)
    each = np.stack([tail_shares(np.abs(gap)), tail_shares(ece)])
    together = tail_shares(-each.min(axis=0))
    return CalibrationTest(
        gap=float(gap[0]),
        p_value=float(together[0]),
        gap_p_value=float(each[0, 0]),
        ece_p_value=float(each[1, 0]),
        gap_by_chance=(
            float(np.quantile(gap[1:], 0.025, method="lower")),
            float(np.quantile(gap[1:], 0.975, method="higher")),
        ),
        ece_by_chance=float(np.quantile(ece[1:], 0.95, method="higher")),
    )


def tail_shares(values: Array) -> Array:
    """For each value, the share of all that are no smaller, but for rounding.

    Ties count, so that p-values of statistics with few values are not too small.
    """
    rounded = np.round(values, 12)
    below = np.searchsorted(np.sort(rounded), rounded, side="left")
    shares: Array = (values.size - below) / values.size
    return shares
