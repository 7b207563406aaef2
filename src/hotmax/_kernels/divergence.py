"""The Kullback-Leibler divergence of two rows of logits, and its gradients; float64 rows.

KL(p, q) = sum of p (e^d - 1 - d) with d = log q - log p: since p and q both add up to 1 it is the
sum of -p d, but here no term is negative, so nothing cancels where p and q are nearly equal.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.arithmetic import inline, kernel, two_difference, two_sum
from hotmax._kernels.losses import (
    add_parts,
    divide,
    divisor_of,
    shares,
    write_probabilities,
)
from hotmax._kernels.softmax import NAN, NOTHING, PLAIN, log_of_sums, regime, row_sums, sign_of, top
from hotmax._kernels.wide import over, product, scale_of


@inline
def exp_excess(d):
    """e^d - 1 - d for abs(d) <= 1/2, from its series."""
    term, total = d * d * 0.5, 0.0
    for k in range(3, 19):
        total += term
        term *= d / k
    return total


@kernel
def gap_parts(x, m, temperature):
    """(x - m) / T in two words, or its limit."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind != PLAIN:
        return 0.0 if shares(x, sign, m, kind) else -np.inf, 0.0
    if sign * x == -np.inf:
        return -np.inf, 0.0
    scale = scale_of(temperature)
    d, d_low = two_difference(x * scale, m * abs(scale))
    z, z_low = product(d, d_low, *over(1.0, 0.0, abs(scale * temperature)))
    return z, z_low if z > -np.inf else 0.0


@kernel
def divergence_row(x, y, m, top_y, temperature, sums, sums_y, p, q, logs):
    """KL(softmax(x), softmax(y)); fills p, q and logs, which is log q - log p.

    Both logarithms of sums are rounded, which would show in the gradients of nearly equal rows. So
    what p e^d adds up to beyond 1 is taken off there.
    """
    write_probabilities(x, p, 1.0, m, temperature, sums, None, False)
    write_probabilities(y, q, 1.0, top_y, temperature, sums_y, None, False)
    a, a_low = log_of_sums(*sums)
    b, b_low = log_of_sums(*sums_y)
    offset, offset_low = add_parts(a, a_low, -b, -b_low)
    total, low = 0.0, 0.0
    for c in range(x.size):
        z, z_low = gap_parts(x[c], m, temperature)
        w, w_low = gap_parts(y[c], top_y, temperature)
        if z == -np.inf:
            logs[c] = 0.0
            term = q[c]
        elif w == -np.inf:
            logs[c] = -np.inf
            term = np.inf
        else:
            d, d_low = add_parts(w, w_low, -z, -z_low)
            d, d_low = add_parts(d, d_low, offset, offset_low)
            logs[c] = d + d_low
            small = abs(d) <= 0.5
            term = p[c] * exp_excess(d + d_low) if small else (q[c] - p[c]) - p[c] * d
        total, carry = two_sum(total, term)
        low += carry if total < np.inf else 0.0
    beyond, near = 0.0, True
    for c in range(x.size):
        near = near and abs(logs[c]) <= 0.5
        beyond += p[c] * math.expm1(logs[c]) if near else 0.0
    for c in range(x.size):
        logs[c] -= beyond if near else 0.0
    return total + low


@kernel
def divergence_gradients(p, q, logs, value, scale, grad, grad_y, m, top_y, temperature):
    """p (log p - log q - KL) and q - p, times scale / T."""
    for c in range(p.size):
        if abs(logs[c]) <= 0.5:
            grad_y[c] = p[c] * math.expm1(logs[c]) if p[c] > 0.0 else q[c]
        else:
            grad_y[c] = q[c] - p[c]
        if p[c] == 0.0:
            grad[c] = 0.0
        else:
            grad[c] = -p[c] * (logs[c] + value)
    divisor = divisor_of(m, temperature)
    if regime(top_y, temperature) != PLAIN:
        divisor = 1.0
    for c in range(p.size):
        grad[c] *= scale / divisor
        grad_y[c] *= scale / divisor
    divide(grad, temperature, divisor)
    divide(grad_y, temperature, divisor)


@kernel
def divergence_rows(x, y, scale, values, grads, grads_y, temperature):
    p, q, logs = np.empty(x.shape[1]), np.empty(x.shape[1]), np.empty(x.shape[1])
    for r in range(x.shape[0]):
        t = temperature[r if temperature.size > 1 else 0]
        m, top_y = top(x[r], sign_of(x, t)), top(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r] = np.nan
            if grads.shape[0]:
                grads[r, :], grads_y[r, :] = np.nan, np.nan
            continue
        sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
        values[r] = divergence_row(x[r], y[r], m, top_y, t, sums, sums_y, p, q, logs)
        if grads.shape[0]:
            divergence_gradients(p, q, logs, values[r], scale, grads[r], grads_y[r], m, top_y, t)


# --- distillation -------------------------------------------------------------------------------


@kernel
def flat_row(x, y, scale, grad, sign):
    """The limit of T^2 KL as T grows: half the variance of x - y over the classes."""
    count, mean = 0, 0.0
    for c in range(x.size):
        there = sign * x[c] > -np.inf
        if there != (sign * y[c] > -np.inf):
            grad[:] = np.nan
            return np.inf
        if there:
            count += 1
            mean += (x[c] - y[c] - mean) / count
    total = 0.0
    for c in range(x.size):
        if sign * x[c] > -np.inf:
            off = x[c] - y[c] - mean
            total += off * off
            if grad.size:
                grad[c] = -off * scale / count
        elif grad.size:
            grad[c] = 0.0
    return total / (2 * count)


@kernel
def distillation_rows(x, y, scale, values, grads_y, temperature):
    """T^2 KL(softmax(x / T), softmax(y / T)) and its gradient T (q - p), with their limits."""
    n = x.shape[1]
    p, q, logs, spare = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for r in range(x.shape[0]):
        t = temperature[r if temperature.size > 1 else 0]
        grad = grads_y[r] if grads_y.shape[0] else grads_y.reshape(-1)
        m, top_y = top(x[r], sign_of(x, t)), top(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r], grad[:] = np.nan, np.nan
        elif t == 0.0:
            values[r], grad[:] = 0.0, 0.0
        elif abs(t) == np.inf:
            values[r] = flat_row(x[r], y[r], scale, grad, math.copysign(1.0, t))
        else:
            sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
            value = divergence_row(x[r], y[r], m, top_y, t, sums, sums_y, p, q, logs)
            values[r] = value * t * t
            if grad.size:
                divergence_gradients(p, q, logs, value, t * t * scale, spare, grad, m, top_y, t)
