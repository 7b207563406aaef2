"""softmax of float32 rows of up to KEEP classes: a row is written while the next one is computed.

A row is read from memory once, in parts. Each part has exponentials relative to an even power of
two of its own, which changes no digit: what a part comes to does not depend on the others.

    exp_parts     exponentials and sum of each part, and the maximum of the row
    scale_parts   what each part is to be multiplied by
    write_parts   the products; those of all rows but the last are written by the next `exp_parts`

While a part is computed the next one, or the beginning of the next row, is fetched, and the same
part of the row before is written: the three together take little longer than the arithmetic alone.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOWEST32,
    clipped32,
    exp2_unclipped32,
    power_of_two,
    reach32,
)
from hotmax._kernels.simd.memory import (
    LINE_BYTES,
    address_of,
    borrowed,
    claim,
    fence,
    of_row,
    prefetch,
)
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    halves,
    load_line,
    load_some,
    maximum,
    maximum_of,
    spread,
    spread_line,
    store,
    stream,
)
from hotmax._kernels.simd.writing import write
from hotmax._kernels.softmax.float32 import (
    FACTORS,
    added,
    exp_narrow,
    exp_rest,
    factors_of,
    folded,
    is_narrow,
    joined,
    keep_factors,
    kept_factors,
    larger,
    line32,
    power_of,
    product,
    scaled,
    smaller,
    ties_of,
    top,
    top_two,
    two_of,
)
from hotmax._kernels.softmax.rows import sign_of, softmax_row

KEEP = 196608  # classes of the longest row whose exponentials are kept (768 kB)
PART = 8192  # classes that stay in the second-level cache, with their exponentials
QUICK = 1024  # classes of a row that is worth the quick way
# In powers of two: how far a part may rise above its first line, and how far lie below its row. In
# two words of float32, 2**-BELOW / sum loses no digit.
REACH, BELOW = 48, 48
FAR = 200.0  # a part so many T below its row adds nothing to it
PAGE = 4096  # bytes: places that lie pages apart are not told apart at once
NEAR = 512  # bytes between reading and writing, at least
VISIT = 1 << 21  # entries after which a thread comes back, to be interrupted

# What is known of each part, in rows of one array.
POWER, SUM, TOP, SECOND, FACTS = range(5)


@inline
def bounds(p, n):
    return p * PART, min((p + 1) * PART, n)


@inline
def lead_of(x, out):
    """How many entries the writing of out runs ahead of the reading of x; out[lead] begins a line.

    A store holds up the loads soon after it whose addresses have the same last 12 bits: with none
    apart, softmax took 0.76 ns an entry, and 0.45 with 128 entries.
    """
    lead = -address_of(out) % LINE_BYTES // out.itemsize
    short = (NEAR - (address_of(out[lead:]) - address_of(x))) % PAGE
    return lead + (-(-short // LINE_BYTES) * LINE if short < 2 * NEAR else 0)


@inline
def exp_line(x, i, exps, line, seen, quick):
    """exps[i:] = exp of LINE entries from x[i] on, and what has been seen of all so far.

    The quick way looks at no exponential: it keeps the largest entry, and how far all of them reach
    from the power of two, to be looked at in the end.
    """
    slope, slope_low, origin = line
    sums, largest, second, reach = seen
    v = load_line(x, i)
    e, shifted = exp2_unclipped32(v, slope, slope_low, origin)
    if quick:
        second = larger(smaller(largest, v), second)
        largest = larger(v, largest)
        reach = maximum(reach, reach32(shifted))
    else:
        e = clipped32(e, shifted)
    store(exps, i, e)
    return added(e, sums), largest, second, reach


@kernel
def exp_and_write(x, exps, start, stop, line, upcoming, before, factors, lead, streamed, quick):
    """`exp_narrow` in place, after what exps[start:stop] holds has been written, scaled, to before.

    Nothing is overwritten that is still to be written: writing runs `lead` entries ahead. If it is
    quick, the maximum comes with the sum, for T > 0; nan if anything is out of reach.
    """
    peaked = factors[2] > np.float32(0.0)
    begun = min(start + lead, stop)
    write(scaled, exps[start:begun], before[start:begun], factors, streamed)
    none = spread_line(np.float32(-np.inf))
    seen = (spread(0.0), spread(0.0)), none, none, spread_line(np.uint32(0))
    whole = start + (stop - start) // LINE * LINE
    both = start + (stop - begun) // LINE * LINE
    for i in range(start, both, LINE):
        prefetch(upcoming, i)
        e = load_line(exps, i + lead)
        p = scaled(e, factors) if peaked else product(e, factors)
        if streamed:
            stream(before, i + lead, p)
        else:
            store(before, i + lead, p)
        seen = exp_line(x, i, exps, line, seen, quick)
    ended = begun + both - start
    write(scaled, exps[ended:stop], before[ended:stop], factors, streamed)
    for i in range(both, whole, LINE):
        prefetch(upcoming, i)
        seen = exp_line(x, i, exps, line, seen, quick)
    sums, largest, second, reach = seen
    total = exp_rest(x, exps, whole, stop, whole, line, sums)
    if not quick:
        return total, np.nan, np.nan
    near, far = halves(reach)
    if maximum_of(maximum(near, far)) > REACH - LOWEST32:
        return total, np.nan, np.nan
    two = folded((largest, second))
    for i in range(whole, stop, WIDTH):
        two = joined(two, load_some(x, i, stop - i, np.float32(-np.inf)))
    return (total, *two_of(two))


@inline
def write_part(exps, out, factors, p, streamed):
    start, stop = bounds(p, out.size)
    write(scaled, exps[start:stop], out[start:stop], kept_factors(factors, p), streamed)


@inline
def write_parts(exps, out, factors, first, streamed):
    """The parts of a row from the first on."""
    for p in range(first, factors.shape[1]):
        write_part(exps, out, factors, p, streamed)


@inline
def exp_parts(x, exps, facts, factors, temperature, before, waits, careful, streamed):
    """(m, careful): the maximum of the row, nan if out of range; was any entry out of reach?

    If the row before waits in exps and factors to be written to `before`, that is done, either way.

    The quick way takes the power of two of a part from its first line, and finds out on the way
    that no entry lies too far from it. The careful way finds the maximum of the part first.
    """
    lead = lead_of(x, before)
    upcoming = x[min(PART, x.size) :]  # past its end lies the next row: only to be fetched
    m = lowest = -np.inf
    for p in range(facts.shape[1]):
        start, stop = bounds(p, x.size)
        own = second = near = total = np.nan
        written = not waits
        if waits and not careful and x.size >= QUICK and temperature > 0.0:
            near = top(x[start : min(start + LINE, stop)], np.float32(1.0))
            if is_narrow(near, temperature):
                total, own, second = exp_and_write(
                    x, exps, start, stop, line32(near, temperature), upcoming,
                    before, kept_factors(factors, p), lead, streamed, True,
                )  # fmt: skip
                written = True
            rise = power_of(own, temperature) - power_of(near, temperature)
            careful = not (is_narrow(own, temperature) and rise <= REACH)
        if careful or own != own:
            own, second = top_two(x[start:stop], sign_of(x, temperature))
            near = own
            line = line32(own, temperature)
            if not is_narrow(own, temperature):
                if not written:
                    write_part(exps, before, factors, p, streamed)
                if not own < 0.0:
                    if waits:
                        write_parts(exps, before, factors, p + 1, streamed)
                    return np.nan, careful
                # Masked, it seems: it adds nothing, if the others are far enough above.
                near, total, lowest = -np.inf, 0.0, max(lowest, own)
            elif written:
                total = exp_narrow(x, exps, start, stop, start, line, upcoming)
            else:
                total, _, _ = exp_and_write(
                    x, exps, start, stop, line, upcoming,
                    before, kept_factors(factors, p), lead, streamed, False,
                )  # fmt: skip
        facts[POWER, p], facts[SUM, p] = power_of(near, temperature), total
        facts[TOP, p], facts[SECOND, p] = own, second
        m = max(m, own)
    if not is_narrow(m, temperature) or lowest > m - FAR * abs(temperature):
        return np.nan, careful
    return m, careful


@inline
def scale_parts(x, exps, facts, factors, m, temperature):
    """What each part is to be multiplied by, once the maximum and the sums of a row are known."""
    power = power_of(m, temperature)
    total = ties = 0.0
    for p in range(facts.shape[1]):
        total += facts[SUM, p] * power_of_two(facts[POWER, p] - power)
        if facts[TOP, p] == m:
            start, stop = bounds(p, x.size)
            ties += ties_of(x[start:stop], m, facts[SECOND, p], temperature)
    inverse, inverse_low, peak, share = factors_of(total, m, ties, temperature)
    for p in range(facts.shape[1]):
        shift = facts[POWER, p] - power
        if shift < -BELOW:
            start, stop = bounds(p, x.size)
            exp_narrow(x, exps, start, stop, start, line32(m, temperature), x)
            shift = 0.0
        scale = np.float32(power_of_two(shift))
        # Further away, no exponential is rounded to that of the maximum.
        peaked = m - facts[TOP, p] < 2.0**-16 * abs(temperature)
        own_peak = peak / scale if peaked else np.float32(-1.0)
        keep_factors(factors, p, (inverse * scale, inverse_low * scale, own_peak, share))


@kernel
def softmax_overlapped(x, out, temperature, cuts, turn, exps, streamed):
    """Ranges of rows, from cut to cut, of which each thread claims one after the other.

    `exps` is room for a row. Each row but the first, and those that are special, goes with the
    writing of the one before: so a thread keeps at it until nothing is left, or VISIT entries done.
    """
    n = x.shape[1]
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    parts = -(-n // PART)
    facts, factors = np.empty((FACTS, parts)), np.empty((FACTORS, parts), np.float32)
    before, waits, careful = 0, False, False  # the last row, and does it wait to be written?
    done = 0
    while done < VISIT:
        k = claim(turn)
        if k >= cuts.size - 1:
            break
        for r in range(cuts[k], cuts[k + 1]):
            t = of_row(temperature, r)
            m, careful = exp_parts(
                x[r], exps, facts, factors, t, out[before], waits, careful, streamed
            )
            waits = m == m
            if waits:
                scale_parts(x[r], exps, facts, factors, m, t)
            else:
                softmax_row(x[r], out[r], t, exps, x[r], streamed)
            before = r
        done += (cuts[k + 1] - cuts[k]) * n
    if waits:
        write_parts(exps, out[before], factors, 0, streamed)
    fence()
