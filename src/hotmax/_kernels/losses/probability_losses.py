"""Losses of the probability p of the right class: 1 - p, the Brier score, the focal loss.

Rows are float64. `probability_and_complement` gives p and 1 - p, both to full precision, so that
losses and gradients near 0 are as accurate as any. `grads` has no rows if no gradient is wanted.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.probabilities import (
    divisor_of,
    finish_division,
    first_maximum_of,
    negative_log_probability,
    probability_and_complement,
    write_probabilities,
)
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import NAN, NOTHING, regime, sign_of
from hotmax._kernels.softmax.rows import row_sums


@kernel
def focal_parts(p, others, loss, gamma):
    """((1 - p)^gamma loss, -p times its derivative by p), for loss = -log p."""
    if gamma == 0.0:
        return loss, 1.0
    if others == 0.0:
        return 0.0, 0.0
    power = others**gamma
    derivative = power
    if p > 0.0:
        derivative += gamma * p * power * (loss / others)
    return power * loss, derivative


@kernel
def write_gradient(x, label, grad, derivative, others, scale, m, temperature, sums):
    """The gradient of a loss of p alone: derivative (p[c] - [c is the label]) scale / T.

    `derivative` is that of the loss by p, times -p.
    """
    divisor = divisor_of(m, temperature)
    factor = derivative * scale / divisor
    write_probabilities(x, grad, factor, m, temperature, sums, None, False)
    grad[label] = -factor * others
    finish_division(grad, temperature, divisor)


@kernel
def focal_rows(x, labels, weights, gamma, scale, values, grads, temperature):
    """weight (1 - p)^gamma (-log p)."""
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        values[r], grad[:] = 0.0, 0.0
        if labels[r] < 0:
            continue
        t = of_row(temperature, r)
        m = row_maximum(x[r], sign_of(x, t))
        sums = row_sums(x[r], None, m, t, x[r])
        own, weight = x[r, labels[r]], weights[labels[r]] if weights.size else 1.0
        p, others = probability_and_complement(own, m, t, sums)
        loss, loss_lo = negative_log_probability(own, m, t, sums)
        if p != p:
            values[r], grad[:] = np.nan, np.nan
        elif weight > 0.0:
            value, derivative = focal_parts(p, others, loss + loss_lo, gamma)
            values[r] = value * weight
            if grad.size:
                write_gradient(
                    x[r], labels[r], grad, derivative * weight, others, scale, m, t, sums
                )


@kernel
def mae_rows(x, labels, scale, values, grads, temperature):
    """1 - p."""
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        values[r], grad[:] = 0.0, 0.0
        if labels[r] < 0:
            continue
        t = of_row(temperature, r)
        m = row_maximum(x[r], sign_of(x, t))
        sums = row_sums(x[r], None, m, t, x[r])
        p, others = probability_and_complement(x[r, labels[r]], m, t, sums)
        values[r] = others
        if p != p:
            grad[:] = np.nan
        elif grad.size:
            write_gradient(x[r], labels[r], grad, p, others, scale, m, t, sums)


@kernel
def brier_rows(x, labels, scale, values, grads, temperature):
    """The sum of (p[c] - [c is the label])^2.

    With s the sum of p[c]^2 over the other classes, it is s + (1 - p)^2; its gradient is
    2 p[c] (p[c] - s + p (1 - p)) at the other classes and -2 p times itself at the label. Where
    p[c] is nearly 1, p[c] - s is p[c] (1 - p[c]) less the squares of the rest.
    """
    p = np.empty(x.shape[1])
    for r in range(x.shape[0]):
        grad = grads[r] if grads.shape[0] else grads.reshape(-1)
        values[r], grad[:] = 0.0, 0.0
        label = labels[r]
        if label < 0:
            continue
        t = of_row(temperature, r)
        m = row_maximum(x[r], sign_of(x, t))
        kind = regime(m, t)
        if kind == NAN or kind == NOTHING:
            values[r], grad[:] = np.nan, np.nan
            continue
        sums = row_sums(x[r], None, m, t, x[r])
        own, others = probability_and_complement(x[r, label], m, t, sums)
        write_probabilities(x[r], p, 1.0, m, t, sums, None, False)
        squares, lo, first = 0.0, 0.0, first_maximum_of(x[r], sign_of(x, t), m)
        for c in range(p.size):
            squares, carry = two_sum(squares, p[c] * p[c] if c != label and c != first else 0.0)
            lo += carry
        squares += lo
        likely = p[first] if first != label else 0.0
        beside = own * others - squares
        squares += likely * likely
        values[r] = squares + others * others
        if grad.size:
            divisor = divisor_of(m, t)
            for c in range(p.size):
                grad[c] = 2.0 * p[c] * (p[c] - squares + own * others) * scale / divisor
            near = probability_and_complement(x[r, first], m, t, sums)[1]
            grad[first] = 2.0 * likely * (likely * near + beside) * scale / divisor
            grad[label] = -2.0 * own * values[r] * scale / divisor
            finish_division(grad, t, divisor)
