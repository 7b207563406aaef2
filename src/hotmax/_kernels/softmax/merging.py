"""Rows that come in parts: each part's maximum and sums, the parts as one, and the result.

A part is described by PARTS numbers: its maximum, `ties`, `below` and `below_low` as in `softmax`,
and how many of its classes are allowed. Parts are merged by scaling their sums to the larger
maximum, in two words, so that nothing is lost and no row is ever held whole.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    UNBIAS64,
    exp2_parts,
    two_sum,
    with_fraction,
)
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import exponent, over, product, scale_of
from hotmax._kernels.softmax.rows import (
    FLAT,
    PLAIN,
    add_sums,
    log_softmax_block,
    logsumexp_of,
    regime,
    row_sums,
    sign_of,
    smoothmax_of,
    softmax_block,
)

PARTS = 5


@kernel
def describe_rows(x, temperature, parts):
    for r in range(x.shape[0]):
        m = top(x[r], sign_of(x, temperature[r]))
        parts[r, 0] = m
        parts[r, 1], parts[r, 2], parts[r, 3] = row_sums(x[r], None, m, temperature[r], x[r])


@kernel
def lowered(sums, m, peak, temperature):
    """Sums taken from a maximum m, as taken from a larger one: what were ties are so no more."""
    if m == peak:
        return sums
    scale = scale_of(temperature)
    slope, slope_low = over(LOG2E, LOG2E_LOW, abs(scale * temperature))
    y, y_low = exponent(m * abs(scale), peak * abs(scale), slope, slope_low)
    t, power = exp2_parts(y, y_low)
    e, e_low = with_fraction(power, t)
    total, carry = two_sum(sums[0], sums[1])
    high, low = product(total, carry + sums[2], e, e_low)
    return 0.0, high * UNBIAS64, low * UNBIAS64


@kernel
def merge_rows(parts, temperature, merged):
    """parts (rows, parts, PARTS) -> merged (rows, PARTS)."""
    for r in range(parts.shape[0]):
        t = temperature[r]
        peak, allowed = -np.inf, 0.0
        for b in range(parts.shape[1]):
            m = parts[r, b, 0]
            peak = m if m != m or m > peak else peak
            allowed += parts[r, b, 4]
        kind = regime(peak, t)
        sums = 0.0, 0.0, 0.0
        for b in range(parts.shape[1]):
            m = parts[r, b, 0]
            one = parts[r, b, 1], parts[r, b, 2], parts[r, b, 3]
            if m == peak or kind == FLAT:
                sums = add_sums(sums, one)
            elif kind == PLAIN and m > -np.inf:
                sums = add_sums(sums, lowered(one, m, peak, t))
        merged[r, 0], merged[r, 4] = peak, allowed
        merged[r, 1], merged[r, 2], merged[r, 3] = sums


@kernel
def softmax_of_parts(x, out, temperature, parts):
    for r in range(x.shape[0]):
        sums = parts[r, 1], parts[r, 2], parts[r, 3]
        softmax_block(x[r], out[r], None, parts[r, 0], temperature[r], sums, False)


@kernel
def log_softmax_of_parts(x, out, temperature, parts):
    for r in range(x.shape[0]):
        sums = parts[r, 1], parts[r, 2], parts[r, 3]
        log_softmax_block(x[r], out[r], None, parts[r, 0], temperature[r], sums, False)


@kernel
def logsumexp_of_parts(out, temperature, parts):
    for r in range(out.size):
        sums = parts[r, 1], parts[r, 2], parts[r, 3]
        out[r] = logsumexp_of(parts[r, 0], temperature[r], sums)


@kernel
def smoothmax_of_parts(out, temperature, parts):
    for r in range(out.size):
        sums = parts[r, 1], parts[r, 2], parts[r, 3]
        out[r] = smoothmax_of(parts[r, 0], temperature[r], sums)
