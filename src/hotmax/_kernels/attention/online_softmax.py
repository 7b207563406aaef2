"""Online softmax: exponentials of a row of scores, relative to its largest score so far.

    m      the largest z (or score) so far
    l      sum exp(z - m)
    acc    sum exp(z - m) v

When m grows, l and acc are multiplied by the same factor. float32 is computed in float32, with l in
float64; float64 as double-doubles (see scores.py). Without a bias m is a score, and beta enters the
exponential; with a bias beta is already part of z, and is 1 here.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.attention.gemm import LANES32
from hotmax._kernels.attention.scores import TILE_KEYS
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    LOG2E,
    ROUND32,
    UNBIAS64,
    exp2_33_bits,
    exp2_float32,
    exp2_fraction32,
    exp2_parts,
)
from hotmax._kernels.numeric.double_double import dd_mul, two_diff, two_sum
from hotmax._kernels.simd.vectors import (
    WIDTH,
    choose,
    fma,
    horizontal_maximum,
    horizontal_sum,
    load,
    maximum,
    scaled_by,
    splat,
    store,
    to_float64,
)

LARGEST32 = 3e38
FINITE32 = 2.0**128 - 2.0**104  # the largest float32: only -inf is below its negative
LARGEST_WHOLE = 2.0**13  # exponents up to here are split into an integer and a float32 fraction
LARGEST64 = 1e300
LOG_LARGEST64 = 690.7755
LOWEST_SCORE_EXPONENT = -1020.0  # 2**LOWEST_SCORE_EXPONENT is negligible beside 1
NORMAL_EXPONENT = -125.0  # float32 weights below 2**NORMAL_EXPONENT are set to 0


@inline
def max_of_row(scores, r, size, m):
    for j in range(size):
        m = maximum(m, scores[r, j])
    return m


@kernel
def count_infinite(scores, r, size):
    """Set +inf to 1 and all else to 0: entries of +inf share all the mass. Returns their number."""
    count = 0.0
    for j in range(size):
        one = 1.0 if scores[r, j] == np.inf else 0.0
        scores[r, j] = one
        count += one
    return count


# float32 weights are exp(z) / 2**k, where k is the integer nearest to the largest z / ln 2: a power
# of two costs no digits, and does not depend on the order of the keys.


@inline
def beta2_of(beta):
    """beta / ln 2 in float32."""
    return np.float32(min(beta * LOG2E, LARGEST32))


@inline
def exponent_of_peak(m, beta2):
    """k for a largest score of m; beyond LARGEST_WHOLE it is beta2 * m itself, not rounded."""
    y = np.float64(m) * np.float64(beta2)
    return np.rint(y) if abs(y) < LARGEST_WHOLE else y


@inline
def weight_of_peak(m, beta2):
    """The float32 weight of a score equal to m."""
    if not abs(m) < np.inf:
        return 1.0
    return exp2_33_bits(np.float64(m) * np.float64(beta2) - exponent_of_peak(m, beta2))


@inline
def rescale_factor(m, peak, beta2):
    """The factor from weights relative to m to weights relative to the peak."""
    if m == peak or m == -np.inf:  # -inf: there is nothing to rescale
        return np.float32(1.0)
    return exp2_float32(np.float32(exponent_of_peak(m, beta2) - exponent_of_peak(peak, beta2)))


@inline
def exp2_shifted32(x, least, beta2, origin):
    """2**(x * beta2 - k), with origin = ROUND32 - k; 0 for x < least, nan for nan."""
    shifted = fma(x, beta2, origin)
    f = fma(x, beta2, origin - shifted)
    q = exp2_fraction32(f)
    return choose(x < least, np.float32(0.0), scaled_by(q, shifted))


@inline
def exp_panels_float32(scores, at, size, m, beta2):
    """Turn scores of whole panels into weights. Returns their sum."""
    kind = scores.dtype.type  # the float64 version is compiled too, but never run
    k = exponent_of_peak(m, beta2)
    total = 0.0
    if abs(k) > LARGEST_WHOLE:  # not >=: a k below LARGEST_WHOLE may have been rounded up to it
        for j in range(at, at + size):
            scores[j] = exp2_float32((scores[j] - kind(m)) * kind(beta2))
            total += scores[j]
        return total
    origin = np.float32(np.float64(ROUND32) - k)
    least = np.float32(-FINITE32)
    if beta2 > 0.0:
        least = np.float32(max((k + NORMAL_EXPONENT) / np.float64(beta2), -FINITE32))
    # The step limits the length of a float32 sum, and so its rounding error.
    for start in range(at, at + size, TILE_KEYS):
        even, odd = splat(kind(0.0)), splat(kind(0.0))
        for j in range(start, min(start + TILE_KEYS, at + size), LANES32):
            near = exp2_shifted32(load(scores, j), least, beta2, origin)
            far = exp2_shifted32(load(scores, j + WIDTH), least, beta2, origin)
            store(scores, j, near)
            store(scores, j + WIDTH, far)
            even, odd = even + near, odd + far
        total += horizontal_sum(to_float64(even) + to_float64(odd))
    return total


@inline
def max_of_panels(scores, at, size, m):
    """The largest of m and the scores of whole panels; nan if one is nan.

    nan must be found here: exp2_shifted32 of a nan score need not be nan.
    """
    even = splat(scores.dtype.type(m))
    odd = even
    for j in range(at, at + size, LANES32):
        even = maximum(load(scores, j), even)
        odd = maximum(load(scores, j + WIDTH), odd)
    return horizontal_maximum(maximum(even, odd))


@kernel
def exp_without_maximum(scores, at, size, peak):
    """Weights of a row without a finite maximum: +inf entries share the mass, unless one is nan."""
    count = 0.0
    for j in range(at, at + size):
        one = 1.0 if peak == np.inf and scores[j] == np.inf else 0.0
        scores[j] = one
        count += one
    return count


@inline
def exp_scores_float32(scores, at, size, m, peak, beta2):
    """Turn scores of whole panels, in a flat array, into weights relative to the peak.

    Returns the factor that rescales earlier sums, relative to m, and the sum of the weights.
    """
    if abs(peak) < np.inf:
        total = exp_panels_float32(scores, at, size, peak, beta2)
        return rescale_factor(m, peak, beta2), total
    total = exp_without_maximum(scores, at, size, peak)
    return np.float32(0.0 if peak == np.inf and m < np.inf else 1.0), total


@inline
def exp2_double_double(d, d_lo, beta2, beta2_lo):
    """2**((d + d_lo) * beta2), rounded once; 0 for nan and below 2**LOWEST_SCORE_EXPONENT."""
    y, y_lo = dd_mul(d, d_lo, beta2, beta2_lo)
    inside = y >= LOWEST_SCORE_EXPONENT
    y_lo = min(max(y_lo, -0.5), 0.5)  # beyond that beta is so large that only d matters
    t, power = exp2_parts(y if inside else LOWEST_SCORE_EXPONENT, y_lo if inside else 0.0)
    return fma(power, t, power) * UNBIAS64 if inside else 0.0


@inline
def exp_panels_float64(scores, lo, r, size, m, beta2, beta2_lo):
    for j in range(size):
        d, d_lo = two_diff(scores[r, j], m)
        scores[r, j] = exp2_double_double(d, d_lo + lo[r, j], beta2, beta2_lo)
    total, rest = 0.0, 0.0
    for j in range(size):
        total, carry = two_sum(total, scores[r, j])
        rest += carry
    return total, rest


@kernel
def exp_scores_float64(scores, lo, r, size, m, peak, beta, beta_lo):
    """exp_scores_float32 for double-doubles, with weights exp(beta * (score - peak)).

    Returns (factor, sum, sum_lo).
    """
    if peak == -np.inf or peak != peak:
        scores[r, :size] = 0.0
        return 1.0, 0.0, 0.0
    if peak == np.inf:
        return 1.0 if m == np.inf else 0.0, count_infinite(scores, r, size), 0.0
    beta2 = min(beta * LOG2E, LARGEST64)
    beta2_lo = 0.0 if beta2 == LARGEST64 else fma(beta, LOG2E, -beta2) + beta_lo * LOG2E
    total, rest = exp_panels_float64(scores, lo, r, size, peak, beta2, beta2_lo)
    return exp2_double_double(m - peak, 0.0, beta2, beta2_lo), total, rest


# `line` is the flat view of all scores. The peaks of all rows of a tile are found before their
# weights, so that the processor need not wait for one row before it begins the next.


@inline
def peak_of_scores(scores, line, lo, r, size, m):
    """The largest of m and the scores of row r, or nan. Pads the last panel with -inf."""
    if lo is None:
        at, whole = r * scores.shape[1], -(-size // LANES32) * LANES32
        for j in range(at + size, at + whole):
            line[j] = -np.inf
        return max_of_panels(line, at, whole, m)
    else:
        return max_of_row(scores, r, size, m)


@inline
def exp_scores(scores, line, lo, r, size, m, peak, beta, beta_lo):
    """Turn row r into weights. Returns (factor, sum, sum_lo); the peak so far was m."""
    if lo is None:
        at, whole = r * scores.shape[1], -(-size // LANES32) * LANES32
        factor, total = exp_scores_float32(line, at, whole, m, peak, beta2_of(beta))
        return scores.dtype.type(factor), total, 0.0
    else:
        return exp_scores_float64(scores, lo, r, size, m, peak, beta, beta_lo)


@kernel
def denominator_of(peak, total, rest, has_bias, beta, beta_lo, sink):
    """(denominator, its lo, its logarithm) of one query, including the sink.

    The denominator is nan for a row with a nan, and inf where all weights are 0.
    """
    if peak != peak:
        return np.nan, 0.0, np.nan
    if peak == -np.inf or sink == np.inf:
        return np.inf, 0.0, sink
    z, z_lo = np.float64(peak), 0.0
    if not has_bias and abs(z) < np.inf:
        z, z_lo = dd_mul(z, 0.0, beta, beta_lo)
    if sink > -np.inf:
        d, d_lo = two_diff(sink, z)
        d, d_lo = two_sum(d, d_lo - z_lo)
        if d > LOG_LARGEST64:
            return np.inf, 0.0, sink
        share = math.exp(d) * (1.0 + d_lo) if d > LOWEST_SCORE_EXPONENT else 0.0
        total, carry = two_sum(total, share)
        rest += carry
    total, rest = two_sum(total, rest)
    return total, rest, z + (math.log(total) + z_lo)
