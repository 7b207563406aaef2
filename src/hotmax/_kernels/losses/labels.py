"""Labels: range checks and counts; means of losses over them."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.numeric.double_double import dd_div, two_sum
from hotmax._kernels.softmax.float64 import PARTIAL_SUMS, accumulate, combine_sums


@kernel
def find_outside(labels, classes):
    """The index of the first label that is not in 0..classes - 1, or -1."""
    lowest, highest = 0, 0
    for r in range(labels.size):
        lowest, highest = min(lowest, labels[r]), max(highest, labels[r])
    if lowest >= 0 and highest < classes:
        return -1
    for r in range(labels.size):
        if not 0 <= labels[r] < classes:
            return r
    return -1


@kernel
def remap_ignored_labels(labels, ignored, has_ignored, classes, out):
    """out = labels, -1 where ignored. Returns the first index out of range, or -1."""
    for r in range(labels.size):
        label = np.int64(labels[r])
        if has_ignored and label == ignored:
            out[r] = -1
        elif 0 <= label < classes:
            out[r] = label
        else:
            return r
    return -1


@kernel
def count_labels(labels, weights):
    """The number of labels that are not ignored, or the sum of their weights: a double-double."""
    if weights.size == 0:
        count = 0
        for r in range(labels.size):
            count += 1 if labels[r] >= 0 else 0
        return np.float64(count), 0.0
    total, lo = 0.0, 0.0
    for r in range(labels.size):
        if labels[r] >= 0:
            total, carry = two_sum(total, weights[labels[r]])
            lo += carry
    return two_sum(total, lo)


@kernel
def sum_compensated(values):
    """The sum of values as a double-double."""
    sums = np.zeros(2 * PARTIAL_SUMS)
    for start in range(0, values.size, PARTIAL_SUMS):
        for i in range(min(PARTIAL_SUMS, values.size - start)):
            accumulate(sums, i, values[start + i], 0.0)
    total, lo = combine_sums(sums, values.size)
    if abs(total) < np.inf:
        return total, lo
    total = 0.0  # with an infinity lo would be nan
    for i in range(values.size):
        total += values[i]
    return total, 0.0


@kernel
def mean_of_losses(values, count, count_lo):
    """sum(values) / (count + count_lo), or 0 if count is 0."""
    total, lo = sum_compensated(values)
    if count == 0.0:
        return 0.0
    quotient, quotient_lo = dd_div(total, lo - total / count * count_lo, count)
    return quotient + quotient_lo if abs(quotient) < np.inf else quotient
