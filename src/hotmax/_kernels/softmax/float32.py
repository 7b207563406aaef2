"""The float32 path: long rows of float32 at everyday temperatures, in float32 arithmetic.

exp(x / T) is 2**(beta * x), with beta = log2(e) / T as a pair of float32 numbers. To keep it in
range it is computed relative to 2**k, where the reference exponent k is the even integer nearest to
beta * max(x): an integer costs neither digits nor time. k is even, so that round-half-to-even gives
the same bits for every reference exponent. The largest exponential then lies between 1/2 and 2.
Sums are float64.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    ROUND32,
    UNBIAS32,
    exp2_33_bits,
    exp2_biased32,
)
from hotmax._kernels.numeric.double_double import float32_pair
from hotmax._kernels.simd.memory import fence, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    add_in_any_order,
    choose,
    entry,
    fma,
    halves,
    horizontal_maximum,
    horizontal_sum,
    load_line,
    load_partial,
    maximum,
    splat,
    splat_line,
    store,
    store_partial,
    to_float64,
)
from hotmax._kernels.simd.writing import write_mapped

L1_CHUNK = 512  # classes that stay in the first-level cache from one loop to the next
FACTORS = 4  # numbers that `factors_of` returns


@kernel
def row_maximum(x, sign):
    """max(sign * x), nan if any x is nan, -inf if there is none."""
    none = x.dtype.type(-np.inf)
    a = b = c = d = splat_line(none)  # four chains hide the latency of a comparison
    most = x.size // (4 * LINE) * (4 * LINE)
    for i in range(0, most, 4 * LINE):
        a = maximum(a, sign * load_line(x, i))
        b = maximum(b, sign * load_line(x, i + LINE))
        c = maximum(c, sign * load_line(x, i + 2 * LINE))
        d = maximum(d, sign * load_line(x, i + 3 * LINE))
    whole = x.size // LINE * LINE
    for i in range(most, whole, LINE):
        a = maximum(a, sign * load_line(x, i))
    first, second = halves(maximum(maximum(a, b), maximum(c, d)))
    for i in range(whole, x.size, WIDTH):
        first = maximum(first, sign * load_partial(x, i, x.size - i, sign * none))
    return np.float64(horizontal_maximum(maximum(first, second)))


@inline
def larger(a, b):
    """The larger of a and b, in one instruction; nan is not supported."""
    return choose(a > b, a, b)


@inline
def smaller(a, b):
    return choose(a < b, a, b)


@inline
def insert_largest(two, v):
    """The two largest of `two` and v; the first is nan if any of them is nan."""
    first, second = two
    return maximum(first, v), larger(second, smaller(first, v))


@inline
def merge_largest(two, others):
    """The two largest of four."""
    first, second = insert_largest(two, others[0])
    return first, larger(second, others[1])


@inline
def fold_largest(two):
    """The two largest in each entry of long vectors, as vectors of WIDTH entries."""
    near, far = halves(two[0])
    rest, more = halves(two[1])
    return merge_largest((near, rest), (far, more))


@inline
def largest_at(two, i):
    return entry(two[0], i), entry(two[1], i)


@inline
def horizontal_largest(two):
    """The two largest of all entries of vectors, as float64 numbers."""
    a = merge_largest(largest_at(two, 0), largest_at(two, 4))
    b = merge_largest(largest_at(two, 2), largest_at(two, 6))
    c = merge_largest(largest_at(two, 1), largest_at(two, 5))
    d = merge_largest(largest_at(two, 3), largest_at(two, 7))
    first, second = merge_largest(merge_largest(a, b), merge_largest(c, d))
    return np.float64(first), np.float64(second)


@kernel
def two_largest(x, sign):
    """The two largest entries of sign * x, equal if the maximum is not unique."""
    none = x.dtype.type(-np.inf)
    a = b = splat_line(none), splat_line(none)
    most = x.size // (2 * LINE) * (2 * LINE)
    for i in range(0, most, 2 * LINE):
        a = insert_largest(a, sign * load_line(x, i))
        b = insert_largest(b, sign * load_line(x, i + LINE))
    whole = x.size // LINE * LINE
    for i in range(most, whole, LINE):
        a = insert_largest(a, sign * load_line(x, i))
    two = fold_largest(merge_largest(a, b))
    for i in range(whole, x.size, WIDTH):
        two = insert_largest(two, sign * load_partial(x, i, x.size - i, sign * none))
    return horizontal_largest(two)


@kernel
def count_ties(x, m):
    """How many entries are equal to m?"""
    zero, one = np.float32(0.0), np.float32(1.0)
    count = splat_line(zero)
    whole = x.size // LINE * LINE
    for i in range(0, whole, LINE):
        count = count + choose(load_line(x, i) == m, one, zero)
    first, second = halves(count)
    for i in range(whole, x.size, WIDTH):
        first = first + choose(load_partial(x, i, x.size - i, np.nan) == m, one, zero)
    return np.float64(horizontal_sum(first + second))


@inline
def ties_of(x, m, second, temperature):
    """How many entries are equal to the maximum m, given the second largest."""
    if second < m:
        return 1.0
    return count_ties(x, np.float32(math.copysign(1.0, temperature) * m))


@inline
def fits_float32(m, temperature):
    """Whether the constants of this float32 row are far inside the range of float32."""
    size = abs(temperature)
    return 2.0**-90 < size < 2.0**90 and abs(m) * LOG2E < 2.0**13 * size


@inline
def reference_exponent(m, temperature):
    """k, the even integer nearest to m / |T| / log 2."""
    return 2.0 * np.rint(0.5 * (m * (LOG2E / abs(temperature))))


@inline
def exp2_constants(m, temperature):
    """(beta, beta_lo, origin): the arguments of exp2_biased32 for exp(x / T) / 2**k."""
    beta, beta_lo = float32_pair(LOG2E / temperature)
    return beta, beta_lo, np.float32(np.float64(ROUND32) - reference_exponent(m, temperature))


@inline
def peak_exp(m, temperature):
    """exp(m / |T|) / 2**k: the exponential of an entry at the maximum."""
    return exp2_33_bits(m * (LOG2E / abs(temperature)) - reference_exponent(m, temperature))


@inline
def rounded_peak_exp(m, temperature, line):
    """The same by exp2_biased32, with its rounding error and its factor 2**BIAS32."""
    return exp2_biased32(np.float32(math.copysign(1.0, temperature) * m), *line)


@inline
def add_line(e, sums):
    """Add LINE exponentials to two sums: the first half to the first, the second to the second."""
    first, second = halves(e)
    return sums[0] + to_float64(first), sums[1] + to_float64(second)


@inline
def exp_tail(x, exps, start, stop, at, line, sums):
    """The end of `exp_chunk`, less than LINE entries, and the sum of all.

    Entries past the end are filled such that their exponentials are 0.
    """
    beta, beta_lo, origin = line
    first, second = sums
    absent = np.float32(math.copysign(np.inf, -beta))
    for i in range(start, stop, WIDTH):
        e = exp2_biased32(load_partial(x, i, stop - i, absent), beta, beta_lo, origin)
        store_partial(exps, at + i - start, stop - i, e)
        first = first + to_float64(e)
    return horizontal_sum(first + second)


@inline
def exp_chunk(x, exps, start, stop, at, line, upcoming):
    """exps[at:] = exp of x[start:stop], and their sum; upcoming[start:stop] is prefetched."""
    beta, beta_lo, origin = line
    sums = splat(0.0), splat(0.0)
    whole = start + (stop - start) // LINE * LINE
    for i in range(start, whole, LINE):
        prefetch(upcoming, i)
        e = exp2_biased32(load_line(x, i), beta, beta_lo, origin)
        store(exps, at + i - start, e)
        sums = add_line(e, sums)
    return exp_tail(x, exps, whole, stop, at + whole - start, line, sums)


@kernel
def ties_and_below(x, exps, sign, m):
    ties, below = 0.0, 0.0
    for i in range(x.size):
        ties = add_in_any_order(ties, 0.0 if sign * x[i] < m else 1.0)
        below = add_in_any_order(below, np.float64(exps[i]) if sign * x[i] < m else 0.0)
    return ties, below


@inline
def is_near_integer(times):
    """Whether a sum of `times` times its largest term may consist of copies of that term."""
    return abs(times - np.rint(times)) < 2.0**-20


@inline
def may_hold_ties(total, times):
    """Whether ties must be counted apart from the rest of a sum.

    Not above 4, unless the sum may consist of ties alone: the rounding of ties changes it by 2**-24
    at most, and its logarithm by less than an ULP.
    """
    return total > 1.0 - 2.0**-10 and (total < 4.0 or is_near_integer(times))


@inline
def sums_float32(x, exps, m, temperature, upcoming):
    """(ties, below); `exps` receives the exponentials, times 2**BIAS32, if it is long enough.

    The next row is prefetched meanwhile: this saves a tenth of the time of a large array.
    """
    line = exp2_constants(m, temperature)
    per_unit = UNBIAS32 / peak_exp(m, temperature)
    per_peak = 1.0 / np.float64(rounded_peak_exp(m, temperature, line))
    has_all = exps.size >= x.size
    below = 0.0
    first, last = x.size, 0  # the range of the chunks that may hold ties
    for start in range(0, x.size, L1_CHUNK):
        stop = min(start + L1_CHUNK, x.size)
        at = start if has_all else 0
        total = exp_chunk(x, exps, start, stop, at, line, upcoming)
        if may_hold_ties(total * per_unit, total * per_peak):
            first, last = min(first, start), stop
        else:
            below += total * per_unit
    if first < last:  # here, since a call inside the loop above would spill its registers
        return sums_with_ties(x, exps, m, temperature, first, last, below)
    return 0.0, below


@kernel
def sums_with_ties(x, exps, m, temperature, first, last, below):
    """Add the sums of the chunks from first to last that may hold ties."""
    line = exp2_constants(m, temperature)
    per_unit = UNBIAS32 / peak_exp(m, temperature)
    per_peak = 1.0 / np.float64(rounded_peak_exp(m, temperature, line))
    has_all = exps.size >= x.size
    ties = 0.0
    for start in range(first, last, L1_CHUNK):
        stop = min(start + L1_CHUNK, x.size)
        at = start if has_all else 0
        total = exp_chunk(x, exps, start, stop, at, line, x)
        if may_hold_ties(total * per_unit, total * per_peak):
            terms = exps[at : at + stop - start]
            sign = np.float32(math.copysign(1.0, temperature))
            count, total = ties_and_below(x[start:stop], terms, sign, np.float32(m))
            ties += count
            below += total * per_unit
    return ties, below


@inline
def factors_of(total, m, ties, temperature):
    """The factors of `probability_of_exp`, given a row's sum of exponentials, maximum and ties."""
    peak = rounded_peak_exp(m, temperature, exp2_constants(m, temperature))
    unit = peak_exp(m, temperature) / UNBIAS32
    # The largest terms without their rounding error: the sum may consist of them alone.
    total += ties * (unit - np.float64(peak))
    inverse, inverse_lo = float32_pair(1.0 / (total * UNBIAS32))
    return inverse, inverse_lo, peak, np.float32(unit / total)


@inline
def store_factors(table, p, factors):
    """table[:, p] = factors."""
    table[0, p], table[1, p], table[2, p], table[3, p] = factors


@inline
def load_factors(table, p):
    return table[0, p], table[1, p], table[2, p], table[3, p]


@inline
def times_inverse(e, factors):
    """e / total.

    The factor 2**-BIAS32 comes last: inside the inverse, the second product would lose digits where
    the result is close to the smallest normal number.
    """
    inverse, inverse_lo, _, _ = factors
    return fma(e, inverse, e * inverse_lo) * UNBIAS32


@inline
def probability_of_exp(e, factors):
    """e / total; for an entry at the maximum exactly 1 / total."""
    _, _, peak, share = factors
    return choose(e == peak, share, times_inverse(e, factors))


@kernel
def store_fence():
    """Make non-temporal stores visible to other threads."""
    fence()


@inline
def softmax_float32(x, out, exps, is_computed, m, temperature, total, streamed):
    """Write the probabilities; `is_computed`: exps already holds the exponentials."""
    line = exp2_constants(m, temperature)
    inverse, inverse_lo = float32_pair(1.0 / (total * peak_exp(m, temperature)))
    peak = rounded_peak_exp(m, temperature, line)
    factors = inverse, inverse_lo, peak, np.float32(1.0 / total)
    for start in range(0, x.size, exps.size):
        stop = min(start + exps.size, x.size)
        if not is_computed:
            exp_chunk(x, exps, start, stop, 0, line, x)
        write_mapped(probability_of_exp, exps[: stop - start], out[start:stop], factors, streamed)


@inline
def log_probability_float32(x, constants):
    m, beta, log_sum = constants
    return fma(to_float64(x) - m, beta, -log_sum)


@inline
def log_softmax_float32(x, out, m, temperature, log_sum, streamed):
    peak = math.copysign(1.0, temperature) * m
    write_mapped(log_probability_float32, x, out, (peak, 1.0 / temperature, log_sum), streamed)
