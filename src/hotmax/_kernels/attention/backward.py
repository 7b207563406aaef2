"""The gradient of attention, one tile of queries by one tile of keys at a time.

    p  = exp(slope * score + bias - peak) / total   made again from the scores
    ds = p * (dout . v - delta)                     delta = dout . out
    dq += slope * ds . k      dk += slope * ds^T . q      dv += p^T . dout

The queries' gradient runs over all keys, the keys' over all queries: no sum has two writers, so its
order, and its bits, do not depend on threads.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.attention.gemm import LANES32, LANES64, ROWS32, ROWS64, add_tile
from hotmax._kernels.attention.online_softmax import (
    KEYS,
    LARGEST32,
    LARGEST64,
    add_values,
    power_of,
    score,
)
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    LOG2E_LOW,
    exp2_narrow,
    two_difference,
    two_sum,
)
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.float64 import product


@inline
def weight(scores, low, r, j, bias, rise, rise_low, slope2, slope2_low, peak):
    """2**((rise * score + bias - peak) * slope2)."""
    if low is None:
        z = fma(scores[r, j], np.float32(rise), bias)
        return exp2_narrow((z - np.float32(peak)) * np.float32(slope2))
    else:
        z, z_low = product(scores[r, j], low[r, j], rise, rise_low)
        total, carry = two_sum(z, bias)
        d, d_low = two_difference(total, peak)
        return power_of(d, d_low + (carry + z_low), slope2, slope2_low)


@kernel
def gradient_row(
    scores, low, grads, grads_low, r, size, extra, biased, first, slope, slope_low, steep, peak,
    total, delta,
):  # fmt: skip
    """scores[r] becomes p, and grads[r], which holds dout . v, becomes steep * ds."""
    line = r if extra.shape[0] > 1 else 0
    some = extra.shape[0] > 0
    zero = scores.dtype.type(0.0)
    rise, rise_low, slope2, slope2_low = slope, slope_low, LOG2E, LOG2E_LOW
    if not biased:  # the peak is a score
        rise, rise_low = 1.0, 0.0
        slope2 = min(slope * LOG2E, LARGEST32 if low is None else LARGEST64)
        slope2_low = fma(slope, LOG2E, -slope2) + slope_low * LOG2E + slope * LOG2E_LOW
        slope2_low = 0.0 if slope2 >= LARGEST64 else slope2_low
    inverse = scores.dtype.type(1.0 / total)
    for j in range(size):
        bias = extra[line, first + j] if some else zero
        p = weight(scores, low, r, j, bias, rise, rise_low, slope2, slope2_low, peak) * inverse
        p = zero if bias == -np.inf else p
        change = np.float64(grads[r, j]) - delta
        if grads_low is not None:
            change += grads_low[r, j]
        scores[r, j] = p
        grads[r, j] = zero if p == 0.0 else p * change * steep
    if total != total:
        scores[r, :size] = np.nan
        grads[r, :size] = np.nan


@kernel
def gradient_tile(
    q,
    dout,
    keys,
    values,
    extra,
    biased,
    slope,
    slope_low,
    steep,
    visible,
    peak,
    total,
    delta,
    first,
    last,
    scores,
    low,
    grads,
    grads_low,
):
    """p and steep * ds of one tile of queries and the keys first..last, 0 where out of sight."""
    score(q, keys, 0, first, last, visible, scores, low)
    score(dout, values, 0, first, last, visible, grads, grads_low)
    for r in range(q.shape[0]):
        size = max(min(visible[r], last) - first, 0)
        gradient_row(
            scores, low, grads, grads_low, r, size, extra, biased, first, slope[r], slope_low[r],
            steep[r], peak[r], total[r], delta[r],
        )  # fmt: skip
        for j in range(size, last - first):
            scores[r, j] = 0.0
            grads[r, j] = 0.0


@kernel
def gradient_of_queries(
    q,
    dout,
    keys,
    values,
    columns,
    extra,
    biased,
    slope,
    slope_low,
    steep,
    visible,
    peak,
    total,
    delta,
    scores,
    low,
    grads,
    grads_low,
    dq,
    dq_low,
):
    """dq of one tile of queries; `columns` holds the keys as columns."""
    count = q.shape[0]
    factors, depths = np.ones(count, q.dtype), np.zeros(count, np.int64)
    seen = visible[count - 1]
    for first in range(0, seen, KEYS):
        last = min(first + KEYS, seen)
        gradient_tile(
            q, dout, keys, values, extra, biased, slope, slope_low, steep, visible, peak, total,
            delta, first, last, scores, low, grads, grads_low,
        )  # fmt: skip
        depths[:] = last - first
        add_values(grads, first, depths, columns, True, dq, dq_low, factors)


@kernel
def add_transposed(scores, columns, out, out_low, factors):
    """out += scores^T . columns, over all rows of scores."""
    width, features, depth = scores.shape[1], out.shape[1], columns.shape[1]
    rows = ROWS32 if out_low is None else ROWS64
    lanes = LANES32 if out_low is None else LANES64
    for p in range(columns.shape[0]):
        start = p * depth * lanes
        for i in range(0, out.shape[0], rows):
            at = i * features + p * lanes
            add_tile(
                scores, i, 1, width, columns, start, depth, out, out_low, at, features, factors, i,
                start + depth * lanes,
            )  # fmt: skip


@kernel
def add_gradient_of_keys(
    q,
    dout,
    keys,
    values,
    q_columns,
    dout_columns,
    extra,
    biased,
    slope,
    slope_low,
    steep,
    visible,
    peak,
    total,
    delta,
    first,
    last,
    scores,
    low,
    grads,
    grads_low,
    dk,
    dk_low,
    dv,
    dv_low,
):
    """Add what one tile of queries gives to dk and dv of the keys first..last."""
    gradient_tile(
        q, dout, keys, values, extra, biased, slope, slope_low, steep, visible, peak, total, delta,
        first, last, scores, low, grads, grads_low,
    )  # fmt: skip
    factors = np.ones(KEYS, q.dtype)
    add_transposed(grads, q_columns, dk, dk_low, factors)
    add_transposed(scores, dout_columns, dv, dv_low, factors)
