"""Means under softmax: the entropy and the mean index, in double-double."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LN2, LN2_LO, UNBIAS64, exp2_parts, log1p_parts
from hotmax._kernels.numeric.double_double import dd_mul, dd_one_plus, dd_reciprocal, two_sum
from hotmax._kernels.simd.memory import borrowed
from hotmax._kernels.simd.vectors import WIDTH, entry, load, load_partial, splat, to_float64
from hotmax._kernels.softmax.float64 import constants_of, exponent
from hotmax._kernels.softmax.limits import FLAT, HARD, PLAIN, limit_sums, regime, sign_of
from hotmax._kernels.softmax.rows import log_of_sums, peak_of_row, row_sums

LANE_INDICES = np.arange(float(WIDTH))


@inline
def entropy_term(v, _, constants):
    """exp(z) * -z / ln 2 at z = (x - m) / T, times 2**BIAS64: never negative."""
    peak, scale, beta, beta_lo = constants
    y, y_lo = exponent(v * scale, peak, beta, beta_lo)
    t, power = exp2_parts(y, y_lo)
    e, e_lo = dd_one_plus(power, t)
    return dd_mul(e, e_lo, -y, -y_lo)


@inline
def index_term(v, index, constants):
    """exp((x - m) / T) * index, times 2**BIAS64."""
    peak, scale, beta, beta_lo = constants
    t, power = exp2_parts(*exponent(v * scale, peak, beta, beta_lo))
    return dd_one_plus(power * index, t)


@inline
def moment(term_of, x, m, temperature):
    """The sum of term_of(x, index) in double-double, from WIDTH partial sums."""
    constants = constants_of(m, temperature)
    absent = x.dtype.type(math.copysign(np.inf, -constants[1]))
    numbers = load(LANE_INDICES, 0)
    total, lo = splat(0.0), splat(0.0)
    for i in range(0, x.size, WIDTH):
        v = to_float64(load_partial(x, i, x.size - i, absent))
        term, term_lo = term_of(v, numbers + np.float64(i), constants)
        total, carry = two_sum(total, term)
        lo = lo + (carry + term_lo)
    hi, rest = 0.0, 0.0
    for i in range(WIDTH):
        hi, carry = two_sum(hi, entry(total, i))
        rest += carry + entry(lo, i)
    return two_sum(hi, rest)


@kernel
def divide_by_sums(hi, lo, ties, below, below_lo):
    """A moment, times 2**BIAS64, over the sum of the exponentials, in double-double."""
    total, carry = two_sum(ties, below)
    inverse, inverse_lo = dd_reciprocal(total, carry + below_lo)
    hi, lo = dd_mul(hi, lo, inverse, inverse_lo)
    return hi * UNBIAS64, lo * UNBIAS64


@inline
def entropy_limit(x, m, temperature):
    """The entropy of a row that is not PLAIN."""
    kind = regime(m, temperature)
    if kind == HARD or kind == FLAT:
        return log1p_parts(limit_sums(x, m, temperature)[0] - 1.0, 0.0)[0]
    return np.nan


@inline
def softargmax_limit(x, m, temperature):
    """The mean index of a row that is not PLAIN."""
    kind = regime(m, temperature)
    if kind != HARD and kind != FLAT:
        return np.nan
    sign, total = sign_of(x, temperature), 0.0
    for i in range(x.size):
        v = sign * x[i]
        total += np.float64(i) if (v == m if kind == HARD else v > -np.inf) else 0.0
    return total / limit_sums(x, m, temperature)[0]


@kernel
def entropy_rows(x, out, temperature, start, stop, streamed):
    x = borrowed(x)
    for r in range(start, stop):
        t, m = peak_of_row(x, temperature, r)
        if regime(m, t) != PLAIN:
            out[r] = entropy_limit(x[r], m, t)
            continue
        ties, below, below_lo = row_sums(x[r], None, m, t, x[r])
        log_sum, log_sum_lo = log_of_sums(ties, below, below_lo)
        hi, lo = moment(entropy_term, x[r], m, t)
        hi, lo = divide_by_sums(*dd_mul(hi, lo, LN2, LN2_LO), ties, below, below_lo)
        total, carry = two_sum(log_sum, hi)
        out[r] = total + (carry + lo + log_sum_lo)


@kernel
def softargmax_rows(x, out, temperature, start, stop, streamed):
    x = borrowed(x)
    for r in range(start, stop):
        t, m = peak_of_row(x, temperature, r)
        if regime(m, t) != PLAIN:
            out[r] = softargmax_limit(x[r], m, t)
            continue
        hi, lo = moment(index_term, x[r], m, t)
        hi, lo = divide_by_sums(hi, lo, *row_sums(x[r], None, m, t, x[r]))
        out[r] = hi + lo
