"""The Kullback-Leibler divergence of two rows of logits, and its gradients; float64 rows.

Gaps are counted in a unit in which a temperature of `heat` is applied to them: gaps that are
already divided by T with heat 1 for KL, those of the logits with heat |T| for distillation, whose
factor T^2 then need not be multiplied by. Over the classes that p has, with u = heat log(q / p) up
to a constant that makes the mean of u under p 0, and v = u / heat:

    KL          log(1 + S) - log(1 - q's mass elsewhere)      S = sum of p (e^v - 1 - v)
    heat^2 S    sum of p u^2 (1/2 + v/6 + v^2/24 + ...)
    gradients   -p u  and  heat (q - p)

No term of S is negative, so nothing cancels where p and q are nearly equal. Where q is far from p
the sum of p (e^d - 1 - d) over d = log q - log p is taken instead: there v may be out of reach.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.losses.cross_entropy import (
    add_parts,
    divide,
    divisor_of,
    shares,
    write_probabilities,
)
from hotmax._kernels.numeric.arithmetic import two_difference, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import over, product, scale_of
from hotmax._kernels.softmax.rows import NAN, NOTHING, PLAIN, log_of_sums, regime, row_sums, sign_of

SQUARED = 2.0**-400  # the square of a smaller heat may underflow
FAR = -0.7  # log((1 + S) / (1 - q's mass elsewhere)) above 0.7: nothing nearly cancels


@inline
def exp_excess(v):
    """(e^v - 1 - v) / v^2 for abs(v) <= 1, from its series."""
    total = 0.0
    for k in range(20, 2, -1):
        total = (total + 1.0) * v / k
    return 0.5 * (total + 1.0)


@inline
def over_itself(numerator, x):
    """A function's value at x over x, where the function is x near 0."""
    return numerator / x if x != 0.0 else 1.0


@kernel
def divided_gap(x, m, temperature):
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
def plain_gap(x, m, temperature, unit):
    """x - m in two words, times the unit."""
    sign = math.copysign(1.0, temperature)
    if m == np.inf:
        return 0.0 if sign * x == m else -np.inf, 0.0
    if sign * x == -np.inf:
        return -np.inf, 0.0
    return two_difference(sign * x * unit, m * unit)


@kernel
def write_gaps(x, y, m, top_y, temperature, unit, gaps):
    """gaps = those of y - those of x, in two words: -inf where q is 0, inf where p is 0."""
    for c in range(x.size):
        if unit == 0.0:
            z, z_low = divided_gap(x[c], m, temperature)
            w, w_low = divided_gap(y[c], top_y, temperature)
        else:
            z, z_low = plain_gap(x[c], m, temperature, unit)
            w, w_low = plain_gap(y[c], top_y, temperature, unit)
        if z == -np.inf:
            gaps[0, c], gaps[1, c] = np.inf, 0.0
        elif w == -np.inf:
            gaps[0, c], gaps[1, c] = -np.inf, 0.0
        else:
            gaps[0, c], gaps[1, c] = add_parts(w, w_low, -z, -z_low)


@kernel
def write_centred(p, gaps, u):
    """u = gaps less their mean under p; what was taken off, in two words.

    The class with most of p goes first, so that what is left is small where the gaps are alike. The
    mean of the rest is taken off twice: the first one's error is of the size of the largest gap.
    """
    base = 0
    for c in range(p.size):
        if p[c] > p[base]:
            base = c
    mean, mean_low = gaps[0, base], gaps[1, base]
    for c in range(p.size):
        u[c] = 0.0
        if abs(gaps[0, c]) < np.inf:
            high, low = add_parts(gaps[0, c], gaps[1, c], -mean, -mean_low)
            u[c] = high + low
    for _ in range(2):
        more = 0.0
        for c in range(p.size):
            more += p[c] * u[c] if p[c] > 0.0 else 0.0
        for c in range(p.size):
            u[c] -= more if abs(gaps[0, c]) < np.inf else 0.0
        mean, mean_low = add_parts(mean, mean_low, more, 0.0)
    return mean, mean_low


@kernel
def plain_excess(p, q, gaps, u, heat, ratio):
    """S itself: the sum of p (e^v - 1 - v) over the classes that p has."""
    total = 0.0
    for c in range(p.size):
        v = u[c] / heat
        if gaps[0, c] == np.inf:
            continue
        if abs(v) <= 1.0:
            total += p[c] * v * v * exp_excess(v)
        else:
            total += (q[c] / ratio - p[c]) - (p[c] * v if p[c] > 0.0 else 0.0)
    return total


@kernel
def near_divergence(p, q, gaps, u, heat, ratio, logs):
    """heat^2 KL where q is near p; ratio is q / (p e^v). logs = heat log(q / p)."""
    total, low, elsewhere = 0.0, 0.0, 0.0
    for c in range(p.size):
        v = u[c] / heat
        if gaps[0, c] == np.inf:
            elsewhere += q[c]
            continue
        if abs(v) <= 1.0:
            term = p[c] * u[c] * u[c] * exp_excess(v)
        else:
            term = heat * (heat * (q[c] / ratio - p[c]) - p[c] * u[c])
        total, carry = two_sum(total, term)
        low += carry if total < np.inf else 0.0
    total += low
    if total < np.inf and heat > SQUARED:
        small = total / heat / heat
        value = total * over_itself(math.log1p(small), small)
        shift = -total / heat * over_itself(math.log1p(small), small)
    else:  # heat^2 S leaves float64, S itself does not
        shift = -heat * math.log1p(plain_excess(p, q, gaps, u, heat, ratio))
        value = -heat * shift
    if elsewhere > 0.0:
        value -= heat * (heat * math.log1p(-elsewhere))
        shift += heat * math.log1p(-elsewhere)
    for c in range(p.size):
        logs[c] = u[c] + shift if gaps[0, c] < np.inf else 0.0
    return value


@kernel
def far_divergence(p, q, gaps, heat, offset, offset_low, logs):
    """heat^2 KL of rows that are far apart; logs = heat log(q / p)."""
    total, low = 0.0, 0.0
    for c in range(p.size):
        if gaps[0, c] == np.inf or (gaps[0, c] == -np.inf and p[c] == 0.0):
            logs[c] = 0.0  # a quotient of two that vanish: the class has no part in p
            term = heat * q[c]
        elif gaps[0, c] == -np.inf:
            logs[c] = -np.inf
            term = np.inf
        else:
            d, d_low = add_parts(gaps[0, c], gaps[1, c], offset, offset_low)
            logs[c] = d + d_low if abs(d) < np.inf else d
            v = logs[c] / heat
            if abs(v) <= 1.0:
                term = p[c] * logs[c] * (v * exp_excess(v))
            else:
                term = heat * (q[c] - p[c]) - (p[c] * logs[c] if p[c] > 0.0 else 0.0)
        total, carry = two_sum(total, term)
        low += carry if total < np.inf else 0.0
    return heat * (total + low) if total < np.inf else np.inf


@kernel
def divergence_row(x, y, m, top_y, temperature, unit, sums, sums_y, p, q, gaps, u, logs):
    """heat^2 KL(softmax(x), softmax(y)); fills p, q, gaps, u and logs.

    A unit of 0 is for gaps divided by T.
    """
    write_probabilities(x, p, 1.0, m, temperature, sums, None, False)
    write_probabilities(y, q, 1.0, top_y, temperature, sums_y, None, False)
    heat = abs(temperature) * unit if unit > 0.0 else 1.0
    write_gaps(x, y, m, top_y, temperature, unit, gaps)
    a, a_low = log_of_sums(*sums)
    b, b_low = log_of_sums(*sums_y)
    offset, offset_low = add_parts(a, a_low, -b, -b_low)
    offset, offset_low = product(offset, offset_low, heat, 0.0)
    mean, mean_low = write_centred(p, gaps, u)
    ratio, _ = add_parts(mean, mean_low, offset, offset_low)
    ratio /= heat
    within = True
    for c in range(x.size):
        within = within and gaps[0, c] > -np.inf
    if within and ratio > FAR:
        return near_divergence(p, q, gaps, u, heat, math.exp(ratio), logs)
    return far_divergence(p, q, gaps, heat, offset, offset_low, logs)


@kernel
def write_gradient_p(p, gaps, u, grad):
    """-p u. Where q lacks classes of p, KL is inf, and falls as p leaves them."""
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
def write_gradient_q(p, q, gaps, logs, heat, grad):
    """heat (q - p): p (e^d - 1) where d = log(q / p) is small.

    Those d share one error, that of the normalisation. So what the gradient adds up to beyond 0 is
    taken off there, if they have most of the mass.
    """
    total, mass = 0.0, 0.0
    for c in range(p.size):
        d = logs[c] / heat
        if abs(d) <= 0.5 and gaps[0, c] < np.inf:
            grad[c] = p[c] * logs[c] * over_itself(math.expm1(d), d)
            mass += q[c]
        else:
            grad[c] = heat * (q[c] - p[c])
        total += grad[c]
    if mass > 0.5:
        for c in range(p.size):
            if abs(logs[c] / heat) <= 0.5 and gaps[0, c] < np.inf:
                grad[c] -= q[c] / mass * total


@kernel
def divergence_rows(x, y, scale, values, grads, grads_y, temperature):
    n = x.shape[1]
    p, q, logs, u, gaps = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((2, n))
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        m, top_y = top(x[r], sign_of(x, t)), top(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r] = np.nan
            if grads.shape[0]:
                grads[r, :], grads_y[r, :] = np.nan, np.nan
            continue
        sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
        values[r] = divergence_row(x[r], y[r], m, top_y, t, 0.0, sums, sums_y, p, q, gaps, u, logs)
        if grads.shape[0]:
            write_gradient_p(p, gaps, u, grads[r])
            write_gradient_q(p, q, gaps, logs, 1.0, grads_y[r])
            divisor = divisor_of(m, t) if kind_y == PLAIN else 1.0
            for c in range(n):
                grads[r, c] *= scale / divisor
                grads_y[r, c] *= scale / divisor
            divide(grads[r], t, divisor)
            divide(grads_y[r], t, divisor)


# --- distillation -------------------------------------------------------------------------------


@inline
def unit_of(temperature):
    """A power of two for gaps and T: neither a gap nor T log(classes) leaves float64's range."""
    return 2.0**-10 if abs(temperature) > 1.0 else 2.0**-2


@inline
def flat_value(value, m, sign):
    """The logit of a class; in a row with +inf, those alone are there, at one height."""
    if m == np.inf:
        return 0.0 if sign * value == m else -sign * np.inf
    return value


@kernel
def flat_row(x, y, m, top_y, scale, grad, sign):
    """The limit of T^2 KL as T grows: half the variance of x - y over the classes."""
    count, mean = 0, 0.0
    for c in range(x.size):
        first, second = flat_value(x[c], m, sign), flat_value(y[c], top_y, sign)
        there = sign * first > -np.inf
        if there != (sign * second > -np.inf):
            grad[:] = np.nan
            return np.inf
        if there:
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
    p, q, logs, u, gaps = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty((2, n))
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        grad = grads_y[r] if grads_y.shape[0] else grads_y.reshape(-1)
        m, top_y = top(x[r], sign_of(x, t)), top(y[r], sign_of(x, t))
        kind, kind_y = regime(m, t), regime(top_y, t)
        if kind == NAN or kind == NOTHING or kind_y == NAN or kind_y == NOTHING:
            values[r], grad[:] = np.nan, np.nan
        elif t == 0.0:
            values[r], grad[:] = 0.0, 0.0
        elif abs(t) == np.inf:
            values[r] = flat_row(x[r], y[r], m, top_y, scale, grad, math.copysign(1.0, t))
        else:
            unit = unit_of(t)
            sums, sums_y = row_sums(x[r], None, m, t, x[r]), row_sums(y[r], None, top_y, t, y[r])
            value = divergence_row(x[r], y[r], m, top_y, t, unit, sums, sums_y, p, q, gaps, u, logs)
            values[r] = value / unit / unit
            if grad.size:
                write_gradient_q(p, q, gaps, logs, abs(t) * unit, grad)
                for c in range(n):
                    grad[c] *= scale * math.copysign(1.0, t) / unit
