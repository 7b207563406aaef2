"""The arithmetic of one row in double-double: every step as a value and its error.

Used for float64, and for long float32 rows that the float32 path does not support: extreme
temperatures, and logits so large that x / T needs more digits than float32 has.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LOG2E, LOG2E_LO, LOWEST64, UNBIAS64, exp2_parts
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, dd_one_plus, two_diff, two_sum
from hotmax._kernels.simd.memory import prefetch
from hotmax._kernels.simd.vectors import (
    WIDTH,
    choose,
    entry,
    fma,
    load,
    load_partial,
    splat,
    to_float64,
)
from hotmax._kernels.simd.writing import write_mapped

PARTIAL_SUMS = 256  # sums that `accumulate` adds to, so that loops over entries vectorise


@inline
def range_scale(temperature):
    """A power of two for x and T, so that neither x - m nor 1 / T leaves the range of float64."""
    size = abs(temperature)
    scale = 2.0**-2
    if size > 2.0**900:
        scale = 2.0**-200
    elif size < 2.0**-900:
        scale = 2.0**200
    return math.copysign(scale, temperature)


@inline
def exponent(x, m, beta, beta_lo):
    """(x - m) * (beta + beta_lo) in double-double, clipped where its exponential is 0."""
    d, d_lo = two_diff(x, m)
    y, y_lo = dd_mul(d, d_lo, beta, beta_lo)
    beyond = y < LOWEST64
    return choose(beyond, LOWEST64, y), choose(beyond, 0.0, y_lo)


@inline
def accumulate(sums, i, term, term_lo):
    """Add a double-double term to the i-th of PARTIAL_SUMS double-double sums."""
    total, carry = two_sum(sums[i], term)
    sums[i] = total
    sums[PARTIAL_SUMS + i] += carry + term_lo


@kernel
def combine_sums(sums, count):
    """The first `count` of the PARTIAL_SUMS sums as one double-double sum."""
    total, lo = 0.0, 0.0
    for i in range(min(count, PARTIAL_SUMS)):
        total, carry = two_sum(total, sums[i])
        lo += carry + sums[PARTIAL_SUMS + i]
    return two_sum(total, lo)


@inline
def constants_of(m, temperature):
    """The constants of `exp_float64`: the scaled maximum, the scale, and beta = log2(e) / T."""
    scale = range_scale(temperature)
    beta, beta_lo = dd_div(LOG2E, LOG2E_LO, abs(scale) * abs(temperature))
    return m * abs(scale), scale, beta, beta_lo


@inline
def exp_float64(x, constants):
    """exp((x - m) / T) * 2**BIAS64 in double-double."""
    peak, scale, beta, beta_lo = constants
    y, y_lo = exponent(x * scale, peak, beta, beta_lo)
    t, power = exp2_parts(y, y_lo)
    return dd_one_plus(power, t)


@inline
def add_below(sums, v, m, constants):
    """The sums plus the exponentials of v where v < m.

    v is compared with m before scaling, which may round the smallest numbers to one value.
    """
    total, lo = sums
    term, term_lo = exp_float64(v, constants)
    below = v * math.copysign(1.0, constants[1]) < m
    total, carry = two_sum(total, choose(below, term, 0.0))
    return total, lo + (carry + choose(below, term_lo, 0.0))


@inline
def sum_float64(x, m, temperature, upcoming):
    """The sum of exp((x - m) / T) over x < m in double-double, from WIDTH partial sums."""
    constants = constants_of(m, temperature)
    absent = x.dtype.type(math.copysign(np.inf, -constants[1]))
    sums = splat(0.0), splat(0.0)
    whole = x.size // WIDTH * WIDTH
    for i in range(0, whole, WIDTH):
        prefetch(upcoming, i)
        sums = add_below(sums, to_float64(load(x, i)), m, constants)
    if whole < x.size:
        count = x.size - whole
        v = to_float64(load_partial(x, whole, count, absent))
        sums = add_below(sums, v, m, constants)
    total, lo = 0.0, 0.0
    for i in range(WIDTH):
        total, carry = two_sum(total, entry(sums[0], i))
        lo += carry + entry(sums[1], i)
    total, lo = two_sum(total, lo)
    return total * UNBIAS64, lo * UNBIAS64


@inline
def probability_of_term(term, constants):
    inverse, inverse_lo = constants
    return fma(term, inverse, term * inverse_lo) * UNBIAS64


@inline
def probability_float64(x, constants):
    term, _ = exp_float64(to_float64(x), constants[0])
    return probability_of_term(term, constants[1])


@kernel
def softmax_float64(x, out, m, temperature, inverse, inverse_lo, streamed):
    constants = constants_of(m, temperature), (inverse, inverse_lo)
    write_mapped(probability_float64, x, out, constants, streamed)


@inline
def log_probability_float64(x, constants):
    peak, scale, beta, beta_lo, log_sum, log_sum_lo = constants
    d, d_lo = two_diff(to_float64(x) * scale, peak)
    z, z_lo = dd_mul(d, d_lo, beta, beta_lo)
    hi, carry = two_diff(z, log_sum)
    return choose(hi > -np.inf, hi + (carry + (z_lo - log_sum_lo)), hi)


@kernel
def log_softmax_float64(x, out, m, temperature, log_sum, log_sum_lo, streamed):
    scale = range_scale(temperature)
    beta, beta_lo = dd_div(1.0, 0.0, abs(scale) * abs(temperature))
    constants = m * abs(scale), scale, beta, beta_lo, log_sum, log_sum_lo
    write_mapped(log_probability_float64, x, out, constants, streamed)
