"""Sums of confidence and correctness in bins."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import of_row

LINEAR_SEARCH = 16  # up to so many edges a linear search is faster than a binary one


@inline
def bin_of(value, inner):
    """The number of inner edges below value: bins are closed on the right."""
    low, count = 0, inner.size
    while count > LINEAR_SEARCH:
        half = count // 2
        if inner[low + half] < value:
            low += half + 1
            count -= half + 1
        else:
            count = half
    below = 0
    for i in range(count):
        below += 1 if inner[low + i] < value else 0
    return low + below


@kernel
def add_bins(confidence, correct, weights, inner, sums):
    """Add weight, confidence, correctness, the number of rows and squared weight to each bin."""
    for r in range(confidence.size):
        w = of_row(weights, r)
        if w > 0.0:
            b = bin_of(confidence[r], inner)
            sums[b, 0] += w
            sums[b, 1] += w * confidence[r]
            sums[b, 2] += w * correct[r]
            sums[b, 3] += 1.0
            sums[b, 4] += w * w


@kernel
def add_class_bins(p, labels, soft, weights, inner, sums, start, stop):
    """The first four sums of add_bins for each class in start..stop; p is its confidence."""
    for r in range(p.shape[0]):
        w = of_row(weights, r)
        if w > 0.0:
            for c in range(start, stop):
                q = soft[r, c] if labels.size == 0 else 1.0 if labels[r] == c else 0.0
                b = bin_of(p[r, c], inner)
                sums[c, b, 0] += w
                sums[c, b, 1] += w * p[r, c]
                sums[c, b, 2] += w * q
                sums[c, b, 3] += 1.0
