"""The words of attention: scores of a tile, softmax that runs along, weighted values.

    scores = q . k                            a tile of keys through the registers
    z      = slope * score + bias             slope = scale / T; -inf where a key is not to be seen
    m, l, acc                                 the largest z so far, sum exp(z - m), sum exp(z - m) v

When m grows, l and acc shrink by the same factor. float32 is computed in float32, with l in
float64; float64 in two words, so that scores up to 1e15 keep their last digits (arrays named
`low` hold the second word and are None for float32: that branch is then not compiled).

`extra` holds the bias of each key, -inf where it is masked; one row of it may stand for all, and no
row for nothing. Query r of a tile sees the first `visible[r]` keys, which never fall with r.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.attention.gemm import LANES32, LANES64, ROWS32, ROWS64, add_tile, multiply_tile
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    ROUND32,
    UNBIAS64,
    exp2_fraction32,
    exp2_narrow,
    exp2_parts,
    exp2_plain,
    two_difference,
    two_sum,
)
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import (
    WIDTH,
    choose,
    entry,
    fma,
    load,
    maximum,
    scaled_by,
    spread,
    store,
    sum_of,
    widened,
)
from hotmax._kernels.softmax.float64 import over, product

QUERIES = 96  # in a tile: whole rows of registers, which stay in the first-level cache
KEYS = 576  # keys in a tile: whole panels, and whole rows when the tile is read as columns

DEPTH = 64  # keys whose weighted values are added up apart: short sums round less than long ones

LARGEST32 = 3e38
FINITE32 = 2.0**128 - 2.0**104  # the largest float32: below its negative there is only -inf
WHOLE = 2.0**13  # powers of two up to here are split into a whole number and a float32 fraction
LARGEST64 = 1e300
LOG_LARGEST64 = 690.7755
LOWEST = -1020.0  # 2**LOWEST is nothing beside 1
NORMAL = -125.0  # and float32 weights below 2**NORMAL are 0


@kernel
def slopes_of(scale, temperature, slope, slope_low):
    """scale / T in two words. 0 for a scale of 0, whatever T."""
    for r in range(slope.size):
        t = of_row(temperature, r)
        slope[r], slope_low[r] = 0.0, 0.0
        if scale != 0.0:
            slope[r] = scale / t
            if t != 0.0 and abs(slope[r]) < np.inf and slope[r] != 0.0:
                slope_low[r] = over(scale, 0.0, t)[1]


@kernel
def score(q, keys, origin, first, last, visible, scores, low):
    """scores[r, key - first] = q[r] . key, for the keys that query r, or one below it, can see.

    The panels begin at key `origin`.
    """
    depth, width = q.shape[1], scores.shape[1]
    lanes = LANES32 if low is None else LANES64
    rows = ROWS32 if low is None else ROWS64
    for p in range(first // lanes, -(-last // lanes)):
        start = (p * lanes - origin) * depth
        upcoming = start + lanes * depth
        for i in range(0, q.shape[0], rows):
            if visible[i + rows - 1] > p * lanes:
                at = i * width + p * lanes - first
                multiply_tile(
                    q, i * depth, depth, 1, keys, start, depth, scores, low, at, width, upcoming
                )  # fmt: skip


# A row of a tile is told by its number and its size: a slice would cost as much as its arithmetic.


@inline
def mask_row(scores, r, size, extra, line, first):
    for j in range(size):
        masked = extra[line, first + j] == -np.inf
        scores[r, j] = scores.dtype.type(-np.inf) if masked else scores[r, j]


@inline
def bias_narrow(scores, r, size, extra, line, first, slope):
    """Scores become z = slope * score + bias."""
    for j in range(size):
        bias = extra[line, first + j]
        z = fma(scores[r, j], slope, bias)
        scores[r, j] = np.float32(-np.inf) if bias == -np.inf else z


@inline
def bias_wide(scores, low, r, size, extra, line, first, slope, slope_low):
    for j in range(size):
        bias = extra[line, first + j]
        z, z_low = product(scores[r, j], low[r, j], slope, slope_low)
        total, carry = two_sum(z, bias)
        scores[r, j] = -np.inf if bias == -np.inf else total
        low[r, j] = carry + z_low if abs(scores[r, j]) < np.inf else 0.0


@kernel
def prepare_row(scores, low, r, size, extra, first, biased, slope, slope_low):
    """Mask and bias of row r of the scores, whose first key is `first`."""
    line = r if extra.shape[0] > 1 else 0
    if not biased:
        mask_row(scores, r, size, extra, line, first)
    elif low is None:
        bias_narrow(scores, r, size, extra, line, first, np.float32(slope))
    else:
        bias_wide(scores, low, r, size, extra, line, first, slope, slope_low)


@inline
def largest(scores, r, size, m):
    for j in range(size):
        m = maximum(m, scores[r, j])
    return m


@kernel
def count_infinite(scores, r, size):
    """+inf becomes 1, all else 0: entries of +inf share all the mass."""
    count = 0.0
    for j in range(size):
        one = 1.0 if scores[r, j] == np.inf else 0.0
        scores[r, j] = one
        count += one
    return count


# float32 weights are exp(z) / 2**k, where k is the whole number nearest the largest z / log 2: it
# costs no digits, and is the same whatever the order in which the keys come.


@inline
def slope2_of(slope):
    """slope / log 2, as float32 rows use it."""
    return np.float32(min(slope * LOG2E, LARGEST32))


@inline
def reference(m, slope2):
    """k, for a largest score of m; past WHOLE it is no whole number but slope2 * m itself."""
    y = np.float64(m) * np.float64(slope2)
    return np.rint(y) if abs(y) < WHOLE else y


@inline
def unit_of(m, slope2):
    """What a score of m weighs."""
    if not abs(m) < np.inf:
        return 1.0
    return exp2_plain(np.float64(m) * np.float64(slope2) - reference(m, slope2))


@inline
def shrinking(m, peak, slope2):
    """The factor from weights relative to m to weights relative to the peak."""
    if m == peak or m == -np.inf:  # of nothing, there
        return np.float32(1.0)
    return exp2_narrow(np.float32(reference(m, slope2) - reference(peak, slope2)))


@inline
def power_narrow(x, least, slope2, origin):
    """2**(x * slope2 - k), with origin = ROUND32 - k; 0 for x below `least`. nan stays nan."""
    shifted = fma(x, slope2, origin)
    f = fma(x, slope2, origin - shifted)
    q = exp2_fraction32(f)
    return choose(x < least, np.float32(0.0), scaled_by(q, shifted))


@inline
def exponentials_narrow(scores, at, size, m, slope2):
    """Scores of whole panels become weights; gives their sum."""
    kind = scores.dtype.type  # float64 is compiled too, and never run
    k = reference(m, slope2)
    total = 0.0
    if abs(k) > WHOLE:  # WHOLE itself may be what a little less was rounded to
        for j in range(at, at + size):
            scores[j] = exp2_narrow((scores[j] - kind(m)) * kind(slope2))
            total += scores[j]
        return total
    origin = np.float32(np.float64(ROUND32) - k)
    least = np.float32(-FINITE32)
    if slope2 > 0.0:
        least = np.float32(max((k + NORMAL) / np.float64(slope2), -FINITE32))
    for start in range(at, at + size, KEYS):  # sums no longer than that, to round little
        even, odd = spread(kind(0.0)), spread(kind(0.0))
        for j in range(start, min(start + KEYS, at + size), LANES32):
            near = power_narrow(load(scores, j), least, slope2, origin)
            far = power_narrow(load(scores, j + WIDTH), least, slope2, origin)
            store(scores, j, near)
            store(scores, j + WIDTH, far)
            even, odd = even + near, odd + far
        total += sum_of(widened(even) + widened(odd))
    return total


@inline
def peak_narrow(scores, at, size, m):
    """The largest of m and the scores of whole panels; nan if one is.

    Weights do not tell: 2**nan with its exponent shifted need be no nan.
    """
    even = spread(scores.dtype.type(m))
    odd = even
    for j in range(at, at + size, LANES32):
        even = maximum(load(scores, j), even)
        odd = maximum(load(scores, j + WIDTH), odd)
    even = maximum(even, odd)
    near = maximum(maximum(entry(even, 0), entry(even, 4)), maximum(entry(even, 2), entry(even, 6)))
    far = maximum(maximum(entry(even, 1), entry(even, 5)), maximum(entry(even, 3), entry(even, 7)))
    return maximum(near, far)


@kernel
def soften_odd(scores, at, size, peak):
    """Of a row with no finite maximum: entries of +inf share all the mass, unless one is nan."""
    count = 0.0
    for j in range(at, at + size):
        one = 1.0 if peak == np.inf and scores[j] == np.inf else 0.0
        scores[j] = one
        count += one
    return count


@inline
def soften_narrow(scores, at, size, m, peak, slope2):
    """Scores of whole panels become weights relative to the peak. `scores` is one line.

    Gives the factor by which what came before, relative to m, shrinks, and the sum.
    """
    if abs(peak) < np.inf:
        total = exponentials_narrow(scores, at, size, peak, slope2)
        return shrinking(m, peak, slope2), total
    total = soften_odd(scores, at, size, peak)
    return np.float32(0.0 if peak == np.inf and m < np.inf else 1.0), total


@inline
def power_of(d, d_low, slope2, slope2_low):
    """2**((d + d_low) * slope2), rounded once; 0 for a nan or far below."""
    y, y_low = product(d, d_low, slope2, slope2_low)
    inside = y >= LOWEST
    y_low = min(max(y_low, -0.5), 0.5)  # beyond that the slope is so steep that only d counts
    t, power = exp2_parts(y if inside else LOWEST, y_low if inside else 0.0)
    return fma(power, t, power) * UNBIAS64 if inside else 0.0


@inline
def exponentials_wide(scores, low, r, size, m, slope2, slope2_low):
    for j in range(size):
        d, d_low = two_difference(scores[r, j], m)
        scores[r, j] = power_of(d, d_low + low[r, j], slope2, slope2_low)
    total, rest = 0.0, 0.0
    for j in range(size):
        total, carry = two_sum(total, scores[r, j])
        rest += carry
    return total, rest


@kernel
def soften_wide(scores, low, r, size, m, peak, slope, slope_low):
    """The same in two words, with weights exp(slope * (score - peak)), and so is the sum."""
    if peak == -np.inf or peak != peak:
        scores[r, :size] = 0.0
        return 1.0, 0.0, 0.0
    if peak == np.inf:
        return 1.0 if m == np.inf else 0.0, count_infinite(scores, r, size), 0.0
    slope2 = min(slope * LOG2E, LARGEST64)
    slope2_low = 0.0 if slope2 == LARGEST64 else fma(slope, LOG2E, -slope2) + slope_low * LOG2E
    total, rest = exponentials_wide(scores, low, r, size, peak, slope2, slope2_low)
    return power_of(m - peak, 0.0, slope2, slope2_low), total, rest


# `line` holds all scores in one line. The peaks of all rows of a tile are found before their
# weights: so the processor need not wait for one before it begins with the next.


@inline
def peak_of(scores, line, low, r, size, m):
    """The largest of m and the scores of row r, or nan; -inf fills the last panel."""
    if low is None:
        at, whole = r * scores.shape[1], -(-size // LANES32) * LANES32
        for j in range(at + size, at + whole):
            line[j] = -np.inf
        return peak_narrow(line, at, whole, m)
    else:
        return largest(scores, r, size, m)


@inline
def soften(scores, line, low, r, size, m, peak, slope, slope_low):
    """(factor, sum, what its rounding left) of row r, whose peak is known; it was m before."""
    if low is None:
        at, whole = r * scores.shape[1], -(-size // LANES32) * LANES32
        factor, total = soften_narrow(line, at, whole, m, peak, slope2_of(slope))
        return scores.dtype.type(factor), total, 0.0
    else:
        return soften_wide(scores, low, r, size, m, peak, slope, slope_low)


@kernel
def add_values(scores, first, depths, values, clean, acc, acc_low, factors):
    """acc = factor * acc + scores . values, for the keys of one tile; `factors` are used up.

    A tile with an inf or nan among its values is added key by key, without those of weight 0.
    """
    width, features = scores.shape[1], acc.shape[1]
    rows = ROWS32 if acc_low is None else ROWS64
    lanes = LANES32 if acc_low is None else LANES64
    if not clean:
        for r in range(scores.shape[0]):
            for j in range(features):
                total = np.float64(acc[r, j]) * factors[r]
                for k in range(depths[r]):
                    if scores[r, k] != 0.0:
                        v = values[j // lanes, first + k, j % lanes]
                        total += np.float64(scores[r, k]) * v
                acc[r, j] = total
                if acc_low is not None:
                    acc_low[r, j] *= factors[r]
        return
    for begin in range(0, depths[-1], DEPTH):
        if begin == DEPTH:
            factors[:] = 1.0
        for p in range(values.shape[0]):
            start = (p * values.shape[1] + first + begin) * lanes
            upcoming = start + values.shape[1] * lanes
            if p + 1 == values.shape[0]:
                upcoming = (first + begin + DEPTH) * lanes
            for i in range(0, scores.shape[0], rows):
                depth, at = min(depths[i + rows - 1] - begin, DEPTH), i * features + p * lanes
                if depth > 0:
                    add_tile(
                        scores,
                        i * width + begin,
                        width,
                        1,
                        values,
                        start,
                        depth,
                        acc,
                        acc_low,
                        at,
                        features,
                        factors,
                        i,
                        upcoming,
                    )


@kernel
def close(peak, total, rest, biased, slope, slope_low, sink):
    """(denominator in two words, its logarithm) of one query, the sink added.

    The denominator is nan for a row with a nan, and inf where the weights are to be 0.
    """
    if peak != peak:
        return np.nan, 0.0, np.nan
    if peak == -np.inf or sink == np.inf:
        return np.inf, 0.0, sink
    z, z_low = np.float64(peak), 0.0
    if not biased and abs(z) < np.inf:
        z, z_low = product(z, 0.0, slope, slope_low)
    if sink > -np.inf:
        d, d_low = two_difference(sink, z)
        d, d_low = two_sum(d, d_low - z_low)
        if d > LOG_LARGEST64:
            return np.inf, 0.0, sink
        share = math.exp(d) * (1.0 + d_low) if d > LOWEST else 0.0
        total, carry = two_sum(total, share)
        rest += carry
    total, rest = two_sum(total, rest)
    return total, rest, z + (math.log(total) + z_low)


@inline
def over_two_words(a, a_low, total, rest):
    """(a + a_low) / (total + rest), rounded about once."""
    if not abs(a) < np.inf:
        return a / total  # a_low is nan there
    out = (a + a_low) / total
    lost = fma(-out, total, a) + (a_low - out * rest)
    return out + lost / total if abs(out) < np.inf and total < np.inf else out
