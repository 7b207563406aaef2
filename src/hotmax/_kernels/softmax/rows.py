"""softmax, log_softmax and logsumexp of contiguous rows of float32 or float64.

Every row goes the same way, whatever is asked of it:

    top     m = max(x)                                    a nan anywhere makes it nan
    sums    ties = #{x == m},  below = sum of exp((x - m) / T) over x < m
    write   exp((x - m) / T) / (ties + below),  or  (x - m) / T - log(ties + below)

Entries at the maximum are exactly 1, so they are counted, not summed: `below` keeps all its digits
however small it is. Blocks of a long row are summed apart and added in order, so a row's bits do
not depend on who computes which block.

The arithmetic is in `wide` (float64, two words) and `narrow` (float32, long rows). softmax of most
float32 rows goes ways of its own, in `grouped` and `overlapped`. Short rows are computed side by
side, in `short` and `short_logs` (float32) and `lanes` (float64).
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import log1p_parts, reciprocal, two_sum
from hotmax._kernels.simd.memory import borrowed, fence, of_row
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.float32 import (
    CHUNK,
    is_narrow,
    log_softmax_narrow,
    softmax_narrow,
    sums_narrow,
    top,
)
from hotmax._kernels.softmax.float64 import (
    log_softmax_wide,
    over,
    scale_wide,
    softmax_wide,
    sum_wide,
)

BLOCK = 65536  # classes summed apart; a long row is shared among threads at these boundaries

# What a row is, once its maximum and its temperature are known.
PLAIN, HARD, FLAT, NOTHING, NAN = 0, 1, 2, 3, 4


@inline
def sign_of(x, temperature):
    """-1 or 1 in the type of x: below 0, and at -0.0, temperature turns the row upside down."""
    return x.dtype.type(math.copysign(1.0, temperature))


@inline
def regime(m, temperature):
    if m != m:
        return NAN
    if m == -np.inf:
        return NOTHING
    if m == np.inf or temperature == 0.0:
        return HARD
    if abs(temperature) == np.inf:
        return FLAT
    if abs(temperature) < 2.0**-900 and abs(m) > 2.0**800:
        return HARD  # any gap below such a maximum is beyond exp's reach
    return PLAIN


@kernel
def count_equal(x, sign, m):
    count = 0
    for i in range(x.size):
        count += 1 if sign * x[i] == m else 0
    return np.float64(count)


@kernel
def count_present(x, sign):
    count = 0
    for i in range(x.size):
        count += 1 if sign * x[i] > -np.inf else 0
    return np.float64(count)


@kernel
def limit_sums(x, m, temperature):
    """The sums of a row that is not PLAIN: the number of entries that share the mass."""
    kind = regime(m, temperature)
    if kind == HARD:
        return count_equal(x, sign_of(x, temperature), x.dtype.type(m)), 0.0, 0.0
    if kind == FLAT:
        return count_present(x, sign_of(x, temperature)), 0.0, 0.0
    return 0.0, 0.0, 0.0


@kernel
def block_sums(x, exps, m, temperature, upcoming):
    """(ties, below, below_low) of one block, given the maximum m of its whole row.

    `exps` is room for float32 exponentials, or None for float64 (the branch is then not compiled).
    """
    if regime(m, temperature) != PLAIN:
        return limit_sums(x, m, temperature)
    if exps is not None:
        if is_narrow(m, temperature):
            ties, total = sums_narrow(x, exps, m, temperature, upcoming)
            return ties, total, 0.0
    below, below_low = sum_wide(x, None, m, temperature, x)
    return count_equal(x, sign_of(x, temperature), x.dtype.type(m)), below, below_low


@kernel
def row_sums(x, exps, m, temperature, upcoming):
    """(ties, below, below_low) of a row: its blocks added in order."""
    ties, below, below_low = 0.0, 0.0, 0.0
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        if exps is not None:
            room = exps[start:stop] if exps.size >= x.size else exps[:CHUNK]
            ahead = upcoming[start:stop]
            block = block_sums(x[start:stop], room, m, temperature, ahead)
        else:
            block = block_sums(x[start:stop], None, m, temperature, upcoming)
        ties, below, below_low = add_sums((ties, below, below_low), block)
    return ties, below, below_low


@kernel
def add_sums(a, b):
    """The sums of two blocks as one."""
    below, carry = two_sum(a[1], b[1])
    return a[0] + b[0], below, a[2] + b[2] + carry


@kernel
def log_of_sums(ties, below, below_low):
    """log(ties + below) in two words; one of the ties is the 1 of log1p."""
    s, carry = two_sum(ties - 1.0, below)
    return log1p_parts(s, carry + below_low)


@kernel
def softmax_limit(x, out, m, temperature, ties):
    """The probabilities of a row that is not PLAIN."""
    kind = regime(m, temperature)
    share = 1.0 / ties if kind == HARD or kind == FLAT else np.nan
    rest = 0.0 if kind == HARD or kind == FLAT else np.nan
    fill_limit(x, out, m, temperature, share, rest)


@kernel
def log_softmax_limit(x, out, m, temperature, ties):
    """The log-probabilities of a row that is not PLAIN."""
    kind = regime(m, temperature)
    share = -log1p_parts(ties - 1.0, 0.0)[0] if kind == HARD or kind == FLAT else np.nan
    rest = -np.inf if kind == HARD or kind == FLAT else np.nan
    fill_limit(x, out, m, temperature, share, rest)


@kernel
def fill_limit(x, out, m, temperature, share, rest):
    """`share` at the entries that take the mass at the limits of temperature, else `rest`."""
    sign = sign_of(x, temperature)
    hard = regime(m, temperature) == HARD
    peak = x.dtype.type(m)
    for i in range(x.size):
        v = sign * x[i]
        out[i] = share if (v == peak if hard else v > -np.inf) else rest


@kernel
def softmax_block(x, out, exps, m, temperature, sums, streamed):
    """The probabilities of one block, given the maximum and the sums of its whole row."""
    ties, below, below_low = sums
    if regime(m, temperature) != PLAIN:
        softmax_limit(x, out, m, temperature, ties)
        return
    total, carry = two_sum(ties, below)
    if exps is not None:
        if is_narrow(m, temperature):
            softmax_narrow(x, out, exps, False, m, temperature, total, streamed)
            return
    inverse, inverse_low = reciprocal(total, carry + below_low)
    softmax_wide(x, out, m, temperature, inverse, inverse_low, streamed)


@kernel
def log_softmax_block(x, out, exps, m, temperature, sums, streamed):
    """The log-probabilities of one block, given the maximum and the sums of its whole row."""
    ties, below, below_low = sums
    if regime(m, temperature) != PLAIN:
        log_softmax_limit(x, out, m, temperature, ties)
        return
    log_sum, log_sum_low = log_of_sums(ties, below, below_low)
    if exps is not None:
        if is_narrow(m, temperature):
            log_softmax_narrow(x, out, m, temperature, log_sum, streamed)
            return
    log_softmax_wide(x, out, m, temperature, log_sum, log_sum_low, streamed)


@kernel
def logsumexp_of(m, temperature, sums):
    """log sum exp(x / T) from a row's maximum and sums."""
    ties, below, below_low = sums
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING or m == np.inf:
        return m
    log_sum, log_sum_low = log_of_sums(ties, below, below_low)
    if kind == FLAT or m == 0.0:
        return log_sum
    if kind == HARD:
        return np.inf if m > 0.0 else -np.inf
    q, q_low = over(m, 0.0, abs(temperature))
    high, carry = two_sum(q, log_sum)
    return high + (carry + (q_low + log_sum_low)) if abs(q) < 2.0**1000 else q


@kernel
def smoothmax_of(m, temperature, sums):
    """T log sum exp(x / T) from a row's maximum and sums."""
    ties, below, below_low = sums
    sign = math.copysign(1.0, temperature)
    kind = regime(m, temperature)
    if kind == NAN or kind == NOTHING or kind == HARD:
        return sign * m
    log_sum, log_sum_low = log_of_sums(ties, below, below_low)
    if log_sum == 0.0:
        return sign * m
    size = abs(temperature)
    extra = size * log_sum
    if extra > 2.0**1000:
        return sign * (m + extra)
    high, carry = two_sum(m, extra)
    return sign * (high + (carry + fma(size, log_sum, -extra) + size * log_sum_low))


# --- many rows --------------------------------------------------------------------------------


@kernel
def softmax_row(x, out, temperature, exps, upcoming, streamed):
    m = top(x, sign_of(x, temperature))
    sums = row_sums(x, exps, m, temperature, upcoming)
    softmax_block(x, out, exps, m, temperature, sums, streamed)


@kernel
def softmax_rows(x, out, temperature, start, stop, exps, streamed):
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    for r in range(start, stop):
        t, upcoming = of_row(temperature, r), x[min(r + 1, stop - 1)]
        softmax_row(x[r], out[r], t, exps, upcoming, streamed)
    fence()


@kernel
def softmax_rows_wide(x, out, temperature, start, stop, terms, streamed):
    """softmax_rows of float64 rows of up to BLOCK classes; `terms` is room for one."""
    x, out, terms = borrowed(x), borrowed(out), borrowed(terms)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        if regime(m, t) != PLAIN:
            softmax_limit(x[r], out[r], m, t, limit_sums(x[r], m, t)[0])
            continue
        ties = count_equal(x[r], sign_of(x, t), m)
        below, below_low = sum_wide(x[r], terms, m, t, x[min(r + 1, stop - 1)])
        total, carry = two_sum(ties, below)
        inverse, inverse_low = reciprocal(total, carry + below_low)
        scale_wide(terms, out[r], inverse, inverse_low, streamed)
    fence()


@kernel
def log_softmax_rows(x, out, temperature, start, stop, exps, streamed):
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        sums = row_sums(x[r], exps, m, t, x[min(r + 1, stop - 1)])
        log_softmax_block(x[r], out[r], exps, m, t, sums, streamed)
    fence()


@kernel
def logsumexp_rows(x, out, temperature, start, stop, exps, streamed):
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        out[r] = logsumexp_of(m, t, row_sums(x[r], exps, m, t, x[min(r + 1, stop - 1)]))


@kernel
def smoothmax_rows(x, out, temperature, start, stop, exps, streamed):
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    for r in range(start, stop):
        t = of_row(temperature, r)
        m = top(x[r], sign_of(x, t))
        out[r] = smoothmax_of(m, t, row_sums(x[r], exps, m, t, x[min(r + 1, stop - 1)]))
