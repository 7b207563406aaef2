"""Short rows, LANES of them at a time: the inner loops run over rows, so that they vectorise.

The arithmetic is the double-double arithmetic of `float64`; float32 rows, which need less, are in
`short`. A row's bits do not depend on its neighbours. `powers` is scratch for one number per entry.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LOG2E, LOG2E_LO, UNBIAS64, exp2_parts
from hotmax._kernels.numeric.double_double import dd_div, dd_one_plus, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.float64 import exponent, range_scale
from hotmax._kernels.softmax.limits import PLAIN, limit_sums, regime

LANES = 32

# Offsets of the fields of LANES rows in the workspace: one array with constant offsets, so that the
# compiler sees that the fields do not overlap.
PEAK, SCALE, BETA, BETA_LO, TIES, BELOW, BELOW_LO, HI, LO, FIELDS = range(0, 10 * LANES, LANES)


@kernel
def set_betas(temperature, first, width, work):
    """log2(e) / T for each row, and the power of two that keeps float64 rows in range."""
    for r in range(width):
        t = of_row(temperature, first + r)
        scale = range_scale(t)
        work[SCALE + r] = scale
        work[BETA + r], work[BETA_LO + r] = dd_div(LOG2E, LOG2E_LO, abs(t * scale))


@kernel
def load_lanes(x, first, width, work, tile):
    """tile[c * LANES + r] = sign(T) * x[first + r, c], and the maxima."""
    for r in range(width):
        sign = math.copysign(1.0, work[SCALE + r])
        m, total = -np.inf, 0.0
        for c in range(x.shape[1]):
            v = sign * np.float64(x[first + r, c])
            m = v if v > m else m
            total += v
            tile[c * LANES + r] = v
        if total != total:  # a nan, or inf - inf
            m = row_maximum(x[first + r], x.dtype.type(sign))
        work[PEAK + r] = m


@kernel
def add_lane_exponentials(tile, powers, n, width, work):
    """Replace each value by t, with exp = power * (1 + t), and sum each row's exponentials."""
    for r in range(width):
        work[TIES + r] = 0.0
        work[BELOW + r] = 0.0
        work[BELOW_LO + r] = 0.0
    for c in range(n):
        for r in range(width):
            scale = abs(work[SCALE + r])
            v, peak = tile[c * LANES + r] * scale, work[PEAK + r] * scale
            y, y_lo = exponent(v, peak, work[BETA + r], work[BETA_LO + r])
            t, power = exp2_parts(y, y_lo)
            tile[c * LANES + r] = t
            powers[c * LANES + r] = power
            work[TIES + r] += 0.0 if v < peak else 1.0
            term, term_lo = dd_one_plus(power if v < peak else 0.0, t)
            total, carry = two_sum(work[BELOW + r], term)
            work[BELOW + r] = total
            work[BELOW_LO + r] += carry + term_lo
    for r in range(width):
        total, lo = two_sum(work[BELOW + r], work[BELOW_LO + r])
        work[BELOW + r] = total * UNBIAS64
        work[BELOW_LO + r] = lo * UNBIAS64


@kernel
def lane_sums(x, temperature, first, width, work, tile, powers):
    """Maximum and sums of `width` rows into `work`; True if all of them are PLAIN."""
    load_lanes(x, first, width, work, tile)
    add_lane_exponentials(tile, powers, x.shape[1], width, work)
    plain = True
    for r in range(width):
        t = of_row(temperature, first + r)
        if regime(work[PEAK + r], t) != PLAIN:
            plain = False
            sums = limit_sums(x[first + r], work[PEAK + r], t)
            work[TIES + r], work[BELOW + r], work[BELOW_LO + r] = sums
    return plain


@inline
def lane_buffers(n):
    """Workspace for the fields of LANES rows, for a tile of n classes, and for its powers."""
    scratch = np.empty(FIELDS + 2 * n * LANES)
    cut = FIELDS + n * LANES
    return scratch[:FIELDS], scratch[FIELDS:cut], scratch[cut:]


@inline
def begin_lanes(x, temperature, start, stop, first, work, tile, powers):
    """(width, plain): `lane_sums` of the rows from `first` on, up to LANES of them."""
    width = min(LANES, stop - first)
    if first == start or temperature.size > 1:
        set_betas(temperature, first, width, work)
    return width, lane_sums(x, temperature, first, width, work, tile, powers)
