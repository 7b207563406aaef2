"""Cross entropy of contiguous rows: the loss, and its gradient in the same visit.

With (m, sums) of a row as in `softmax`, the loss of class c is log(ties + below) + (m - x[c]) / T:
two terms of one sign, so that no digit is lost, however small it is. The probability that the
other classes share is (ties - 1 + below) / (ties + below) at a maximum, for the same reason.

A row's target is a label with class weights and smoothing, or a row of probabilities. Both come to

    loss       A log(ties + below) + B       A = sum of a[c],  B = sum of a[c] (m - x[c]) / T
    gradient   (A p[c] - a[c]) scale / T

over the amounts a[c] >= 0 that the target puts on the classes that are there. Amounts of 0 count
for nothing, at -inf too. Values are float64; `grads` has no rows if no gradient is asked for, and
`weights` no entries if all are 1.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    UNBIAS64,
    exp2_parts,
    reciprocal,
    two_difference,
    two_sum,
    with_fraction,
)
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order
from hotmax._kernels.softmax.float32 import is_narrow, softmax_narrow, top
from hotmax._kernels.softmax.float64 import (
    STRIP,
    accumulate,
    combine,
    exponent,
    over,
    product,
    scale_of,
    softmax_wide,
)
from hotmax._kernels.softmax.rows import (
    HARD,
    NAN,
    NOTHING,
    PLAIN,
    log_of_sums,
    regime,
    row_sums,
    sign_of,
    softmax_limit,
)


@inline
def add_parts(a, a_low, b, b_low):
    """(a + a_low) + (b + b_low) in two words."""
    high, carry = two_sum(a, b)
    return two_sum(high, carry + (a_low + b_low))


@kernel
def sum_parts(values):
    """The sum of values in two words."""
    sums = np.zeros(2 * STRIP)
    for start in range(0, values.size, STRIP):
        for i in range(min(STRIP, values.size - start)):
            accumulate(sums, i, values[start + i], 0.0)
    total, low = combine(sums, values.size)
    if abs(total) < np.inf:
        return total, low
    total = 0.0  # an infinity among them leaves no remainder
    for i in range(values.size):
        total += values[i]
    return total, 0.0


@kernel
def mean_of(values, count, count_low):
    """sum(values) / (count + count_low): 0 if nothing counts."""
    total, low = sum_parts(values)
    if count == 0.0:
        return 0.0
    quotient, quotient_low = over(total, low - total / count * count_low, count)
    return quotient + quotient_low if abs(quotient) < np.inf else quotient


@kernel
def find_outside(labels, classes):
    """The first label that is not in 0..classes - 1, or -1."""
    low, high = 0, 0
    for r in range(labels.size):
        low, high = min(low, labels[r]), max(high, labels[r])
    if low >= 0 and high < classes:
        return -1
    for r in range(labels.size):
        if not 0 <= labels[r] < classes:
            return r
    return -1


@kernel
def settle_labels(labels, ignored, has_ignored, classes, out):
    """out = labels, -1 where ignored; the first place that is out of range, or -1."""
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
    """The number of labels that are not ignored, or the sum of their weights, in two words."""
    if weights.size == 0:
        count = 0
        for r in range(labels.size):
            count += 1 if labels[r] >= 0 else 0
        return np.float64(count), 0.0
    total, low = 0.0, 0.0
    for r in range(labels.size):
        if labels[r] >= 0:
            total, carry = two_sum(total, weights[labels[r]])
            low += carry
    return two_sum(total, low)


# --- one class of a row ------------------------------------------------------------------------


@inline
def is_there(x, sign):
    return sign * x > -np.inf


@inline
def shares(x, sign, m, kind):
    """Does this entry share the mass at the limits of temperature?"""
    return sign * x == m if kind == HARD else sign * x > -np.inf


@kernel
def at_maximum(x, sign, m):
    """The first entry at the maximum, or -1."""
    for c in range(x.size):
        if sign * x[c] == m:
            return c
    return -1


@kernel
def loss_parts(x, m, temperature, sums):
    """-log of the probability of an entry, in two words."""
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING:
        return np.nan, 0.0
    sign = math.copysign(1.0, temperature)
    if not is_there(x, sign) or (kind == HARD and not shares(x, sign, m, kind)):
        return np.inf, 0.0
    log_sum, log_sum_low = log_of_sums(*sums)
    if kind != PLAIN:
        return log_sum, log_sum_low
    scale = scale_of(temperature)
    d, d_low = two_difference(m * abs(scale), x * scale)
    z, z_low = product(d, d_low, *over(1.0, 0.0, abs(scale * temperature)))
    if not z < np.inf:
        return np.inf, 0.0
    return add_parts(log_sum, log_sum_low, z, z_low)


@kernel
def chance_parts(x, m, temperature, sums):
    """(p, 1 - p) of an entry, both with all their digits."""
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING:
        return np.nan, np.nan
    ties, below, below_low = sums
    sign = math.copysign(1.0, temperature)
    total, carry = two_sum(ties, below)
    inverse, inverse_low = reciprocal(total, carry + below_low)
    if shares(x, sign, m, kind) if kind != PLAIN else sign * x == m:
        others, carry = two_sum(ties - 1.0, below)
        rest = product(others, carry + below_low, inverse, inverse_low)
        return inverse + inverse_low, rest[0] + rest[1]
    if kind != PLAIN:
        return 0.0, 1.0
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale * temperature))
    y, y_low = exponent(x * scale, m * abs(scale), slope, slope_low)
    t, power = exp2_parts(y, y_low)
    e, e_low = with_fraction(power, t)
    p, p_low = product(e, e_low, inverse, inverse_low)
    p, p_low = p * UNBIAS64, p_low * UNBIAS64
    return p + p_low, (1.0 - p) - p_low


# --- a whole row -------------------------------------------------------------------------------


@kernel
def spread_narrow(x, weights, m):
    """spread_wide for a long float32 row."""
    count, total, gaps = 0.0, 0.0, 0.0
    for i in range(x.size):
        there = x[i] > -np.inf
        count = add_in_any_order(count, 1.0 if there else 0.0)
        total = add_in_any_order(total, weights[i] if there else 0.0)
        gaps = add_in_any_order(gaps, (m - np.float64(x[i])) * weights[i] if there else 0.0)
    return count, total, gaps


@kernel
def add_spread(x, weights, totals, gaps, m, scale):
    """Add weights, and weights * (m - x), over the classes that are there; their number."""
    peak, count = m * abs(scale), 0
    for i in range(x.size):
        v = np.float64(x[i]) * scale
        there = v > -np.inf
        weight = weights[i] if there else 0.0
        d, d_low = two_difference(peak, v if there else peak)
        count += 1 if there else 0
        term, term_low = product(d, d_low, weight, 0.0)
        accumulate(totals, i, weight, 0.0)
        accumulate(gaps, i, term, term_low)
    return count


@kernel
def spread_wide(x, weights, m, scale):
    """(count, W, W_low, G, G_low) over the classes that are there: G sums weight * (m - x)."""
    totals, gaps, count = np.zeros(2 * STRIP), np.zeros(2 * STRIP), 0
    for start in range(0, x.size, STRIP):
        part = slice(start, start + STRIP)
        count += add_spread(x[part], weights[part], totals, gaps, m, scale)
    total, total_low = combine(totals, x.size)
    gap, gap_low = combine(gaps, x.size)
    return np.float64(count), total, total_low, gap, gap_low


@kernel
def spread_limit(x, weights, m, temperature):
    """spread_wide at the limits of temperature, where G is 0 or inf."""
    sign, kind = math.copysign(1.0, temperature), regime(m, temperature)
    count, total, low, gap = 0.0, 0.0, 0.0, 0.0
    for i in range(x.size):
        v = np.float64(x[i])
        if is_there(v, sign):
            count += 1.0
            total, carry = two_sum(total, weights[i])
            low += carry
            if weights[i] > 0.0 and not shares(v, sign, m, kind):
                gap = np.inf
    return count, total, low, gap, 0.0


@kernel
def spread_parts(x, weights, m, temperature, exps):
    """(count, W, W_low, B, B_low): B sums weight * (m - x) / T over the classes that are there."""
    if regime(m, temperature) != PLAIN:
        return spread_limit(x, weights, m, temperature)
    if exps is not None:
        if temperature > 0.0 and is_narrow(m, temperature):
            count, total, gaps = spread_narrow(x, weights, m)
            return count, total, 0.0, gaps / temperature, 0.0
    scale = scale_of(temperature)
    count, total, total_low, gap, gap_low = spread_wide(x, weights, m, scale)
    gap, gap_low = product(gap, gap_low, *over(1.0, 0.0, abs(scale * temperature)))
    return count, total, total_low, gap, gap_low if gap < np.inf else 0.0


@kernel
def loss_of(amount, amount_low, gap, gap_low, sums):
    """A log(ties + below) + B in two words."""
    if not gap < np.inf:
        return gap, 0.0
    log_sum, log_sum_low = log_of_sums(*sums)
    high, low = product(log_sum, log_sum_low, amount, amount_low)
    return add_parts(high, low, gap, gap_low)


@inline
def divisor_of(m, temperature):
    """T, if a gradient can be divided by it at once; else 1, and `divide` has to follow."""
    common = regime(m, temperature) == PLAIN and 2.0**-500 < abs(temperature) < 2.0**500
    return temperature if common else 1.0


@inline
def headroom_of(grad, divisor):
    """A power of two that keeps p / T and its target in float32 until one is taken from the other.

    The divisor is multiplied by it before, and the gradient after.
    """
    if grad.itemsize == 4 and abs(divisor) < 2.0**-100:
        return math.ldexp(1.0, -100 - math.frexp(abs(divisor))[1])
    return 1.0


LARGE = 2.0**60  # times a probability that has vanished (exp stops at 2**-1140), still 0
VANISHED = -790.0  # (x - max) / T below this is 2**-1140 at most


@inline
def is_ordinary(steep):
    """Is weight * scale / T of ordinary size, or 0?"""
    return 2.0**-300 < abs(steep) < LARGE or steep == 0.0


@kernel
def clear_vanished(x, out, m, temperature, factor):
    """out = 0 where the probability has vanished, out * factor elsewhere."""
    sign, size = math.copysign(1.0, temperature), abs(temperature)
    for i in range(x.size):
        gone = (sign * np.float64(x[i]) - m) / size < VANISHED
        out[i] = 0.0 if gone else out[i] * factor


@kernel
def divide(grad, temperature, divisor):
    """What is left to do if T was not divided by."""
    if divisor != temperature:
        for i in range(grad.size):
            grad[i] = grad[i] / temperature if grad[i] != 0.0 else 0.0


@kernel
def write_probabilities(x, out, factor, m, temperature, sums, exps, kept):
    """out = p * factor, in one rounding where factor is of ordinary size."""
    ties, below, below_low = sums
    total, carry = two_sum(ties, below)
    if factor == 0.0:
        out[:] = 0.0
    elif regime(m, temperature) != PLAIN:
        softmax_limit(x, out, m, temperature, ties)
        for i in range(x.size):
            out[i] *= factor
    else:
        if exps is not None:
            if is_narrow(m, temperature) and 2.0**-50 < factor / total < 2.0**50:
                softmax_narrow(x, out, exps, kept, m, temperature, total / factor, False)
                return
        inverse, inverse_low = reciprocal(total, carry + below_low)
        large, rest = abs(factor) >= LARGE, 1.0
        if abs(factor) > 2.0**500:  # its product in two words would overflow
            factor, rest = factor * 2.0**-500, 2.0**500
        high, low = product(inverse, inverse_low, factor, 0.0)
        softmax_wide(x, out, m, temperature, high, low, False)
        if large:
            clear_vanished(x, out, m, temperature, rest)


@kernel
def take_shares(x, out, weights, share, sign):
    """out -= share * weights, at the classes that are there."""
    for i in range(x.size):
        out[i] -= share * weights[i] if is_there(x[i], sign) else 0.0


# --- labels ------------------------------------------------------------------------------------


@kernel
def label_row(x, label, weights, smoothing, scale, grad, m, temperature, sums, exps, kept):
    """The loss of one row against its label, and its gradient times `scale`, if grad has room."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind == NAN or kind == NOTHING:
        grad[:] = np.nan
        return np.nan
    own = np.float64(x[label])
    weight = weights[label] if weights.size else 1.0
    keep, keep_low = two_difference(1.0, smoothing)
    amount, amount_low = product(keep, keep_low, weight, 0.0)
    loss, loss_low = 0.0, 0.0
    if amount > 0.0:
        loss, loss_low = loss_parts(own, m, temperature, sums)
        if loss < np.inf:
            loss, loss_low = product(loss, loss_low, amount, amount_low)
    share, total = 0.0, 0.0
    if smoothing > 0.0:
        count, total, total_low, gap, gap_low = spread_parts(x, weights, m, temperature, exps)
        more, more_low = loss_of(total, total_low, gap, gap_low, sums)
        share, share_low = over(smoothing, 0.0, count)
        if not (loss < np.inf and more < np.inf):
            loss, loss_low = np.inf, 0.0
        else:
            more, more_low = product(more, more_low, share, share_low)
            loss, loss_low = add_parts(loss, loss_low, more, more_low)
    if grad.size:
        p, others = chance_parts(own, m, temperature, sums)
        at_label = -amount * others
        if share > 0.0 and is_there(own, sign):
            at_label += share * (total * p - weight)
        divisor = divisor_of(m, temperature)
        headroom = headroom_of(grad, divisor) if share > 0.0 else 1.0
        reach = divisor * headroom
        factor = (amount + share * total) * scale / reach
        write_probabilities(x, grad, factor, m, temperature, sums, exps, kept)
        if share > 0.0:
            take_shares(x, grad, weights, share * scale / reach, sign)
        grad[label] = at_label * scale / reach
        divide(grad, temperature, divisor)
        if headroom != 1.0:
            for i in range(grad.size):
                grad[i] = grad[i] * headroom
    return loss + loss_low


@kernel
def label_rows(x, labels, weights, smoothing, scale, values, grads, temperature, exps):
    last = x.shape[0] - 1
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        if labels[r] < 0:
            values[r] = 0.0
            grad[:] = 0.0
            continue
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, last)])
        if exps is not None:
            kept = exps.size >= x.shape[1]
            values[r] = label_row(
                x[r], labels[r], weights, smoothing, scale, grad, m, t, sums, exps, kept
            )
        else:
            values[r] = label_row(
                x[r], labels[r], weights, smoothing, scale, grad, m, t, sums, None, False
            )
