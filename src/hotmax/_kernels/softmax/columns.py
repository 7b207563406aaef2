"""Columns of few classes, GROUP of them at a time as they lie: a vector is one class of each.

The steps are those of `tiles` and `tiles64`, whose rows are transposed into what columns are
already, so the bits are the same. `x` and `out` begin at the first column, and classes lie
`strides` apart in each.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import UNBIAS32, exp2_biased32, exp2_biased64
from hotmax._kernels.numeric.double_double import dd_div, two_sum
from hotmax._kernels.simd.memory import of_row, stack_array
from hotmax._kernels.simd.vectors import (
    any_of,
    choose,
    fma,
    load,
    load_partial,
    splat,
    store,
    store_partial,
    to_float64,
)
from hotmax._kernels.softmax.float32 import fits_float32, larger, probability_of_exp
from hotmax._kernels.softmax.group64 import (
    GROUP64_FIELDS,
    fits_float64,
    group64_of,
    set_constants64,
    set_temperatures64,
)
from hotmax._kernels.softmax.grouped import (
    GROUP,
    GROUP_FIELDS,
    GROUP_SINGLES,
    group_of,
    log_probability,
    set_constants,
    set_temperatures,
)
from hotmax._kernels.softmax.grouped64 import (
    add_logs,
    find_inverses64,
    log_probability64,
    logsumexp_number64,
    probability64,
)
from hotmax._kernels.softmax.logs import log1p_vector
from hotmax._kernels.softmax.rows import log_softmax_row, logsumexp_row, softmax_row
from hotmax._kernels.softmax.tiles import (
    LONGEST_TILED,
    SINGLES,
    TILE,
    constants_of_group,
    find_tile_sums,
    is_special,
    log_constants,
    logsumexp_numbers,
)
from hotmax._kernels.softmax.tiles64 import (
    LONGEST_TILED64,
    TILE64,
    find_tile_logs64,
    is_special64,
    line_of_group,
)


@inline
def load_tile(x, first, count, n, stride, tile):
    """tile[c * GROUP + g] = class c of column first + g; 0 for absent columns."""
    if count == GROUP:
        for c in range(n):
            store(tile, c * GROUP, load(x, c * stride + first))
    else:
        none = x.dtype.type(0.0)
        for c in range(n):
            store(tile, c * GROUP, load_partial(x, c * stride + first, count, none))


@inline
def store_tile(tile, first, count, n, stride, out):
    if count == GROUP:
        for c in range(n):
            store(out, c * stride + first, load(tile, c * GROUP))
    else:
        for c in range(n):
            store_partial(out, c * stride + first, count, load(tile, c * GROUP))


@inline
def copy_column(x, column, n, stride, row):
    for c in range(n):
        row[c] = x[c * stride + column]
    return row[:n]


@inline
def all_within(tops, bound):
    """Are all of them less than `bound` in size? No if one is nan."""
    v = load(tops, 0)
    return not any_of(choose(v < bound, choose(v > -bound, 0.0, 1.0), 1.0) > 0.5)


@inline
def mark_special(fits, reach, tops, temperature, first, count, special):
    """Mark the columns that are out of range; are all of them in range?

    reach: In units of |T|, a little less than `fits` allows.
    """
    t = of_row(temperature, first)
    if temperature.size == 1 and fits(0.0, t) and all_within(tops, reach * abs(t)):
        store(special, 0, splat(0.0))
        return True
    plain = True
    for g in range(GROUP):
        t = of_row(temperature, min(first + g, first + count - 1))
        inside = fits(tops[g], t)
        special[g] = 0.0 if inside else 1.0
        if not inside:
            tops[g] = 0.0
            plain = plain and g >= count
    return plain


@inline
def begin_tile_of_columns(tile, n, temperature, first, count, group):
    """(all plain, m): the maxima and constants of a tile; m as in `tiles`."""
    if first == 0 or temperature.size > 1:
        set_temperatures(group, temperature, first, first + count)
    store(group.peaks, 0, load(group.signs, 0))
    sign = load(group.peaks, 0)
    top = sign * load(tile, 0)
    for c in range(1, n):
        top = larger(sign * load(tile, c * GROUP), top)
    store(group.tops, 0, to_float64(top))
    plain = mark_special(fits_float32, 5000.0, group.tops, temperature, first, count, group.special)
    set_constants(group)
    return plain, sign * top


@inline
def has_nan(group):
    sums = load(group.sums, 0)
    return any_of(sums != sums)


@kernel
def softmax_of_columns(x, out, temperature, width, n, strides):
    tile, singles = stack_array(TILE, np.float32), stack_array(SINGLES, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    row, result = stack_array(LONGEST_TILED, np.float32), stack_array(LONGEST_TILED, np.float32)
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns(tile, n, temperature, first, count, group)
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
        if not plain or has_nan(group):
            for g in range(count):
                if is_special(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    t = of_row(temperature, first + g)
                    softmax_row(column, result[:n], t, None, column, False)
                    for c in range(n):
                        tile[c * GROUP + g] = result[c]
        store_tile(tile, first, count, n, strides[1], out)


@kernel
def log_softmax_of_columns(x, out, temperature, width, n, strides):
    tile, singles = stack_array(TILE, np.float32), stack_array(SINGLES, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    row, result = stack_array(LONGEST_TILED, np.float32), stack_array(LONGEST_TILED, np.float32)
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns(tile, n, temperature, first, count, group)
        find_tile_sums(tile, n, m, group)
        log_sum = log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0))
        constants = log_constants(log_sum, m, group, singles)
        for c in range(n):
            store(tile, c * GROUP, log_probability(load(tile, c * GROUP), constants))
        if not plain or has_nan(group):
            for g in range(count):
                if is_special(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    log_softmax_row(column, result[:n], of_row(temperature, first + g), False)
                    for c in range(n):
                        tile[c * GROUP + g] = result[c]
        store_tile(tile, first, count, n, strides[1], out)


@kernel
def logsumexp_of_columns(x, out, temperature, width, n, strides):
    tile, row = stack_array(TILE, np.float32), stack_array(LONGEST_TILED, np.float32)
    group = group_of(stack_array(GROUP_FIELDS, np.float64), stack_array(GROUP_SINGLES, np.float32))
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns(tile, n, temperature, first, count, group)
        find_tile_sums(tile, n, m, group)
        log_sum = log1p_vector((load(group.ties, 0) - 1.0) + load(group.sums, 0))
        store_partial(out, first, count, logsumexp_numbers(log_sum, group))
        if not plain or has_nan(group):
            for g in range(count):
                if is_special(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    out[first + g] = logsumexp_row(column, of_row(temperature, first + g))


# --- float64 --------------------------------------------------------------------------------------


@inline
def begin_tile_of_columns64(tile, n, temperature, first, count, group):
    """(all plain, m): the maxima and constants of a tile; m as in `tiles64`."""
    if first == 0 or temperature.size > 1:
        set_temperatures64(group, temperature, first, first + count)
    sign = load(group.signs, 0)
    top = sign * load(tile, 0)
    for c in range(1, n):
        top = larger(sign * load(tile, c * GROUP), top)
    store(group.tops, 0, top)
    plain = mark_special(fits_float64, 7e8, group.tops, temperature, first, count, group.special)
    set_constants64(group)
    return plain, sign * top


@kernel
def softmax_of_columns64(x, out, temperature, width, n, strides):
    tile = stack_array(TILE64, np.float64)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    row, result = stack_array(LONGEST_TILED64, np.float64), stack_array(LONGEST_TILED64, np.float64)
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns64(tile, n, temperature, first, count, group)
        beta, beta_lo, origin = line_of_group(group)
        ties, total, lo = splat(0.0), splat(0.0), splat(0.0)
        for c in range(n):
            v = load(tile, c * GROUP)
            e = exp2_biased64(v, beta, beta_lo, origin)
            ties = ties + choose(v == m, 1.0, 0.0)
            total, carry = two_sum(total, e)
            lo = lo + carry
            store(tile, c * GROUP, e)
        store(group.sums, 0, total)
        store(group.sum_los, 0, lo)
        store(group.ties, 0, ties)
        find_inverses64(group)
        constants = (
            load(group.logs, 0),
            load(group.log_los, 0),
            load(group.peaks, 0),
            load(group.sums, 0),
        )
        for c in range(n):
            store(tile, c * GROUP, probability64(load(tile, c * GROUP), constants))
        if not plain or has_nan(group):
            for g in range(count):
                if is_special64(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    t = of_row(temperature, first + g)
                    softmax_row(column, result[:n], t, None, column, False)
                    for c in range(n):
                        tile[c * GROUP + g] = result[c]
        store_tile(tile, first, count, n, strides[1], out)


@kernel
def log_softmax_of_columns64(x, out, temperature, width, n, strides):
    tile = stack_array(TILE64, np.float64)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    row, result = stack_array(LONGEST_TILED64, np.float64), stack_array(LONGEST_TILED64, np.float64)
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns64(tile, n, temperature, first, count, group)
        log_sum, log_sum_lo = find_tile_logs64(tile, n, m, group)
        t = load(group.temperatures, 0)
        beta, beta_lo = dd_div(1.0, 0.0, t)
        q, q_lo = dd_div(load(group.tops, 0), 0.0, load(group.signs, 0) * t)
        offset, offset_lo = add_logs(q, q_lo, log_sum, log_sum_lo)
        constants = beta, beta_lo, offset, offset_lo, m, 0.0 - log_sum
        for c in range(n):
            store(tile, c * GROUP, log_probability64(load(tile, c * GROUP), constants))
        if not plain or has_nan(group):
            for g in range(count):
                if is_special64(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    log_softmax_row(column, result[:n], of_row(temperature, first + g), False)
                    for c in range(n):
                        tile[c * GROUP + g] = result[c]
        store_tile(tile, first, count, n, strides[1], out)


@kernel
def logsumexp_of_columns64(x, out, temperature, width, n, strides):
    tile, row = stack_array(TILE64, np.float64), stack_array(LONGEST_TILED64, np.float64)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    for first in range(0, width, GROUP):
        count = min(GROUP, width - first)
        load_tile(x, first, count, n, strides[0], tile)
        plain, m = begin_tile_of_columns64(tile, n, temperature, first, count, group)
        log_sum = find_tile_logs64(tile, n, m, group)
        sign = load(group.signs, 0)
        size = sign * load(group.temperatures, 0)
        numbers = logsumexp_number64(load(group.tops, 0), size, sign, log_sum)
        store_partial(out, first, count, numbers)
        if not plain or has_nan(group):
            for g in range(count):
                if is_special64(group, g):
                    column = copy_column(x, first + g, n, strides[0], row)
                    out[first + g] = logsumexp_row(column, of_row(temperature, first + g))
