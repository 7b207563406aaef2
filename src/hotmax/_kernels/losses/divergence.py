"""The Kullback-Leibler divergence of two rows of logits, and its gradients; float64 rows.

Gaps x - max are measured in a unit in which their temperature is `tau`: for KL gaps are divided by
T, and tau is 1; for distillation they are gaps of the logits, and tau is |T|, which saves the
multiplication by T^2. Over the classes with p > 0, let u = tau log(q / p) + a constant that makes
the mean of u under p 0, and v = u / tau. Then

    KL          log(1 + S) - log(1 - q's mass elsewhere)      S = sum of p (e^v - 1 - v)
    tau^2 S     sum of p u^2 (1/2 + v/6 + v^2/24 + ...)
    gradients   -p u  and  tau (q - p)

No term of S is negative, so nothing cancels where p and q are nearly equal. Where q is far from p
the sum of p (e^d - 1 - d) over d = log q - log p is used instead, since v may overflow there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.losses.probabilities import (
    divisor_of,
    finish_division,
    shares_mass,
    write_probabilities,
)
from hotmax._kernels.numeric.arithmetic import add_double_double
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, two_diff, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.float64 import range_scale
from hotmax._kernels.softmax.limits import NAN, NOTHING, PLAIN, regime, sign_of
from hotmax._kernels.softmax.rows import log_of_sums, row_sums

SMALLEST_SQUARED = 2.0**-400  # the square of a smaller tau may underflow
FAR_RATIO = -0.7  # log((1 + S) / (1 - q's mass elsewhere)) above 0.7: nothing nearly cancels


class LogitsRow(NamedTuple):
    """A row of logits, its maximum, and its sums (ties, below, below_lo)."""

    x: Any
    m: Any
    sums: Any


class DivergenceWork(NamedTuple):
    """Workspace for one pair of rows."""

    p: Any
    q: Any
    gaps: Any  # (2, classes): gaps of y - gaps of x as double-doubles
    u: Any
    logs: Any  # tau log(q / p)


@inline
def exp_excess_series(v):
    """(e^v - 1 - v) / v^2 for abs(v) <= 1, from its series."""
    total = 0.0
    for k in range(20, 2, -1):
        total = (total + 1.0) * v / k
    return 0.5 * (total + 1.0)


@inline
def ratio_to_argument(numerator, x):
    """f(x) / x for a function f with f(x) = x near 0."""
    return numerator / x if x != 0.0 else 1.0


@kernel
def divided_gap(x, m, temperature):
    """(x - m) / T as a double-double, or its limit."""
    kind, sign = regime(m, temperature), math.copysign(1.0, temperature)
    if kind != PLAIN:
        return 0.0 if shares_mass(x, sign, m, kind) else -np.inf, 0.0
    if sign * x == -np.inf:
        return -np.inf, 0.0
    scale = range_scale(temperature)
    d, d_lo = two_diff(x * scale, m * abs(scale))
    z, z_lo = dd_mul(d, d_lo, *dd_div(1.0, 0.0, abs(scale * temperature)))
    return z, z_lo if z > -np.inf else 0.0


@kernel
def plain_gap(x, m, temperature, unit):
    """(x - m) * unit as a double-double."""
    sign = math.copysign(1.0, temperature)
    if m == np.inf:
        return 0.0 if sign * x == m else -np.inf, 0.0
    if sign * x == -np.inf:
        return -np.inf, 0.0
    return two_diff(sign * x * unit, m * unit)


@kernel
def write_gaps(first, second, temperature, unit, gaps):
    """gaps = gaps of the second row - gaps of the first: -inf where q is 0, inf where p is 0."""
    x, m, y, top_y = first.x, first.m, second.x, second.m
    for c in range(x.size):
        if unit == 0.0:
            z, z_lo = divided_gap(x[c], m, temperature)
            w, w_lo = divided_gap(y[c], top_y, temperature)
        else:
            z, z_lo = plain_gap(x[c], m, temperature, unit)
            w, w_lo = plain_gap(y[c], top_y, temperature, unit)
        if z == -np.inf:
            gaps[0, c], gaps[1, c] = np.inf, 0.0
        elif w == -np.inf:
            gaps[0, c], gaps[1, c] = -np.inf, 0.0
        else:
            gaps[0, c], gaps[1, c] = add_double_double(w, w_lo, -z, -z_lo)


@kernel
def write_centred(p, gaps, u):
    """u = gaps - their mean under p. Returns the mean as a double-double.

    The gap of the class with the largest p is subtracted first, so that the rest is small where the
    gaps are alike. The mean of the rest is subtracted twice: the error of the first is of the size
    of the largest gap.
    """
    base = 0
    for c in range(p.size):
        if p[c] > p[base]:
            base = c
    mean, mean_lo = gaps[0, base], gaps[1, base]
    for c in range(p.size):
        u[c] = 0.0
        if abs(gaps[0, c]) < np.inf:
            hi, lo = add_double_double(gaps[0, c], gaps[1, c], -mean, -mean_lo)
            u[c] = hi + lo
    for _ in range(2):
        more = 0.0
        for c in range(p.size):
            more += p[c] * u[c] if p[c] > 0.0 else 0.0
        for c in range(p.size):
            u[c] -= more if abs(gaps[0, c]) < np.inf else 0.0
        mean, mean_lo = add_double_double(mean, mean_lo, more, 0.0)
    return mean, mean_lo


@kernel
def plain_excess(work, tau, ratio):
    """S itself: the sum of p (e^v - 1 - v) over the classes with p > 0."""
    p, q, gaps, u = work.p, work.q, work.gaps, work.u
    total = 0.0
    for c in range(p.size):
        v = u[c] / tau
        if gaps[0, c] == np.inf:
            continue
        if abs(v) <= 1.0:
            total += p[c] * v * v * exp_excess_series(v)
        else:
            total += (q[c] / ratio - p[c]) - (p[c] * v if p[c] > 0.0 else 0.0)
    return total


@kernel
def near_divergence(work, tau, ratio):
    """tau^2 KL where q is near p; ratio is q / (p e^v). Writes logs."""
    p, q, gaps, u, logs = work
    total, lo, elsewhere = 0.0, 0.0, 0.0
    for c in range(p.size):
        v = u[c] / tau
        if gaps[0, c] == np.inf:
            elsewhere += q[c]
            continue
        if abs(v) <= 1.0:
            term = p[c] * u[c] * u[c] * exp_excess_series(v)
        else:
            term = tau * (tau * (q[c] / ratio - p[c]) - p[c] * u[c])
        total, carry = two_sum(total, term)
        lo += carry if total < np.inf else 0.0
    total += lo
    if total < np.inf and tau > SMALLEST_SQUARED:
        small = total / tau / tau
        value = total * ratio_to_argument(math.log1p(small), small)
        shift = -total / tau * ratio_to_argument(math.log1p(small), small)
    else:  # tau^2 S is out of range of float64, S itself is not
        shift = -tau * math.log1p(plain_excess(work, tau, ratio))
        value = -tau * shift
    if elsewhere > 0.0:
        value -= tau * (tau * math.log1p(-elsewhere))
        shift += tau * math.log1p(-elsewhere)
    for c in range(p.size):
        logs[c] = u[c] + shift if gaps[0, c] < np.inf else 0.0
    return value


@kernel
def far_divergence(work, tau, offset, offset_lo):
    """tau^2 KL of rows that are far apart. Writes logs."""
    p, q, gaps, logs = work.p, work.q, work.gaps, work.logs
    total, lo = 0.0, 0.0
    for c in range(p.size):
        if gaps[0, c] == np.inf or (gaps[0, c] == -np.inf and p[c] == 0.0):
            logs[c] = 0.0  # p and q are both 0: the class contributes nothing
            term = tau * q[c]
        elif gaps[0, c] == -np.inf:
            logs[c] = -np.inf
            term = np.inf
        else:
            d, d_lo = add_double_double(gaps[0, c], gaps[1, c], offset, offset_lo)
            logs[c] = d + d_lo if abs(d) < np.inf else d
            v = logs[c] / tau
            if abs(v) <= 1.0:
                term = p[c] * logs[c] * (v * exp_excess_series(v))
            else:
                term = tau * (q[c] - p[c]) - (p[c] * logs[c] if p[c] > 0.0 else 0.0)
        total, carry = two_sum(total, term)
        lo += carry if total < np.inf else 0.0
    return tau * (total + lo) if total < np.inf else np.inf


@kernel
def divergence_row(first, second, temperature, unit, work):
    """tau^2 KL(softmax of the first row, softmax of the second). Writes all of `work`.

    With a unit of 0 gaps are divided by T.
    """
    p, gaps = work.p, work.gaps
    write_probabilities(first.x, p, 1.0, first.m, temperature, first.sums, None, False)
    write_probabilities(second.x, work.q, 1.0, second.m, temperature, second.sums, None, False)
    tau = abs(temperature) * unit if unit > 0.0 else 1.0
    write_gaps(first, second, temperature, unit, gaps)
    a, a_lo = log_of_sums(*first.sums)
    b, b_lo = log_of_sums(*second.sums)
    offset, offset_lo = add_double_double(a, a_lo, -b, -b_lo)
    offset, offset_lo = dd_mul(offset, offset_lo, tau, 0.0)
    mean, mean_lo = write_centred(p, gaps, work.u)
    ratio, _ = add_double_double(mean, mean_lo, offset, offset_lo)
    ratio /= tau
    within = True
    for c in range(p.size):
        within = within and gaps[0, c] > -np.inf
    if within and ratio > FAR_RATIO:
        return near_divergence(work, tau, math.exp(ratio))
    return far_divergence(work, tau, offset, offset_lo)


@kernel
def write_gradient_p(p, gaps, u, grad):
    """grad = -p u. Where q is 0 and p is not, KL is inf and its gradient infinite."""
    lacking, common = False, False
    for c in range(p.size):
        lacking = lacking or (p[c] > 0.0 and gaps[0, c] == -np.inf)
        common = common or (p[c] > 0.0 and abs(gaps[0, c]) < np.inf)
    for c in range(p.size):
        if p[c] == 0.0 or (lacking and not common):
            grad[c] = 0.0
        elif lacking:
            grad[c] = np.inf if gaps[0, c] == -np.inf else -np.inf
        else:
            grad[c] = -p[c] * u[c]


@kernel
def write_gradient_q(work, tau, grad):
    """grad = tau (q - p), computed as p (e^d - 1) where d = log(q / p) is small.

    These d share the error of the normalisation. So what the gradient sums to, other than 0, is
    subtracted from these classes, if they have most of the mass.
    """
    p, q, gaps, logs = work.p, work.q, work.gaps, work.logs
    total, mass = 0.0, 0.0
    for c in range(p.size):
        d = logs[c] / tau
        if abs(d) <= 0.5 and gaps[0, c] < np.inf:
            grad[c] = p[c] * logs[c] * ratio_to_argument(math.expm1(d), d)
            mass += q[c]
        else:
            grad[c] = tau * (q[c] - p[c])
        total += grad[c]
    if mass > 0.5:
        for c in range(p.size):
            if abs(logs[c] / tau) <= 0.5 and gaps[0, c] < np.inf:
                grad[c] -= q[c] / mass * total


@inline
def work_of(n):
    """Workspace for rows of n classes."""
    return DivergenceWork(np.empty(n), np.empty(n), np.empty((2, n)), np.empty(n), np.empty(n))


@kernel
def divergence_rows(x, y, scale, values, grads, grads_y, temperature):
    n = x.shape[1]
    work = work_of(n)
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        m, top_y = row_maximum(x[r], sign_of(x, t)), row_maximum(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r] = np.nan
            if grads.shape[0]:
                grads[r, :], grads_y[r, :] = np.nan, np.nan
            continue
        sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
        first, second = LogitsRow(x[r], m, sums), LogitsRow(y[r], top_y, sums_y)
        values[r] = divergence_row(first, second, t, 0.0, work)
        if grads.shape[0]:
            write_gradient_p(work.p, work.gaps, work.u, grads[r])
            write_gradient_q(work, 1.0, grads_y[r])
            divisor = divisor_of(m, t) if kind_y == PLAIN else 1.0
            for c in range(n):
                grads[r, c] *= scale / divisor
                grads_y[r, c] *= scale / divisor
            finish_division(grads[r], t, divisor)
            finish_division(grads_y[r], t, divisor)


# --- distillation -------------------------------------------------------------------------------


@inline
def gap_unit(temperature):
    """A power of two for gaps and T that keeps gaps and T log(classes) in range of float64."""
    return 2.0**-10 if abs(temperature) > 1.0 else 2.0**-2


@inline
def flat_value(value, m, sign):
    """The logit of a class; in a row with +inf, 0 for those classes and no mass for all others."""
    if m == np.inf:
        return 0.0 if sign * value == m else -sign * np.inf
    return value


@kernel
def flat_row(x, y, m, top_y, scale, grad, sign):
    """The limit of T^2 KL for T = inf: half the variance of x - y over the classes."""
    count, mean = 0, 0.0
    for c in range(x.size):
        first, second = flat_value(x[c], m, sign), flat_value(y[c], top_y, sign)
        present = sign * first > -np.inf
        if present != (sign * second > -np.inf):
            grad[:] = np.nan
            return np.inf
        if present:
            count += 1
            mean += (first - second - mean) / count
    total = 0.0
    for c in range(x.size):
        first = flat_value(x[c], m, sign)
        if sign * first > -np.inf:
            off = first - flat_value(y[c], top_y, sign) - mean
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
    work = work_of(n)
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        grad = grads_y[r] if grads_y.shape[0] else grads_y.reshape(-1)
        m, top_y = row_maximum(x[r], sign_of(x, t)), row_maximum(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r], grad[:] = np.nan, np.nan
        elif t == 0.0:
            values[r], grad[:] = 0.0, 0.0
        elif abs(t) == np.inf:
            values[r] = flat_row(x[r], y[r], m, top_y, scale, grad, math.copysign(1.0, t))
        else:
            unit = gap_unit(t)
            sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
            first, second = LogitsRow(x[r], m, sums), LogitsRow(y[r], top_y, sums_y)
            value = divergence_row(first, second, t, unit, work)
            values[r] = value / unit / unit
            if grad.size:
                write_gradient_q(work, abs(t) * unit, grad)
                for c in range(n):
                    grad[c] *= scale * math.copysign(1.0, t) / unit
