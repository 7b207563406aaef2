"""Cross entropy of contiguous rows against labels: the loss, and its gradient in the same pass.

A row's target is a label with class weights and smoothing, or a row of probabilities (targets.py).
Both amount to

    loss       A log(ties + below) + B       A = sum of a[c],  B = sum of a[c] (m - x[c]) / T
    gradient   (A p[c] - a[c]) scale / T

over the amounts a[c] >= 0 that the target puts on the classes above -inf. Amounts of 0 contribute
nothing, also at -inf. Losses are float64; `grads` has no rows if no gradient is wanted, and
`weights` no entries if all are 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.probabilities import (
    divisor_of,
    finish_division,
    headroom_of,
    is_present,
    negative_log_probability,
    probability_and_complement,
    shares_mass,
    write_probabilities,
)
from hotmax._kernels.numeric.arithmetic import add_double_double
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, two_diff, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order
from hotmax._kernels.softmax.float32 import fits_float32, row_maximum
from hotmax._kernels.softmax.float64 import PARTIAL_SUMS, accumulate, combine_sums, range_scale
from hotmax._kernels.softmax.limits import NAN, NOTHING, PLAIN, regime, sign_of
from hotmax._kernels.softmax.rows import log_of_sums, row_sums


class LossOptions(NamedTuple):
    """Class weights, label smoothing, and the factor of the gradient."""

    weights: Any
    smoothing: Any
    scale: Any


# --- sums over all classes, for label smoothing --------------------------------------------------


@kernel
def smoothing_sums_float32(x, weights, m):
    """smoothing_sums_float64 of a long float32 row."""
    count, total, gaps = 0.0, 0.0, 0.0
    for i in range(x.size):
        present = x[i] > -np.inf
        count = add_in_any_order(count, 1.0 if present else 0.0)
        total = add_in_any_order(total, weights[i] if present else 0.0)
        gaps = add_in_any_order(gaps, (m - np.float64(x[i])) * weights[i] if present else 0.0)
    return count, total, gaps


@kernel
def add_smoothing_sums(x, weights, totals, gaps, m, scale):
    """Add weights, and weights * (m - x), over the classes above -inf. Returns their number."""
    peak, count = m * abs(scale), 0
    for i in range(x.size):
        v = np.float64(x[i]) * scale
        present = v > -np.inf
        weight = weights[i] if present else 0.0
        d, d_lo = two_diff(peak, v if present else peak)
        count += 1 if present else 0
        term, term_lo = dd_mul(d, d_lo, weight, 0.0)
        accumulate(totals, i, weight, 0.0)
        accumulate(gaps, i, term, term_lo)
    return count


@kernel
def smoothing_sums_float64(x, weights, m, scale):
    """(count, W, W_lo, G, G_lo) over the classes above -inf: G sums weight * (m - x)."""
    totals, gaps, count = np.zeros(2 * PARTIAL_SUMS), np.zeros(2 * PARTIAL_SUMS), 0
    for start in range(0, x.size, PARTIAL_SUMS):
        part = slice(start, start + PARTIAL_SUMS)
        count += add_smoothing_sums(x[part], weights[part], totals, gaps, m, scale)
    total, total_lo = combine_sums(totals, x.size)
    gap, gap_lo = combine_sums(gaps, x.size)
    return np.float64(count), total, total_lo, gap, gap_lo


@kernel
def smoothing_sums_limit(x, weights, m, temperature):
    """smoothing_sums_float64 in the limits of temperature, where G is 0 or inf."""
    sign, kind = math.copysign(1.0, temperature), regime(m, temperature)
    count, total, lo, gap = 0.0, 0.0, 0.0, 0.0
    for i in range(x.size):
        v = np.float64(x[i])
        if is_present(v, sign):
            count += 1.0
            total, carry = two_sum(total, weights[i])
            lo += carry
            if weights[i] > 0.0 and not shares_mass(v, sign, m, kind):
                gap = np.inf
    return count, total, lo, gap, 0.0


@kernel
def smoothing_sums(x, weights, m, temperature, exps):
    """(count, W, W_lo, B, B_lo): B sums weight * (m - x) / T over the classes above -inf."""
    if regime(m, temperature) != PLAIN:
        return smoothing_sums_limit(x, weights, m, temperature)
    if exps is not None:
        if temperature > 0.0 and fits_float32(m, temperature):
            count, total, gaps = smoothing_sums_float32(x, weights, m)
            return count, total, 0.0, gaps / temperature, 0.0
    scale = range_scale(temperature)
    count, total, total_lo, gap, gap_lo = smoothing_sums_float64(x, weights, m, scale)
    gap, gap_lo = dd_mul(gap, gap_lo, *dd_div(1.0, 0.0, abs(scale * temperature)))
    return count, total, total_lo, gap, gap_lo if gap < np.inf else 0.0


@kernel
def loss_of(amount, amount_lo, gap, gap_lo, sums):
    """A log(ties + below) + B as a double-double."""
    if not gap < np.inf:
        return gap, 0.0
    log_sum, log_sum_lo = log_of_sums(*sums)
    hi, lo = dd_mul(log_sum, log_sum_lo, amount, amount_lo)
    return add_double_double(hi, lo, gap, gap_lo)


@kernel
def subtract_smoothing(x, out, weights, share, sign):
    """out -= share * weights, at the classes above -inf."""
    for i in range(x.size):
        out[i] -= share * weights[i] if is_present(x[i], sign) else 0.0


# --- labels ------------------------------------------------------------------------------------


@kernel
def label_row(x, label, options, grad, m, temperature, sums, exps, exps_kept):
    """The loss of one row against its label; its gradient times `scale`, unless grad is empty."""
    weights, smoothing, scale = options
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind == NAN or kind == NOTHING:
        grad[:] = np.nan
        return np.nan
    own = np.float64(x[label])
    weight = weights[label] if weights.size else 1.0
    kept, kept_lo = two_diff(1.0, smoothing)
    amount, amount_lo = dd_mul(kept, kept_lo, weight, 0.0)
    loss, loss_lo = 0.0, 0.0
    if amount > 0.0:
        loss, loss_lo = negative_log_probability(own, m, temperature, sums)
        if loss < np.inf:
            loss, loss_lo = dd_mul(loss, loss_lo, amount, amount_lo)
    share, total = 0.0, 0.0
    if smoothing > 0.0:
        count, total, total_lo, gap, gap_lo = smoothing_sums(x, weights, m, temperature, exps)
        more, more_lo = loss_of(total, total_lo, gap, gap_lo, sums)
        share, share_lo = dd_div(smoothing, 0.0, count)
        if not (loss < np.inf and more < np.inf):
            loss, loss_lo = np.inf, 0.0
        else:
            more, more_lo = dd_mul(more, more_lo, share, share_lo)
            loss, loss_lo = add_double_double(loss, loss_lo, more, more_lo)
    if grad.size:
        p, others = probability_and_complement(own, m, temperature, sums)
        at_label = -amount * others
        if share > 0.0 and is_present(own, sign):
            at_label += share * (total * p - weight)
        divisor = divisor_of(m, temperature)
        headroom = headroom_of(grad, divisor) if share > 0.0 else 1.0
        reach = divisor * headroom
        factor = (amount + share * total) * scale / reach
        write_probabilities(x, grad, factor, m, temperature, sums, exps, exps_kept)
        if share > 0.0:
            subtract_smoothing(x, grad, weights, share * scale / reach, sign)
        grad[label] = at_label * scale / reach
        finish_division(grad, temperature, divisor)
        if headroom != 1.0:
            for i in range(grad.size):
                grad[i] = grad[i] * headroom
    return loss + loss_lo


@kernel
def label_rows(x, labels, weights, smoothing, scale, values, grads, temperature, exps):
    options = LossOptions(weights, smoothing, scale)
    last = x.shape[0] - 1
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        if labels[r] < 0:
            values[r] = 0.0
            grad[:] = 0.0
            continue
        t = of_row(temperature, r)
        m = row_maximum(x[r], sign_of(x, t))
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, last)])
        if exps is not None:
            kept = exps.size >= x.shape[1]
            values[r] = label_row(x[r], labels[r], options, grad, m, t, sums, exps, kept)
        else:
            values[r] = label_row(x[r], labels[r], options, grad, m, t, sums, None, False)
