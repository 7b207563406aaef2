"""float32 rows of medium length, GROUP rows at a time: softmax, log_softmax, logsumexp, smoothmax.

    maximum     the two largest entries of each row
    constants   of the exponentials, for all rows of the group in one vector
    sums        of the exponentials of each row
    finish      the inverse of the sum or its logarithm, again in vectors
    write       the results of each row

Each step depends on the last result of the previous one. To hide that latency, a step is done for
all rows of a group before the next, and what there is one of for each row is computed in vectors
over the rows. The exponentials are those of `float32`, relative to a power of two.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    ROUND32,
    ROUND64,
    UNBIAS32,
    exp2_33_bits,
    exp2_biased32,
)
from hotmax._kernels.numeric.double_double import float32_pair
from hotmax._kernels.simd.memory import fence, of_row, prefetch, stack_array
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    choose,
    fma,
    halves,
    horizontal_sum,
    load,
    load_line,
    load_partial,
    splat,
    splat_line,
    store,
    store_partial,
    to_float64,
    transposed_square,
)
from hotmax._kernels.simd.writing import write_mapped
from hotmax._kernels.softmax.float32 import (
    add_line,
    count_ties,
    fits_float32,
    larger,
    probability_of_exp,
    smaller,
)
from hotmax._kernels.softmax.logs import log1p_vector
from hotmax._kernels.softmax.rows import (
    log_softmax_row,
    logsumexp_row,
    smoothmax_row,
    softmax_row,
)

GROUP = WIDTH  # rows computed together
LONGEST_GROUPED = 1023  # classes of the longest row of softmax: a group's exponentials stay in L1
STEP32 = -(-LONGEST_GROUPED // LINE) * LINE
EXPS = GROUP * STEP32
GROUP_FIELDS, GROUP_SINGLES = (9 + GROUP) * GROUP, (4 + 2 * GROUP) * GROUP
ONE_HOT = 2.0**-20  # the share below the maximum that is too small to be told from the sum


class Group(NamedTuple):
    """What there is one of for each row of a group."""

    special: Any  # 1: not computed here, but by the kernels of `rows`; else 0
    sizes: Any  # log2(e) / |T|
    signs: Any  # of T
    tops: Any  # the maximum of sign * x
    seconds: Any  # the second largest entry
    betas: Any  # log2(e) / T in float32, and what that leaves out
    beta_los: Any
    origins: Any  # see exp2_unclipped32
    peaks: Any  # the exponential of the maximum, as a float32 number
    units: Any  # the same without that rounding
    sums: Any  # of the exponentials
    ties: Any  # how many entries are equal to the maximum
    inverses: Any  # 1 / T
    lane_sums: Any  # of each row: sums of every GROUP-th exponential
    lane_tops: Any  # of each row: the largest of every GROUP-th entry
    lane_seconds: Any  # of each row: the second largest of these


@inline
def group_of(numbers, singles):
    """A group in scratch memory: GROUP_FIELDS float64 numbers, and GROUP_SINGLES of float32.

    What is stored row by row begins at 0: arithmetic is slow on subnormal numbers, which may lie
    where a group of fewer than GROUP rows stores nothing.
    """
    numbers[9 * GROUP :] = 0.0
    singles[4 * GROUP :] = 0.0
    return Group(
        numbers[:GROUP],
        numbers[GROUP : 2 * GROUP],
        numbers[2 * GROUP : 3 * GROUP],
        numbers[3 * GROUP : 4 * GROUP],
        numbers[4 * GROUP : 5 * GROUP],
        singles[:GROUP],
        singles[GROUP : 2 * GROUP],
        singles[2 * GROUP : 3 * GROUP],
        singles[3 * GROUP : 4 * GROUP],
        numbers[5 * GROUP : 6 * GROUP],
        numbers[6 * GROUP : 7 * GROUP],
        numbers[7 * GROUP : 8 * GROUP],
        numbers[8 * GROUP : 9 * GROUP],
        numbers[9 * GROUP :],
        singles[4 * GROUP : (4 + GROUP) * GROUP],
        singles[(4 + GROUP) * GROUP :],
    )


@inline
def set_temperatures(group, temperature, first, stop):
    for g in range(GROUP):
        if (
            g > 0 and temperature.size == 1
        ):  # the divisions take time that a small call would notice
            group.sizes[g], group.signs[g] = group.sizes[0], group.signs[0]
            group.inverses[g] = group.inverses[0]
            group.betas[g], group.beta_los[g] = group.betas[0], group.beta_los[0]
        else:
            t = of_row(temperature, min(first + g, stop - 1))
            group.sizes[g], group.signs[g] = LOG2E / abs(t), math.copysign(1.0, t)
            group.inverses[g] = 1.0 / t
            group.betas[g], group.beta_los[g] = float32_pair(LOG2E / t)


@kernel
def two_largest_lanes(x, sign, tops, seconds, at):
    """Store the two largest of every GROUP-th entry of sign * x; a nan may be overlooked."""
    none = splat_line(np.float32(-np.inf))
    a, b, c, d = none, none, none, none  # largest and second largest, of two chains
    most = x.size // (2 * LINE) * (2 * LINE)
    for i in range(0, most, 2 * LINE):
        v, w = sign * load_line(x, i), sign * load_line(x, i + LINE)
        c, a = larger(smaller(a, v), c), larger(v, a)
        d, b = larger(smaller(b, w), d), larger(w, b)
    whole = x.size // LINE * LINE
    for i in range(most, whole, LINE):
        v = sign * load_line(x, i)
        c, a = larger(smaller(a, v), c), larger(v, a)
    top, second = larger(a, b), larger(larger(c, d), smaller(a, b))
    near, far = halves(top)
    rest, more = halves(second)
    top, second = larger(near, far), larger(larger(rest, more), smaller(near, far))
    for i in range(whole, x.size, WIDTH):
        v = sign * load_partial(x, i, x.size - i, sign * np.float32(-np.inf))
        second, top = larger(smaller(top, v), second), larger(v, top)
    store(tops, at, top)
    store(seconds, at, second)


@inline
def find_maxima(x, temperature, first, count, group):
    for g in range(count):
        sign = np.float32(group.signs[g])
        two_largest_lanes(x[first + g], sign, group.lane_tops, group.lane_seconds, g * GROUP)
    tops = transposed_square(group.lane_tops, 0, GROUP)
    seconds = transposed_square(group.lane_seconds, 0, GROUP)
    top, second = tops[0], seconds[0]
    for k in range(1, GROUP):
        second = larger(larger(smaller(top, tops[k]), second), seconds[k])
        top = larger(tops[k], top)
    store(group.tops, 0, to_float64(top))
    store(group.seconds, 0, to_float64(second))
    for g in range(GROUP):
        fits = g < count and fits_float32(group.tops[g], of_row(temperature, first + g))
        group.special[g] = 0.0 if fits else 1.0
        if not fits:
            group.tops[g] = 0.0


@inline
def set_constants(group):
    """The constants of the exponentials of all rows, once their maxima are known."""
    y = load(group.tops, 0) * load(group.sizes, 0)
    k = 2.0 * ((0.5 * y + ROUND64) - ROUND64)
    store(group.units, 0, exp2_33_bits(y - k))
    store(group.origins, 0, np.float64(ROUND32) - k)
    store(group.peaks, 0, load(group.signs, 0) * load(group.tops, 0))
    e = exp2_biased32(
        load(group.peaks, 0), load(group.betas, 0), load(group.beta_los, 0), load(group.origins, 0)
    )
    store(group.peaks, 0, e)


@inline
def constants_of_row(group, g):
    """The arguments of exp2_biased32."""
    return group.betas[g], group.beta_los[g], group.origins[g]


@inline
def sum_exps(x, exps, line, upcoming):
    """The sums of every GROUP-th exponential of a row, which are kept in exps if not None."""
    beta, beta_lo, origin = line
    sums = splat(0.0), splat(0.0)
    whole = x.size // LINE * LINE
    for i in range(0, whole, LINE):
        prefetch(upcoming, i)
        e = exp2_biased32(load_line(x, i), beta, beta_lo, origin)
        if exps is not None:
            store(exps, i, e)
        sums = add_line(e, sums)
    first, second = sums
    absent = np.float32(math.copysign(np.inf, -beta))
    for i in range(whole, x.size, WIDTH):
        e = exp2_biased32(load_partial(x, i, x.size - i, absent), beta, beta_lo, origin)
        if exps is not None:
            store_partial(exps, i, x.size - i, e)
        first = first + to_float64(e)
    return first + second


@inline
def add_lanes(lanes):
    """The sum of GROUP numbers of each row, in the order of `horizontal_sum`."""
    v = transposed_square(lanes, 0, GROUP)
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))


@inline
def find_sums(x, exps, first, count, stop, group):
    """The sums and ties of all rows; a row with a nan is special."""
    for g in range(count):
        r = first + g
        upcoming = x[min(r + GROUP, stop - 1)]
        line = constants_of_row(group, g)
        if exps is not None:
            store(group.lane_sums, g * GROUP, sum_exps(x[r], exps[g * STEP32 :], line, upcoming))
        else:
            store(group.lane_sums, g * GROUP, sum_exps(x[r], None, line, upcoming))
    store(group.sums, 0, add_lanes(group.lane_sums))
    store(group.ties, 0, splat(1.0))
    for g in range(count):
        if group.sums[g] != group.sums[g]:
            group.special[g] = 1.0
        elif group.seconds[g] == group.tops[g] and group.special[g] == 0.0:
            m = np.float32(group.signs[g] * group.tops[g])
            group.ties[g] = count_ties(x[first + g], m)


@kernel
def sum_below(x, line, m):
    """The sum of the exponentials of all entries but those that are equal to m."""
    beta, beta_lo, origin = line
    total = splat(0.0)
    for i in range(0, x.size, WIDTH):
        v = load_partial(x, i, x.size - i, m)
        e = exp2_biased32(v, beta, beta_lo, origin)
        total = total + to_float64(choose(v == m, np.float32(0.0), e))
    return horizontal_sum(total)


@inline
def find_below(x, first, count, group):
    """Turn the sums into those below the maximum, in units of the largest exponential."""
    for g in range(count):
        total = group.sums[g]
        below = total - group.ties[g] * np.float64(group.peaks[g])
        if below < ONE_HOT * total and group.special[g] == 0.0:
            m = np.float32(group.signs[g] * group.tops[g])
            below = sum_below(x[first + g], constants_of_row(group, g), m)
        group.sums[g] = below
    store(group.sums, 0, load(group.sums, 0) * UNBIAS32 / load(group.units, 0))


@inline
def begin_group(x, temperature, start, stop, first, group):
    """(count): the maxima and constants of the rows from `first` on."""
    count = min(GROUP, stop - first)
    if first == start or temperature.size > 1:
        set_temperatures(group, temperature, first, stop)
    find_maxima(x, temperature, first, count, group)
    set_constants(group)
    return count


@kernel
def softmax_grouped(x, out, temperature, start, stop, streamed):
    n = x.shape[1]
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    exps = stack_array(EXPS, np.float32)
    inverses, inverse_los = stack_array(GROUP, np.float32), stack_array(GROUP, np.float32)
    shares, rest = stack_array(GROUP, np.float32), stack_array(GROUP, np.float64)
    for first in range(start, stop, GROUP):
        count = begin_group(x, temperature, start, stop, first, group)
        find_sums(x, exps, first, count, stop, group)
        # The largest terms without their rounding error: the sum may consist of them alone.
        units = load(group.units, 0) * (1.0 / UNBIAS32)
        gap = units - to_float64(load(group.peaks, 0))
        total = load(group.sums, 0) + load(group.ties, 0) * gap
        store(shares, 0, units / total)
        inverse = 1.0 / (total * UNBIAS32)
        store(inverses, 0, inverse)
        store(rest, 0, inverse - to_float64(load(inverses, 0)))
        store(inverse_los, 0, load(rest, 0))
        for g in range(count):
            r = first + g
            if group.special[g] != 0.0:
                t = of_row(temperature, r)
                softmax_row(x[r], out[r], t, exps[g * STEP32 : (g + 1) * STEP32], x[r], streamed)
            else:
                factors = inverses[g], inverse_los[g], group.peaks[g], shares[g]
                row = exps[g * STEP32 : g * STEP32 + n]
                write_mapped(probability_of_exp, row, out[r], factors, streamed)
    fence()


@inline
def log_probability(x, constants):
    """x / T - (m / T + log_sum) in pairs of float32; exact at the maximum."""
    beta, beta_lo, offset, offset_lo, m, top = constants
    r = fma(x, beta, -offset) + fma(x, beta_lo, -offset_lo)
    return choose(x == m, top, choose(r == r, r, np.float32(-np.inf)))  # nan: an absent class


@kernel
def log_softmax_grouped(x, out, temperature, start, stop, streamed):
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    logs = stack_array(GROUP, np.float64)
    for first in range(start, stop, GROUP):
        count = begin_group(x, temperature, start, stop, first, group)
        find_sums(x, None, first, count, stop, group)
        find_below(x, first, count, group)
        store(logs, 0, log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0)))
        for g in range(count):
            r = first + g
            t = of_row(temperature, r)
            if group.special[g] != 0.0:
                log_softmax_row(x[r], out[r], t, streamed)
                continue
            beta, beta_lo = float32_pair(group.inverses[g])
            offset, offset_lo = float32_pair(group.tops[g] * abs(group.inverses[g]) + logs[g])
            m = np.float32(group.signs[g] * group.tops[g])
            constants = beta, beta_lo, offset, offset_lo, m, np.float32(0.0 - logs[g])
            write_mapped(log_probability, x[r], out[r], constants, streamed)
    fence()


@inline
def reduce_grouped(number_of, row_kernel, x, out, temperature, start, stop, group, logs):
    """out[r] = number_of(maximum, log of the sum in units of the largest term, T) of row r."""
    for first in range(start, stop, GROUP):
        count = begin_group(x, temperature, start, stop, first, group)
        find_sums(x, None, first, count, stop, group)
        find_below(x, first, count, group)
        store(logs, 0, log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0)))
        for g in range(count):
            r = first + g
            t = of_row(temperature, r)
            if group.special[g] != 0.0:
                out[r] = row_kernel(x[r], t)
            else:
                out[r] = number_of(group.tops[g], logs[g], t)


@inline
def logsumexp_number(m, log_sum, temperature):
    return m / abs(temperature) + log_sum


@inline
def smoothmax_number(m, log_sum, temperature):
    return math.copysign(1.0, temperature) * (m + abs(temperature) * log_sum)


@kernel
def logsumexp_grouped(x, out, temperature, start, stop, streamed):
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    logs = stack_array(GROUP, np.float64)
    reduce_grouped(logsumexp_number, logsumexp_row, x, out, temperature, start, stop, group, logs)


@kernel
def smoothmax_grouped(x, out, temperature, start, stop, streamed):
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    logs = stack_array(GROUP, np.float64)
    reduce_grouped(smoothmax_number, smoothmax_row, x, out, temperature, start, stop, group, logs)
