"""Log-probabilities of a few classes of a row: of the k largest, or of those that are named.

They are computed from the maximum and the sums of the row as `log_softmax` has them. Nothing else
is written.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import maximum
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import sign_of
from hotmax._kernels.softmax.rows import log_softmax_block, row_sums

GROUP = 256  # classes that share one maximum


@inline
def comes_after(values, indices, a, b):
    """Is entry a smaller than b, or equal and of higher index?"""
    return values[a] < values[b] or (values[a] == values[b] and indices[a] > indices[b])


@kernel
def sift_down(values, indices, start, size):
    """Restore the heap, whose first entry comes after all others, below `start`."""
    at = start
    while True:
        last = at
        for child in range(2 * at + 1, min(2 * at + 3, size)):
            if comes_after(values, indices, child, last):
                last = child
        if last == at:
            return
        values[at], values[last] = values[last], values[at]
        indices[at], indices[last] = indices[last], indices[at]
        at = last


@kernel
def put(values, indices, count, value, index):
    """Put an entry into the heap, or in the place of the last of a full one. Their number."""
    if count < values.size:
        values[count], indices[count] = value, index
        count += 1
        if count == values.size:
            for start in range(count // 2 - 1, -1, -1):
                sift_down(values, indices, start, count)
    else:
        values[0], indices[0] = value, index
        sift_down(values, indices, 0, count)
    return count


@inline
def offer(values, indices, count, value, index):
    """The same, unless the heap is full of others; most are, and cost no call."""
    if count < values.size or value > values[0]:
        return put(values, indices, count, value, index)
    return count


@kernel
def sort_heap(values, indices):
    """The entries of a full heap, the largest first and of equal ones the one of lower index."""
    for size in range(values.size - 1, 0, -1):
        values[0], values[size] = values[size], values[0]
        indices[0], indices[size] = indices[size], indices[0]
        sift_down(values, indices, 0, size)


@kernel
def group_maxima(x, sign, maxima):
    """The maximum of each GROUP of classes; returns that of all, nan if any is nan."""
    m = -np.inf
    for g in range(maxima.size):
        maxima[g] = row_maximum(x[g * GROUP : min((g + 1) * GROUP, x.size)], sign)
        m = maximum(m, maxima[g])
    return m


@kernel
def select_largest(x, sign, maxima, values, indices):
    """The largest sign * x as values and indices, in order. No entry may be nan.

    The k-th largest maximum of a group is a lower bound of the k-th largest entry, so that few
    groups are looked at.
    """
    bound, count = -np.inf, 0
    if maxima.size > values.size:
        for g in range(maxima.size):
            count = offer(values, indices, count, maxima[g], g)
        bound = values[0]
    count = 0
    for g in range(maxima.size):
        if maxima[g] >= bound:
            for i in range(g * GROUP, min((g + 1) * GROUP, x.size)):
                value = np.float64(sign * x[i])
                if value >= bound:
                    count = offer(values, indices, count, value, i)
    sort_heap(values, indices)


@kernel
def top_logprob_rows(x, indices, logs, temperature, exps):
    """The classes of the largest probabilities, as many as logs has columns, and their logarithms.

    A row with a nan has nan, and its first classes. exps: as in log_softmax_rows.
    """
    x, exps = borrowed(x), borrowed(exps)
    k = logs.shape[1]
    maxima, values, chosen = np.empty(-(-x.shape[1] // GROUP)), np.empty(k), np.empty(k, x.dtype)
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        sign = sign_of(x, t)
        m = group_maxima(x[r], sign, maxima)
        if m != m:
            for j in range(k):
                indices[r, j], logs[r, j] = j, np.nan
            continue
        select_largest(x[r], sign, maxima, values, indices[r])
        for j in range(k):
            chosen[j] = x[r, indices[r, j]]
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, x.shape[0] - 1)])
        log_softmax_block(chosen, logs[r], exps, m, t, sums, False)


@kernel
def count_above(x, sign, value):
    count = 0
    for i in range(x.size):
        count += 1 if sign * x[i] > value else 0
    return count


@kernel
def chosen_logprob_rows(x, tokens, logs, ranks, temperature, exps):
    """The log-probabilities of the tokens of each row, and their ranks: 1 for the largest.

    A token below 0 is none: its log-probability is nan, and its rank 0.
    """
    x, exps = borrowed(x), borrowed(exps)
    chosen = np.empty(tokens.shape[1], x.dtype)
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        sign = sign_of(x, t)
        m = row_maximum(x[r], sign)
        for j in range(tokens.shape[1]):
            chosen[j] = x[r, max(tokens[r, j], 0)]
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, x.shape[0] - 1)])
        log_softmax_block(chosen, logs[r], exps, m, t, sums, False)
        for j in range(tokens.shape[1]):
            if tokens[r, j] < 0:
                ranks[r, j], logs[r, j] = 0, np.nan
            else:
                ranks[r, j] = 1 + count_above(x[r], sign, sign * chosen[j])
