"""Means under softmax, the entropy and the mean index: in float64, in two words."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LN2,
    LN2_REST,
    UNBIAS64,
    exp2_parts,
    log1p_parts,
    reciprocal,
    two_sum,
    with_fraction,
)
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import WIDTH, entry, load, load_some, spread, widened
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import constants_of, exponent, product
from hotmax._kernels.softmax.rows import (
    FLAT,
    HARD,
    PLAIN,
    limit_sums,
    log_of_sums,
    regime,
    row_sums,
    sign_of,
)

FIRST = np.arange(float(WIDTH))


@inline
def entropy_term(v, _, constants):
    """exp(z) * -z / ln 2 at z = (x - m) / T, times 2**BIAS64: never negative."""
    peak, scale, slope, slope_low = constants
    y, y_low = exponent(v * scale, peak, slope, slope_low)
    t, power = exp2_parts(y, y_low)
    e, e_low = with_fraction(power, t)
    return product(e, e_low, -y, -y_low)


@inline
def index_term(v, index, constants):
    """exp((x - m) / T) * index, times 2**BIAS64."""
    peak, scale, slope, slope_low = constants
    t, power = exp2_parts(*exponent(v * scale, peak, slope, slope_low))
    return with_fraction(power * index, t)


@inline
def moment(term_of, x, m, temperature):
    """The sum of term_of(x, index), in two words; WIDTH sums run side by side."""
    constants = constants_of(m, temperature)
    absent = x.dtype.type(math.copysign(np.inf, -constants[1]))
    numbers = load(FIRST, 0)
    total, low = spread(0.0), spread(0.0)
    for i in range(0, x.size, WIDTH):
        v = widened(load_some(x, i, x.size - i, absent))
        term, term_low = term_of(v, numbers + np.float64(i), constants)
        total, carry = two_sum(total, term)
        low = low + (carry + term_low)
    high, rest = 0.0, 0.0
    for i in range(WIDTH):
        high, carry = two_sum(high, entry(total, i))
        rest += carry + entry(low, i)
    return two_sum(high, rest)


@kernel
def mean(high, low, ties, below, below_low):
    """A moment, times 2**BIAS64, over the sum of the exponentials, in two words."""
    total, carry = two_sum(ties, below)
    inverse, inverse_low = reciprocal(total, carry + below_low)
    high, low = product(high, low, inverse, inverse_low)
    return high * UNBIAS64, low * UNBIAS64


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
def entropy_rows(x, out, temperature, start, stop):
    x = borrowed(x)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        if regime(m, t) != PLAIN:
            out[r] = entropy_limit(x[r], m, t)
            continue
        ties, below, below_low = row_sums(x[r], None, m, t, x[r])
        log_sum, log_sum_low = log_of_sums(ties, below, below_low)
        high, low = moment(entropy_term, x[r], m, t)
        high, low = mean(*product(high, low, LN2, LN2_REST), ties, below, below_low)
        total, carry = two_sum(log_sum, high)
        out[r] = total + (carry + low + log_sum_low)


@kernel
def softargmax_rows(x, out, temperature, start, stop):
    x = borrowed(x)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        if regime(m, t) != PLAIN:
            out[r] = softargmax_limit(x[r], m, t)
            continue
        high, low = moment(index_term, x[r], m, t)
        high, low = mean(high, low, *row_sums(x[r], None, m, t, x[r]))
        out[r] = high + low
