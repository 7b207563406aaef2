"""float64 rows, up to GROUP at a time: softmax, log_softmax, logsumexp and smoothmax.

The steps are those of `grouped`. exp(x / T) is 2**(beta * x), with beta = log2(e) / T in
double-double, computed relative to 2**k, where k is the integer nearest to beta * max(x): an fma
leaves beta * x - k with a single rounding, so that no difference x - max(x) is needed. Sums are
double-double.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    UNBIAS64,
    exp2_biased64,
)
from hotmax._kernels.numeric.double_double import (
    dd_div,
    dd_mul,
    dd_reciprocal,
    two_sum,
)
from hotmax._kernels.simd.memory import borrowed, fence, of_row, prefetch, stack_array
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    choose,
    entry,
    fma,
    load,
    load_partial,
    splat,
    store,
    store_partial,
    transposed_square,
)
from hotmax._kernels.simd.writing import write_mapped
from hotmax._kernels.softmax.float32 import larger, smaller
from hotmax._kernels.softmax.group64 import (
    GROUP64_FIELDS,
    fits_float64,
    group64_of,
    set_constants64,
    set_temperatures64,
)
from hotmax._kernels.softmax.grouped import GROUP
from hotmax._kernels.softmax.limits import count_equal
from hotmax._kernels.softmax.logs import log1p_vector_parts
from hotmax._kernels.softmax.rows import log_softmax_row, logsumexp_row, smoothmax_row, softmax_row

BUFFER = 4096  # exponentials of a group that stay in the first-level cache
NEAR_ENTRIES = 1 << 15  # entries of a group that stay in the second-level cache
ONE_HOT64 = 2.0**-40  # the share below the maximum that is too small to be told from the sum


@kernel
def two_largest_float64(x, sign, tops, seconds, at):
    """Store the two largest of every GROUP-th entry of sign * x; a nan may be overlooked."""
    none = splat(-np.inf)
    a, b, c, d = none, none, none, none  # largest and second largest, of two chains
    most = x.size // LINE * LINE
    for i in range(0, most, LINE):
        v, w = sign * load(x, i), sign * load(x, i + WIDTH)
        c, a = larger(smaller(a, v), c), larger(v, a)
        d, b = larger(smaller(b, w), d), larger(w, b)
    for i in range(most, x.size, WIDTH):
        v = sign * load_partial(x, i, x.size - i, sign * -np.inf)
        c, a = larger(smaller(a, v), c), larger(v, a)
    store(tops, at, larger(a, b))
    store(seconds, at, larger(larger(c, d), smaller(a, b)))


@inline
def begin_group64(x, temperature, start, stop, first, most, group):
    """count: the maxima and constants of up to `most` rows from `first` on."""
    count = min(most, stop - first)
    if first == start or temperature.size > 1:
        set_temperatures64(group, temperature, first, stop)
    for g in range(count):
        two_largest_float64(x[first + g], group.signs[g], group.lanes, group.lane_rests, g * GROUP)
    tops = transposed_square(group.lanes, 0, GROUP)
    seconds = transposed_square(group.lane_rests, 0, GROUP)
    top, second = tops[0], seconds[0]
    for k in range(1, GROUP):
        second = larger(larger(smaller(top, tops[k]), second), seconds[k])
        top = larger(tops[k], top)
    store(group.tops, 0, top)
    store(group.seconds, 0, second)
    for g in range(GROUP):
        fits = g < count and fits_float64(group.tops[g], of_row(temperature, first + g))
        group.special[g] = 0.0 if fits else 1.0
        if not fits:
            group.tops[g] = 0.0
    set_constants64(group)
    return count


@inline
def add_exponentials(v, line, sums):
    """(the sums plus the exponentials of v, the exponentials)."""
    beta, beta_lo, origin = line
    e = exp2_biased64(v, beta, beta_lo, origin)
    total, carry = two_sum(sums[0], e)
    return (total, sums[1] + carry), e


@inline
def add_lanes64(lanes, rests):
    """The sum of GROUP double-double numbers of each row."""
    totals, los = transposed_square(lanes, 0, GROUP), transposed_square(rests, 0, GROUP)
    hi, lo = totals[0], los[0]
    for k in range(1, GROUP):
        hi, carry = two_sum(hi, totals[k])
        lo = lo + (carry + los[k])
    return two_sum(hi, lo)


@inline
def sum_exps64(x, exps, line, upcoming):
    """The sums of every GROUP-th exponential of a row, which are kept in exps if not None."""
    absent = math.copysign(np.inf, -line[0])
    near = splat(0.0), splat(0.0)
    far = splat(0.0), splat(0.0)
    whole = x.size // LINE * LINE
    for i in range(0, whole, LINE):
        prefetch(upcoming, i)
        prefetch(upcoming, i + WIDTH)
        near, e = add_exponentials(load(x, i), line, near)
        far, f = add_exponentials(load(x, i + WIDTH), line, far)
        if exps is not None:
            store(exps, i, e)
            store(exps, i + WIDTH, f)
    for i in range(whole, x.size, WIDTH):
        near, e = add_exponentials(load_partial(x, i, x.size - i, absent), line, near)
        if exps is not None:
            store_partial(exps, i, x.size - i, e)
    total, carry = two_sum(near[0], far[0])
    return total, carry + (near[1] + far[1])


@inline
def line_of(group, g):
    """The arguments of exp2_biased64."""
    return group.betas[g], group.beta_los[g], group.origins[g]


@inline
def find_sums64(x, exps, first, count, stop, group):
    """The sums and ties of all rows; a row with a nan is special."""
    n = x.shape[1]
    for g in range(count):
        r = first + g
        upcoming = x[min(r + count, stop - 1)]
        if exps is not None:
            sums = sum_exps64(x[r], exps[g * n : (g + 1) * n], line_of(group, g), upcoming)
        else:
            sums = sum_exps64(x[r], None, line_of(group, g), upcoming)
        store(group.lanes, g * GROUP, sums[0])
        store(group.lane_rests, g * GROUP, sums[1])
    total, lo = add_lanes64(group.lanes, group.lane_rests)
    store(group.sums, 0, total)
    store(group.sum_los, 0, lo)
    store(group.ties, 0, splat(1.0))
    for g in range(count):
        if group.sums[g] != group.sums[g]:
            group.special[g] = 1.0
        elif group.seconds[g] == group.tops[g] and group.special[g] == 0.0:
            group.ties[g] = count_equal(x[first + g], group.signs[g], group.tops[g])


@kernel
def sum_below64(x, line, m):
    """The sum of the exponentials of all entries but those that are equal to m."""
    beta, beta_lo, origin = line
    sums = splat(0.0), splat(0.0)
    for i in range(0, x.size, WIDTH):
        v = load_partial(x, i, x.size - i, m)
        e = choose(v == m, 0.0, exp2_biased64(v, beta, beta_lo, origin))
        total, carry = two_sum(sums[0], e)
        sums = total, sums[1] + carry
    hi, lo = 0.0, 0.0
    for i in range(WIDTH):
        hi, carry = two_sum(hi, entry(sums[0], i))
        lo += carry + entry(sums[1], i)
    return two_sum(hi, lo)


@inline
def find_logs64(x, first, count, group):
    """log(ties + below), with below in units of the largest exponential."""
    ties, peaks = load(group.ties, 0), load(group.peaks, 0)
    product = ties * peaks
    below, carry = two_sum(load(group.sums, 0), -product)
    carry = carry + load(group.sum_los, 0) - fma(ties, peaks, -product)
    store(group.logs, 0, below)
    store(group.log_los, 0, carry)
    for g in range(count):
        if group.logs[g] < ONE_HOT64 * group.sums[g] and group.special[g] == 0.0:
            m = group.signs[g] * group.tops[g]
            sums = sum_below64(x[first + g], line_of(group, g), m)
            group.logs[g], group.log_los[g] = sums
    inverse, inverse_lo = dd_reciprocal(load(group.units, 0), load(group.unit_los, 0))
    s, s_lo = dd_mul(load(group.logs, 0), load(group.log_los, 0), inverse, inverse_lo)
    s, carry = two_sum(ties - 1.0, s)
    hi, lo = log1p_vector_parts(s, carry + s_lo)
    store(group.logs, 0, hi)
    store(group.log_los, 0, lo)


@inline
def probability64(e, constants):
    """e / total; for an entry at the maximum exactly its share."""
    inverse, inverse_lo, peak, share = constants
    return choose(e == peak, share, fma(e, inverse, e * inverse_lo) * UNBIAS64)


@inline
def find_inverses64(group):
    """1 / sum, where the largest terms count without their rounding error."""
    units, unit_los = load(group.units, 0), load(group.unit_los, 0)
    gap = (units - load(group.peaks, 0)) + unit_los
    total, carry = two_sum(load(group.sums, 0), load(group.ties, 0) * gap)
    total, carry = two_sum(total, carry + load(group.sum_los, 0))
    inverse, inverse_lo = dd_reciprocal(total * UNBIAS64, carry * UNBIAS64)
    share, share_lo = dd_mul(units, unit_los, inverse, inverse_lo)
    store(group.logs, 0, inverse)
    store(group.log_los, 0, inverse_lo)
    store(group.sums, 0, (share + share_lo) * UNBIAS64)


@kernel
def softmax_grouped64(x, out, temperature, start, stop, streamed):
    n = x.shape[1]
    if n <= BUFFER:
        softmax_groups64(
            x, out, temperature, start, stop, streamed, stack_array(BUFFER, np.float64)
        )
    else:
        softmax_groups64(x, out, temperature, start, stop, streamed, np.empty(n))


@kernel
def softmax_groups64(x, out, temperature, start, stop, streamed, exps):
    n, exps = x.shape[1], borrowed(exps)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    most = max(1, min(GROUP, exps.size // n))
    for first in range(start, stop, most):
        count = begin_group64(x, temperature, start, stop, first, most, group)
        find_sums64(x, exps, first, count, stop, group)
        find_inverses64(group)
        for g in range(count):
            r = first + g
            if group.special[g] != 0.0:
                softmax_row(x[r], out[r], of_row(temperature, r), None, x[r], streamed)
            else:
                constants = group.logs[g], group.log_los[g], group.peaks[g], group.sums[g]
                row = exps[g * n : (g + 1) * n]
                write_mapped(probability64, row, out[r], constants, streamed)
    fence()


@inline
def log_probability64(x, constants):
    """x / T - (m / T + log_sum), each in double-double; exact at the maximum."""
    beta, beta_lo, offset, offset_lo, m, top = constants
    r = fma(x, beta, -offset) + fma(x, beta_lo, -offset_lo)
    return choose(x == m, top, choose(r == r, r, -np.inf))  # nan: an absent class


@inline
def add_logs(m, m_lo, log_sum, log_sum_lo):
    hi, carry = two_sum(m, log_sum)
    return hi, carry + (m_lo + log_sum_lo)


@kernel
def log_softmax_grouped64(x, out, temperature, start, stop, streamed):
    n = x.shape[1]
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    most = max(1, min(GROUP, NEAR_ENTRIES // n))
    for first in range(start, stop, most):
        count = begin_group64(x, temperature, start, stop, first, most, group)
        find_sums64(x, None, first, count, stop, group)
        find_logs64(x, first, count, group)
        for g in range(count):
            r = first + g
            t = of_row(temperature, r)
            if group.special[g] != 0.0:
                log_softmax_row(x[r], out[r], t, streamed)
                continue
            beta, beta_lo = dd_div(1.0, 0.0, t)
            q, q_lo = dd_div(group.tops[g], 0.0, abs(t))
            offset, offset_lo = add_logs(q, q_lo, group.logs[g], group.log_los[g])
            constants = (
                beta,
                beta_lo,
                offset,
                offset_lo,
                group.signs[g] * group.tops[g],
                0.0 - group.logs[g],
            )
            write_mapped(log_probability64, x[r], out[r], constants, streamed)
    fence()


@inline
def reduce_grouped64(number_of, row_kernel, x, out, temperature, start, stop, group):
    """out[r] = number_of(maximum, |T|, sign of T, log of the sum in units of the largest term)."""
    most = max(1, min(GROUP, NEAR_ENTRIES // x.shape[1]))
    for first in range(start, stop, most):
        count = begin_group64(x, temperature, start, stop, first, most, group)
        find_sums64(x, None, first, count, stop, group)
        find_logs64(x, first, count, group)
        for g in range(count):
            r = first + g
            t = of_row(temperature, r)
            if group.special[g] != 0.0:
                out[r] = row_kernel(x[r], t)
            else:
                sign, log_sum = group.signs[g], (group.logs[g], group.log_los[g])
                out[r] = number_of(group.tops[g], sign * t, sign, log_sum)


@inline
def logsumexp_number64(m, size, sign, log_sum):
    q, q_lo = dd_div(m, 0.0, size)
    hi, lo = add_logs(q, q_lo, *log_sum)
    return hi + lo


@inline
def smoothmax_number64(m, size, sign, log_sum):
    extra, extra_lo = dd_mul(*log_sum, size, 0.0)
    hi, lo = add_logs(m, 0.0, extra, extra_lo)
    return sign * (hi + lo)


@kernel
def logsumexp_grouped64(x, out, temperature, start, stop, streamed):
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    reduce_grouped64(logsumexp_number64, logsumexp_row, x, out, temperature, start, stop, group)


@kernel
def smoothmax_grouped64(x, out, temperature, start, stop, streamed):
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    reduce_grouped64(smoothmax_number64, smoothmax_row, x, out, temperature, start, stop, group)
