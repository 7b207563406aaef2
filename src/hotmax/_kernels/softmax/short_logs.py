"""log_softmax and the numbers of short float32 rows, WIDTH of them side by side, as in `short`.

    sums     ties = #{x == m},  below = sum of exp((x - m) / T) over x < m,  in float64
    number   m / T + log(ties + below),  or another one that they tell

A row's bits do not depend on its neighbours. A row out of the ordinary (a limit of temperature, an
inf, a nan) is computed along with them, and then put right.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import LN2, exp2_plain, two_sum
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import (
    WIDTH,
    any_of,
    choose,
    fma,
    load,
    maximum,
    spread,
    store,
    store_some,
    widened,
)
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.moments import entropy_limit, softargmax_limit
from hotmax._kernels.softmax.rows import (
    PLAIN,
    limit_sums,
    log_softmax_limit,
    logsumexp_of,
    regime,
    sign_of,
    smoothmax_of,
)
from hotmax._kernels.softmax.short import (
    is_between,
    room_for_group,
    slope_of,
    turn_group_in,
    turn_group_out,
)

SHORT_LOGS = 128  # classes: more than in `short`, as one row alone would wait for its logarithm
LOWEST = -1000.0  # 2**LOWEST is nothing beside 1

# Where the temperatures of WIDTH rows are kept: log2(e) / |T|, 1 / |T| and |T|.
SLOPE, INVERSE, SIZE, HEAT = range(0, 4 * WIDTH, WIDTH)


@inline
def halved(whole, rest, exponent, step, power):
    """Both parts divided by power = 2**step where that leaves them above sqrt(1/2)."""
    large = whole > 0.7071067811865476 * power
    shrink = choose(large, 1.0 / power, 1.0)
    return whole * shrink, rest * shrink, exponent + choose(large, step, 0.0)


@inline
def log1p_short(s):
    """log(1 + s) in float64 for 0 <= s < SHORT_LOGS, right to 2**-36 relative."""
    whole, rest = two_sum(1.0, s)
    whole, rest, exponent = halved(whole, rest, 0.0, 4.0, 16.0)
    whole, rest, exponent = halved(whole, rest, exponent, 2.0, 4.0)
    whole, rest, exponent = halved(whole, rest, exponent, 1.0, 2.0)
    u = (whole - 1.0) + rest
    r = u / (2.0 + u)
    w = r * r
    series = fma(w, 1.0 / 13.0, 1.0 / 11.0)
    series = fma(w, series, 1.0 / 9.0)
    series = fma(w, series, 1.0 / 7.0)
    series = fma(w, series, 1.0 / 5.0)
    series = fma(w, series, 1.0 / 3.0)
    return fma(exponent, LN2, 2.0 * fma(r * w, series, r))


# --- what the rules below are given: a tile of n classes, and the words of its rows ------------


@inline
def peaks_of(tile, n, sign):
    m = spread(np.float32(-np.inf))
    for c in range(n):
        m = maximum(m, sign * load(tile, c * WIDTH))
    return m


@inline
def gap(tile, c, words):
    """x - m, at the sign of T: never above 0."""
    sign, m = words[0], words[1]
    return widened(sign * load(tile, c * WIDTH)) - widened(m)


@inline
def sums_of(tile, n, words):
    """What the ties and the rest come to beyond the 1 of one maximum."""
    slope = words[2]
    ties, below = spread(-1.0), spread(0.0)
    for c in range(n):
        d = gap(tile, c, words)
        # not 2**LOWEST for a class that is not there: smoothmax multiplies it by T
        e = choose(d * slope < LOWEST, 0.0, exp2_plain(d * slope))
        ties = ties + choose(d < 0.0, 0.0, 1.0)
        below = below + choose(d < 0.0, e, 0.0)
    return ties + below


@inline
def logsumexp_rule(tile, n, words):
    return fma(widened(words[1]), words[3], log1p_short(sums_of(tile, n, words)))


@inline
def smoothmax_rule(tile, n, words):
    sign, m, size = words[0], words[1], words[4]
    extra = size * log1p_short(sums_of(tile, n, words))
    return widened(sign) * (widened(m) + extra)


@inline
def entropy_rule(tile, n, words):
    """log sum exp(z) + sum exp(z) * -z / sum exp(z), z = (x - m) / T: nothing cancels."""
    slope = words[2]
    rest = sums_of(tile, n, words)
    moment = spread(0.0)
    for c in range(n):
        y = gap(tile, c, words) * slope
        y = choose(y < LOWEST, LOWEST, y)
        moment = fma(exp2_plain(y), -y, moment)
    return log1p_short(rest) + moment * LN2 / (1.0 + rest)


@inline
def softargmax_rule(tile, n, words):
    slope = words[2]
    total, moment = spread(0.0), spread(0.0)
    for c in range(n):
        e = exp2_plain(gap(tile, c, words) * slope)
        total = total + e
        moment = fma(e, np.float64(c), moment)
    return moment / total


# --- rows -------------------------------------------------------------------------------------


@inline
def take_temperatures(x, temperature, first, stop, signs, heat):
    """The signs, slopes and sizes for WIDTH rows; False if a temperature is 0 or infinite."""
    between = True
    for r in range(WIDTH):
        t = of_row(temperature, min(first + r, stop - 1))
        signs[r] = sign_of(x, t)
        heat[SLOPE + r] = abs(slope_of(t))
        heat[INVERSE + r] = min(1.0 / abs(t), 1e300)
        heat[SIZE + r] = abs(t)
        between = between and is_between(t)
    return between


@inline
def words_of(m, signs, heat):
    return load(signs, 0), m, load(heat, SLOPE), load(heat, INVERSE), load(heat, SIZE)


@inline
def are_plain(m, between):
    """Is no row out of the ordinary?"""
    return between and not any_of(m - m != np.float32(0.0))


@inline
def for_short_rows(rule, limit, x, out, temperature, start, stop):
    """out[r] = rule(row r); limit(row r, m, T) for a row out of the ordinary."""
    n = x.shape[1]
    tile, copied = room_for_group(n)
    signs, heat = np.empty(WIDTH, np.float32), np.empty(HEAT)
    x, out = borrowed(x), borrowed(out)
    source = x.reshape(-1)
    between = True
    for first in range(start, stop, WIDTH):
        width = min(WIDTH, stop - first)
        if temperature.size > 1 or first == start:
            between = take_temperatures(x, temperature, first, stop, signs, heat)
        turn_group_in(source, first, width, n, copied, tile)
        m = peaks_of(tile, n, load(signs, 0))
        store_some(out, first, width, rule(tile, n, words_of(m, signs, heat)))
        if are_plain(m, between):
            continue
        for r in range(first, first + width):
            t = of_row(temperature, r)
            own = top(x[r], sign_of(x, t))
            if regime(own, t) != PLAIN:
                out[r] = limit(x[r], own, t)


@inline
def logsumexp_limit(x, m, temperature):
    return logsumexp_of(m, temperature, limit_sums(x, m, temperature))


@inline
def smoothmax_limit(x, m, temperature):
    return smoothmax_of(m, temperature, limit_sums(x, m, temperature))


@kernel
def logsumexp_short(x, out, temperature, start, stop):
    for_short_rows(logsumexp_rule, logsumexp_limit, x, out, temperature, start, stop)


@kernel
def smoothmax_short(x, out, temperature, start, stop):
    for_short_rows(smoothmax_rule, smoothmax_limit, x, out, temperature, start, stop)


@kernel
def entropy_short(x, out, temperature, start, stop):
    for_short_rows(entropy_rule, entropy_limit, x, out, temperature, start, stop)


@kernel
def softargmax_short(x, out, temperature, start, stop):
    for_short_rows(softargmax_rule, softargmax_limit, x, out, temperature, start, stop)


@inline
def take_logarithms(tile, n, words):
    """A tile becomes (x - m) / T - log(ties + below)."""
    log_sum = log1p_short(sums_of(tile, n, words))
    for c in range(n):
        store(tile, c * WIDTH, fma(gap(tile, c, words), words[3], -log_sum))


@kernel
def log_softmax_short(x, out, temperature, start, stop):
    n = x.shape[1]
    tile, copied = room_for_group(n)
    signs, heat, limit = np.empty(WIDTH, np.float32), np.empty(HEAT), np.empty(n, np.float32)
    x, out = borrowed(x), borrowed(out)
    source, target = x.reshape(-1), out.reshape(-1)
    between = True
    for first in range(start, stop, WIDTH):
        width = min(WIDTH, stop - first)
        if temperature.size > 1 or first == start:
            between = take_temperatures(x, temperature, first, stop, signs, heat)
        turn_group_in(source, first, width, n, copied, tile)
        m = peaks_of(tile, n, load(signs, 0))
        take_logarithms(tile, n, words_of(m, signs, heat))
        if not are_plain(m, between):  # before x is overwritten, should out be x
            for r in range(width):
                row, t = x[first + r], of_row(temperature, first + r)
                own = top(row, sign_of(x, t))
                if regime(own, t) != PLAIN:
                    log_softmax_limit(row, limit, own, t, limit_sums(row, own, t)[0])
                    for c in range(n):
                        tile[c * WIDTH + r] = limit[c]
        turn_group_out(tile, n, copied, target, first, width)
