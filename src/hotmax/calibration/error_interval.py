"""95 % intervals of calibration errors that cover the true error, also where it is 0.

An error is a norm of the gaps that there are plus noise. By the triangle inequality it differs from
the true one by no more than the norm of the noise, which is drawn from binomial distributions. The
interval reaches that far, clipped at 0, and so always contains its estimate.

The bootstrap does not: noise pushes an error up, resampling pushes it up again, and where the true
error is 0 no reflection takes the right amount off.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import BINS, SQUARES, WEIGHT, means, width_edges
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.smooth import responses

INTERVAL_REPLICATES = 400
CERTAIN = 3.0  # standard errors by which a gap must differ from 0 for its sign to be taken as known


def nearer_half(one: Array, other: Array) -> Array:
    """Of two probabilities that with the larger variance.

    The accuracy of few rows may be 1 by luck, and the confidence may be wrong.
    """
    return np.where(np.abs(one - 0.5) < np.abs(other - 0.5), one, other)


def accuracy_noise(
    rows: Array, probability: Array, rng: np.random.Generator, dispersion: Array | float = 1.0
) -> Array:
    """(REPLICATES, bins): draws of accuracy - probability of so many rows.

    `dispersion`: that of `label_noise`, by which the variance is larger or smaller.
    """
    count = np.clip(np.rint(rows / np.minimum(dispersion, 1.0)), 1.0, 2.0**62)
    hits = rng.binomial(count.astype(np.int64), probability, (INTERVAL_REPLICATES, rows.size))
    noise: Array = (hits / count - probability) * np.sqrt(np.maximum(dispersion, 1.0))
    return noise


def full_bins(sums: Array) -> tuple[Array, Array, Array, Array]:
    """(share, confidence, accuracy, rows of equal weight) of the bins that have rows."""
    full = sums[sums[:, WEIGHT] > 0]
    share, confidence, accuracy = means(full)
    confidence, accuracy = np.clip(confidence, 0.0, 1.0), np.clip(accuracy, 0.0, 1.0)
    return share, confidence, accuracy, full[:, WEIGHT] ** 2 / full[:, SQUARES]


def binned_interval(
    sums: Array,
    value: float,
    norm: str,
    rng: np.random.Generator,
    dispersion: Array | None = None,
) -> Estimate:
    """The interval of a binned error, from the sums of its bins; `value` is the estimate.

    `dispersion`: that of `label_noise` for each bin.
    """
    share, confidence, accuracy, rows = full_bins(sums)
    probability = nearer_half(accuracy, confidence)
    ratio = np.ones(rows.size) if dispersion is None else dispersion[sums[:, WEIGHT] > 0]
    noise = accuracy_noise(rows, probability, rng, ratio)
    gap = np.abs(confidence - accuracy)
    if norm == "l1":
        low, high = l1_reach(share, gap, rows, probability, noise, ratio)
        return clipped(value, value - low, value + high)
    if norm == "l2":
        plain = math.sqrt(float((share * gap**2).sum()))
        sizes = np.sqrt((noise**2 * share).sum(1))
    else:
        plain, sizes = float(gap.max()), np.abs(noise).max(1)
    reach = float(np.quantile(sizes, 0.95))
    return clipped(value, plain - reach, plain + reach)


def l1_reach(
    share: Array, gap: Array, rows: Array, probability: Array, noise: Array, ratio: Array
) -> tuple[float, float]:
    """How far the true ECE may lie below its estimate, and how far above: each with 97.5 %.

    Below: noise adds at most its own size. Where a gap is certainly not 0, noise of the other sign
    takes away instead. Above: noise adds to the estimate on average, and its variance is at most
    that of the sum of the gaps. Both include what the shares of the bins vary by.
    """
    deviation = np.sqrt(ratio * (probability * (1.0 - probability) / rows))
    ece = float(share @ gap)
    varying = max(float(share @ gap**2) - ece**2, 0.0) / float(rows.sum())
    certain = np.maximum(gap - CERTAIN * deviation, 0.0)
    added = (np.abs(certain + noise) - certain) @ share
    of_shares = math.sqrt(varying)
    above = NORMAL * math.sqrt(float((share * deviation) @ (share * deviation)) + varying)
    below = float(np.quantile(added, 0.975))
    return math.hypot(below, NORMAL * of_shares), above


def smooth_interval(cells: Array, value: float, width: float, rng: np.random.Generator) -> Estimate:
    """The interval of the smooth error, from sums of narrow cells of confidence.

    The error at a bandwidth falls as the bandwidth grows. So the bound at the bandwidth of the
    estimate holds for the true error, whose bandwidth is another.
    """
    share, confidence, accuracy, rows = full_bins(cells)
    bin_of_cell = np.searchsorted(width_edges(BINS)[1:-1], confidence)
    hits, weight = (np.bincount(bin_of_cell, v, BINS) for v in (share * accuracy, share))
    around = np.clip(hits[bin_of_cell] / weight[bin_of_cell], 0.0, 1.0)
    noise = accuracy_noise(rows, nearer_half(around, confidence), rng)
    amounts = np.abs((noise * share) @ responses(confidence, width))
    sizes = amounts.sum(1) - (amounts[:, 0] + amounts[:, -1]) / 2  # by the trapezoidal rule
    reach = float(np.quantile(sizes, 0.95))
    return clipped(value, value - reach, value + reach)


def clipped(value: float, low: float, high: float) -> Estimate:
    """An Estimate whose interval lies in 0..1 and contains the value."""
    return Estimate(value, (min(max(low, 0.0), value), max(min(high, 1.0), value)))
