"""softmax, log_softmax and logsumexp of contiguous rows, one at a time.

Every row takes the same steps:

    maximum   m = max(x)                                  nan if any entry is nan
    sums      ties = #{x == m},  below = sum of exp((x - m) / T) over x < m
    write     exp((x - m) / T) / (ties + below),  or  (x - m) / T - log(ties + below)

The exponential of an entry at the maximum is exactly 1, so such entries are counted, not summed:
`below` keeps all its digits however small it is. Blocks of a long row are summed separately and
added in order, so that a row's bits do not depend on which thread computes which block.

Rows at the limits of temperature (ties at T = 0, uniform at infinity) are computed in `limits`.

The arithmetic is in `float64` (double-double) and `float32` (long float32 rows). softmax of most
float32 rows has kernels of its own, in `grouped` and `overlapped`. Short rows are computed several
at a time, in `short` and `short_logs` (float32) and `lanes` (float64).
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import log1p_parts
from hotmax._kernels.numeric.double_double import dd_div, dd_reciprocal, two_sum
from hotmax._kernels.simd.memory import fence, of_row, stack_array
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.float32 import (
    L1_CHUNK,
    fits_float32,
    log_softmax_float32,
    row_maximum,
    softmax_float32,
    sums_float32,
)
from hotmax._kernels.softmax.float64 import (
    log_softmax_float64,
    softmax_float64,
    sum_float64,
)
from hotmax._kernels.softmax.limits import (
    FLAT,
    HARD,
    NAN,
    NOTHING,
    PLAIN,
    count_equal,
    limit_sums,
    log_softmax_limit,
    regime,
    sign_of,
    softmax_limit,
)

SUM_BLOCK = 65536  # classes summed separately; threads share a long row at these boundaries


@kernel
def block_sums(x, exps, m, temperature, upcoming):
    """(ties, below, below_lo) of one block, given the maximum m of its whole row.

    `exps`: scratch for float32 exponentials, or None for float64 (the branch is then not compiled).
    """
    if regime(m, temperature) != PLAIN:
        return limit_sums(x, m, temperature)
    if exps is not None:
        if fits_float32(m, temperature):
            ties, total = sums_float32(x, exps, m, temperature, upcoming)
            return ties, total, 0.0
    below, below_lo = sum_float64(x, m, temperature, x)
    return count_equal(x, sign_of(x, temperature), x.dtype.type(m)), below, below_lo


@kernel
def row_sums(x, exps, m, temperature, upcoming):
    """(ties, below, below_lo) of a row: its blocks added in order."""
    ties, below, below_lo = 0.0, 0.0, 0.0
    for start in range(0, x.size, SUM_BLOCK):
        stop = min(start + SUM_BLOCK, x.size)
        if exps is not None:
            scratch = exps[start:stop] if exps.size >= x.size else exps[:L1_CHUNK]
            ahead = upcoming[start:stop]
            block = block_sums(x[start:stop], scratch, m, temperature, ahead)
        else:
            block = block_sums(x[start:stop], None, m, temperature, upcoming)
        ties, below, below_lo = add_sums((ties, below, below_lo), block)
    return ties, below, below_lo


@kernel
def add_sums(a, b):
    """The sums of two blocks as one."""
    below, carry = two_sum(a[1], b[1])
    return a[0] + b[0], below, a[2] + b[2] + carry


@kernel
def log_of_sums(ties, below, below_lo):
    """log(ties + below) in double-double; one of the ties is the 1 of log1p."""
    s, carry = two_sum(ties - 1.0, below)
    return log1p_parts(s, carry + below_lo)


@kernel
def softmax_block(x, out, exps, m, temperature, sums, streamed):
    """The probabilities of one block, given the maximum and the sums of its whole row."""
    ties, below, below_lo = sums
    if regime(m, temperature) != PLAIN:
        softmax_limit(x, out, m, temperature, ties)
        return
    total, carry = two_sum(ties, below)
    if exps is not None:
        if fits_float32(m, temperature):
            softmax_float32(x, out, exps, False, m, temperature, total, streamed)
            return
    inverse, inverse_lo = dd_reciprocal(total, carry + below_lo)
    softmax_float64(x, out, m, temperature, inverse, inverse_lo, streamed)


@kernel
def log_softmax_block(x, out, exps, m, temperature, sums, streamed):
    """The log-probabilities of one block, given the maximum and the sums of its whole row."""
    ties, below, below_lo = sums
    if regime(m, temperature) != PLAIN:
        log_softmax_limit(x, out, m, temperature, ties)
        return
    log_sum, log_sum_lo = log_of_sums(ties, below, below_lo)
    if exps is not None:
        if fits_float32(m, temperature):
            log_softmax_float32(x, out, m, temperature, log_sum, streamed)
            return
    log_softmax_float64(x, out, m, temperature, log_sum, log_sum_lo, streamed)


@kernel
def logsumexp_of(m, temperature, sums):
    """log sum exp(x / T) from a row's maximum and sums."""
    ties, below, below_lo = sums
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING or m == np.inf:
        return m
    log_sum, log_sum_lo = log_of_sums(ties, below, below_lo)
    if kind == FLAT or m == 0.0:
        return log_sum
    if kind == HARD:
        return np.inf if m > 0.0 else -np.inf
    q, q_lo = dd_div(m, 0.0, abs(temperature))
    hi, carry = two_sum(q, log_sum)
    return hi + (carry + (q_lo + log_sum_lo)) if abs(q) < 2.0**1000 else q


@kernel
def smoothmax_of(m, temperature, sums):
    """T log sum exp(x / T) from a row's maximum and sums."""
    ties, below, below_lo = sums
    sign = math.copysign(1.0, temperature)
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING or kind == HARD:
        return sign * m
    log_sum, log_sum_lo = log_of_sums(ties, below, below_lo)
    if log_sum == 0.0:
        return sign * m
    size = abs(temperature)
    extra = size * log_sum
    if extra > 2.0**1000:  # by itself it may be beyond all numbers, where the result is not
        return sign * (2.0 * (0.5 * m + 0.5 * size * log_sum))
    hi, carry = two_sum(m, extra)
    return sign * (hi + (carry + fma(size, log_sum, -extra) + size * log_sum_lo))


# --- many rows --------------------------------------------------------------------------------


@inline
def peak_of_row(x, temperature, r):
    """(t, m): the temperature of row r, and the maximum of sign(t) * x[r]."""
    t = of_row(temperature, r)
    return t, row_maximum(x[r], sign_of(x, t))


@kernel
def softmax_row(x, out, temperature, exps, upcoming, streamed):
    m = row_maximum(x, sign_of(x, temperature))
    sums = row_sums(x, exps, m, temperature, upcoming)
    softmax_block(x, out, exps, m, temperature, sums, streamed)


@kernel
def log_softmax_row(x, out, temperature, streamed):
    """One row of any kind, in double-double."""
    m = row_maximum(x, sign_of(x, temperature))
    sums = row_sums(x, None, m, temperature, x)
    log_softmax_block(x, out, None, m, temperature, sums, streamed)


@kernel
def logsumexp_row(x, temperature):
    """One row of any kind, in double-double."""
    m = row_maximum(x, sign_of(x, temperature))
    return logsumexp_of(m, temperature, row_sums(x, None, m, temperature, x))


@kernel
def smoothmax_row(x, temperature):
    """One row of any kind, in double-double."""
    m = row_maximum(x, sign_of(x, temperature))
    return smoothmax_of(m, temperature, row_sums(x, None, m, temperature, x))


@kernel
def softmax_rows(x, out, temperature, start, stop, streamed):
    exps = stack_array(L1_CHUNK, np.float32)
    for r in range(start, stop):
        t, upcoming = of_row(temperature, r), x[min(r + 1, stop - 1)]
        softmax_row(x[r], out[r], t, exps, upcoming, streamed)
    fence()
