"""Short float32 rows, GROUP of them at a time: a vector holds one class of each row.

    load      GROUP rows of x are transposed into a tile: one vector for each class
    sums      ties = #{x == m},  below = sum of exp((x - m) / T) over x < m
    finish    the inverse of the sum, or its logarithm
    store     the tile is transposed back into rows of out

The constants and exponentials are those of `grouped`, here for all rows of a group at once. A row's
bits do not depend on its neighbours, nor on their number.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import UNBIAS32, exp2_biased32
from hotmax._kernels.simd.memory import of_row, stack_array
from hotmax._kernels.simd.vectors import (
    choose,
    fma,
    load,
    splat,
    store,
    store_partial,
    to_float64,
)
from hotmax._kernels.softmax.float32 import fits_float32, larger, probability_of_exp
from hotmax._kernels.softmax.grouped import (
    GROUP,
    GROUP_FIELDS,
    GROUP_SINGLES,
    group_of,
    log_probability,
    set_constants,
    set_temperatures,
)
from hotmax._kernels.softmax.logs import log1p_vector
from hotmax._kernels.softmax.rows import (
    log_softmax_row,
    logsumexp_row,
    smoothmax_row,
    softmax_row,
)
from hotmax._kernels.softmax.short import load_group, store_group

LONGEST_TILED = 63  # classes: `grouped` is faster beyond, most of all for fewer than GROUP rows
TILE, COPY, SINGLES = LONGEST_TILED * GROUP, 2 * LONGEST_TILED * GROUP, 5 * GROUP


@inline
def begin_tile(x, temperature, start, stop, first, copied, tile, group):
    """(width, all plain, m): load up to GROUP rows, and find their maxima and constants.

    m: the entries at the maximum, negated below temperature 0.
    """
    n, width = x.shape[1], min(GROUP, stop - first)
    if first == start or temperature.size > 1:
        set_temperatures(group, temperature, first, stop)
    load_group(x.reshape(-1), first, width, n, copied, tile)
    store(group.peaks, 0, load(group.signs, 0))
    sign = load(group.peaks, 0)
    top = sign * load(tile, 0)
    for c in range(1, n):
        top = larger(sign * load(tile, c * GROUP), top)
    store(group.tops, 0, to_float64(top))
    plain = True
    for g in range(GROUP):
        t = of_row(temperature, min(first + g, stop - 1))
        fits = fits_float32(group.tops[g], t)
        group.special[g] = 0.0 if fits else 1.0
        if not fits:
            group.tops[g] = 0.0
            plain = plain and g >= width
    set_constants(group)
    return width, plain, sign * top


@inline
def constants_of_group(group):
    """The arguments of exp2_biased32, for all rows."""
    return load(group.betas, 0), load(group.beta_los, 0), load(group.origins, 0)


@inline
def find_tile_sums(tile, n, m, group):
    """Ties, and the sum below the maximum in units of the largest exponential."""
    beta, beta_lo, origin = constants_of_group(group)
    zero, one = np.float32(0.0), np.float32(1.0)
    ties, below = splat(zero), splat(0.0)
    for c in range(n):
        v = load(tile, c * GROUP)
        e = exp2_biased32(v, beta, beta_lo, origin)
        at_top = v == m
        ties = ties + choose(at_top, one, zero)
        below = below + to_float64(choose(at_top, zero, e))
    store(group.ties, 0, to_float64(ties))
    store(group.sums, 0, below * UNBIAS32 / load(group.units, 0))


@inline
def is_special(group, g):
    """Whether a row is computed by the kernels of `rows`: it is out of range, or has a nan."""
    return group.special[g] != 0.0 or group.sums[g] != group.sums[g]


@kernel
def softmax_tiled(x, out, temperature, start, stop, streamed):
    n, target = x.shape[1], out.reshape(-1)
    tile, copied = stack_array(TILE, np.float32), stack_array(COPY, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    singles, row = stack_array(SINGLES, np.float32), stack_array(LONGEST_TILED, np.float32)
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile(x, temperature, start, stop, first, copied, tile, group)
        beta, beta_lo, origin = constants_of_group(group)
        zero, one = np.float32(0.0), np.float32(1.0)
        ties, total = splat(zero), splat(0.0)
        for c in range(n):
            v = load(tile, c * GROUP)
            e = exp2_biased32(v, beta, beta_lo, origin)
            ties = ties + choose(v == m, one, zero)
            total = total + to_float64(e)
            store(tile, c * GROUP, e)
        # The largest terms without their rounding error: the sum may consist of them alone.
        units, peak = load(group.units, 0) * (1.0 / UNBIAS32), load(group.peaks, 0)
        total = fma(to_float64(ties), units - to_float64(peak), total)
        store(group.sums, 0, total)
        inverse = 1.0 / (total * UNBIAS32)
        store(singles, 0, inverse)
        store(singles, GROUP, inverse - to_float64(load(singles, 0)))
        store(singles, 2 * GROUP, units / total)
        factors = load(singles, 0), load(singles, GROUP), peak, load(singles, 2 * GROUP)
        for c in range(n):
            store(tile, c * GROUP, probability_of_exp(load(tile, c * GROUP), factors))
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special(group, g):
                    t = of_row(temperature, first + g)
                    softmax_row(x[first + g], row[:n], t, None, x[first + g], False)
                    for c in range(n):
                        tile[c * GROUP + g] = row[c]
        store_group(tile, n, copied, target, first, width)


@inline
def log_constants(log_sum, m, group, singles):
    """The constants of `log_probability` for all rows."""
    inverse = load(group.inverses, 0)
    offset = fma(load(group.signs, 0) * inverse, load(group.tops, 0), log_sum)
    store(singles, 0, inverse)
    store(singles, GROUP, inverse - to_float64(load(singles, 0)))
    store(singles, 2 * GROUP, offset)
    store(singles, 3 * GROUP, offset - to_float64(load(singles, 2 * GROUP)))
    store(singles, 4 * GROUP, 0.0 - log_sum)  # 0, not -0, for a certain class
    return (
        load(singles, 0),
        load(singles, GROUP),
        load(singles, 2 * GROUP),
        load(singles, 3 * GROUP),
        m,
        load(singles, 4 * GROUP),
    )


@kernel
def log_softmax_tiled(x, out, temperature, start, stop, streamed):
    n, target = x.shape[1], out.reshape(-1)
    tile, copied = stack_array(TILE, np.float32), stack_array(COPY, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    singles, row = stack_array(SINGLES, np.float32), stack_array(LONGEST_TILED, np.float32)
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile(x, temperature, start, stop, first, copied, tile, group)
        find_tile_sums(tile, n, m, group)
        log_sum = log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0))
        constants = log_constants(log_sum, m, group, singles)
        for c in range(n):
            store(tile, c * GROUP, log_probability(load(tile, c * GROUP), constants))
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special(group, g):
                    log_softmax_row(x[first + g], row[:n], of_row(temperature, first + g), False)
                    for c in range(n):
                        tile[c * GROUP + g] = row[c]
        store_group(tile, n, copied, target, first, width)


@inline
def reduce_tiled(number_of, row_kernel, x, out, temperature, start, stop, scratch):
    """out[r] = number_of(maximum, log of the sum in units of the largest term, group) of row r."""
    tile, copied, group = scratch
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile(x, temperature, start, stop, first, copied, tile, group)
        find_tile_sums(tile, x.shape[1], m, group)
        log_sum = log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0))
        store_partial(out, first, width, number_of(log_sum, group))
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special(group, g):
                    out[first + g] = row_kernel(x[first + g], of_row(temperature, first + g))


@inline
def logsumexp_numbers(log_sum, group):
    return fma(load(group.signs, 0) * load(group.inverses, 0), load(group.tops, 0), log_sum)


@inline
def smoothmax_numbers(log_sum, group):
    sign = load(group.signs, 0)
    return sign * fma(log_sum, sign / load(group.inverses, 0), load(group.tops, 0))


@kernel
def logsumexp_tiled(x, out, temperature, start, stop, streamed):
    tile, copied = stack_array(TILE, np.float32), stack_array(COPY, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    scratch = tile, copied, group
    reduce_tiled(logsumexp_numbers, logsumexp_row, x, out, temperature, start, stop, scratch)


@kernel
def smoothmax_tiled(x, out, temperature, start, stop, streamed):
    tile, copied = stack_array(TILE, np.float32), stack_array(COPY, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    scratch = tile, copied, group
    reduce_tiled(smoothmax_numbers, smoothmax_row, x, out, temperature, start, stop, scratch)
