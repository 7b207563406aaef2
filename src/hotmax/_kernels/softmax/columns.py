"""softmax of float32 columns of a matrix: strided rows that are neighbours in memory.

    sums     e = exp(x / T) relative to 2**k, with k from the first rows, summed column by column
    write    the same relative to the column's maximum, times 1 / sum

The matrix is read twice, in the order of memory. An even power of two changes no digit, and each
column has the parts that a row has in `overlapped`, each with the LINE partial sums of `exp_chunk`:
the bits are those of a contiguous row.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import exp2_biased32, power_of_two
from hotmax._kernels.simd.memory import borrowed, fence, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    choose,
    load_line,
    maximum,
    store,
    stream,
    to_float64,
)
from hotmax._kernels.softmax.float32 import (
    exp2_constants,
    factors_of,
    fits_float32,
    larger,
    merge_largest,
    probability_of_exp,
    reference_exponent,
    smaller,
    store_factors,
)
from hotmax._kernels.softmax.overlapped import LONGEST_BUFFERED, REACH, ROW_PART, bounds

STRIP = 512  # columns computed together
PHASES = LINE  # partial sums of a row
SAMPLED_ROWS = 16  # rows that k is taken from

# What is known of each column, in rows of one array: the two largest entries of the current part
# and its reference exponent; the same of all parts so far, the number of ties, and the origin of
# exp2. The factors of `probability_of_exp` follow.
TOP, SECOND, BEGUN, LARGEST, NEXT, POWER, TIES, ORIGIN, FACTS = range(9)
TOTAL, SUMS = PHASES, PHASES + 1  # the sum of all parts so far, after the partial sums of this part


@inline
def begin_part(x, facts, temperature):
    """The reference exponent of each column, from its first rows; False if one is special."""
    facts[TOP, :] = -np.inf
    for i in range(min(SAMPLED_ROWS, x.shape[0])):
        for j in range(0, x.shape[1], LINE):
            store(facts[TOP], j, maximum(load_line(x[i], j), load_line(facts[TOP], j)))
    for j in range(x.shape[1]):
        m = np.float64(facts[TOP, j])
        if not fits_float32(m, temperature):
            return False
        facts[BEGUN, j] = reference_exponent(m, temperature)
        facts[ORIGIN, j] = exp2_constants(m, temperature)[2]
        facts[TOP, j] = facts[SECOND, j] = -np.inf
    return True


@inline
def phase_of(i, n):
    """The partial sum that the i-th class of n is added to, as in `exp_chunk`."""
    whole = n // PHASES * PHASES
    return i % PHASES if i < whole else (i - whole) % WIDTH


@inline
def exponential(v, facts, j, beta, beta_lo):
    return exp2_biased32(v, beta, beta_lo, load_line(facts[ORIGIN], j))


@inline
def add_column_exponentials(x, facts, beta, beta_lo, sums):
    """Add each column's exponentials to its sums, and update its two largest entries."""
    n = x.shape[0]
    for i in range(n):
        row, upcoming, total = x[i], x[min(i + 1, n - 1)], sums[phase_of(i, n)]
        for j in range(0, x.shape[1], LINE):
            prefetch(upcoming, j)
            v, largest = load_line(row, j), load_line(facts[TOP], j)
            # Operand order matters: otherwise LLVM emits a masked store, nearly half of the loop.
            store(facts[SECOND], j, larger(smaller(v, largest), load_line(facts[SECOND], j)))
            store(facts[TOP], j, maximum(v, largest))
            e = exponential(v, facts, j, beta, beta_lo)
            store(total, j, load_line(total, j) + to_float64(e))


@inline
def sum_of_phases(sums, j):
    """The sum of the partial sums of column j, in the order of `horizontal_sum`."""
    near = ((sums[0, j] + sums[8, j]) + (sums[4, j] + sums[12, j])) + (
        (sums[2, j] + sums[10, j]) + (sums[6, j] + sums[14, j])
    )
    far = ((sums[1, j] + sums[9, j]) + (sums[5, j] + sums[13, j])) + (
        (sums[3, j] + sums[11, j]) + (sums[7, j] + sums[15, j])
    )
    return near + far


@inline
def end_part(facts, sums, temperature):
    """Add the sums of a part to the total of each column; False if one is special."""
    for j in range(facts.shape[1]):
        m, begun, power = np.float64(facts[TOP, j]), facts[BEGUN, j], facts[POWER, j]
        if not (
            fits_float32(m, temperature) and reference_exponent(m, temperature) - begun <= REACH
        ):
            return False
        higher = max(power, begun)
        before = sums[TOTAL, j] * power_of_two(power - higher)
        sums[TOTAL, j] = before + sum_of_phases(sums, j) * power_of_two(begun - higher)
        facts[POWER, j] = higher
        facts[LARGEST, j], facts[NEXT, j] = merge_largest(
            (facts[LARGEST, j], facts[NEXT, j]), (facts[TOP, j], facts[SECOND, j])
        )
    return True


@inline
def count_ties_of_columns(x, facts):
    """The number of ties in each column; x is read again if there are any."""
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
    """The constants and factors of `write_columns`."""
    for j in range(facts.shape[1]):
        m = np.float64(facts[LARGEST, j])
        total = sums[TOTAL, j] * power_of_two(facts[POWER, j] - reference_exponent(m, temperature))
        facts[ORIGIN, j] = exp2_constants(m, temperature)[2]
        ties = np.float64(facts[TIES, j])
        store_factors(facts[FACTS:], j, factors_of(total, m, ties, temperature))


@inline
def column_probability(v, facts, j, beta, beta_lo):
    factors = (
        load_line(facts[FACTS], j),
        load_line(facts[FACTS + 1], j),
        load_line(facts[FACTS + 2], j),
        load_line(facts[FACTS + 3], j),
    )
    return probability_of_exp(exponential(v, facts, j, beta, beta_lo), factors)


@inline
def write_columns(x, out, facts, beta, beta_lo, streamed):
    n = x.shape[0]
    for i in range(n):
        row, upcoming, target = x[i], x[min(i + 1, n - 1)], out[i]
        for j in range(0, x.shape[1], LINE):
            prefetch(upcoming, j)
            p = column_probability(load_line(row, j), facts, j, beta, beta_lo)
            if streamed:
                stream(target, j, p)
            else:
                store(target, j, p)


@kernel
def softmax_columns(x, out, temperature, facts, sums, streamed):
    """A multiple of LINE columns; False, with nothing written, if one of them is special.

    `facts` has FACTS + FACTORS rows and `sums` has SUMS. out may be x. If streamed, each row of out
    must be aligned to a cache line.
    """
    x, out, facts, sums = borrowed(x), borrowed(out), borrowed(facts), borrowed(sums)
    n = x.shape[0]
    if n > LONGEST_BUFFERED or not 2.0**-90 < temperature < 2.0**90:
        return False
    beta, beta_lo, _ = exp2_constants(0.0, temperature)
    facts[LARGEST, :], facts[NEXT, :], facts[POWER, :] = -np.inf, -np.inf, -np.inf
    sums[TOTAL, :] = 0.0
    for p in range(-(-n // ROW_PART)):
        start, stop = bounds(p, n)
        part = x[start:stop]
        if not begin_part(part, facts, temperature):
            return False
        sums[:PHASES, :] = 0.0
        add_column_exponentials(part, facts, beta, beta_lo, sums)
        if not end_part(facts, sums, temperature):
            return False
    count_ties_of_columns(x, facts)
    scale_columns(facts, sums, temperature)
    write_columns(x, out, facts, beta, beta_lo, streamed)
    fence()
    return True
