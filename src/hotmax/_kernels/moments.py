"""Means under softmax: the entropy, and the mean index. float64 in two words, for every type."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import (
    LN2,
    LN2_REST,
    LOG2E,
    LOG2E_LOW,
    UNBIAS64,
    exp2_parts,
    log1p_parts,
    reciprocal,
    two_sum,
    with_fraction,
)
from hotmax._kernels.compiling import kernel
from hotmax._kernels.narrow import top
from hotmax._kernels.softmax import (
    FLAT,
    HARD,
    PLAIN,
    limit_sums,
    log_of_sums,
    regime,
    row_sums,
    sign_of,
)
from hotmax._kernels.wide import STRIP, accumulate, combine, exponent, over, product, scale_of


@kernel
def entropy_moment(x, m, temperature):
    """The sum of exp(z) * -z / ln 2 over z = (x - m) / T, times 2**BIAS64; no term is negative."""
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale * temperature))
    m = m * abs(scale)
    sums = np.zeros(2 * STRIP)
    for start in range(0, x.size, STRIP):
        for i in range(min(STRIP, x.size - start)):
            y, y_low = exponent(np.float64(x[start + i]) * scale, m, slope, slope_low)
            t, power = exp2_parts(y, y_low)
            e, e_low = with_fraction(power, t)
            term, term_low = product(e, e_low, -y, -y_low)
            accumulate(sums, i, term, term_low)
    return combine(sums, x.size)


@kernel
def index_moment(x, m, temperature):
    """The sum of exp((x - m) / T) * index, times 2**BIAS64."""
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale * temperature))
    m = m * abs(scale)
    sums = np.zeros(2 * STRIP)
    for start in range(0, x.size, STRIP):
        for i in range(min(STRIP, x.size - start)):
            y, y_low = exponent(np.float64(x[start + i]) * scale, m, slope, slope_low)
            t, power = exp2_parts(y, y_low)
            term, term_low = with_fraction(power * np.float64(start + i), t)
            accumulate(sums, i, term, term_low)
    return combine(sums, x.size)


@kernel
def mean(moment, moment_low, ties, below, below_low):
    """A moment, times 2**BIAS64, over the sum of the exponentials, in two words."""
    total, carry = two_sum(ties, below)
    inverse, inverse_low = reciprocal(total, carry + below_low)
    high, low = product(moment, moment_low, inverse, inverse_low)
    return high * UNBIAS64, low * UNBIAS64


@kernel
def entropy_rows(x, out, temperature, start, stop):
    for r in range(start, stop):
        t = temperature[r if temperature.size > 1 else 0]
        m = top(x[r], sign_of(x, t))
        kind = regime(m, t)
        if kind == PLAIN:
            ties, below, below_low = row_sums(x[r], None, m, t, x[r])
            log_sum, log_sum_low = log_of_sums(ties, below, below_low)
            high, low = entropy_moment(x[r], m, t)
            high, low = mean(*product(high, low, LN2, LN2_REST), ties, below, below_low)
            total, carry = two_sum(log_sum, high)
            out[r] = total + (carry + low + log_sum_low)
        elif kind == HARD or kind == FLAT:
            out[r] = log1p_parts(limit_sums(x[r], m, t)[0] - 1.0, 0.0)[0]
        else:
            out[r] = np.nan


@kernel
def softargmax_rows(x, out, temperature, start, stop):
    for r in range(start, stop):
        t = temperature[r if temperature.size > 1 else 0]
        m = top(x[r], sign_of(x, t))
        kind = regime(m, t)
        if kind == PLAIN:
            high, low = index_moment(x[r], m, t)
            high, low = mean(high, low, *row_sums(x[r], None, m, t, x[r]))
            out[r] = high + low
        elif kind == HARD or kind == FLAT:
            sign, total = sign_of(x, t), 0.0
            for i in range(x.shape[1]):
                v = sign * x[r, i]
                total += np.float64(i) if (v == m if kind == HARD else v > -np.inf) else 0.0
            out[r] = total / limit_sums(x[r], m, t)[0]
        else:
            out[r] = np.nan
