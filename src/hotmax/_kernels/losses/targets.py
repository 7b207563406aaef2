"""Cross entropy of contiguous rows against rows of probabilities: see `losses` for the formulas."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.cross_entropy import (
    add_parts,
    at_maximum,
    chance_parts,
    divide,
    divisor_of,
    headroom_of,
    loss_of,
    shares,
    spread_parts,
    take_shares,
    write_probabilities,
)
from hotmax._kernels.numeric.arithmetic import two_difference
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import STRIP, accumulate, combine, over, product, scale_of
from hotmax._kernels.softmax.rows import NAN, NOTHING, PLAIN, regime, row_sums, sign_of


@kernel
def add_targets(x, y, weights, amounts, gaps, m, scale):
    """Add weights * y, and weights * y * (m - x); how many of it are at classes not there."""
    peak, lost = m * abs(scale), 0
    for i in range(x.size):
        v = np.float64(x[i]) * scale
        there = v > -np.inf
        amount, amount_low = product(np.float64(y[i]), 0.0, weights[i], 0.0)
        lost += 1 if amount > 0.0 and not there else 0
        d, d_low = two_difference(peak, v if there else peak)
        term, term_low = product(d, d_low, amount, amount_low)
        accumulate(amounts, i, amount, amount_low)
        accumulate(gaps, i, term, term_low)
    return lost


@kernel
def target_parts(x, y, weights, m, temperature):
    """(A, A_low, B, B_low) of a row of probabilities, before smoothing."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    scale = scale_of(temperature) if kind == PLAIN else sign
    amounts, gaps, lost = np.zeros(2 * STRIP), np.zeros(2 * STRIP), 0
    for start in range(0, x.size, STRIP):
        part = slice(start, start + STRIP)
        peak = m if kind == PLAIN else 0.0
        lost += add_targets(x[part], y[part], weights[part], amounts, gaps, peak, scale)
    amount, amount_low = combine(amounts, x.size)
    if kind == PLAIN and lost == 0:
        gap, gap_low = combine(gaps, x.size)
        gap, gap_low = product(gap, gap_low, *over(1.0, 0.0, abs(scale * temperature)))
        if not gap < np.inf:  # beyond float64: inf, or nan of its two words
            return amount, amount_low, np.inf, 0.0
        return amount, amount_low, gap, gap_low
    for i in range(x.size):
        if y[i] * weights[i] > 0.0 and not shares(np.float64(x[i]), sign, m, kind):
            lost += 1
    return amount, amount_low, np.inf if lost > 0 else 0.0, 0.0


@kernel
def take_targets(out, y, weights, factor):
    """out -= factor * weights * y."""
    for i in range(out.size):
        out[i] -= factor * (weights[i] * y[i])


@kernel
def target_row(x, y, weights, smoothing, scale, grad, m, temperature, sums, exps, kept):
    """The loss of one row against probabilities, and its gradient times `scale`."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind == NAN or kind == NOTHING:
        grad[:] = np.nan
        return np.nan
    keep, keep_low = two_difference(1.0, smoothing)
    amount, amount_low, loss, loss_low = 0.0, 0.0, 0.0, 0.0
    if keep > 0.0:
        amount, amount_low, gap, gap_low = target_parts(x, y, weights, m, temperature)
        loss, loss_low = loss_of(amount, amount_low, gap, gap_low, sums)
        amount, amount_low = product(amount, amount_low, keep, keep_low)
        if loss < np.inf:
            loss, loss_low = product(loss, loss_low, keep, keep_low)
    share, share_low = 0.0, 0.0
    if smoothing > 0.0:
        count, total, total_low, gap, gap_low = spread_parts(x, weights, m, temperature, exps)
        more, more_low = loss_of(total, total_low, gap, gap_low, sums)
        share, share_low = over(smoothing, 0.0, count)
        if not (loss < np.inf and more < np.inf):
            loss, loss_low = np.inf, 0.0
        else:
            more, more_low = product(more, more_low, share, share_low)
            loss, loss_low = add_parts(loss, loss_low, more, more_low)
        total, total_low = product(total, total_low, share, share_low)
        amount, amount_low = add_parts(amount, amount_low, total, total_low)
    if grad.size:
        divisor = divisor_of(m, temperature)
        headroom = headroom_of(grad, divisor)
        reach = divisor * headroom
        factor = amount * scale / reach
        write_probabilities(x, grad, factor, m, temperature, sums, exps, kept)
        if keep > 0.0:
            take_targets(grad, y, weights, keep * scale / reach)
        if share > 0.0:
            take_shares(x, grad, weights, share * scale / reach, sign)
        first = at_maximum(x, sign, m) if kind == PLAIN else -1
        others = chance_parts(np.float64(x[first]), m, temperature, sums)[1] if first >= 0 else 1.0
        if others < 0.5:  # A p - a is (A - a) - A (1 - p), which keeps its digits near p = 1
            own, own_low = product(keep * np.float64(y[first]) + share, 0.0, weights[first], 0.0)
            rest = (amount - own) + (amount_low - own_low)
            grad[first] = (rest - amount * others) * scale / reach
        divide(grad, temperature, divisor)
        if headroom != 1.0:
            for i in range(grad.size):
                grad[i] = grad[i] * headroom
    return loss + loss_low


@kernel
def target_rows(x, y, weights, smoothing, scale, values, grads, temperature, exps):
    last = x.shape[0] - 1
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, last)])
        if exps is not None:
            kept = exps.size >= x.shape[1]
            values[r] = target_row(
                x[r], y[r], weights, smoothing, scale, grad, m, t, sums, exps, kept
            )
        else:
            values[r] = target_row(
                x[r], y[r], weights, smoothing, scale, grad, m, t, sums, None, False
            )


@kernel
def check_targets(y, tolerance):
    """What is wrong with rows of probabilities: (kind, row, number); kind 0 if nothing is."""
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
