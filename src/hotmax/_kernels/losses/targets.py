"""Cross entropy of contiguous rows against rows of probabilities: formulas in cross_entropy.py."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.cross_entropy import (
    LossOptions,
    loss_of,
    smoothing_sums,
    subtract_smoothing,
)
from hotmax._kernels.losses.probabilities import (
    divisor_of,
    finish_division,
    first_maximum_of,
    headroom_of,
    probability_and_complement,
    shares_mass,
    write_probabilities,
)
from hotmax._kernels.numeric.arithmetic import add_double_double
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, two_diff
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.float64 import PARTIAL_SUMS, accumulate, combine_sums, range_scale
from hotmax._kernels.softmax.limits import NAN, NOTHING, PLAIN, regime, sign_of
from hotmax._kernels.softmax.rows import row_sums


@kernel
def add_targets(x, y, weights, amounts, gaps, m, scale):
    """Add weights * y, and weights * y * (m - x). Returns how many positive targets are at -inf."""
    peak, lost = m * abs(scale), 0
    for i in range(x.size):
        v = np.float64(x[i]) * scale
        present = v > -np.inf
        amount, amount_lo = dd_mul(np.float64(y[i]), 0.0, weights[i], 0.0)
        lost += 1 if amount > 0.0 and not present else 0
        d, d_lo = two_diff(peak, v if present else peak)
        term, term_lo = dd_mul(d, d_lo, amount, amount_lo)
        accumulate(amounts, i, amount, amount_lo)
        accumulate(gaps, i, term, term_lo)
    return lost


@kernel
def target_parts(x, y, weights, m, temperature):
    """(A, A_lo, B, B_lo) of a row of probabilities, before smoothing."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    scale = range_scale(temperature) if kind == PLAIN else sign
    amounts, gaps, lost = np.zeros(2 * PARTIAL_SUMS), np.zeros(2 * PARTIAL_SUMS), 0
    for start in range(0, x.size, PARTIAL_SUMS):
        part = slice(start, start + PARTIAL_SUMS)
        peak = m if kind == PLAIN else 0.0
        lost += add_targets(x[part], y[part], weights[part], amounts, gaps, peak, scale)
    amount, amount_lo = combine_sums(amounts, x.size)
    if kind == PLAIN and lost == 0:
        gap, gap_lo = combine_sums(gaps, x.size)
        gap, gap_lo = dd_mul(gap, gap_lo, *dd_div(1.0, 0.0, abs(scale * temperature)))
        if not gap < np.inf:  # overflow: inf, or nan from its lo part
            return amount, amount_lo, np.inf, 0.0
        return amount, amount_lo, gap, gap_lo
    for i in range(x.size):
        if y[i] * weights[i] > 0.0 and not shares_mass(np.float64(x[i]), sign, m, kind):
            lost += 1
    return amount, amount_lo, np.inf if lost > 0 else 0.0, 0.0


@kernel
def subtract_targets(out, y, weights, factor):
    """out -= factor * weights * y."""
    for i in range(out.size):
        out[i] -= factor * (weights[i] * y[i])


@kernel
def target_row(x, y, options, grad, m, temperature, sums, exps, exps_kept):
    """The loss of one row against probabilities; its gradient times `scale` into grad, if any."""
    weights, smoothing, scale = options
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind == NAN or kind == NOTHING:
        grad[:] = np.nan
        return np.nan
    kept, kept_lo = two_diff(1.0, smoothing)
    amount, amount_lo, loss, loss_lo = 0.0, 0.0, 0.0, 0.0
    if kept > 0.0:
        amount, amount_lo, gap, gap_lo = target_parts(x, y, weights, m, temperature)
        loss, loss_lo = loss_of(amount, amount_lo, gap, gap_lo, sums)
        amount, amount_lo = dd_mul(amount, amount_lo, kept, kept_lo)
        if loss < np.inf:
            loss, loss_lo = dd_mul(loss, loss_lo, kept, kept_lo)
    share, share_lo = 0.0, 0.0
    if smoothing > 0.0:
        count, total, total_lo, gap, gap_lo = smoothing_sums(x, weights, m, temperature, exps)
        more, more_lo = loss_of(total, total_lo, gap, gap_lo, sums)
        share, share_lo = dd_div(smoothing, 0.0, count)
        if not (loss < np.inf and more < np.inf):
            loss, loss_lo = np.inf, 0.0
        else:
            more, more_lo = dd_mul(more, more_lo, share, share_lo)
            loss, loss_lo = add_double_double(loss, loss_lo, more, more_lo)
        total, total_lo = dd_mul(total, total_lo, share, share_lo)
        amount, amount_lo = add_double_double(amount, amount_lo, total, total_lo)
    if grad.size:
        divisor = divisor_of(m, temperature)
        headroom = headroom_of(grad, divisor)
        reach = divisor * headroom
        factor = amount * scale / reach
        write_probabilities(x, grad, factor, m, temperature, sums, exps, exps_kept)
        if kept > 0.0:
            subtract_targets(grad, y, weights, kept * scale / reach)
        if share > 0.0:
            subtract_smoothing(x, grad, weights, share * scale / reach, sign)
        first = first_maximum_of(x, sign, m) if kind == PLAIN else -1
        others = (
            probability_and_complement(np.float64(x[first]), m, temperature, sums)[1]
            if first >= 0
            else 1.0
        )
        if others < 0.5:  # A p - a as (A - a) - A (1 - p), which keeps its digits near p = 1
            own, own_lo = dd_mul(kept * np.float64(y[first]) + share, 0.0, weights[first], 0.0)
            rest = (amount - own) + (amount_lo - own_lo)
            grad[first] = (rest - amount * others) * scale / reach
        finish_division(grad, temperature, divisor)
        if headroom != 1.0:
            for i in range(grad.size):
                grad[i] = grad[i] * headroom
    return loss + loss_lo


@kernel
def target_rows(x, y, weights, smoothing, scale, values, grads, temperature, exps):
    options = LossOptions(weights, smoothing, scale)
    last = x.shape[0] - 1
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        t = of_row(temperature, r)
        m = row_maximum(x[r], sign_of(x, t))
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, last)])
        if exps is not None:
            kept = exps.size >= x.shape[1]
            values[r] = target_row(x[r], y[r], options, grad, m, t, sums, exps, kept)
        else:
            values[r] = target_row(x[r], y[r], options, grad, m, t, sums, None, False)


@kernel
def check_targets(y, tolerance):
    """(status, row, number) of the first error: 0 none, 1 a number not >= 0, 2 a sum not 1."""
    for r in range(y.shape[0]):
        total = 0.0
        for i in range(y.shape[1]):
            v = np.float64(y[r, i])
            if not v >= 0.0:
                return 1, r, v
            total += v
        if not abs(total - 1.0) <= tolerance:
            return 2, r, total
    return 0, 0, 0.0
