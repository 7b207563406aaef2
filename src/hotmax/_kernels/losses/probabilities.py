"""Probabilities of rows and single entries, as losses and their gradients need them.

With m and (ties, below) of a row as in softmax/rows.py, -log p of class c is

    log(ties + below) + (m - x[c]) / T

two terms of one sign, so that no digit is lost, however small it is. 1 - p of an entry at the
maximum is (ties - 1 + below) / (ties + below), for the same reason.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LO,
    UNBIAS64,
    add_double_double,
    exp2_parts,
)
from hotmax._kernels.numeric.double_double import (
    dd_div,
    dd_mul,
    dd_one_plus,
    dd_reciprocal,
    two_diff,
    two_sum,
)
from hotmax._kernels.softmax.float32 import fits_float32, softmax_float32
from hotmax._kernels.softmax.float64 import exponent, range_scale, softmax_float64
from hotmax._kernels.softmax.limits import HARD, NAN, NOTHING, PLAIN, regime, softmax_limit
from hotmax._kernels.softmax.rows import log_of_sums


@inline
def is_present(x, sign):
    """Is the entry, times the sign of T, above -inf?"""
    return sign * x > -np.inf


@inline
def shares_mass(x, sign, m, kind):
    """Does the entry share the mass in the limits of temperature? At T = 0 all ties do."""
    return sign * x == m if kind == HARD else sign * x > -np.inf


@kernel
def first_maximum_of(x, sign, m):
    """The index of the first entry at the maximum, or -1."""
    for c in range(x.size):
        if sign * x[c] == m:
            return c
    return -1


@kernel
def negative_log_probability(x, m, temperature, sums):
    """-log p of an entry, as a double-double."""
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING:
        return np.nan, 0.0
    sign = math.copysign(1.0, temperature)
    if not is_present(x, sign) or (kind == HARD and not shares_mass(x, sign, m, kind)):
        return np.inf, 0.0
    log_sum, log_sum_lo = log_of_sums(*sums)
    if kind != PLAIN:
        return log_sum, log_sum_lo
    scale = range_scale(temperature)
    d, d_lo = two_diff(m * abs(scale), x * scale)
    z, z_lo = dd_mul(d, d_lo, *dd_div(1.0, 0.0, abs(scale * temperature)))
    if not z < np.inf:
        return np.inf, 0.0
    return add_double_double(log_sum, log_sum_lo, z, z_lo)


@kernel
def probability_and_complement(x, m, temperature, sums):
    """(p, 1 - p) of an entry, both to full precision."""
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING:
        return np.nan, np.nan
    ties, below, below_lo = sums
    sign = math.copysign(1.0, temperature)
    total, carry = two_sum(ties, below)
    inverse, inverse_lo = dd_reciprocal(total, carry + below_lo)
    if shares_mass(x, sign, m, kind) if kind != PLAIN else sign * x == m:
        others, carry = two_sum(ties - 1.0, below)
        rest = dd_mul(others, carry + below_lo, inverse, inverse_lo)
        return inverse + inverse_lo, rest[0] + rest[1]
    if kind != PLAIN:
        return 0.0, 1.0
    scale = range_scale(temperature)
    beta2, beta2_lo = dd_div(LOG2E, LOG2E_LO, abs(scale * temperature))
    y, y_lo = exponent(x * scale, m * abs(scale), beta2, beta2_lo)
    t, power = exp2_parts(y, y_lo)
    e, e_lo = dd_one_plus(power, t)
    p, p_lo = dd_mul(e, e_lo, inverse, inverse_lo)
    p, p_lo = p * UNBIAS64, p_lo * UNBIAS64
    return p + p_lo, (1.0 - p) - p_lo


@inline
def divisor_of(m, temperature):
    """T, if a gradient can be divided by it at once; else 1, and `finish_division` must follow."""
    common = regime(m, temperature) == PLAIN and 2.0**-500 < abs(temperature) < 2.0**500
    return temperature if common else 1.0


@inline
def headroom_of(grad, divisor):
    """A power of two that keeps p / T and target / T in range of float32 until they are subtracted.

    The divisor is multiplied by it before, and the gradient after.
    """
    if grad.itemsize == 4 and abs(divisor) < 2.0**-100:
        return math.ldexp(1.0, -100 - math.frexp(abs(divisor))[1])
    return 1.0


LARGE_FACTOR = 2.0**60  # times a probability of 2**-1140, the least that exp gives, it is still 0
VANISHED_GAP = -790.0  # (x - max) / T below this is 2**-1140 at most


@inline
def is_ordinary_factor(factor):
    """Is weight * scale / T of ordinary size, or 0, so that no special care is needed?"""
    return 2.0**-300 < abs(factor) < LARGE_FACTOR or factor == 0.0


@kernel
def clear_vanished(x, out, m, temperature, factor):
    """out = 0 where (x - m) / T is below VANISHED_GAP, out * factor elsewhere."""
    sign, size = math.copysign(1.0, temperature), abs(temperature)
    for i in range(x.size):
        vanished = (sign * np.float64(x[i]) - m) / size < VANISHED_GAP
        out[i] = 0.0 if vanished else out[i] * factor


@kernel
def finish_division(grad, temperature, divisor):
    """Divide by T if divisor_of gave 1."""
    if divisor != temperature:
        for i in range(grad.size):
            grad[i] = grad[i] / temperature if grad[i] != 0.0 else 0.0


@kernel
def write_probabilities(x, out, factor, m, temperature, sums, exps, kept):
    """out = p * factor, rounded once where factor is of ordinary size.

    `kept`: exps holds the exponentials of the whole row.
    """
    ties, below, below_lo = sums
    total, carry = two_sum(ties, below)
    if factor == 0.0:
        out[:] = 0.0
    elif regime(m, temperature) != PLAIN:
        softmax_limit(x, out, m, temperature, ties)
        for i in range(x.size):
            out[i] *= factor
    else:
        if exps is not None:
            if fits_float32(m, temperature) and 2.0**-50 < factor / total < 2.0**50:
                softmax_float32(x, out, exps, kept, m, temperature, total / factor, False)
                return
        inverse, inverse_lo = dd_reciprocal(total, carry + below_lo)
        large, rest = abs(factor) >= LARGE_FACTOR, 1.0
        if abs(factor) > 2.0**500:  # its double-double product would overflow
            factor, rest = factor * 2.0**-500, 2.0**500
        hi, lo = dd_mul(inverse, inverse_lo, factor, 0.0)
        softmax_float64(x, out, m, temperature, hi, lo, False)
        if large:
            clear_vanished(x, out, m, temperature, rest)
