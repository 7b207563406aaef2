"""Weighted sums of values: acc = factor * acc + weights . values, and their normalisation."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.attention.gemm import (
    LANES32,
    LANES64,
    ROWS32,
    ROWS64,
    Left,
    Right,
    Sums,
    add_tile,
)
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.vectors import fma

DEPTH = 64  # keys whose weighted values are summed together: short sums round less than long ones


@kernel
def add_nonfinite_values(weights, first, depths, values, acc, acc_lo, factors):
    """add_values key by key, without those of weight 0: 0 * inf would be nan."""
    lanes = LANES32 if acc_lo is None else LANES64
    for r in range(weights.shape[0]):
        for j in range(acc.shape[1]):
            total = np.float64(acc[r, j]) * factors[r]
            for k in range(depths[r]):
                if weights[r, k] != 0.0:
                    v = values[j // lanes, first + k, j % lanes]
                    total += np.float64(weights[r, k]) * v
            acc[r, j] = total
            if acc_lo is not None:
                acc_lo[r, j] *= factors[r]


@kernel
def add_values(weights, first, depths, values, finite, acc, acc_lo, factors):
    """acc = factor * acc + weights . values, for the keys of one tile; overwrites `factors`.

    `finite` tells whether the tile has neither inf nor nan among its values.
    """
    width, features = weights.shape[1], acc.shape[1]
    rows = ROWS32 if acc_lo is None else ROWS64
    lanes = LANES32 if acc_lo is None else LANES64
    if not finite:
        add_nonfinite_values(weights, first, depths, values, acc, acc_lo, factors)
        return
    for begin in range(0, depths[-1], DEPTH):
        if begin == DEPTH:
            factors[:] = 1.0
        for p in range(values.shape[0]):
            start = (p * values.shape[1] + first + begin) * lanes
            upcoming = start + values.shape[1] * lanes
            if p + 1 == values.shape[0]:
                upcoming = (first + begin + DEPTH) * lanes
            for i in range(0, weights.shape[0], rows):
                depth, at = min(depths[i + rows - 1] - begin, DEPTH), i * features + p * lanes
                if depth > 0:
                    left = Left(weights, i * width + begin, width, 1)
                    right = Right(values, start, depth, upcoming)
                    add_tile(left, right, Sums(acc, acc_lo, at, features), factors, i)


@inline
def divide_double_double(a, a_lo, total, total_lo):
    """(a + a_lo) / (total + total_lo), rounded about once."""
    if not abs(a) < np.inf:
        return a / total  # a_lo is nan there
    out = (a + a_lo) / total
    lost = fma(-out, total, a) + (a_lo - out * total_lo)
    return out + lost / total if abs(out) < np.inf and total < np.inf else out
