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

from hotmax._kernels.arithmetic import (
    LOG2E,
    ROUND32,
    UNBIAS32,
    exp2_line32,
    exp2_plain,
    power_of_two,
)
from hotmax._kernels.compiling import inline, kernel
from hotmax._kernels.places import LINE_BYTES, address_of, fence, prefetch
from hotmax._kernels.vectors import (
    LINE,
    WIDTH,
    add_in_any_order,
    choose,
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
    stream,
    sum_of,
    widened,
)
from hotmax._kernels.writing import write

CHUNK = 512  # classes that stay in the first-level cache from one loop to the next
PART = 8192  # classes that stay in the second-level cache, with their exponentials
PAGE = 4096  # bytes: places that lie pages apart are not told apart at once
NEAR = 512  # bytes between reading and writing, at least


@kernel
def top(x, sign):
    """max(sign * x), nan if any x is nan, -inf if there is none."""
    none = x.dtype.type(-np.inf)
    a = b = c = d = spread_line(none)  # four side by side: one would wait for its last comparison
    whole = x.size // (4 * LINE) * (4 * LINE)
    for i in range(0, whole, 4 * LINE):
        a = maximum(a, sign * load_line(x, i))
        b = maximum(b, sign * load_line(x, i + LINE))
        c = maximum(c, sign * load_line(x, i + 2 * LINE))
        d = maximum(d, sign * load_line(x, i + 3 * LINE))
    first, second = halves(maximum(maximum(a, b), maximum(c, d)))
    for i in range(whole, x.size, WIDTH):
        first = maximum(first, sign * load_some(x, i, x.size - i, sign * none))
    return np.float64(maximum_of(maximum(first, second)))


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
def exp_line(x, i, exps, at, line, sums):
    """exps[at:] = exp of LINE entries from x[i] on; they are added to the sums, even and odd."""
    slope, slope_low, origin = line
    even, odd = sums
    e = exp2_line32(load_line(x, i), slope, slope_low, origin)
    store(exps, at, e)
    first, second = halves(e)
    return even + widened(first), odd + widened(second)


@inline
def exp_rest(x, exps, start, stop, at, line, sums):
    """The same of what is left, less than LINE entries, and the sum of all.

    An entry that is not there sums as one that has become 0.
    """
    slope, slope_low, origin = line
    even, odd = sums
    absent = np.float32(math.copysign(np.inf, -slope))
    for i in range(start, stop, WIDTH):
        e = exp2_line32(load_some(x, i, stop - i, absent), slope, slope_low, origin)
        store_some(exps, at + i - start, stop - i, e)
        even = even + widened(e)
    return sum_of(even + odd)


@inline
def exp_narrow(x, exps, start, stop, at, line, upcoming):
    """exps[at:] = exp of x[start:stop], and the sum of them; upcoming[start:stop] is fetched."""
    sums = spread(0.0), spread(0.0)
    whole = start + (stop - start) // LINE * LINE
    for i in range(start, whole, LINE):
        prefetch(upcoming, i)
        sums = exp_line(x, i, exps, at + i - start, line, sums)
    return exp_rest(x, exps, whole, stop, at + whole - start, line, sums)


@kernel
def ties_and_below(x, exps, sign, m):
    ties, below = 0.0, 0.0
    for i in range(x.size):
        ties = add_in_any_order(ties, 0.0 if sign * x[i] < m else 1.0)
        below = add_in_any_order(below, np.float64(exps[i]) if sign * x[i] < m else 0.0)
    return ties, below


@inline
def may_hold_ties(total):
    """A sum this small is worth telling ties from the rest: a larger one has digits to spare."""
    return 1.0 - 2.0**-10 < total < 4.0


@inline
def sums_narrow(x, exps, m, temperature, upcoming):
    """(ties, below); `exps` keeps the exponentials, times 2**BIAS32, if it is long enough.

    Ties are told apart only in a chunk that sums to between 1 and 4: elsewhere they can share a
    float64 with the rest and lose nothing. While it computes, the row that comes next is fetched,
    which saves a large array a tenth of its time.
    """
    line = line32(m, temperature)
    per_unit = UNBIAS32 / unit_of(m, temperature)
    keep = exps.size >= x.size
    below = 0.0
    first, last = x.size, 0  # between them lie all chunks that may hold ties
    for start in range(0, x.size, CHUNK):
        stop = min(start + CHUNK, x.size)
        at = start if keep else 0
        total = exp_narrow(x, exps, start, stop, at, line, upcoming) * per_unit
        if may_hold_ties(total):
            first, last = min(first, start), stop
        else:
            below += total
    if first < last:  # apart: a call inside the loop above would cost it its registers
        return sums_with_ties(x, exps, m, temperature, first, last, below)
    return 0.0, below


@kernel
def sums_with_ties(x, exps, m, temperature, first, last, below):
    """Add what the chunks from first to last that may hold ties come to."""
    line = line32(m, temperature)
    per_unit = UNBIAS32 / unit_of(m, temperature)
    keep = exps.size >= x.size
    ties = 0.0
    for start in range(first, last, CHUNK):
        stop = min(start + CHUNK, x.size)
        at = start if keep else 0
        total = exp_narrow(x, exps, start, stop, at, line, x) * per_unit
        if may_hold_ties(total):
            terms = exps[at : at + stop - start]
            sign = np.float32(math.copysign(1.0, temperature))
            count, total = ties_and_below(x[start:stop], terms, sign, np.float32(m))
            ties += count
            below += total * per_unit
    return ties, below


@inline
def scaled(e, constants):
    """e / total; an entry at the maximum comes to exactly its share, 1 / total."""
    inverse, inverse_low, peak, share = constants
    return choose(e == peak, share, fma(e, inverse, e * inverse_low))


@kernel
def settle():
    """Make what was streamed visible to other threads."""
    fence()


@inline
def softmax_narrow(x, out, exps, kept, m, temperature, total, streamed):
    line = line32(m, temperature)
    inverse, inverse_low = in_two32(UNBIAS32 / (total * unit_of(m, temperature)))
    peak = peak_of(m, temperature, line)
    constants = inverse, inverse_low, peak, np.float32(1.0 / total)
    for start in range(0, x.size, exps.size):
        stop = min(start + exps.size, x.size)
        if not kept:
            exp_narrow(x, exps, start, stop, 0, line, x)
        write(scaled, exps[: stop - start], out[start:stop], constants, streamed)


# --- rows that pass by in parts ---------------------------------------------------------------
#
# A row is read from memory once. Each part has a maximum of its own, found while the part is in the
# cache, and exponentials relative to an even power of two of its own, which changes no digit: what
# a part comes to does not depend on the others. While one part is computed the next one, or the
# beginning of the next row, is fetched, and the same part of the row before is written: the three
# together take little longer than the arithmetic alone.

# What is known of each part, in rows of one array: first the power of two and the sum, then what
# `scaled` takes.
POWER, SUM, INVERSE, INVERSE_LOW, PEAK, SHARE, FACTS = range(7)


@inline
def constants_at(facts, p):
    """What `scaled` takes, for part p."""
    return (
        np.float32(facts[INVERSE, p]),
        np.float32(facts[INVERSE_LOW, p]),
        np.float32(facts[PEAK, p]),
        np.float32(facts[SHARE, p]),
    )


@inline
def lead_of(x, out):
    """How many entries the writing of out runs ahead of the reading of x; out[lead] begins a line.

    A store holds up the loads soon after it whose addresses have the same last 12 bits: with none
    apart, softmax took 0.76 ns an entry, and 0.45 with 128 entries.
    """
    lead = -address_of(out) % LINE_BYTES // out.itemsize
    short = (NEAR - (address_of(out[lead:]) - address_of(x))) % PAGE
    return lead + (-(-short // LINE_BYTES) * LINE if short < 2 * NEAR else 0)


@kernel
def exp_and_write(x, exps, start, stop, line, upcoming, before, constants, lead, streamed):
    """exp_narrow in place, after what exps[start:stop] holds has been written, scaled, to before.

    Nothing is overwritten that is still to be written: writing runs `lead` entries ahead.
    """
    begun = min(start + lead, stop)
    write(scaled, exps[start:begun], before[start:begun], constants, streamed)
    sums = spread(0.0), spread(0.0)
    whole = start + (stop - start) // LINE * LINE
    both = start + (stop - begun) // LINE * LINE
    for i in range(start, both, LINE):
        prefetch(upcoming, i)
        p = scaled(load_line(exps, i + lead), constants)
        if streamed:
            stream(before, i + lead, p)
        else:
            store(before, i + lead, p)
        sums = exp_line(x, i, exps, i, line, sums)
    ended = begun + both - start
    write(scaled, exps[ended:stop], before[ended:stop], constants, streamed)
    for i in range(both, whole, LINE):
        prefetch(upcoming, i)
        sums = exp_line(x, i, exps, i, line, sums)
    return exp_rest(x, exps, whole, stop, whole, line, sums)


@inline
def write_parts(exps, out, facts, first, streamed):
    """The parts of a row from the first on, whose exponentials and facts are known."""
    for p in range(first, facts.shape[1]):
        start, stop = p * PART, min((p + 1) * PART, out.size)
        write(scaled, exps[start:stop], out[start:stop], constants_at(facts, p), streamed)


@inline
def exp_parts(x, exps, facts, temperature, before, waits, streamed):
    """The exponentials and sums of a row, part by part, and its maximum; nan if out of range.

    If the row before waits in exps and facts to be written to `before`, that is done, either way.
    """
    m, sign = -np.inf, np.float32(math.copysign(1.0, temperature))
    lead = lead_of(x, before)
    for p in range(facts.shape[1]):
        start, stop = p * PART, min((p + 1) * PART, x.size)
        own = top(x[start:stop], sign)
        if not (abs(own) < np.inf and is_narrow(own, temperature)):
            if waits:
                write_parts(exps, before, facts, p, streamed)
            return np.nan
        line = line32(own, temperature)
        upcoming = x[min(PART, x.size) :]  # past its end lies the next row: only to be fetched
        if waits:
            constants = constants_at(facts, p)
            total = exp_and_write(
                x, exps, start, stop, line, upcoming, before, constants, lead, streamed
            )
        else:
            total = exp_narrow(x, exps, start, stop, start, line, upcoming)
        facts[POWER, p], facts[SUM, p] = power_of(own, temperature), total
        m = max(m, own)
    return m


@inline
def scale_parts(x, exps, facts, m, temperature):
    """The facts that writing takes, of a row of which maximum, exponentials and sums are known."""
    power = power_of(m, temperature)
    total = 0.0
    for p in range(facts.shape[1]):
        total += facts[SUM, p] * power_of_two(facts[POWER, p] - power)
    line = line32(m, temperature)
    peak = peak_of(m, temperature, line)
    unit = unit_of(m, temperature) / UNBIAS32
    # the largest term without its rounding: it may be all there is
    total += unit - np.float64(peak)
    for p in range(facts.shape[1]):
        start, stop = p * PART, min((p + 1) * PART, x.size)
        shift = facts[POWER, p] - power
        if shift < -32:  # so small an inverse might leave the range of float32
            exp_narrow(x, exps, start, stop, start, line, x)
            shift = 0.0
        facts[INVERSE, p], facts[INVERSE_LOW, p] = in_two32(power_of_two(shift) / total)
        facts[PEAK, p] = peak if shift == 0.0 else -1.0
        facts[SHARE, p] = unit / total


@inline
def log_scaled(x, constants):
    m, slope, log_sum = constants
    return fma(widened(x) - m, slope, -log_sum)


@inline
def log_softmax_narrow(x, out, m, temperature, log_sum, streamed):
    peak = math.copysign(1.0, temperature) * m
    write(log_scaled, x, out, (peak, 1.0 / temperature, log_sum), streamed)
