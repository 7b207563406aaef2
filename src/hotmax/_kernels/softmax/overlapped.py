"""softmax of long float32 rows: a row is written while the next one is computed.

A row is read from memory once, in parts. The exponentials of each part are relative to an even
power of two of its own, which changes no digit: a part does not depend on the other parts.

    exp_parts     exponentials and sum of each part, and the maximum of the row
    scale_parts   the factors of each part
    write_parts   the products; those of all rows but the last are written by the next `exp_parts`

While a part is computed, the next one, or the beginning of the next row, is prefetched, and the
same part of the previous row is written. Together they take little longer than the arithmetic.
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
from hotmax._kernels.pool.jobs import STEP, VISIT, claim_rows
from hotmax._kernels.simd.memory import (
    LINE_BYTES,
    address_of,
    borrowed,
    fence,
    of_row,
    prefetch,
    stack_array,
)
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    halves,
    horizontal_maximum,
    load_line,
    load_partial,
    maximum,
    splat,
    splat_line,
    store,
    stream,
)
from hotmax._kernels.simd.writing import write_mapped
from hotmax._kernels.softmax.float32 import (
    FACTORS,
    add_line,
    exp2_constants,
    exp_chunk,
    exp_tail,
    factors_of,
    fits_float32,
    fold_largest,
    horizontal_largest,
    insert_largest,
    larger,
    load_factors,
    probability_of_exp,
    reference_exponent,
    row_maximum,
    smaller,
    store_factors,
    ties_of,
    times_inverse,
    two_largest,
)
from hotmax._kernels.softmax.limits import sign_of
from hotmax._kernels.softmax.rows import softmax_row

LONGEST_BUFFERED = 196608  # classes of the longest row whose exponentials are buffered (768 kB)
ROW_PART = 8192  # classes that stay in the second-level cache, with their exponentials
MOST_PARTS = LONGEST_BUFFERED // ROW_PART
QUICK = 1024  # classes of the shortest row that the quick way is used for
# In powers of two: how far a part may rise above its first line, and how far it may lie below the
# maximum of the row. With factors as pairs of float32 numbers, 2**-BELOW / sum loses no digit.
REACH, BELOW = 48, 48
NEGLIGIBLE_GAP = 200.0  # in units of T: a part this far below the maximum adds nothing to the sum
PAGE = 4096  # bytes: loads and stores a multiple of this apart are mistaken for one another
NEAR = 512  # bytes: the least distance between reading and writing

# What is known of each part, in rows of one array.
POWER, SUM, TOP, SECOND, FACTS = range(5)
MOST_FACTS, MOST_FACTORS = FACTS * MOST_PARTS, FACTORS * MOST_PARTS


@inline
def bounds(p, n):
    return p * ROW_PART, min((p + 1) * ROW_PART, n)


@inline
def lead_of(x, out):
    """How many entries writing to out runs ahead of reading x; out[lead] begins a cache line.

    A store delays later loads whose addresses have the same last 12 bits (4K aliasing): at distance
    0 softmax took 0.76 ns an entry, at 128 entries 0.45.
    """
    lead = -address_of(out) % LINE_BYTES // out.itemsize
    short = (NEAR - (address_of(out[lead:]) - address_of(x))) % PAGE
    return lead + (-(-short // LINE_BYTES) * LINE if short < 2 * NEAR else 0)


@inline
def exp_line(x, i, exps, line, seen, quick):
    """exps[i:] = exp of LINE entries from x[i] on; `seen` is updated with them.

    The quick way clips no exponential: it tracks the two largest entries and the range of the
    exponents, which are checked once at the end.
    """
    beta, beta_lo, origin = line
    sums, largest, second, reach = seen
    v = load_line(x, i)
    e, shifted = exp2_unclipped32(v, beta, beta_lo, origin)
    if quick:
        second = larger(smaller(largest, v), second)
        largest = larger(v, largest)
        reach = maximum(reach, reach32(shifted))
    else:
        e = clipped32(e, shifted)
    store(exps, i, e)
    return add_line(e, sums), largest, second, reach


@kernel
def exp_and_write(x, exps, part, line, upcoming, before, factors, lead, streamed, quick):
    """`exp_chunk` in place, while the previous contents of exps are scaled and written to `before`.

    `part` is (start, stop). Writing runs `lead` entries ahead: nothing is overwritten before it is
    written. The quick way also returns the two largest entries, for T > 0; nan if an exponent is
    out of reach.
    """
    start, stop = part
    peaked = factors[2] > np.float32(0.0)
    begun = min(start + lead, stop)
    write_mapped(probability_of_exp, exps[start:begun], before[start:begun], factors, streamed)
    none = splat_line(np.float32(-np.inf))
    seen = (splat(0.0), splat(0.0)), none, none, splat_line(np.uint32(0))
    whole = start + (stop - start) // LINE * LINE
    both = start + (stop - begun) // LINE * LINE
    for i in range(start, both, LINE):
        prefetch(upcoming, i)
        e = load_line(exps, i + lead)
        p = probability_of_exp(e, factors) if peaked else times_inverse(e, factors)
        if streamed:
            stream(before, i + lead, p)
        else:
            store(before, i + lead, p)
        seen = exp_line(x, i, exps, line, seen, quick)
    ended = begun + both - start
    write_mapped(probability_of_exp, exps[ended:stop], before[ended:stop], factors, streamed)
    for i in range(both, whole, LINE):
        prefetch(upcoming, i)
        seen = exp_line(x, i, exps, line, seen, quick)
    sums, largest, second, reach = seen
    total = exp_tail(x, exps, whole, stop, whole, line, sums)
    if not quick:
        return total, np.nan, np.nan
    near, far = halves(reach)
    if horizontal_maximum(maximum(near, far)) > REACH - LOWEST32:
        return total, np.nan, np.nan
    two = fold_largest((largest, second))
    for i in range(whole, stop, WIDTH):
        two = insert_largest(two, load_partial(x, i, stop - i, np.float32(-np.inf)))
    return (total, *horizontal_largest(two))


@inline
def write_part(exps, out, factors, p, streamed):
    start, stop = bounds(p, out.size)
    write_mapped(
        probability_of_exp, exps[start:stop], out[start:stop], load_factors(factors, p), streamed
    )


@inline
def write_parts(exps, out, factors, first, streamed):
    """Write the parts of a row from `first` on."""
    for p in range(first, factors.shape[1]):
        write_part(exps, out, factors, p, streamed)


@inline
def exp_parts(x, exps, facts, factors, temperature, before, waits, careful, streamed):
    """(m, careful): the maximum of the row, nan if out of range; whether an entry was out of reach.

    If the previous row `waits` in exps and factors to be written to `before`, it is written in any
    case. The quick way takes the power of two of a part from its first line, and checks meanwhile
    that no entry lies too far from it. The careful way finds the maximum of the part first.
    """
    lead = lead_of(x, before)
    upcoming = x[min(ROW_PART, x.size) :]  # past its end lies the next row; only prefetched
    m = lowest = -np.inf
    for p in range(facts.shape[1]):
        start, stop = part = bounds(p, x.size)
        own = second = near = total = np.nan
        written = not waits
        if waits and not careful and x.size >= QUICK and temperature > 0.0:
            near = row_maximum(x[start : min(start + LINE, stop)], np.float32(1.0))
            if fits_float32(near, temperature):
                line, scale = exp2_constants(near, temperature), load_factors(factors, p)
                total, own, second = exp_and_write(
                    x, exps, part, line, upcoming, before, scale, lead, streamed, True
                )
                written = True
            rise = reference_exponent(own, temperature) - reference_exponent(near, temperature)
            careful = not (fits_float32(own, temperature) and rise <= REACH)
        if careful or own != own:
            own, second = two_largest(x[start:stop], sign_of(x, temperature))
            near = own
            line = exp2_constants(own, temperature)
            if not fits_float32(own, temperature):
                if not written:
                    write_part(exps, before, factors, p, streamed)
                if not own < 0.0:
                    if waits:
                        write_parts(exps, before, factors, p + 1, streamed)
                    return np.nan, careful
                # A masked part, probably: it adds nothing if the others are far enough above.
                near, total, lowest = -np.inf, 0.0, max(lowest, own)
            elif written:
                total = exp_chunk(x, exps, start, stop, start, line, upcoming)
            else:
                scale = load_factors(factors, p)
                total, _, _ = exp_and_write(
                    x, exps, part, line, upcoming, before, scale, lead, streamed, False
                )
        facts[POWER, p], facts[SUM, p] = reference_exponent(near, temperature), total
        facts[TOP, p], facts[SECOND, p] = own, second
        m = max(m, own)
    if not fits_float32(m, temperature) or lowest > m - NEGLIGIBLE_GAP * abs(temperature):
        return np.nan, careful
    return m, careful


@inline
def scale_parts(x, exps, facts, factors, m, temperature):
    """The factors of each part, once the maximum and the sums of a row are known."""
    power = reference_exponent(m, temperature)
    total = ties = 0.0
    for p in range(facts.shape[1]):
        total += facts[SUM, p] * power_of_two(facts[POWER, p] - power)
        if facts[TOP, p] == m:
            start, stop = bounds(p, x.size)
            ties += ties_of(x[start:stop], m, facts[SECOND, p], temperature)
    inverse, inverse_lo, peak, share = factors_of(total, m, ties, temperature)
    for p in range(facts.shape[1]):
        shift = facts[POWER, p] - power
        if shift < -BELOW:
            start, stop = bounds(p, x.size)
            exp_chunk(x, exps, start, stop, start, exp2_constants(m, temperature), x)
            shift = 0.0
        scale = np.float32(power_of_two(shift))
        # Further below, no exponential is rounded to that of the maximum.
        peaked = m - facts[TOP, p] < 2.0**-16 * abs(temperature)
        own_peak = peak / scale if peaked else np.float32(-1.0)
        store_factors(factors, p, (inverse * scale, inverse_lo * scale, own_peak, share))


@kernel
def softmax_overlapped(fields, x, out, temperature, scratch, streamed):
    """Ranges of rows that this thread claims, until none is left or VISIT entries are done.

    `scratch`: for the exponentials of a row, and for one line more. Each row but the first, and but
    special ones, is computed while the previous one is written.
    """
    n = x.shape[1]
    scratch = borrowed(scratch)
    exps = scratch[-address_of(scratch) % LINE_BYTES // scratch.itemsize :][:n]
    parts = -(-n // ROW_PART)
    facts = stack_array(MOST_FACTS, np.float64)[: FACTS * parts].reshape(FACTS, parts)
    factors = stack_array(MOST_FACTORS, np.float32)[: FACTORS * parts].reshape(FACTORS, parts)
    before, waits, careful = 0, False, False  # the previous row; whether it waits to be written
    done = 0
    while done < VISIT:
        start = claim_rows(fields)
        if start >= x.shape[0]:
            break
        stop = min(start + fields[STEP], x.shape[0])
        for r in range(start, stop):
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
        done += (stop - start) * n
    if waits:
        write_parts(exps, out[before], factors, 0, streamed)
    fence()
