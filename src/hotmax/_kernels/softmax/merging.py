"""Rows in parts: the maximum and sums of each part, their merger, and the results.

A part is described by PARTS numbers: its maximum, `ties`, `below` and `below_lo` as in `rows`, and
the number of its classes that are not masked. Parts are merged by scaling their sums to the larger
maximum in double-double, so that a row need never be in memory as a whole.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.numeric.arithmetic import LOG2E, LOG2E_LO, UNBIAS64, exp2_parts
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, dd_one_plus, two_sum
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.float64 import exponent, range_scale
from hotmax._kernels.softmax.limits import FLAT, PLAIN, regime, sign_of
from hotmax._kernels.softmax.rows import (
    add_sums,
    log_softmax_block,
    logsumexp_of,
    row_sums,
    smoothmax_of,
    softmax_block,
)

PARTS = 5


@kernel
def describe_rows(x, temperature, parts):
    for r in range(x.shape[0]):
        m = row_maximum(x[r], sign_of(x, temperature[r]))
        parts[r, 0] = m
        parts[r, 1], parts[r, 2], parts[r, 3] = row_sums(x[r], None, m, temperature[r], x[r])


@kernel
def rescaled_sums(sums, m, peak, temperature):
    """Sums relative to m, made relative to a larger maximum: former ties are then below it."""
    if m == peak:
        return sums
    scale = range_scale(temperature)
    beta, beta_lo = dd_div(LOG2E, LOG2E_LO, abs(scale * temperature))
    y, y_lo = exponent(m * abs(scale), peak * abs(scale), beta, beta_lo)
    t, power = exp2_parts(y, y_lo)
    e, e_lo = dd_one_plus(power, t)
    total, carry = two_sum(sums[0], sums[1])
    hi, lo = dd_mul(total, carry + sums[2], e, e_lo)
    return 0.0, hi * UNBIAS64, lo * UNBIAS64


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
                sums = add_sums(sums, rescaled_sums(one, m, peak, t))
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
