"""Short rows, LANES of them side by side: the loops run over rows, so that they vectorise.

They are computed in the two-word arithmetic of `wide`; float32 rows, which need less, in `short`. A
row's bits do not depend on its neighbours. `powers` is room for one number for each entry.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    UNBIAS64,
    exp2_parts,
    reciprocal,
    two_sum,
    with_fraction,
)
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import exponent, log_softmax_wide, over, scale_of
from hotmax._kernels.softmax.rows import (
    PLAIN,
    limit_sums,
    log_of_sums,
    log_softmax_limit,
    logsumexp_of,
    regime,
    smoothmax_of,
    softmax_limit,
)

LANES = 32

# Where each word of the LANES rows begins in the workspace: one array with fixed offsets, so that
# the compiler sees that the words do not overlap.
PEAK, SCALE, SLOPE, SLOPE_LOW, TIES, BELOW, BELOW_LOW, HIGH, LOW, WORDS = range(
    0, 10 * LANES, LANES
)


@kernel
def set_slopes(temperature, first, width, work):
    """log2(e) / T for each row, and the power of two that keeps float64 rows in range."""
    for r in range(width):
        t = of_row(temperature, first + r)
        scale = scale_of(t)
        work[SCALE + r] = scale
        work[SLOPE + r], work[SLOPE_LOW + r] = over(LOG2E, LOG2E_LOW, abs(t * scale))


@kernel
def load(x, first, width, work, tile):
    """tile[c * LANES + r] = row first + r, class c, turned by the sign of T; and the maxima."""
    for r in range(width):
        sign = math.copysign(1.0, work[SCALE + r])
        m, total = -np.inf, 0.0
        for c in range(x.shape[1]):
            v = sign * np.float64(x[first + r, c])
            m = v if v > m else m
            total += v
            tile[c * LANES + r] = v
        if total != total:  # a nan, or inf - inf: look again
            m = top(x[first + r], x.dtype.type(sign))
        work[PEAK + r] = m


@kernel
def add_exponentials(tile, powers, n, width, work):
    """A value becomes t, with exp = power * (1 + t); and each row's exponentials are summed."""
    for r in range(width):
        work[TIES + r] = 0.0
        work[BELOW + r] = 0.0
        work[BELOW_LOW + r] = 0.0
    for c in range(n):
        for r in range(width):
            scale = abs(work[SCALE + r])
            v, peak = tile[c * LANES + r] * scale, work[PEAK + r] * scale
            y, y_low = exponent(v, peak, work[SLOPE + r], work[SLOPE_LOW + r])
            t, power = exp2_parts(y, y_low)
            tile[c * LANES + r] = t
            powers[c * LANES + r] = power
            work[TIES + r] += 0.0 if v < peak else 1.0
            term, term_low = with_fraction(power if v < peak else 0.0, t)
            total, carry = two_sum(work[BELOW + r], term)
            work[BELOW + r] = total
            work[BELOW_LOW + r] += carry + term_low
    for r in range(width):
        total, low = two_sum(work[BELOW + r], work[BELOW_LOW + r])
        work[BELOW + r] = total * UNBIAS64
        work[BELOW_LOW + r] = low * UNBIAS64


@kernel
def lane_sums(x, temperature, first, width, work, tile, powers):
    """Maximum and sums of `width` rows into `work`; True if all of them are PLAIN."""
    load(x, first, width, work, tile)
    add_exponentials(tile, powers, x.shape[1], width, work)
    plain = True
    for r in range(width):
        t = of_row(temperature, first + r)
        if regime(work[PEAK + r], t) != PLAIN:
            plain = False
            sums = limit_sums(x[first + r], work[PEAK + r], t)
            work[TIES + r], work[BELOW + r], work[BELOW_LOW + r] = sums
    return plain


@kernel
def softmax_lanes(x, out, temperature, start, stop, powers):
    n = x.shape[1]
    room = np.empty(WORDS + n * LANES)
    work, tile = room[:WORDS], room[WORDS:]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        for r in range(width):
            total, carry = two_sum(work[TIES + r], work[BELOW + r])
            work[HIGH + r], work[LOW + r] = reciprocal(total, carry + work[BELOW_LOW + r])
        for c in range(n):
            for r in range(width):
                inverse = work[HIGH + r]
                p = inverse + fma(tile[c * LANES + r], inverse, work[LOW + r])
                tile[c * LANES + r] = p * powers[c * LANES + r] * UNBIAS64
        if not plain:  # before x is overwritten, should out be x
            for r in range(width):
                t = of_row(temperature, first + r)
                if regime(work[PEAK + r], t) != PLAIN:
                    limit = np.empty(n)
                    softmax_limit(x[first + r], limit, work[PEAK + r], t, work[TIES + r])
                    for c in range(n):
                        tile[c * LANES + r] = limit[c]
        for r in range(width):
            for c in range(n):
                out[first + r, c] = tile[c * LANES + r]


@kernel
def log_softmax_lanes(x, out, temperature, start, stop, powers):
    n = x.shape[1]
    room = np.empty(WORDS + n * LANES)
    work, tile = room[:WORDS], room[WORDS:]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work)
        lane_sums(x, temperature, first, width, work, tile, powers)
        for r in range(width):
            t = of_row(temperature, first + r)
            m, ties = work[PEAK + r], work[TIES + r]
            row = x[first + r]
            if regime(m, t) != PLAIN:
                log_softmax_limit(row, out[first + r], m, t, ties)
                continue
            log_sum, log_sum_low = log_of_sums(ties, work[BELOW + r], work[BELOW_LOW + r])
            log_softmax_wide(row, out[first + r], m, t, log_sum, log_sum_low, False)


@kernel
def logsumexp_lanes(x, out, temperature, start, stop, powers):
    room = np.empty(WORDS + x.shape[1] * LANES)
    work, tile = room[:WORDS], room[WORDS:]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work)
        lane_sums(x, temperature, first, width, work, tile, powers)
        for r in range(width):
            t = of_row(temperature, first + r)
            sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
            out[first + r] = logsumexp_of(work[PEAK + r], t, sums)


@kernel
def smoothmax_lanes(x, out, temperature, start, stop, powers):
    room = np.empty(WORDS + x.shape[1] * LANES)
    work, tile = room[:WORDS], room[WORDS:]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work)
        lane_sums(x, temperature, first, width, work, tile, powers)
        for r in range(width):
            t = of_row(temperature, first + r)
            sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
            out[first + r] = smoothmax_of(work[PEAK + r], t, sums)
