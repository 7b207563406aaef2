"""The float64 arithmetic of one row: every step carried in two words, a value and its error.

Used for float64, and for those long float32 rows that the float32 path does not take: extreme
temperatures, and logits so large that x / T needs more digits than float32 has.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    LOWEST64,
    UNBIAS64,
    exp2_parts,
    two_difference,
    two_sum,
    with_fraction,
)
from hotmax._kernels.simd.memory import prefetch
from hotmax._kernels.simd.vectors import (
    WIDTH,
    choose,
    entry,
    fma,
    load,
    load_some,
    spread,
    store,
    store_some,
    widened,
)
from hotmax._kernels.simd.writing import write

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
    beyond = y < LOWEST64
    return choose(beyond, LOWEST64, y), choose(beyond, 0.0, y_low)


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


@inline
def constants_of(m, temperature):
    """What exp_wide takes besides x."""
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale) * abs(temperature))
    return m * abs(scale), scale, slope, slope_low


@inline
def exp_wide(x, constants):
    """exp((x - m) / T) * 2**BIAS64 in two words."""
    peak, scale, slope, slope_low = constants
    y, y_low = exponent(x * scale, peak, slope, slope_low)
    t, power = exp2_parts(y, y_low)
    return with_fraction(power, t)


@inline
def add_below(sums, v, m, constants):
    """(sums and the exponentials of v, wherever v is below m; the exponentials).

    What is below m is told before scaling, which may merge the smallest numbers.
    """
    total, low = sums
    term, term_low = exp_wide(v, constants)
    below = v * math.copysign(1.0, constants[1]) < m
    total, carry = two_sum(total, choose(below, term, 0.0))
    return (total, low + (carry + choose(below, term_low, 0.0))), term


@inline
def sum_wide(x, terms, m, temperature, upcoming):
    """The sum of exp((x - m) / T) over x < m, in two words.

    WIDTH sums run side by side. `terms` is room for the exponentials, times 2**BIAS64, or None.
    """
    constants = constants_of(m, temperature)
    absent = x.dtype.type(math.copysign(np.inf, -constants[1]))
    sums = spread(0.0), spread(0.0)
    whole = x.size // WIDTH * WIDTH
    for i in range(0, whole, WIDTH):
        prefetch(upcoming, i)
        sums, term = add_below(sums, widened(load(x, i)), m, constants)
        if terms is not None:
            store(terms, i, term)
    if whole < x.size:
        count = x.size - whole
        v = widened(load_some(x, whole, count, absent))
        sums, term = add_below(sums, v, m, constants)
        if terms is not None:
            store_some(terms, whole, count, term)
    total, low = 0.0, 0.0
    for i in range(WIDTH):
        total, carry = two_sum(total, entry(sums[0], i))
        low += carry + entry(sums[1], i)
    total, low = two_sum(total, low)
    return total * UNBIAS64, low * UNBIAS64


@inline
def scaled(term, constants):
    inverse, inverse_low = constants
    return fma(term, inverse, term * inverse_low) * UNBIAS64


@inline
def scale_wide(terms, out, inverse, inverse_low, streamed):
    """The probabilities of a row whose exponentials were kept."""
    write(scaled, terms, out, (inverse, inverse_low), streamed)


@inline
def probability(x, constants):
    term, _ = exp_wide(widened(x), constants[0])
    return scaled(term, constants[1])


@kernel
def softmax_wide(x, out, m, temperature, inverse, inverse_low, streamed):
    constants = constants_of(m, temperature), (inverse, inverse_low)
    write(probability, x, out, constants, streamed)


@inline
def log_probability(x, constants):
    peak, scale, slope, slope_low, log_sum, log_sum_low = constants
    d, d_low = two_difference(widened(x) * scale, peak)
    z, z_low = product(d, d_low, slope, slope_low)
    high, carry = two_difference(z, log_sum)
    return choose(high > -np.inf, high + (carry + (z_low - log_sum_low)), high)


@kernel
def log_softmax_wide(x, out, m, temperature, log_sum, log_sum_low, streamed):
    scale = scale_of(temperature)
    slope, slope_low = over(1.0, 0.0, abs(scale) * abs(temperature))
    constants = m * abs(scale), scale, slope, slope_low, log_sum, log_sum_low
    write(log_probability, x, out, constants, streamed)
