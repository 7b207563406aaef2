"""The forward pass of attention over tiles of queries, by online softmax over tiles of keys.

    out = acc / (l + exp(sink - m))

See scores.py for mask and bias, online_softmax.py for m, l and acc.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.attention.direct import DIRECT_QUERIES, add_values_directly, score_directly
from hotmax._kernels.attention.gemm import (
    LANES32,
    LANES64,
    ROWS32,
    ROWS64,
    are_finite,
    pack_columns,
    pack_rows,
)
from hotmax._kernels.attention.online_softmax import (
    beta2_of,
    denominator_of,
    exp_scores,
    max_of_row,
    peak_of_scores,
    weight_of_peak,
)
from hotmax._kernels.attention.scores import (
    TILE_KEYS,
    TILE_QUERIES,
    DoubleDouble,
    KeysAndValues,
    QueryTile,
    mask_and_bias,
    score_tile,
    set_query_betas,
)
from hotmax._kernels.attention.values import add_values, divide_double_double
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import WIDTH, fma, load, maximum, store_partial, to_float64


class LogitTerms(NamedTuple):
    """What turns scores into logits; an array has a row for each query, or one for all."""

    scale: Any
    temperature: Any
    sink: Any
    bias: Any
    has_bias: Any


class LowParts(NamedTuple):
    """Workspace for the lo parts of one tile; both are None for float32."""

    scores: Any
    acc: Any


@kernel
def update_softmax(count, first, last, tile, scores, lo, m, depths, factors):
    """Turn scores of the keys first..last into weights, and add them to the online softmax `m`."""
    bias, has_bias, beta, beta_lo = tile.bias, tile.has_bias, tile.beta.hi, tile.beta.lo
    peaks = np.empty(count, scores.dtype)
    line = scores.reshape(-1)
    for r in range(count):
        size = max(min(tile.visible[r], last) - first, 0)
        depths[r] = size
        if size > 0:
            if bias.shape[0] > 0:
                mask_and_bias(scores, lo, r, size, bias, first, has_bias, beta[r], beta_lo[r])
            peaks[r] = peak_of_scores(scores, line, lo, r, size, scores.dtype.type(m[0, r]))
    for r in range(count):
        size = depths[r]
        factors[r] = 1.0
        if size > 0:
            b, b_lo = (1.0, 0.0) if has_bias else (beta[r], beta_lo[r])
            before, peak = scores.dtype.type(m[0, r]), peaks[r]
            factor, total, rest = exp_scores(scores, line, lo, r, size, before, peak, b, b_lo)
            factors[r] = factor
            m[0, r] = peak
            old = m[1, r] * factor
            lost = fma(m[1, r], np.float64(factor), -old) + m[2, r] * factor
            m[1, r], carry = two_sum(old, total)
            m[2, r] = carry + (rest + lost)
        for j in range(size, last - first):
            scores[r, j] = 0.0


@inline
def clear_vanished_rows(factors, acc, acc_lo):
    """acc = 0 where its factor is 0, even if acc is infinite."""
    for r in range(factors.size):
        if factors[r] == 0.0:
            acc[r] = 0.0
            if acc_lo is not None:
                acc_lo[r] = 0.0


@kernel
def attend_packed(tile, keys, values, finite, scores, lo, acc, acc_lo, m):
    """attend with keys and values packed into panels."""
    count, seen = tile.q.shape[0], tile.visible[tile.q.shape[0] - 1]
    factors, depths = np.ones(count, acc.dtype), np.zeros(count, np.int64)
    for first in range(0, seen, TILE_KEYS):
        last = min(first + TILE_KEYS, seen)
        score_tile(tile.q, keys, 0, first, last, tile.visible, scores, lo)
        update_softmax(count, first, last, tile, scores, lo, m, depths, factors)
        clear_vanished_rows(factors, acc, acc_lo)
        add_values(scores, first, depths, values, finite[first // TILE_KEYS], acc, acc_lo, factors)


@kernel
def attend_unpacked(tile, size, keys, values, scores, lo, acc, acc_lo, m):
    """attend with keys and values as matrices, which are packed tile by tile.

    One or two queries read them without packing. `size` of the queries are not padding.
    """
    q = tile.q
    count, seen = q.shape[0], tile.visible[q.shape[0] - 1]
    factors, depths = np.ones(count, acc.dtype), np.zeros(count, np.int64)
    lanes = LANES32 if lo is None else LANES64
    rows = np.empty((TILE_KEYS // lanes, keys.shape[1], lanes), q.dtype)
    columns = np.empty((acc.shape[1] // lanes, TILE_KEYS, lanes), q.dtype)
    finite = np.empty(1, np.bool_)  # not shared: other threads see other keys of this tile
    direct = size <= DIRECT_QUERIES and lo is None and acc.shape[1] == values.shape[1]
    direct = direct and keys.shape[1] % WIDTH == 0
    count = size if direct else count
    for first in range(0, seen, TILE_KEYS):
        last = min(first + TILE_KEYS, seen)
        if direct:
            score_directly(q, count, keys, first, last, scores)
        else:
            pack_rows(keys[first:last], rows[: -(-(last - first) // lanes)])
            score_tile(q, rows, first, first, last, tile.visible, scores, lo)
        update_softmax(count, first, last, tile, scores, lo, m, depths, factors)
        clear_vanished_rows(factors, acc, acc_lo)
        if direct and add_values_directly(scores, count, depths, values, first, acc, factors):
            continue
        depths[count:] = depths[count - 1]
        are_finite(values[first:last], TILE_KEYS, finite)
        pack_columns(values[first:last], columns, 0)
        add_values(scores, 0, depths, columns, finite[0], acc, acc_lo, factors)


@kernel
def attend(tile, size, keys, values, finite, scores, lo, acc, acc_lo, m):
    """acc and the online softmax of one tile of queries over all keys.

    The rows of `m` are m, l and l_lo. With a bias m is in units of z, else it is a score. Numba
    compiles one of the two branches, by the dimensions of `keys`.
    """
    acc[:] = 0.0
    if acc_lo is not None:
        acc_lo[:] = 0.0
    m[0, :] = -np.inf
    m[1:, :] = 0.0
    if keys.ndim == 3:
        attend_packed(tile, keys, values, finite, scores, lo, acc, acc_lo, m)
    else:
        attend_unpacked(tile, size, keys, values, scores, lo, acc, acc_lo, m)


@kernel
def finish(acc, acc_lo, m, has_bias, beta, sink, out, numbers):
    """out = acc / (l + exp(sink - m)); numbers: log of that denominator, m, and the denominator."""
    acc, out = borrowed(acc), borrowed(out)
    for r in range(out.shape[0]):
        s, b, b_lo = of_row(sink, r), beta.hi[r], beta.lo[r]
        unit = weight_of_peak(m[0, r], beta2_of(1.0 if has_bias else b)) if acc_lo is None else 1.0
        total, rest, numbers[r, 0] = denominator_of(
            m[0, r], m[1, r] / unit, m[2, r] / unit, has_bias, b, b_lo, s
        )
        numbers[r, 1], numbers[r, 2] = m[0, r], total
        if total == np.inf:  # all weights are 0, also those of infinite values
            out[r] = 0.0
        elif acc_lo is None:
            inverse = 1.0 / (total * unit)
            line, sums = out[r], acc[r]
            for j in range(0, line.size, WIDTH):
                weighted = to_float64(load(sums, j)) * inverse
                store_partial(line, j, line.size - j, weighted)
        else:
            for j in range(out.shape[1]):
                out[r, j] = divide_double_double(acc[r, j], acc_lo[r, j], total, rest)


@kernel
def pad_queries(source, q, beta, beta_lo):
    """Pad queries to whole rows of a register tile. A negative beta is moved, exactly, into q."""
    for r in range(source.shape[0]):
        sign = math.copysign(1.0, beta[r])
        beta[r] *= sign
        beta_lo[r] *= sign
        for j in range(source.shape[1]):
            q[r, j] = source[r, j] * q.dtype.type(sign)
    q[source.shape[0] :] = 0.0


@kernel
def attend_tiles(queries, key_values, logits, first_visible, length, out, numbers, low):
    """Attention of queries of one head; the first one sees `first_visible` of `length` keys."""
    kind, features = queries.dtype, queries.shape[1]
    step = ROWS32 if low.acc is None else ROWS64
    lanes = LANES32 if low.acc is None else LANES64
    rows = min(-(-queries.shape[0] // step) * step, TILE_QUERIES)
    betas, visible = np.empty((2, rows)), np.empty(rows, np.int64)
    q, scores = np.empty((rows, features), kind), np.empty((rows, TILE_KEYS), kind)
    acc, m = np.empty((rows, -(-out.shape[1] // lanes) * lanes), kind), np.empty((3, rows))
    temperature, sink, bias = logits.temperature, logits.sink, logits.bias
    for first in range(0, queries.shape[0], TILE_QUERIES):
        size = min(queries.shape[0] - first, TILE_QUERIES)
        part, count = slice(first, first + size), -(-size // step) * step
        beta = DoubleDouble(betas[0, :count], betas[1, :count])
        beta.hi[size:], beta.lo[size:] = 0.0, 0.0
        t = temperature[part] if temperature.size > 1 else temperature
        set_query_betas(logits.scale, t, beta.hi[:size], beta.lo[:size])
        pad_queries(queries[part], q[:count], beta.hi, beta.lo)
        for r in range(count):
            visible[r] = min(max(first_visible + first + min(r, size - 1), 0), length)
        own_bias = bias[first : first + count] if bias.shape[0] > 1 else bias
        tile = QueryTile(q[:count], beta, own_bias, logits.has_bias, visible[:count])
        attend(
            tile, size, key_values.keys, key_values.values, key_values.finite, scores[:count],
            low.scores, acc[:count], low.acc, m,
        )  # fmt: skip
        own_sink = sink[part] if sink.size > 1 else sink
        finish(acc, low.acc, m, logits.has_bias, beta, own_sink, out[part], numbers[part])


@kernel
def attend_heads(start, stop, group, q, key_values, logits, shift, out, numbers, low):
    """Tiles start..stop of the queries of all heads, which have neither bias nor mask.

    Each head of keys and values serves `group` heads of queries. Query i sees keys up to i + shift.
    """
    queries, length = q.shape[1], key_values.values.shape[-2]
    tiles = -(-queries // TILE_QUERIES)
    at = start
    while at < stop:
        head, number = divmod(at, tiles)
        more = min(stop - at, tiles - number)  # of the same head
        at += more
        first = number * TILE_QUERIES
        last = min(first + more * TILE_QUERIES, queries)
        own = head // group
        own_key_values = KeysAndValues(
            key_values.keys[own], key_values.values[own], key_values.finite[own]
        )
        attend_tiles(
            q[head, first:last], own_key_values, logits, first + 1 + shift, length,
            out[head, first:last], numbers[head, first:last], low,
        )  # fmt: skip


@kernel
def pack_heads(k, v, keys, values, finite):
    """Pack the keys and values of whole heads into panels."""
    for head in range(k.shape[0]):
        pack_rows(k[head], keys[head])
        pack_columns(v[head], values[head], 0)
        are_finite(v[head], TILE_KEYS, finite[head])


@kernel
def zero_temperature_weights(scores, lo, r, size, bias, has_bias, sink):
    """The limit of beta = inf: weights exp(bias) on the largest scores, 0 on all others.

    Ties at T = 0 are decided here: equal scores share the weight by their biases. Returns the
    logarithm of the denominator.
    """
    row = scores[r, :size]
    if bias.shape[0] > 0:
        mask_and_bias(scores, lo, r, size, bias, 0, False, 0.0, 0.0)
    if lo is not None:
        for j in range(size):
            row[j] += lo[r, j] if abs(row[j]) < np.inf else 0.0
    peak = max_of_row(scores, r, size, scores.dtype.type(-np.inf))
    if peak != peak:
        row[:] = np.nan
        return np.nan
    if peak == -np.inf or (peak < 0.0 and sink > -np.inf) or sink == np.inf:
        row[:] = 0.0
        return sink
    bias_row = r if bias.shape[0] > 1 else 0
    top, total = sink if peak == 0.0 else -np.inf, 0.0
    for second_pass in range(2):  # the largest bias among the ties (or the sink), then the weights
        for j in range(row.size):
            if row[j] == peak:
                b = np.float64(bias[bias_row, j]) if has_bias else 0.0
                if not second_pass:
                    top = maximum(top, b)
                else:
                    total += 1.0 if b == top else math.exp(b - top)
    whole = total + math.exp(sink - top) if peak == 0.0 else total
    for j in range(row.size):
        weight = 0.0
        if row[j] == peak:
            b = np.float64(bias[bias_row, j]) if has_bias else 0.0
            weight = (1.0 if b == top else math.exp(b - top)) / whole
        row[j] = weight
    return top + math.log(whole) if peak == 0.0 else math.copysign(np.inf, peak)


@kernel
def attention_weights_tile(tile, keys, sink, scores, lo, logsumexp):
    """scores[r] = the weights of query r over all keys."""
    bias, has_bias, beta, visible = tile.bias, tile.has_bias, tile.beta, tile.visible
    count = tile.q.shape[0]
    line = scores.reshape(-1)
    score_tile(tile.q, keys, 0, 0, visible[count - 1], visible, scores, lo)
    for r in range(count):
        size, b, b_lo = visible[r], beta.hi[r], beta.lo[r]
        scores[r, size:] = 0.0
        if b == np.inf:
            logsumexp[r] = zero_temperature_weights(scores, lo, r, size, bias, has_bias, sink[r])
            continue
        if bias.shape[0] > 0:
            mask_and_bias(scores, lo, r, size, bias, 0, has_bias, b, b_lo)
        least = scores.dtype.type(-np.inf)
        peak = peak_of_scores(scores, line, lo, r, size, least)
        e, e_lo = (1.0, 0.0) if has_bias else (b, b_lo)  # a bias: beta is part of the scores
        _, total, rest = exp_scores(scores, line, lo, r, size, least, peak, e, e_lo)
        unit = weight_of_peak(peak, beta2_of(e)) if lo is None else 1.0
        total, rest, logsumexp[r] = denominator_of(
            peak, total / unit, rest / unit, has_bias, b, b_lo, sink[r]
        )
        inverse = 1.0 / (total * unit)
        for j in range(size):
            scores[r, j] = scores[r, j] * inverse
