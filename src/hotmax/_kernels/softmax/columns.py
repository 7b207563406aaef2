"""softmax of float32 rows whose classes lie apart and which lie side by side: columns of a matrix.

    sums     e = exp(x / T) relative to 2**k, with k from the first rows, summed column by column
    write    the same relative to the column's maximum, times 1 / sum

A matrix is read twice, row by row, as it lies in memory. An even power of two changes no digit, and
each column has the parts that a row has in `overlapped`, each with the LINE sums of `exp_narrow`:
the bits are those of a row.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import exp2_line32, power_of_two
from hotmax._kernels.simd.memory import borrowed, fence, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    choose,
    load_line,
    maximum,
    store,
    stream,
    widened,
)
from hotmax._kernels.softmax.float32 import (
    factors_of,
    is_narrow,
    keep_factors,
    larger,
    line32,
    merged,
    power_of,
    scaled,
    smaller,
)
from hotmax._kernels.softmax.overlapped import KEEP, PART, REACH, bounds

STRIP = 512  # columns at a time
PHASES = LINE  # sums that a row has
FIRST = 16  # rows that tell k

# What is known of each column, in rows of one array: first the two largest entries of the part at
# hand, and its power of two; then the same of all parts so far, how many share the maximum, and
# what the exponentials take. What `scaled` takes follows.
TOP, SECOND, BEGUN, LARGEST, NEXT, POWER, TIES, ORIGIN, FACTS = range(9)
TOTAL, SUMS = PHASES, PHASES + 1  # what all parts so far come to, after the sums of the part


@inline
def begin_part(x, facts, temperature):
    """The power of two of each column of a part, from its first rows; False if one is special."""
    facts[TOP, :] = -np.inf
    for i in range(min(FIRST, x.shape[0])):
        for j in range(0, x.shape[1], LINE):
            store(facts[TOP], j, maximum(load_line(x[i], j), load_line(facts[TOP], j)))
    for j in range(x.shape[1]):
        m = np.float64(facts[TOP, j])
        if not is_narrow(m, temperature):
            return False
        facts[BEGUN, j] = power_of(m, temperature)
        facts[ORIGIN, j] = line32(m, temperature)[2]
        facts[TOP, j] = facts[SECOND, j] = -np.inf
    return True


@inline
def phase_of(i, n):
    """Which of its sums the i-th class of n is added to, as in `exp_narrow`."""
    whole = n // PHASES * PHASES
    return i % PHASES if i < whole else (i - whole) % WIDTH


@inline
def exponential(v, facts, j, slope, slope_low):
    return exp2_line32(v, slope, slope_low, load_line(facts[ORIGIN], j))


@inline
def add_exponentials(x, facts, slope, slope_low, sums):
    """Each column's exponentials to its sums, and its two largest entries to facts."""
    n = x.shape[0]
    for i in range(n):
        row, upcoming, total = x[i], x[min(i + 1, n - 1)], sums[phase_of(i, n)]
        for j in range(0, x.shape[1], LINE):
            prefetch(upcoming, j)
            v, largest = load_line(row, j), load_line(facts[TOP], j)
            # the new entry first: else the compiler stores with a mask, for nearly half of the time
            store(facts[SECOND], j, larger(smaller(v, largest), load_line(facts[SECOND], j)))
            store(facts[TOP], j, maximum(v, largest))
            e = exponential(v, facts, j, slope, slope_low)
            store(total, j, load_line(total, j) + widened(e))


@inline
def sum_of_phases(sums, j):
    """The sums of column j as one, in the order of `sum_of`."""
    near = ((sums[0, j] + sums[8, j]) + (sums[4, j] + sums[12, j])) + (
        (sums[2, j] + sums[10, j]) + (sums[6, j] + sums[14, j])
    )
    far = ((sums[1, j] + sums[9, j]) + (sums[5, j] + sums[13, j])) + (
        (sums[3, j] + sums[11, j]) + (sums[7, j] + sums[15, j])
    )
    return near + far


@inline
def end_part(facts, sums, temperature):
    """What a part comes to, to the total of each column; False if one is special."""
    for j in range(facts.shape[1]):
        m, begun, power = np.float64(facts[TOP, j]), facts[BEGUN, j], facts[POWER, j]
        if not (is_narrow(m, temperature) and power_of(m, temperature) - begun <= REACH):
            return False
        higher = max(power, begun)
        before = sums[TOTAL, j] * power_of_two(power - higher)
        sums[TOTAL, j] = before + sum_of_phases(sums, j) * power_of_two(begun - higher)
        facts[POWER, j] = higher
        facts[LARGEST, j], facts[NEXT, j] = merged(
            (facts[LARGEST, j], facts[NEXT, j]), (facts[TOP, j], facts[SECOND, j])
        )
    return True


@inline
def count_ties_of_columns(x, facts):
    """How many share the maximum of each column; another look at x, if there are any ties."""
    one, zero = np.float32(1.0), np.float32(0.0)
    facts[TIES, :] = one
    alone = True
    for j in range(x.shape[1]):
        alone = alone and facts[NEXT, j] < facts[LARGEST, j]
    if not alone:
        facts[TIES, :] = zero
        for i in range(x.shape[0]):
            for j in range(0, x.shape[1], LINE):
                tie = choose(load_line(x[i], j) == load_line(facts[LARGEST], j), one, zero)
                store(facts[TIES], j, load_line(facts[TIES], j) + tie)


@inline
def scale_columns(facts, sums, temperature):
    """What writing takes."""
    for j in range(facts.shape[1]):
        m = np.float64(facts[LARGEST, j])
        total = sums[TOTAL, j] * power_of_two(facts[POWER, j] - power_of(m, temperature))
        facts[ORIGIN, j] = line32(m, temperature)[2]
        ties = np.float64(facts[TIES, j])
        keep_factors(facts[FACTS:], j, factors_of(total, m, ties, temperature))


@inline
def probability(v, facts, j, slope, slope_low):
    factors = (
        load_line(facts[FACTS], j),
        load_line(facts[FACTS + 1], j),
        load_line(facts[FACTS + 2], j),
        load_line(facts[FACTS + 3], j),
    )
    return scaled(exponential(v, facts, j, slope, slope_low), factors)


@inline
def write_columns(x, out, facts, slope, slope_low, streamed):
    n = x.shape[0]
    for i in range(n):
        row, upcoming, target = x[i], x[min(i + 1, n - 1)], out[i]
        for j in range(0, x.shape[1], LINE):
            prefetch(upcoming, j)
            p = probability(load_line(row, j), facts, j, slope, slope_low)
            if streamed:
                stream(target, j, p)
            else:
                store(target, j, p)


@kernel
def softmax_columns(x, out, temperature, facts, sums, streamed):
    """A multiple of LINE columns; False, with nothing written, if one of them is special.

    `facts` has room for FACTS + FACTORS rows and `sums` for SUMS. out may be x. If it is streamed,
    each of its rows must lie at a cache line.
    """
    x, out, facts, sums = borrowed(x), borrowed(out), borrowed(facts), borrowed(sums)
    n = x.shape[0]
    if n > KEEP or not 2.0**-90 < temperature < 2.0**90:
        return False
    slope, slope_low, _ = line32(0.0, temperature)
    facts[LARGEST, :], facts[NEXT, :], facts[POWER, :] = -np.inf, -np.inf, -np.inf
    sums[TOTAL, :] = 0.0
    for p in range(-(-n // PART)):
        start, stop = bounds(p, n)
        part = x[start:stop]
        if not begin_part(part, facts, temperature):
            return False
        sums[:PHASES, :] = 0.0
        add_exponentials(part, facts, slope, slope_low, sums)
        if not end_part(facts, sums, temperature):
            return False
    count_ties_of_columns(x, facts)
    scale_columns(facts, sums, temperature)
    write_columns(x, out, facts, slope, slope_low, streamed)
    fence()
    return True
