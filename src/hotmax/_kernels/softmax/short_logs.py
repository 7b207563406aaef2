"""log_softmax and reductions of short float32 rows, WIDTH of them at a time, as in `short`.

    sums        ties = #{x == m},  below = sum of exp((x - m) / T) over x < m,  in float64
    reduction   m / T + log(ties + below),  or another function of these

A row's bits do not depend on its neighbours. A row that is not PLAIN (a limit of temperature, an
inf, a nan) is computed with the others, and its result is then replaced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LN2, exp2_33_bits
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import (
    WIDTH,
    any_of,
    choose,
    fma,
    load,
    maximum,
    splat,
    store_partial,
    to_float64,
)
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import PLAIN, regime, sign_of
from hotmax._kernels.softmax.logs import log1p_vector
from hotmax._kernels.softmax.moments import entropy_limit, softargmax_limit
from hotmax._kernels.softmax.short import (
    beta_of,
    group_buffers,
    is_finite_nonzero,
    load_group,
)

SHORT_LOGS = 128  # classes: more than in `short`, to share the latency of the logarithm
LOWEST_EXPONENT = -1000.0  # 2**-1000 is negligible beside 1

# Offsets of the temperatures of WIDTH rows in one array: log2(e) / |T|, 1 / |T| and |T|.
BETA, INVERSE, SIZE, TEMPERATURES = range(0, 4 * WIDTH, WIDTH)


# --- rules: a number for each row of a tile of n classes ----------------------------------------


class GroupFields(NamedTuple):
    """What is known of WIDTH rows, as vectors."""

    sign: Any  # of T
    peak: Any  # max(sign * x)
    beta: Any  # log2(e) / |T|
    inverse: Any  # 1 / |T|
    size: Any  # |T|


@inline
def peaks_of(tile, n, sign):
    m = splat(np.float32(-np.inf))
    for c in range(n):
        m = maximum(m, sign * load(tile, c * WIDTH))
    return m


@inline
def gap(tile, c, fields):
    """sign * x - m, which is never above 0."""
    return to_float64(fields.sign * load(tile, c * WIDTH)) - to_float64(fields.peak)


@inline
def sums_of(tile, n, fields):
    """ties + below - 1."""
    beta = fields.beta
    ties, below = splat(-1.0), splat(0.0)
    for c in range(n):
        d = gap(tile, c, fields)
        # 0 for an absent class, not 2**LOWEST_EXPONENT: smoothmax multiplies it by T
        e = choose(d * beta < LOWEST_EXPONENT, 0.0, exp2_33_bits(d * beta))
        ties = ties + choose(d < 0.0, 0.0, 1.0)
        below = below + choose(d < 0.0, e, 0.0)
    return ties + below


@inline
def entropy_rule(tile, n, fields):
    """log sum exp(z) + sum exp(z) * -z / sum exp(z), z = (x - m) / T: nothing cancels."""
    beta = fields.beta
    rest = sums_of(tile, n, fields)
    moment = splat(0.0)
    for c in range(n):
        y = gap(tile, c, fields) * beta
        y = choose(y < LOWEST_EXPONENT, LOWEST_EXPONENT, y)
        moment = fma(exp2_33_bits(y), -y, moment)
    return log1p_vector(rest) + moment * LN2 / (1.0 + rest)


@inline
def softargmax_rule(tile, n, fields):
    beta = fields.beta
    total, moment = splat(0.0), splat(0.0)
    for c in range(n):
        e = exp2_33_bits(gap(tile, c, fields) * beta)
        total = total + e
        moment = fma(e, np.float64(c), moment)
    return moment / total


# --- rows -------------------------------------------------------------------------------------


@inline
def take_temperatures(x, temperature, first, stop, signs, temperatures):
    """The signs, betas and sizes of WIDTH rows; False if a temperature is 0 or infinite."""
    ordinary = True
    for r in range(WIDTH):
        t = of_row(temperature, min(first + r, stop - 1))
        signs[r] = sign_of(x, t)
        temperatures[BETA + r] = abs(beta_of(t))
        temperatures[INVERSE + r] = min(1.0 / abs(t), 1e300)
        temperatures[SIZE + r] = abs(t)
        ordinary = ordinary and is_finite_nonzero(t)
    return ordinary


@inline
def group_fields(m, signs, temperatures):
    return GroupFields(
        load(signs, 0),
        m,
        load(temperatures, BETA),
        load(temperatures, INVERSE),
        load(temperatures, SIZE),
    )


@inline
def are_plain(m, ordinary):
    """Whether all rows are PLAIN."""
    return ordinary and not any_of(m - m != np.float32(0.0))


@inline
def for_short_rows(rule, limit, x, out, temperature, start, stop):
    """out[r] = rule(row r), or limit(row r, m, T) for a row that is not PLAIN."""
    n = x.shape[1]
    tile, copied = group_buffers(n)
    signs, temperatures = np.empty(WIDTH, np.float32), np.empty(TEMPERATURES)
    x, out = borrowed(x), borrowed(out)
    source = x.reshape(-1)
    ordinary = True
    for first in range(start, stop, WIDTH):
        width = min(WIDTH, stop - first)
        if temperature.size > 1 or first == start:
            ordinary = take_temperatures(x, temperature, first, stop, signs, temperatures)
        load_group(source, first, width, n, copied, tile)
        m = peaks_of(tile, n, load(signs, 0))
        store_partial(out, first, width, rule(tile, n, group_fields(m, signs, temperatures)))
        if are_plain(m, ordinary):
            continue
        for r in range(first, first + width):
            t = of_row(temperature, r)
            own = row_maximum(x[r], sign_of(x, t))
            if regime(own, t) != PLAIN:
                out[r] = limit(x[r], own, t)


@kernel
def entropy_short(x, out, temperature, start, stop, streamed):
    for_short_rows(entropy_rule, entropy_limit, x, out, temperature, start, stop)


@kernel
def softargmax_short(x, out, temperature, start, stop, streamed):
    for_short_rows(softargmax_rule, softargmax_limit, x, out, temperature, start, stop)
