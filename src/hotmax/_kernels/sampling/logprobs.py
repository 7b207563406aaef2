"""Log-probabilities of a few classes of a row: of the k largest, or of those that are named.

They are computed from the maximum and the sums of the row as `log_softmax` has them. Nothing else
is written.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LARGEST_FLOAT64,
    UNBIAS32,
    exp2_biased32,
    power_of_two,
)
from hotmax._kernels.simd.memory import borrowed, of_row, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    any_of,
    halves,
    horizontal_maximum,
    load_line,
    maximum,
    splat,
    splat_line,
)
from hotmax._kernels.softmax.float32 import (
    L1_CHUNK,
    add_line,
    exp2_constants,
    exp_tail,
    fits_float32,
    may_hold_ties,
    peak_exp,
    reference_exponent,
    rounded_peak_exp,
    row_maximum,
    sums_with_ties,
)
from hotmax._kernels.softmax.limits import sign_of
from hotmax._kernels.softmax.overlapped import REACH
from hotmax._kernels.softmax.rows import SUM_BLOCK, add_sums, log_softmax_block, row_sums

GROUP = L1_CHUNK  # classes that share one maximum and one sum
BISECTIONS = 24  # a bound that is then too low costs time, and nothing else


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
def maxima_and_totals(x, exps, sign, line, maxima, totals, upcoming):
    """group_maxima, and the sum of the exponentials of each group, as `exp_chunk` has it."""
    beta, beta_lo, origin = line
    m = -np.inf
    for g in range(maxima.size):
        start, stop = g * GROUP, min((g + 1) * GROUP, x.size)
        whole = start + (stop - start) // LINE * LINE
        largest, sums = splat_line(x.dtype.type(-np.inf)), (splat(0.0), splat(0.0))
        for i in range(start, whole, LINE):
            prefetch(upcoming, i)
            v = load_line(x, i)
            largest = maximum(largest, sign * v)
            sums = add_line(exp2_biased32(v, beta, beta_lo, origin), sums)
        totals[g] = exp_tail(x, exps, whole, stop, 0, line, sums)
        near, far = halves(largest)
        top = np.float64(horizontal_maximum(maximum(near, far)))
        if whole < stop:
            top = maximum(top, row_maximum(x[whole:stop], sign))
        maxima[g], m = top, maximum(m, top)
    return m


@kernel
def sums_of_totals(x, exps, m, temperature, rise, totals):
    """row_sums from the totals of groups relative to a power of two, 2**rise below that of m."""
    scale = power_of_two(-rise)
    per_unit = UNBIAS32 / peak_exp(m, temperature)
    line = exp2_constants(m, temperature)
    per_peak = 1.0 / np.float64(rounded_peak_exp(m, temperature, line))
    sums = 0.0, 0.0, 0.0
    groups = SUM_BLOCK // GROUP
    for begin in range(0, totals.size, groups):
        end = min(begin + groups, totals.size)
        first, last, below = end, 0, 0.0
        for g in range(begin, end):
            total = totals[g] * scale
            if may_hold_ties(total * per_unit, total * per_peak):
                first, last = min(first, g), g + 1
            else:
                below += total * per_unit
        ties = 0.0
        if first < last:
            ties, below = sums_with_ties(
                x, exps, m, temperature, first * GROUP, min(last * GROUP, x.size), below
            )
        sums = add_sums(sums, (ties, below, 0.0))
    return sums


@kernel
def maxima_and_sums(x, exps, sign, temperature, maxima, totals, upcoming):
    """(m, sums): group_maxima, and row_sums unless m is nan.

    float32 rows are read once: exponentials are relative to the power of two of the first line,
    which changes no digit, unless the maximum lies REACH powers above.
    """
    if exps is not None:
        near = row_maximum(x[: min(LINE, x.size)], sign)
        if fits_float32(near, temperature):
            line = exp2_constants(near, temperature)
            m = maxima_and_totals(x, exps, sign, line, maxima, totals, upcoming)
            rise = reference_exponent(m, temperature) - reference_exponent(near, temperature)
            if m != m:
                return m, (0.0, 0.0, 0.0)
            if fits_float32(m, temperature) and rise <= REACH:
                return m, sums_of_totals(x, exps, m, temperature, rise, totals)
            return m, row_sums(x, exps, m, temperature, upcoming)
    m = group_maxima(x, sign, maxima)
    if m != m:
        return m, (0.0, 0.0, 0.0)
    return m, row_sums(x, exps, m, temperature, upcoming)


@kernel
def reached_by(maxima, k):
    """A maximum that at least k of them reach, and mostly few more: by bisection."""
    low, high = LARGEST_FLOAT64, -np.inf
    for g in range(maxima.size):
        low = min(low, maxima[g]) if maxima[g] > -np.inf else low
        high = max(high, maxima[g])
    high = min(high, LARGEST_FLOAT64)  # the middle to inf would be inf
    if count_reaching(maxima, low) < k:
        return -np.inf
    for _ in range(BISECTIONS):
        middle = 0.5 * low + 0.5 * high
        count = count_reaching(maxima, middle)
        if count < k:
            high = middle
        else:
            low = middle
            if count <= k + k // 2:
                break
    least = np.inf
    for g in range(maxima.size):
        least = min(least, maxima[g]) if maxima[g] >= low else least
    return least


@kernel
def count_reaching(maxima, bound):
    count = 0
    for g in range(maxima.size):
        count += 1 if maxima[g] >= bound else 0
    return count


@kernel
def offer_group(x, sign, start, stop, bound, values, indices, count):
    """Offer the entries of a group that reach `bound`; most lines have none."""
    whole = start + (stop - start) // LINE * LINE
    for i in range(start, whole, LINE):
        if any_of(sign * load_line(x, i) >= bound):
            for j in range(i, i + LINE):
                if sign * x[j] >= bound:
                    count = offer(values, indices, count, np.float64(sign * x[j]), j)
    for j in range(whole, stop):
        if sign * x[j] >= bound:
            count = offer(values, indices, count, np.float64(sign * x[j]), j)
    return count


@kernel
def select_largest(x, sign, maxima, values, indices):
    """The largest sign * x as values and indices, in order. No entry may be nan.

    What k of the maxima of groups reach is a lower bound of the k-th largest entry, so that few
    groups are looked at.
    """
    bound = reached_by(maxima, values.size) if maxima.size > values.size else -np.inf
    least, count = x.dtype.type(bound), 0
    for g in range(maxima.size):
        if maxima[g] >= bound:
            start, stop = g * GROUP, min((g + 1) * GROUP, x.size)
            count = offer_group(x, sign, start, stop, least, values, indices, count)
    sort_heap(values, indices)


@kernel
def top_logprob_rows(x, indices, logs, temperature, exps):
    """The classes of the largest probabilities, as many as logs has columns, and their logarithms.

    A row with a nan has nan, and its first classes. exps: as in log_softmax_rows.
    """
    x, exps = borrowed(x), borrowed(exps)
    k, groups = logs.shape[1], -(-x.shape[1] // GROUP)
    maxima, totals, values = np.empty(groups), np.empty(groups), np.empty(k)
    chosen = np.empty(k, x.dtype)
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        sign, upcoming = sign_of(x, t), x[min(r + 1, x.shape[0] - 1)]
        m, sums = maxima_and_sums(x[r], exps, sign, t, maxima, totals, upcoming)
        if m != m:
            for j in range(k):
                indices[r, j], logs[r, j] = j, np.nan
            continue
        select_largest(x[r], sign, maxima, values, indices[r])
        for j in range(k):
            chosen[j] = x[r, indices[r, j]]
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
