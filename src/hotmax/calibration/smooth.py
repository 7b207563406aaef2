"""Smoothing on 0..1 with the Gaussian kernel, reflected at both ends.

The reflected kernel is the heat kernel with insulated ends: its eigenfunctions are cosines, so that
smoothing is a multiplication of cosine coefficients, right at the boundary by construction.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._core.arrays import Array

KERNEL_NODES = 8192  # intervals between the nodes of the grid
NARROWEST = 4.0 / KERNEL_NODES  # the narrowest kernel that the grid resolves


def deposit(positions: Array, amounts: Array) -> Array:
    """Amounts at positions in 0..1, shared between the two nodes around each."""
    place = np.clip(positions, 0.0, 1.0) * KERNEL_NODES
    left = np.minimum(place.astype(np.int64), KERNEL_NODES - 1)
    part = place - left
    grid = np.bincount(left, amounts * (1.0 - part), KERNEL_NODES + 1)
    grid += np.bincount(left + 1, amounts * part, KERNEL_NODES + 1)
    return grid


def spectrum(grid: Array) -> Array:
    """Of the grid and its mirror image; what lies on an end falls together with its own image."""
    ends = grid.copy()
    ends[0] *= 2.0
    ends[-1] *= 2.0
    return np.fft.rfft(np.concatenate([ends, ends[-2:0:-1]]))


def smoothed(transform: Array, width: float, nodes: int = KERNEL_NODES) -> Array:
    """Amounts for each node, after a reflected Gaussian of standard deviation `width`."""
    damping = np.exp(-0.5 * (np.arange(nodes + 1) * (math.pi * width)) ** 2)
    return np.fft.irfft(transform[: nodes + 1] * damping, 2 * nodes)[: nodes + 1]


def nodes_for(width: float) -> int:
    """Enough for the waves that such a kernel leaves, eight times over."""
    return min(KERNEL_NODES, max(1024, 1 << math.ceil(math.log2(24.0 / width))))


def integral(amounts: Array) -> float:
    """Over 0..1, by the trapezoidal rule."""
    return float(amounts.sum() - (amounts[0] + amounts[-1]) / 2)


def smooth_error(positions: Array, residuals: Array) -> tuple[float, float]:
    """(smooth ECE, its bandwidth): they are equal, unless the error is below what the grid shows.

    `residuals` are the shares of (correct - confidence). The error falls as the bandwidth grows.
    """
    transform = spectrum(deposit(positions, residuals))

    def error(width: float) -> float:
        return integral(np.abs(smoothed(transform, width, nodes_for(width))))

    low, high = NARROWEST, 1.0
    above, below = error(low) - low, error(high) - high
    if above <= 0.0:
        return above + low, low
    width, last = low, 0
    for _ in range(60):  # false position; an end that stays counts half the next time
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if abs(excess) <= 1e-12 or high - low <= 1e-12:
            break
        if excess > 0.0:
            low, above = width, excess
            below = below / 2 if last > 0 else below
            last = 1
        else:
            high, below = width, excess
            above = above / 2 if last < 0 else above
            last = -1
    return width, width


def responses(positions: Array, width: float) -> Array:
    """(positions, nodes + 1): what an amount of 1 at each position is after smoothing."""
    nodes = nodes_for(width)
    place = np.clip(positions, 0.0, 1.0) * nodes
    left = np.minimum(place.astype(np.int64), nodes - 1)
    grid, at = np.zeros((positions.size, nodes + 1)), np.arange(positions.size)
    grid[at, left] = left + 1 - place
    grid[at, left + 1] = place - left
    grid[:, [0, -1]] *= 2.0
    transform = np.fft.rfft(np.concatenate([grid, grid[:, -2:0:-1]], axis=1))
    damping = np.exp(-0.5 * (np.arange(nodes + 1) * (math.pi * width)) ** 2)
    result: Array = np.fft.irfft(transform * damping, 2 * nodes)[:, : nodes + 1]
    return result


def smooth_curve(
    positions: Array, weights: Array, correct: Array, width: float, points: int
) -> tuple[Array, Array, Array]:
    """(confidence, accuracy, density) on a grid of `points` intervals: a kernel regression."""
    weight = smoothed(spectrum(deposit(positions, weights)), width)
    hits = smoothed(spectrum(deposit(positions, correct)), width)
    pick = np.arange(0, KERNEL_NODES + 1, KERNEL_NODES // points)
    there = weight[pick] > weight.max() * 1e-9
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.where(there, np.clip(hits[pick] / weight[pick], 0.0, 1.0), np.nan)
    return pick / KERNEL_NODES, accuracy, weight[pick] * KERNEL_NODES / weights.sum()
