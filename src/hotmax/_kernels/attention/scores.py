"""Scores of one tile of queries against one tile of keys, with mask and bias.

    scores = q . k                     one tile of keys at a time, in registers
    z      = beta * score + bias       beta = scale / T; -inf where a key is masked

A bias array holds the bias of each key, and -inf where `where` is False: that is where a mask is
applied (`mask_and_bias`). It has one row for each query, one row for all, or no rows. Without a
bias proper (`has_bias` False) it holds only 0 and -inf. `causal` hides keys by a count: query r of
a tile sees the first visible[r] keys, and visible never decreases with r.

float64 scores are double-doubles, so that scores up to 1e15 keep their last digits. Arrays named
`lo` hold the second part and are None for float32. Numba then leaves that branch out, but only if
`lo` is an argument of the function itself: so it is passed apart where a function tests it.
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
    multiply_tile,
)
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.double_double import dd_div, dd_mul, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import fma

TILE_QUERIES = 96  # a multiple of the rows of a register tile; a tile stays in the L1 cache
TILE_KEYS = 576  # a multiple of the lanes of a panel, and of the rows of a register tile


class DoubleDouble(NamedTuple):
    """Numbers as hi + lo; lo is None for float32."""

    hi: Any
    lo: Any


class QueryTile(NamedTuple):
    """A tile of queries, padded to whole rows of a register tile, with what makes its logits."""

    q: Any  # negated where scale / T is negative, so that beta is positive
    beta: Any  # DoubleDouble of float64: scale / T of each query
    bias: Any
    has_bias: Any
    visible: Any


class KeysAndValues(NamedTuple):
    """Keys and values, both as panels or both as matrices, and which tiles of values are finite."""

    keys: Any
    values: Any
    finite: Any


@kernel
def set_query_betas(scale, temperature, beta, beta_lo):
    """beta = scale / T as a double-double; 0 for a scale of 0, whatever T is."""
    for r in range(beta.size):
        t = of_row(temperature, r)
        beta[r], beta_lo[r] = 0.0, 0.0
        if scale != 0.0:
            beta[r] = scale / t
            if t != 0.0 and abs(beta[r]) < np.inf and beta[r] != 0.0:
                beta_lo[r] = dd_div(scale, 0.0, t)[1]


@kernel
def score_tile(q, keys, origin, first, last, visible, scores, lo):
    """scores[r, key - first] = q[r] . key, for the keys that query r, or a later one, can see.

    The panels begin at key `origin`.
    """
    depth, width = q.shape[1], scores.shape[1]
    lanes = LANES32 if lo is None else LANES64
    rows = ROWS32 if lo is None else ROWS64
    for p in range(first // lanes, -(-last // lanes)):
        start = (p * lanes - origin) * depth
        right = Right(keys, start, depth, start + lanes * depth)
        for i in range(0, q.shape[0], rows):
            if visible[i + rows - 1] > p * lanes:
                at = i * width + p * lanes - first
                multiply_tile(Left(q, i * depth, depth, 1), right, Sums(scores, lo, at, width))


# A row of a tile is given by its index and size: creating a slice costs as much as its arithmetic.


@inline
def mask_row(scores, r, size, bias, bias_row, first):
    for j in range(size):
        masked = bias[bias_row, first + j] == -np.inf
        scores[r, j] = scores.dtype.type(-np.inf) if masked else scores[r, j]


@inline
def bias_row_float32(scores, r, size, bias, bias_row, first, beta):
    """Scores become z = beta * score + bias."""
    for j in range(size):
        b = bias[bias_row, first + j]
        z = fma(scores[r, j], beta, b)
        scores[r, j] = np.float32(-np.inf) if b == -np.inf else z


@inline
def bias_row_float64(scores, lo, r, size, bias, bias_row, first, beta, beta_lo):
    for j in range(size):
        b = bias[bias_row, first + j]
        z, z_lo = dd_mul(scores[r, j], lo[r, j], beta, beta_lo)
        total, carry = two_sum(z, b)
        scores[r, j] = -np.inf if b == -np.inf else total
        lo[r, j] = carry + z_lo if abs(scores[r, j]) < np.inf else 0.0


@kernel
def mask_and_bias(scores, lo, r, size, bias, first, has_bias, beta, beta_lo):
    """Apply mask and bias to row r of the scores, whose first key is `first`."""
    bias_row = r if bias.shape[0] > 1 else 0
    if not has_bias:
        mask_row(scores, r, size, bias, bias_row, first)
    elif lo is None:
        bias_row_float32(scores, r, size, bias, bias_row, first, np.float32(beta))
    else:
        bias_row_float64(scores, lo, r, size, bias, bias_row, first, beta, beta_lo)
