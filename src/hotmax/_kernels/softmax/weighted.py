"""log |sum w exp(x / T)|, one row at a time, with weights of either sign."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.numeric.arithmetic import (
    LN2_HEAD,
    LN2_TAIL,
    LOG2E,
    LOG2E_LO,
    UNBIAS64,
    exp2_parts,
    log1p_parts,
)
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, two_diff, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float64 import range_scale
from hotmax._kernels.softmax.limits import HARD, NAN, NOTHING, PLAIN, regime


@kernel
def weighted_top(x, weights, sign):
    """max(sign * x) over weights that are not 0; nan if any of those entries or weights is nan."""
    m = -np.inf
    for i in range(x.size):
        v = sign * np.float64(x[i])
        if weights[i] != 0.0:
            m = max(m, v) if not (m != m or v != v or weights[i] != weights[i]) else np.nan
    return m


@kernel
def weighted_limit(x, weights, sign, m, kind):
    """The sum of the weights that count at the limits of temperature."""
    total, lo = 0.0, 0.0
    for i in range(x.size):
        v = sign * np.float64(x[i])
        if weights[i] != 0.0 and (v == m if kind == HARD else v > -np.inf):
            total, carry = two_sum(total, weights[i])
            lo += carry if abs(total) < np.inf else 0.0
    return total + lo


@kernel
def exponent_of(total):
    return math.frexp(total)[1] - 1


@kernel
def log_magnitude(total, lo, k):
    """log(total + lo) + k log 2 in double-double, for total > 0."""
    shift = exponent_of(total)
    scaled, scaled_lo = math.ldexp(total, -shift), math.ldexp(lo, -shift)
    k += shift
    s, carry = two_sum(scaled - 1.0, scaled_lo)
    if s < 0.0:  # total is a power of two and lo < 0: use the binade below
        scaled, scaled_lo, k = 2.0 * scaled, 2.0 * scaled_lo, k - 1
        s, carry = two_sum(scaled - 1.0, scaled_lo)
    hi, high_lo = log1p_parts(s, carry)
    result, rest = two_sum(k * LN2_HEAD, hi)
    return result, rest + (k * LN2_TAIL + high_lo)


@kernel
def weighted_row(x, weights, temperature):
    """(log |sum|, sign of the sum)."""
    sign = math.copysign(1.0, temperature)
    m = weighted_top(x, weights, sign)
    kind = regime(m, temperature)
    if kind == NAN:
        return np.nan, np.nan
    if kind == NOTHING:
        return -np.inf, 0.0
    infinite = 0.0
    for i in range(x.size):
        if abs(weights[i]) == np.inf:  # inf * exp(-inf) is nan
            infinite += weights[i] if sign * np.float64(x[i]) > -np.inf else np.nan
    if infinite != 0.0:
        return abs(infinite), np.sign(infinite)
    if kind != PLAIN:
        total = weighted_limit(x, weights, sign, m, kind)
        if kind == HARD and m != 0.0:
            if total == 0.0:
                return np.nan, np.nan
            return (np.inf if m > 0.0 else -np.inf), np.sign(total)
        return np.log(abs(total)), np.sign(total)
    scale = range_scale(temperature)
    beta, beta_lo = dd_div(LOG2E, LOG2E_LO, abs(scale * temperature))
    peak = m * abs(scale)
    # Each term is mantissa * 2**power. The largest power comes first: terms relative to it do not
    # overflow.
    largest = -1e9
    for i in range(x.size):
        if weights[i] != 0.0 and sign * np.float64(x[i]) > -np.inf:
            d = (np.float64(x[i]) * scale - peak) * beta
            largest = max(largest, np.rint(max(d, -1e8)) + exponent_of(abs(weights[i])))
    total, lo = 0.0, 0.0
    for i in range(x.size):
        v = np.float64(x[i]) * scale
        if weights[i] != 0.0 and v > -np.inf:
            shift = exponent_of(abs(weights[i]))
            whole = np.rint(max((v - peak) * beta, -1e8))
            gap = whole + shift - largest
            if gap > -1000.0:
                d, d_lo = two_diff(v, peak)
                y, y_lo = dd_mul(d, d_lo, beta, beta_lo)
                t, power = exp2_parts(y - whole, y_lo)
                weight = math.ldexp(weights[i], -shift) * math.ldexp(power * UNBIAS64, int(gap))
                total, carry = two_sum(total, weight)
                lo += carry + weight * t
    total, lo = two_sum(total, lo)
    if total == 0.0:
        return -np.inf, 0.0
    hi, high_lo = log_magnitude(abs(total), lo * np.sign(total), largest)
    q, q_lo = dd_div(m, 0.0, abs(temperature))
    if abs(q) > 2.0**1000:
        return q, np.sign(total)
    result, carry = two_sum(q, hi)
    return result + (carry + (q_lo + high_lo)), np.sign(total)


@kernel
def weighted_rows(x, weights, out, signs, temperature, start, stop):
    for r in range(start, stop):
        t = of_row(temperature, r)
        out[r], signs[r] = weighted_row(x[r], weights[r], t)
