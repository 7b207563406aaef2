"""softmax of float32 rows whose classes lie apart and which lie side by side: columns of a matrix.

    sums     e = exp(x / T) relative to 2**k, with k from the first rows, summed column by column
    write    the same relative to the column's maximum, times 1 / sum

A matrix is read twice, row by row, as it lies in memory. An even power of two changes no digit, and
each column has the LINE sums that a row has in `exp_narrow`: the bits are those of a row.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import UNBIAS32, exp2_line32, power_of_two
from hotmax._kernels.compiling import inline, kernel
from hotmax._kernels.narrow import (
    PART,
    in_two32,
    is_narrow,
    line32,
    peak_of,
    power_of,
    scaled,
    unit_of,
)
from hotmax._kernels.places import borrowed, fence, prefetch
from hotmax._kernels.vectors import LINE, WIDTH, load_line, maximum, store, stream, widened

STRIP = 512  # columns at a time
PHASES = LINE  # sums that a row has
FIRST = 16  # rows that tell k
REACH = 48  # how far, in powers of two, a column may rise above its first rows

# What is known of each column, in rows of one array.
TOP, BEGUN, ORIGIN, INVERSE, INVERSE_LOW, PEAK, SHARE, FACTS = range(8)


@inline
def raise_tops(x, facts, start, stop):
    """facts[TOP] = the largest of each column so far and x[start:stop]."""
    for i in range(start, stop):
        for j in range(0, x.shape[1], LINE):
            store(facts[TOP], j, maximum(load_line(x[i], j), load_line(facts[TOP], j)))


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
    """Each column's exponentials to its sums, and its maximum to facts[TOP]."""
    n = x.shape[0]
    for i in range(n):
        row, upcoming, total = x[i], x[min(i + 1, n - 1)], sums[phase_of(i, n)]
        for j in range(0, x.shape[1], LINE):
            prefetch(upcoming, j)
            v = load_line(row, j)
            # the new entry first: else the compiler stores with a mask, for nearly half of the time
            store(facts[TOP], j, maximum(v, load_line(facts[TOP], j)))
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
def probability(v, facts, j, slope, slope_low):
    constants = (
        load_line(facts[INVERSE], j),
        load_line(facts[INVERSE_LOW], j),
        load_line(facts[PEAK], j),
        load_line(facts[SHARE], j),
    )
    return scaled(exponential(v, facts, j, slope, slope_low), constants)


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

    `facts` has room for FACTS rows and `sums` for PHASES. out may be x. If it is streamed, each of
    its rows must lie at a cache line.
    """
    x, out, facts, sums = borrowed(x), borrowed(out), borrowed(facts), borrowed(sums)
    n, columns = x.shape
    if n > PART or not 2.0**-90 < temperature < 2.0**90:
        return False
    facts[TOP, :] = -np.inf
    sums[:, :] = 0.0
    raise_tops(x, facts, 0, min(FIRST, n))
    slope, slope_low = np.float32(0.0), np.float32(0.0)
    for j in range(columns):
        m = np.float64(facts[TOP, j])
        if not (abs(m) < np.inf and is_narrow(m, temperature)):
            return False
        facts[BEGUN, j] = power_of(m, temperature)
        slope, slope_low, facts[ORIGIN, j] = line32(m, temperature)
    add_exponentials(x, facts, slope, slope_low, sums)
    for j in range(columns):
        m = np.float64(facts[TOP, j])
        rise = power_of(m, temperature) - facts[BEGUN, j]
        if not (abs(m) < np.inf and is_narrow(m, temperature) and rise < REACH):
            return False
        line = line32(m, temperature)
        peak = peak_of(m, temperature, line)
        unit = unit_of(m, temperature) / UNBIAS32
        total = sum_of_phases(sums, j) * power_of_two(-rise)
        total += unit - np.float64(peak)
        facts[ORIGIN, j] = line[2]
        facts[INVERSE, j], facts[INVERSE_LOW, j] = in_two32(1.0 / total)
        facts[PEAK, j], facts[SHARE, j] = peak, np.float32(unit / total)
    write_columns(x, out, facts, slope, slope_low, streamed)
    fence()
    return True
