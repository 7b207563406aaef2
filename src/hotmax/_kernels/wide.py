"""The float64 arithmetic of one row: every step carried in two words, a value and its error.

Used for float64, and for those long float32 rows that the float32 path does not take: extreme and
negative temperatures, and logits so large that x / T needs more digits than float32 has.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    LOWEST64,
    UNBIAS64,
    exp2_parts,
    fma,
    inline,
    kernel,
    two_difference,
    two_sum,
    with_fraction,
)

STRIP = 256  # sums that run side by side


@inline
def scale_of(temperature):
    """A power of two for x and T, so that neither x - m nor 1 / T leaves the range of float64."""
    size = abs(temperature)
    scale = 2.0**-2
    if size > 2.0**900:
        scale = 2.0**-200
    elif size < 2.0**-900:
        scale = 2.0**200
    return math.copysign(scale, temperature)


@inline
def over(a, a_low, temperature):
    """(a + a_low) / temperature in two words."""
    quotient = a / temperature
    return quotient, (fma(-quotient, temperature, a) + a_low) / temperature


@inline
def product(d, d_low, slope, slope_low):
    """(d + d_low) * (slope + slope_low) in two words."""
    high = d * slope
    return high, fma(d_low, slope, fma(d, slope_low, fma(d, slope, -high)))


@inline
def exponent(x, m, slope, slope_low):
    """(x - m) * (slope + slope_low) in two words, cut off where its exponential is 0."""
    d, d_low = two_difference(x, m)
    y, y_low = product(d, d_low, slope, slope_low)
    y_low = 0.0 if y < LOWEST64 else y_low
    y = LOWEST64 if y < LOWEST64 else y
    return y, y_low


@inline
def accumulate(sums, i, term, term_low):
    """Add a two-word term to the i-th of STRIP two-word sums."""
    total, carry = two_sum(sums[i], term)
    sums[i] = total
    sums[STRIP + i] += carry + term_low


@kernel
def combine(sums, count):
    """The first `count` of the STRIP sums as one, in two words."""
    total, low = 0.0, 0.0
    for i in range(min(count, STRIP)):
        total, carry = two_sum(total, sums[i])
        low += carry + sums[STRIP + i]
    return two_sum(total, low)


@kernel
def add_strip(x, sums, m, scale, slope, slope_low):
    """Add exp((x - m) / T) over x < m, each entry to a sum of its own.

    What is below m is told before scaling, which may merge the smallest numbers.

    A loop apart: inside another one the compiler would check for overlap at every strip.
    """
    sign, peak = math.copysign(1.0, scale), m * abs(scale)
    for i in range(x.size):
        v = np.float64(x[i])
        y, y_low = exponent(v * scale, peak, slope, slope_low)
        t, power = exp2_parts(y, y_low)
        term, term_low = with_fraction(power if v * sign < m else 0.0, t)
        accumulate(sums, i, term, term_low)


@kernel
def sum_wide(x, m, temperature):
    """The sum of exp((x - m) / T) over x < m, in two words.

    STRIP sums run side by side, so that the loop vectorises with its order fixed.
    """
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale) * abs(temperature))
    sums = np.zeros(2 * STRIP)
    for start in range(0, x.size, STRIP):
        add_strip(x[start : start + STRIP], sums, m, scale, slope, slope_low)
    total, low = combine(sums, x.size)
    return total * UNBIAS64, low * UNBIAS64


@kernel
def softmax_wide(x, out, m, temperature, inverse, inverse_low):
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale) * abs(temperature))
    m = m * abs(scale)
    for i in range(x.size):
        y, y_low = exponent(np.float64(x[i]) * scale, m, slope, slope_low)
        t, power = exp2_parts(y, y_low)
        out[i] = (inverse + fma(t, inverse, inverse_low)) * power * UNBIAS64


@inline
def log_softmax_entry(d, d_low, slope, slope_low, log_sum, log_sum_low):
    z, z_low = product(d, d_low, slope, slope_low)
    high, carry = two_difference(z, log_sum)
    return high + (carry + (z_low - log_sum_low)) if high > -np.inf else high


@kernel
def log_softmax_wide(x, out, m, temperature, log_sum, log_sum_low):
    scale = scale_of(temperature)
    slope, slope_low = over(1.0, 0.0, abs(scale) * abs(temperature))
    m = m * abs(scale)
    for i in range(x.size):
        d, d_low = two_difference(np.float64(x[i]) * scale, m)
        out[i] = log_softmax_entry(d, d_low, slope, slope_low, log_sum, log_sum_low)
