"""The float32 path: long rows of float32 at everyday temperatures, in float32 arithmetic.

exp(x / T) is 2**(slope * x), with the slope in two float32 words. To keep it in range it is taken
relative not to 2**(slope * x) at the peak but to 2**k, where k is the even number nearest: a whole
number costs no digits, and no time. (Half numbers are rounded to even ones: by an odd k they would
be rounded the other way, and a row could come out differently relative to another k.) The largest
exponential, `unit`, then lies between 1/2 and 2. Sums are float64.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    ROUND32,
    UNBIAS32,
    exp2_line32,
    exp2_plain,
)
from hotmax._kernels.simd.memory import fence, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    add_in_any_order,
    choose,
    entry,
    fma,
    halves,
    load_line,
    load_some,
    maximum,
    maximum_of,
    spread,
    spread_line,
    store,
    store_some,
    sum_of,
    widened,
)
from hotmax._kernels.simd.writing import write

CHUNK = 512  # classes that stay in the first-level cache from one loop to the next
FACTORS = 4  # numbers that `scaled` takes


@kernel
def top(x, sign):
    """max(sign * x), nan if any x is nan, -inf if there is none."""
    none = x.dtype.type(-np.inf)
    a = b = c = d = spread_line(none)  # four side by side: one would wait for its last comparison
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
        first = maximum(first, sign * load_some(x, i, x.size - i, sign * none))
    return np.float64(maximum_of(maximum(first, second)))


@inline
def larger(a, b):
    """The larger of a and b, for numbers: it knows no nan, and takes one instruction."""
    return choose(a > b, a, b)


@inline
def smaller(a, b):
    return choose(a < b, a, b)


@inline
def joined(two, v):
    """The two largest, of which the first is nan if any is, with another beside them."""
    first, second = two
    return maximum(first, v), larger(second, smaller(first, v))


@inline
def merged(two, others):
    """The two largest of four."""
    first, second = joined(two, others[0])
    return first, larger(second, others[1])


@inline
def folded(two):
    """The two largest of long vectors, entry by entry, in vectors."""
    near, far = halves(two[0])
    rest, more = halves(two[1])
    return merged((near, rest), (far, more))


@inline
def two_at(two, i):
    return entry(two[0], i), entry(two[1], i)


@inline
def two_of(two):
    """The two largest of vectors, as numbers."""
    a = merged(two_at(two, 0), two_at(two, 4))
    b = merged(two_at(two, 2), two_at(two, 6))
    c = merged(two_at(two, 1), two_at(two, 5))
    d = merged(two_at(two, 3), two_at(two, 7))
    first, second = merged(merged(a, b), merged(c, d))
    return np.float64(first), np.float64(second)


@kernel
def top_two(x, sign):
    """(top, the largest of all entries but one): they are equal if there are ties."""
    none = x.dtype.type(-np.inf)
    a = b = spread_line(none), spread_line(none)
    most = x.size // (2 * LINE) * (2 * LINE)
    for i in range(0, most, 2 * LINE):
        a = joined(a, sign * load_line(x, i))
        b = joined(b, sign * load_line(x, i + LINE))
    whole = x.size // LINE * LINE
    for i in range(most, whole, LINE):
        a = joined(a, sign * load_line(x, i))
    two = folded(merged(a, b))
    for i in range(whole, x.size, WIDTH):
        two = joined(two, sign * load_some(x, i, x.size - i, sign * none))
    return two_of(two)


@kernel
def count_ties(x, m):
    """How many entries are equal to m?"""
    zero, one = np.float32(0.0), np.float32(1.0)
    count = spread_line(zero)
    whole = x.size // LINE * LINE
    for i in range(0, whole, LINE):
        count = count + choose(load_line(x, i) == m, one, zero)
    first, second = halves(count)
    for i in range(whole, x.size, WIDTH):
        first = first + choose(load_some(x, i, x.size - i, np.nan) == m, one, zero)
    return np.float64(sum_of(first + second))


@inline
def ties_of(x, m, second, temperature):
    """How many entries share the maximum m, beside or above the second largest?"""
    if second < m:
        return 1.0
    return count_ties(x, np.float32(math.copysign(1.0, temperature) * m))


@inline
def is_narrow(m, temperature):
    """Do the constants of this float32 row fit float32 with room to spare?"""
    size = abs(temperature)
    return 2.0**-90 < size < 2.0**90 and abs(m) * LOG2E < 2.0**13 * size


@inline
def power_of(m, temperature):
    """k, the even number nearest m / |T| / log 2."""
    return 2.0 * np.rint(0.5 * (m * (LOG2E / abs(temperature))))


@inline
def in_two32(wide):
    """A float64 in two words of float32."""
    high = np.float32(wide)
    return high, np.float32(wide - np.float64(high))


@inline
def line32(m, temperature):
    """The arguments of exp2_line32 for exp(x / T) / 2**k."""
    slope, slope_low = in_two32(LOG2E / temperature)
    return slope, slope_low, np.float32(np.float64(ROUND32) - power_of(m, temperature))


@inline
def unit_of(m, temperature):
    """exp(m / |T|) / 2**k: what an entry at the maximum comes to."""
    return exp2_plain(m * (LOG2E / abs(temperature)) - power_of(m, temperature))


@inline
def peak_of(m, temperature, line):
    """The same by exp2_line32, whose rounding it has."""
    return exp2_line32(np.float32(math.copysign(1.0, temperature) * m), *line)


@inline
def added(e, sums):
    """LINE exponentials, the first half to the first of two sums, the second to the second."""
    first, second = halves(e)
    return sums[0] + widened(first), sums[1] + widened(second)


@inline
def exp_rest(x, exps, start, stop, at, line, sums):
    """The end of `exp_narrow`, less than LINE entries, and the sum of all.

    An entry that is not there sums as one that has become 0.
    """
    slope, slope_low, origin = line
    first, second = sums
    absent = np.float32(math.copysign(np.inf, -slope))
    for i in range(start, stop, WIDTH):
        e = exp2_line32(load_some(x, i, stop - i, absent), slope, slope_low, origin)
        store_some(exps, at + i - start, stop - i, e)
        first = first + widened(e)
    return sum_of(first + second)


@inline
def exp_narrow(x, exps, start, stop, at, line, upcoming):
    """exps[at:] = exp of x[start:stop], and the sum of them; upcoming[start:stop] is fetched."""
    slope, slope_low, origin = line
    sums = spread(0.0), spread(0.0)
    whole = start + (stop - start) // LINE * LINE
    for i in range(start, whole, LINE):
        prefetch(upcoming, i)
        e = exp2_line32(load_line(x, i), slope, slope_low, origin)
        store(exps, at + i - start, e)
        sums = added(e, sums)
    return exp_rest(x, exps, whole, stop, at + whole - start, line, sums)


@kernel
def ties_and_below(x, exps, sign, m):
    ties, below = 0.0, 0.0
    for i in range(x.size):
        ties = add_in_any_order(ties, 0.0 if sign * x[i] < m else 1.0)
        below = add_in_any_order(below, np.float64(exps[i]) if sign * x[i] < m else 0.0)
    return ties, below


@inline
def is_whole(times):
    """May a sum of so many of its largest term be that term and nothing else, several times?"""
    return abs(times - np.rint(times)) < 2.0**-20


@inline
def may_hold_ties(total, times):
    """Is a sum worth telling ties from the rest?

    Not one that is larger than 4, unless ties are all that it holds: their rounding moves it by
    2**-24 at most, and its logarithm by less than an ULP.
    """
    return total > 1.0 - 2.0**-10 and (total < 4.0 or is_whole(times))


@inline
def sums_narrow(x, exps, m, temperature, upcoming):
    """(ties, below); `exps` keeps the exponentials, times 2**BIAS32, if it is long enough.

    While it computes, the row that comes next is fetched, which saves a large array a tenth of its
    time.
    """
    line = line32(m, temperature)
    per_unit = UNBIAS32 / unit_of(m, temperature)
    per_peak = 1.0 / np.float64(peak_of(m, temperature, line))
    keep = exps.size >= x.size
    below = 0.0
    first, last = x.size, 0  # between them lie all chunks that may hold ties
    for start in range(0, x.size, CHUNK):
        stop = min(start + CHUNK, x.size)
        at = start if keep else 0
        total = exp_narrow(x, exps, start, stop, at, line, upcoming)
        if may_hold_ties(total * per_unit, total * per_peak):
            first, last = min(first, start), stop
        else:
            below += total * per_unit
    if first < last:  # apart: a call inside the loop above would cost it its registers
        return sums_with_ties(x, exps, m, temperature, first, last, below)
    return 0.0, below


@kernel
def sums_with_ties(x, exps, m, temperature, first, last, below):
    """Add what the chunks from first to last that may hold ties come to."""
    line = line32(m, temperature)
    per_unit = UNBIAS32 / unit_of(m, temperature)
    per_peak = 1.0 / np.float64(peak_of(m, temperature, line))
    keep = exps.size >= x.size
    ties = 0.0
    for start in range(first, last, CHUNK):
        stop = min(start + CHUNK, x.size)
        at = start if keep else 0
        total = exp_narrow(x, exps, start, stop, at, line, x)
        if may_hold_ties(total * per_unit, total * per_peak):
            terms = exps[at : at + stop - start]
            sign = np.float32(math.copysign(1.0, temperature))
            count, total = ties_and_below(x[start:stop], terms, sign, np.float32(m))
            ties += count
            below += total * per_unit
    return ties, below


@inline
def factors_of(total, m, ties, temperature):
    """What `scaled` takes, of a row with this sum of exponentials and a maximum that ties share."""
    peak = peak_of(m, temperature, line32(m, temperature))
    unit = unit_of(m, temperature) / UNBIAS32
    # the largest terms without their rounding: they may be all there is
    total += ties * (unit - np.float64(peak))
    inverse, inverse_low = in_two32(1.0 / (total * UNBIAS32))
    return inverse, inverse_low, peak, np.float32(unit / total)


@inline
def keep_factors(kept, p, factors):
    """kept[:, p] = factors."""
    kept[0, p], kept[1, p], kept[2, p], kept[3, p] = factors


@inline
def kept_factors(kept, p):
    return kept[0, p], kept[1, p], kept[2, p], kept[3, p]


@inline
def product(e, factors):
    """e / total.

    2**-BIAS32 goes last: inside the inverse, it would cost the second product its digits where the
    result is among the smallest normal numbers.
    """
    inverse, inverse_low, _, _ = factors
    return fma(e, inverse, e * inverse_low) * UNBIAS32


@inline
def scaled(e, factors):
    """e / total; an entry at the maximum comes to exactly its share, 1 / total."""
    _, _, peak, share = factors
    return choose(e == peak, share, product(e, factors))


@kernel
def settle():
    """Make what was streamed visible to other threads."""
    fence()


@inline
def softmax_narrow(x, out, exps, kept, m, temperature, total, streamed):
    line = line32(m, temperature)
    inverse, inverse_low = in_two32(1.0 / (total * unit_of(m, temperature)))
    peak = peak_of(m, temperature, line)
    factors = inverse, inverse_low, peak, np.float32(1.0 / total)
    for start in range(0, x.size, exps.size):
        stop = min(start + exps.size, x.size)
        if not kept:
            exp_narrow(x, exps, start, stop, 0, line, x)
        write(scaled, exps[: stop - start], out[start:stop], factors, streamed)


@inline
def log_scaled(x, constants):
    m, slope, log_sum = constants
    return fma(widened(x) - m, slope, -log_sum)


@inline
def log_softmax_narrow(x, out, m, temperature, log_sum, streamed):
    peak = math.copysign(1.0, temperature) * m
    write(log_scaled, x, out, (peak, 1.0 / temperature, log_sum), streamed)
