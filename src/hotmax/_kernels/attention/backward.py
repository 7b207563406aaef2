"""The gradient of attention, one tile of queries by one tile of keys at a time.

    p  = exp(beta * score + bias - peak) / total    recomputed from the scores
    ds = p * (dout . v - delta)                     delta = dout . out
    dq += beta * ds . k      dk += beta * ds^T . q      dv += p^T . dout

One kernel sums dq over all keys, another dk and dv over all queries: each sum has one writer, so
its order, and its bits, do not depend on threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.attention.gemm import (
    LANES32,
    LANES64,
    ROWS32,
    ROWS64,
    Left,
    Right,
    Sums,
    add_tile,
)
from hotmax._kernels.attention.online_softmax import LARGEST32, LARGEST64, exp2_double_double
from hotmax._kernels.attention.scores import TILE_KEYS, score_tile
from hotmax._kernels.attention.values import add_values
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LOG2E, LOG2E_LO, exp2_float32
from hotmax._kernels.numeric.double_double import dd_mul, two_diff, two_sum
from hotmax._kernels.simd.vectors import fma


class GradientTile(NamedTuple):
    """A tile of queries, and what its gradients need of the forward pass."""

    queries: Any  # QueryTile
    dout: Any
    factor: Any  # of ds: scale / T with its sign, or 1 for the gradient of the bias
    peak: Any
    total: Any
    delta: Any


class Products(NamedTuple):
    """Workspace: scores, which become p, and dout . v, which becomes factor * ds."""

    scores: Any
    scores_lo: Any
    grads: Any
    grads_lo: Any


@inline
def weight(scores, lo, r, j, bias, rise, rise_lo, beta2, beta2_lo, peak):
    """2**((rise * score + bias - peak) * beta2)."""
    if lo is None:
        z = fma(scores[r, j], np.float32(rise), bias)
        return exp2_float32((z - np.float32(peak)) * np.float32(beta2))
    else:
        z, z_lo = dd_mul(scores[r, j], lo[r, j], rise, rise_lo)
        total, carry = two_sum(z, bias)
        d, d_lo = two_diff(total, peak)
        return exp2_double_double(d, d_lo + (carry + z_lo), beta2, beta2_lo)


@kernel
def gradient_row(scores, lo, grads, grads_lo, r, size, first, tile):
    """scores[r] becomes p, and grads[r], which holds dout . v, becomes factor * ds."""
    bias, beta, beta_lo = tile.queries.bias, tile.queries.beta.hi[r], tile.queries.beta.lo[r]
    factor, peak, total, delta = tile.factor[r], tile.peak[r], tile.total[r], tile.delta[r]
    line = r if bias.shape[0] > 1 else 0
    adds_bias = bias.shape[0] > 0
    zero = scores.dtype.type(0.0)
    rise, rise_lo, beta2, beta2_lo = beta, beta_lo, LOG2E, LOG2E_LO
    if not tile.queries.has_bias:  # the peak is a score
        rise, rise_lo = 1.0, 0.0
        beta2 = min(beta * LOG2E, LARGEST32 if lo is None else LARGEST64)
        beta2_lo = fma(beta, LOG2E, -beta2) + beta_lo * LOG2E + beta * LOG2E_LO
        beta2_lo = 0.0 if beta2 >= LARGEST64 else beta2_lo
    inverse = scores.dtype.type(1.0 / total)
    for j in range(size):
        b = bias[line, first + j] if adds_bias else zero
        p = weight(scores, lo, r, j, b, rise, rise_lo, beta2, beta2_lo, peak) * inverse
        p = zero if b == -np.inf else p
        change = np.float64(grads[r, j]) - delta
        if grads_lo is not None:
            change += grads_lo[r, j]
        scores[r, j] = p
        grads[r, j] = zero if p == 0.0 else p * change * factor
    if total != total:
        scores[r, :size] = np.nan
        grads[r, :size] = np.nan


@kernel
def gradient_tile(tile, keys, values, first, last, work):
    """p and factor * ds of one tile of queries and the keys first..last, 0 where not visible."""
    scores, lo, grads, grads_lo = work.scores, work.scores_lo, work.grads, work.grads_lo
    q, visible = tile.queries.q, tile.queries.visible
    score_tile(q, keys, 0, first, last, visible, scores, lo)
    score_tile(tile.dout, values, 0, first, last, visible, grads, grads_lo)
    for r in range(q.shape[0]):
        size = max(min(visible[r], last) - first, 0)
        gradient_row(scores, lo, grads, grads_lo, r, size, first, tile)
        for j in range(size, last - first):
            scores[r, j] = 0.0
            grads[r, j] = 0.0


@kernel
def gradient_of_queries(tile, keys, values, columns, work, dq):
    """dq of one tile of queries; `columns` are the keys, packed by columns."""
    q, visible = tile.queries.q, tile.queries.visible
    count = q.shape[0]
    factors, depths = np.ones(count, q.dtype), np.zeros(count, np.int64)
    seen = visible[count - 1]
    for first in range(0, seen, TILE_KEYS):
        last = min(first + TILE_KEYS, seen)
        gradient_tile(tile, keys, values, first, last, work)
        depths[:] = last - first
        add_values(work.grads, first, depths, columns, True, dq.hi, dq.lo, factors)


@kernel
def add_transposed(scores, columns, out, out_lo, factors):
    """out += scores^T . columns, over all rows of scores."""
    width, features, depth = scores.shape[1], out.shape[1], columns.shape[1]
    rows = ROWS32 if out_lo is None else ROWS64
    lanes = LANES32 if out_lo is None else LANES64
    for p in range(columns.shape[0]):
        start = p * depth * lanes
        right = Right(columns, start, depth, start + depth * lanes)
        for i in range(0, out.shape[0], rows):
            sums = Sums(out, out_lo, i * features + p * lanes, features)
            add_tile(Left(scores, i, 1, width), right, sums, factors, i)


@kernel
def add_gradient_of_keys(tile, keys, values, q_columns, dout_columns, first, last, work, dk, dv):
    """Add the contribution of one tile of queries to dk and dv of the keys first..last."""
    gradient_tile(tile, keys, values, first, last, work)
    factors = np.ones(TILE_KEYS, tile.queries.q.dtype)
    add_transposed(work.grads, q_columns, dk.hi, dk.lo, factors)
    add_transposed(work.scores, dout_columns, dv.hi, dv.lo, factors)
