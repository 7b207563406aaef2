"""Attention over tiles of queries: keys stream by, a tile at a time, past a running softmax.

    out = acc / (l + exp(sink - m))

The words that it is made of, and the names of their arguments, are those of running.py.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.attention.direct import DIRECT, add_values_directly, score_directly
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
    KEYS,
    QUERIES,
    add_values,
    close,
    largest,
    over_two_words,
    peak_of,
    prepare_row,
    score,
    slope2_of,
    slopes_of,
    soften,
    unit_of,
)
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import two_sum
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import WIDTH, fma, load, maximum, store_some, widened


@kernel
def soften_tile(
    count, first, last, extra, biased, slope, slope_low, visible, scores, low, m, peaks, depths,
    factors,
):  # fmt: skip
    """Scores of the keys first..last become weights, and are taken into (m, l)."""
    line = scores.reshape(-1)
    for r in range(count):
        size = max(min(visible[r], last) - first, 0)
        depths[r] = size
        if size > 0:
            if extra.shape[0] > 0:
                prepare_row(scores, low, r, size, extra, first, biased, slope[r], slope_low[r])
            peaks[r] = peak_of(scores, line, low, r, size, scores.dtype.type(m[0, r]))
    for r in range(count):
        size = depths[r]
        factors[r] = 1.0
        if size > 0:
            steep, steep_low = (1.0, 0.0) if biased else (slope[r], slope_low[r])
            before, peak = scores.dtype.type(m[0, r]), peaks[r]
            factor, total, rest = soften(scores, line, low, r, size, before, peak, steep, steep_low)
            factors[r] = factor
            m[0, r] = peak
            old = m[1, r] * factor
            lost = fma(m[1, r], np.float64(factor), -old) + m[2, r] * factor
            m[1, r], carry = two_sum(old, total)
            m[2, r] = carry + (rest + lost)
        for j in range(size, last - first):
            scores[r, j] = 0.0


@inline
def forget(factors, acc, acc_low):
    """What shrinks to nothing is 0, though it be infinite."""
    for r in range(factors.size):
        if factors[r] == 0.0:
            acc[r] = 0.0
            if acc_low is not None:
                acc_low[r] = 0.0


@kernel
def attend(
    q, size, keys, values, clean, extra, biased, slope, slope_low, visible, scores, low, acc,
    acc_low, m,
):  # fmt: skip
    """acc and (m, l) of one tile of queries over all keys; `m` has the rows m, l, l_low.

    With a bias the slope is worked into the scores, and m is in units of z; else m is a score.
    Keys and values come packed, or as matrices: those are packed tile by tile, or read as they are
    if there are but one or two queries. `size` of the queries are not padding.
    """
    count = q.shape[0]
    factors, peaks = np.ones(count, acc.dtype), np.empty(count, acc.dtype)
    depths = np.zeros(count, np.int64)
    acc[:] = 0.0
    if acc_low is not None:
        acc_low[:] = 0.0
    m[0, :] = -np.inf
    m[1:, :] = 0.0
    seen = visible[count - 1]
    if keys.ndim == 3:
        for first in range(0, seen, KEYS):
            last = min(first + KEYS, seen)
            score(q, keys, 0, first, last, visible, scores, low)
            soften_tile(
                count, first, last, extra, biased, slope, slope_low, visible, scores, low, m,
                peaks, depths, factors,
            )  # fmt: skip
            forget(factors, acc, acc_low)
            add_values(scores, first, depths, values, clean[first // KEYS], acc, acc_low, factors)
    else:
        lanes = LANES32 if low is None else LANES64
        rows = np.empty((KEYS // lanes, keys.shape[1], lanes), q.dtype)
        columns = np.empty((acc.shape[1] // lanes, KEYS, lanes), q.dtype)
        seen_clean = np.empty(1, np.bool_)  # its own: other threads see other keys of this tile
        direct = size <= DIRECT and low is None and acc.shape[1] == values.shape[1]
        direct = direct and keys.shape[1] % WIDTH == 0
        count = size if direct else count
        for first in range(0, seen, KEYS):
            last = min(first + KEYS, seen)
            if direct:
                score_directly(q, count, keys, first, last, scores)
            else:
                pack_rows(keys[first:last], rows[: -(-(last - first) // lanes)])
                score(q, rows, first, first, last, visible, scores, low)
            soften_tile(
                count, first, last, extra, biased, slope, slope_low, visible, scores, low, m,
                peaks, depths, factors,
            )  # fmt: skip
            forget(factors, acc, acc_low)
            if direct and add_values_directly(scores, count, depths, values, first, acc, factors):
                continue
            depths[count:] = depths[count - 1]
            are_finite(values[first:last], KEYS, seen_clean)
            pack_columns(values[first:last], columns, 0)
            add_values(scores, 0, depths, columns, seen_clean[0], acc, acc_low, factors)


@kernel
def finish(acc, acc_low, m, biased, slope, slope_low, sink, out, numbers):
    """out = acc / (l + exp(sink - m)); numbers: that denominator's logarithm, m, and itself."""
    acc, out = borrowed(acc), borrowed(out)
    for r in range(out.shape[0]):
        s = of_row(sink, r)
        unit = unit_of(m[0, r], slope2_of(1.0 if biased else slope[r])) if acc_low is None else 1.0
        total, rest, numbers[r, 0] = close(
            m[0, r], m[1, r] / unit, m[2, r] / unit, biased, slope[r], slope_low[r], s
        )
        numbers[r, 1], numbers[r, 2] = m[0, r], total
        if total == np.inf:  # no weight is left, for infinite values either
            out[r] = 0.0
        elif acc_low is None:
            inverse = 1.0 / (total * unit)
            line, sums = out[r], acc[r]
            for j in range(0, line.size, WIDTH):
                weighted = widened(load(sums, j)) * inverse
                store_some(line, j, line.size - j, weighted)
        else:
            for j in range(out.shape[1]):
                out[r, j] = over_two_words(acc[r, j], acc_low[r, j], total, rest)


@kernel
def pad_queries(source, q, slope, slope_low):
    """Queries in whole rows of registers; those of a negative slope are turned round, exactly."""
    for r in range(source.shape[0]):
        turned = math.copysign(1.0, slope[r])
        sign = q.dtype.type(turned)
        slope[r] *= turned
        slope_low[r] *= turned
        for j in range(source.shape[1]):
            q[r, j] = source[r, j] * sign
    q[source.shape[0] :] = 0.0


@kernel
def attend_tiles(
    source,
    keys,
    values,
    clean,
    extra,
    biased,
    scale,
    temperature,
    sink,
    first_visible,
    length,
    out,
    numbers,
    low,
    acc_low,
):
    """Attention of some queries, the first of which sees `first_visible` of `length` keys.

    temperature, sink and extra: a row for each query, or one for all. `low` and `acc_low` are room
    for the second words of one tile, or None.
    """
    kind = source.dtype
    step = ROWS32 if low is None else ROWS64
    lanes = LANES32 if low is None else LANES64
    room = min(-(-source.shape[0] // step) * step, QUERIES)
    slopes, visible = np.empty((2, room)), np.empty(room, np.int64)
    q, scores = np.empty((room, source.shape[1]), kind), np.empty((room, KEYS), kind)
    acc, m = np.empty((room, -(-out.shape[1] // lanes) * lanes), kind), np.empty((3, room))
    for first in range(0, source.shape[0], QUERIES):
        size = min(source.shape[0] - first, QUERIES)
        part, count = slice(first, first + size), -(-size // step) * step
        slope, slope_low = slopes[0, :count], slopes[1, :count]
        slope[size:], slope_low[size:] = 0.0, 0.0
        heat = temperature[part] if temperature.size > 1 else temperature
        slopes_of(scale, heat, slope[:size], slope_low[:size])
        pad_queries(source[part], q[:count], slope, slope_low)
        for r in range(count):
            visible[r] = min(max(first_visible + first + min(r, size - 1), 0), length)
        attend(
            q[:count],
            size,
            keys,
            values,
            clean,
            extra[part] if extra.shape[0] > 1 else extra,
            biased,
            slope,
            slope_low,
            visible[:count],
            scores[:count],
            low,
            acc[:count],
            acc_low,
            m,
        )
        own = sink[part] if sink.size > 1 else sink
        finish(acc, acc_low, m, biased, slope, slope_low, own, out[part], numbers[part])


@kernel
def attend_heads(
    start, stop, tiles, group, q, keys, values, clean, scale, temperature, sink, shift, out,
    numbers, low, acc_low,
):  # fmt: skip
    """Tiles start..stop of the queries of all heads, which have neither bias nor mask.

    Each head of keys and values serves `group` heads of queries, and has its own line of `clean`.
    """
    queries, length = q.shape[1], values.shape[-2]
    nothing = np.empty((0, 0), q.dtype)
    at = start
    while at < stop:
        head, number = divmod(at, tiles)
        more = min(stop - at, tiles - number)  # of the same head
        at += more
        first = number * QUERIES
        last = min(first + more * QUERIES, queries)
        own = head // group
        attend_tiles(
            q[head, first:last],
            keys[own],
            values[own],
            clean[own],
            nothing,
            False,
            scale,
            temperature,
            sink,
            first + 1 + shift,
            length,
            out[head, first:last],
            numbers[head, first:last],
            low,
            acc_low,
        )


@kernel
def pack_heads(k, v, keys, values, clean):
    """The keys and values of whole heads, in panels."""
    for head in range(k.shape[0]):
        pack_rows(k[head], keys[head])
        pack_columns(v[head], values[head], 0)
        are_finite(v[head], KEYS, clean[head])


@kernel
def harden(scores, low, r, size, extra, biased, sink):
    """The limit of an infinite slope: weights exp(bias) on the largest scores, 0 on all others.

    Gives the logarithm of the denominator.
    """
    row = scores[r, :size]
    if extra.shape[0] > 0:
        prepare_row(scores, low, r, size, extra, 0, False, 0.0, 0.0)
    if low is not None:
        for j in range(size):
            row[j] += low[r, j] if abs(row[j]) < np.inf else 0.0
    peak = largest(scores, r, size, scores.dtype.type(-np.inf))
    if peak != peak:
        row[:] = np.nan
        return np.nan
    if peak == -np.inf or (peak < 0.0 and sink > -np.inf) or sink == np.inf:
        row[:] = 0.0
        return sink
    top, total = sink if peak == 0.0 else -np.inf, 0.0
    for again in range(2):  # the largest bias among the ties (or the sink), then their weights
        for j in range(row.size):
            if row[j] == peak:
                b = np.float64(extra[r if extra.shape[0] > 1 else 0, j]) if biased else 0.0
                if not again:
                    top = maximum(top, b)
                else:
                    total += 1.0 if b == top else math.exp(b - top)
    whole = total + math.exp(sink - top) if peak == 0.0 else total
    for j in range(row.size):
        weight = 0.0
        if row[j] == peak:
            b = np.float64(extra[r if extra.shape[0] > 1 else 0, j]) if biased else 0.0
            weight = (1.0 if b == top else math.exp(b - top)) / whole
        row[j] = weight
    return top + math.log(whole) if peak == 0.0 else math.copysign(np.inf, peak)


@kernel
def weigh(q, keys, extra, biased, slope, slope_low, sink, visible, scores, low, logsumexp):
    """scores[r, :] becomes the weights of query r over all keys."""
    count = q.shape[0]
    line = scores.reshape(-1)
    score(q, keys, 0, 0, visible[count - 1], visible, scores, low)
    for r in range(count):
        size = visible[r]
        scores[r, size:] = 0.0
        if slope[r] == np.inf:
            logsumexp[r] = harden(scores, low, r, size, extra, biased, sink[r])
            continue
        if extra.shape[0] > 0:
            prepare_row(scores, low, r, size, extra, 0, biased, slope[r], slope_low[r])
        steep, steep_low = (1.0, 0.0) if biased else (slope[r], slope_low[r])
        least = scores.dtype.type(-np.inf)
        peak = peak_of(scores, line, low, r, size, least)
        _, total, rest = soften(scores, line, low, r, size, least, peak, steep, steep_low)
        unit = unit_of(peak, slope2_of(steep)) if low is None else 1.0
        total, rest, logsumexp[r] = close(
            peak, total / unit, rest / unit, biased, slope[r], slope_low[r], sink[r]
        )
        inverse = 1.0 / (total * unit)
        for j in range(size):
            scores[r, j] = scores[r, j] * inverse
