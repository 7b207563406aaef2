"""Short float64 rows, GROUP of them at a time: a vector holds one class of each row.

The steps are those of `tiles`, the constants and exponentials those of `grouped64`. A row's bits do
not depend on its neighbours, nor on their number.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import exp2_biased64
from hotmax._kernels.numeric.double_double import (
    dd_div,
    dd_mul,
    dd_reciprocal,
    two_sum,
)
from hotmax._kernels.simd.memory import of_row, stack_array
from hotmax._kernels.simd.vectors import choose, load, splat, store, store_partial
from hotmax._kernels.softmax.float32 import larger
from hotmax._kernels.softmax.group64 import (
    GROUP64_FIELDS,
    fits_float64,
    group64_of,
    set_constants64,
    set_temperatures64,
)
from hotmax._kernels.softmax.grouped import GROUP
from hotmax._kernels.softmax.grouped64 import (
    add_logs,
    find_inverses64,
    log_probability64,
    logsumexp_number64,
    probability64,
    smoothmax_number64,
)
from hotmax._kernels.softmax.logs import log1p_vector_parts
from hotmax._kernels.softmax.rows import (
    log_softmax_row,
    logsumexp_row,
    smoothmax_row,
    softmax_row,
)
from hotmax._kernels.softmax.short import load_group, store_group

LONGEST_TILED64 = 47  # classes, as LONGEST_TILED
TILE64, COPY64 = LONGEST_TILED64 * GROUP, 2 * LONGEST_TILED64 * GROUP


@inline
def begin_tile64(x, temperature, start, stop, first, copied, tile, group):
    """(width, all plain, m): load up to GROUP rows, and find their maxima and constants.

    m: the entries at the maximum, negated below temperature 0.
    """
    n, width = x.shape[1], min(GROUP, stop - first)
    if first == start or temperature.size > 1:
        set_temperatures64(group, temperature, first, stop)
    load_group(x.reshape(-1), first, width, n, copied, tile)
    sign = load(group.signs, 0)
    top = sign * load(tile, 0)
    for c in range(1, n):
        top = larger(sign * load(tile, c * GROUP), top)
    store(group.tops, 0, top)
    plain = True
    for g in range(GROUP):
        t = of_row(temperature, min(first + g, stop - 1))
        fits = fits_float64(group.tops[g], t)
        group.special[g] = 0.0 if fits else 1.0
        if not fits:
            group.tops[g] = 0.0
            plain = plain and g >= width
    set_constants64(group)
    return width, plain, sign * top


@inline
def line_of_group(group):
    """The arguments of exp2_biased64, for all rows."""
    return load(group.betas, 0), load(group.beta_los, 0), load(group.origins, 0)


@inline
def is_special64(group, g):
    """Whether a row is computed by the kernels of `rows`: it is out of range, or has a nan."""
    return group.special[g] != 0.0 or group.sums[g] != group.sums[g]


@kernel
def softmax_tiled64(x, out, temperature, start, stop, streamed):
    n, target = x.shape[1], out.reshape(-1)
    tile, copied = stack_array(TILE64, np.float64), stack_array(COPY64, np.float64)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    row = stack_array(LONGEST_TILED64, np.float64)
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile64(x, temperature, start, stop, first, copied, tile, group)
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
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special64(group, g):
                    t = of_row(temperature, first + g)
                    softmax_row(x[first + g], row[:n], t, None, x[first + g], False)
                    for c in range(n):
                        tile[c * GROUP + g] = row[c]
        store_group(tile, n, copied, target, first, width)


@inline
def find_tile_logs64(tile, n, m, group):
    """log(ties + below), with below in units of the largest exponential."""
    beta, beta_lo, origin = line_of_group(group)
    ties, below, lo = splat(-1.0), splat(0.0), splat(0.0)
    for c in range(n):
        v = load(tile, c * GROUP)
        e = exp2_biased64(v, beta, beta_lo, origin)
        at_top = v == m
        ties = ties + choose(at_top, 1.0, 0.0)
        below, carry = two_sum(below, choose(at_top, 0.0, e))
        lo = lo + carry
    store(group.sums, 0, below)
    inverse, inverse_lo = dd_reciprocal(load(group.units, 0), load(group.unit_los, 0))
    s, s_lo = dd_mul(below, lo, inverse, inverse_lo)
    s, carry = two_sum(ties, s)
    return log1p_vector_parts(s, carry + s_lo)


@kernel
def log_softmax_tiled64(x, out, temperature, start, stop, streamed):
    n, target = x.shape[1], out.reshape(-1)
    tile, copied = stack_array(TILE64, np.float64), stack_array(COPY64, np.float64)
    group = group64_of(stack_array(GROUP64_FIELDS, np.float64))
    row = stack_array(LONGEST_TILED64, np.float64)
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile64(x, temperature, start, stop, first, copied, tile, group)
        log_sum, log_sum_lo = find_tile_logs64(tile, n, m, group)
        t = load(group.temperatures, 0)
        beta, beta_lo = dd_div(1.0, 0.0, t)
        q, q_lo = dd_div(load(group.tops, 0), 0.0, load(group.signs, 0) * t)
        offset, offset_lo = add_logs(q, q_lo, log_sum, log_sum_lo)
        constants = beta, beta_lo, offset, offset_lo, m, 0.0 - log_sum
        for c in range(n):
            store(tile, c * GROUP, log_probability64(load(tile, c * GROUP), constants))
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special64(group, g):
                    log_softmax_row(x[first + g], row[:n], of_row(temperature, first + g), False)
                    for c in range(n):
                        tile[c * GROUP + g] = row[c]
        store_group(tile, n, copied, target, first, width)


@inline
def reduce_tiled64(number_of, row_kernel, x, out, temperature, start, stop, scratch):
    """out[r] = number_of(maximum, |T|, sign of T, log of the sum in units of the largest term)."""
    tile, copied, group = scratch
    for first in range(start, stop, GROUP):
        width, plain, m = begin_tile64(x, temperature, start, stop, first, copied, tile, group)
        log_sum = find_tile_logs64(tile, x.shape[1], m, group)
        sign = load(group.signs, 0)
        size = sign * load(group.temperatures, 0)
        store_partial(out, first, width, number_of(load(group.tops, 0), size, sign, log_sum))
        for g in range(width):
            if not plain or group.sums[g] != group.sums[g]:
                if is_special64(group, g):
                    out[first + g] = row_kernel(x[first + g], of_row(temperature, first + g))


@kernel
def logsumexp_tiled64(x, out, temperature, start, stop, streamed):
    tile, copied = stack_array(TILE64, np.float64), stack_array(COPY64, np.float64)
    scratch = tile, copied, group64_of(stack_array(GROUP64_FIELDS, np.float64))
    reduce_tiled64(logsumexp_number64, logsumexp_row, x, out, temperature, start, stop, scratch)


@kernel
def smoothmax_tiled64(x, out, temperature, start, stop, streamed):
    tile, copied = stack_array(TILE64, np.float64), stack_array(COPY64, np.float64)
    scratch = tile, copied, group64_of(stack_array(GROUP64_FIELDS, np.float64))
    reduce_tiled64(smoothmax_number64, smoothmax_row, x, out, temperature, start, stop, scratch)
