"""The float32 path: long rows of float32 at everyday temperatures, in float32 arithmetic.

exp(x / T) is 2**(slope * x), with the slope in two float32 words. To keep it in range it is taken
relative not to 2**(slope * m) but to 2**k, where k is the integer nearest slope * m: a whole number
costs no digits, and no time. The largest exponential, `unit`, then lies between 0.7 and 1.4. Sums
are float64.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import (
    LOG2E,
    LOWEST32,
    ROUND32,
    UNBIAS32,
    add_in_any_order,
    address_of,
    exp2_line32,
    exp2_plain,
    fence,
    fma,
    inline,
    kernel,
    prefetch,
    stream_half_line,
)

CHUNK = 512  # classes that stay in the first-level cache from one loop to the next


@inline
def is_narrow(m, temperature):
    """Do the constants of this float32 row fit float32 with room to spare?"""
    return 2.0**-90 < temperature < 2.0**90 and abs(m) * LOG2E < 2.0**13 * temperature


@inline
def line32(m, temperature):
    """The arguments of exp2_line32 for exp(x / T) / 2**k."""
    wide = LOG2E / temperature
    slope = np.float32(wide)
    return (
        np.float32(m + LOWEST32 / wide),
        slope,
        np.float32(wide - np.float64(slope)),
        np.float32(np.float64(ROUND32) - np.rint(m * wide)),
    )


@inline
def unit_of(m, temperature):
    """exp(m / T) / 2**k: what an entry at the maximum comes to."""
    y = m * (LOG2E / temperature)
    return exp2_plain(y - np.rint(y))


@kernel
def exp_narrow(x, out, low, slope, slope_low, origin):
    for i in range(x.size):
        out[i] = exp2_line32(x[i], low, slope, slope_low, origin)


@kernel
def total_of(exps):
    total = 0.0
    for i in range(exps.size):
        total = add_in_any_order(total, np.float64(exps[i]))
    return total


@kernel
def ties_and_below(x, exps, m):
    ties, below = 0.0, 0.0
    for i in range(x.size):
        ties = add_in_any_order(ties, 0.0 if x[i] < m else 1.0)
        below = add_in_any_order(below, np.float64(exps[i]) if x[i] < m else 0.0)
    return ties, below


@kernel
def sums_narrow(x, exps, m, temperature, upcoming):
    """(ties, below); `exps` keeps the exponentials, times 2**BIAS32, if it is long enough.

    Ties are told apart only in a chunk that sums to between 1 and 2: elsewhere they can share a
    float64 with the rest and lose nothing. While it computes, the row that comes next is fetched,
    which saves a large array a tenth of its time.
    """
    low, slope, slope_low, origin = line32(m, temperature)
    per_unit = UNBIAS32 / unit_of(m, temperature)
    keep = exps.size >= x.size
    ties, below = 0.0, 0.0
    for start in range(0, x.size, CHUNK):
        stop = min(start + CHUNK, x.size)
        for i in range(start, min(stop, upcoming.size), 16):
            prefetch(upcoming, i)
        at = start if keep else 0
        terms = exps[at : at + stop - start]
        exp_narrow(x[start:stop], terms, low, slope, slope_low, origin)
        count, total = 0.0, total_of(terms) * per_unit
        if 1.0 - 2.0**-10 < total < 2.0:
            count, total = ties_and_below(x[start:stop], terms, np.float32(m))
            total *= per_unit
        ties += count
        below += total
    return ties, below


@inline
def scaled(e, inverse, inverse_low, peak, share):
    """e / total; an entry at the maximum comes to exactly its share, 1 / total."""
    return share if e == peak else fma(e, inverse, e * inverse_low)


@kernel
def scale_narrow(exps, out, inverse, inverse_low, peak, share):
    for i in range(exps.size):
        out[i] = scaled(exps[i], inverse, inverse_low, peak, share)


@kernel
def scale_in_place(exps, inverse, inverse_low, peak, share):
    """scale_narrow(exps, exps) would find its arrays overlapping and run one entry at a time."""
    for i in range(exps.size):
        exps[i] = scaled(exps[i], inverse, inverse_low, peak, share)


@kernel
def scale_and_stream(exps, out, inverse, inverse_low, peak, share):
    """As scale_narrow, but past the caches, line by line; overwrites exps.

    Nobody reads a large result soon: writing it through the caches would first read it in.
    """
    start = min(((-address_of(out)) % 64) // 4, exps.size)
    stop = start + (exps.size - start) // 16 * 16
    scale_narrow(exps[:start], out[:start], inverse, inverse_low, peak, share)
    for first in range(start, stop, CHUNK):
        last = min(first + CHUNK, stop)
        scale_in_place(exps[first:last], inverse, inverse_low, peak, share)
        for i in range(first, last, 8):
            stream_half_line(out, i, exps, i)
    scale_narrow(exps[stop:], out[stop:], inverse, inverse_low, peak, share)


@kernel
def settle():
    """Make what was streamed visible to other threads."""
    fence()


@kernel
def softmax_narrow(x, out, exps, kept, m, temperature, total, streamed):
    low, slope, slope_low, origin = line32(m, temperature)
    wide = UNBIAS32 / (total * unit_of(m, temperature))
    inverse = np.float32(wide)
    inverse_low = np.float32(wide - np.float64(inverse))
    peak = exp2_line32(np.float32(m), low, slope, slope_low, origin)
    share = np.float32(1.0 / total)
    for start in range(0, x.size, exps.size):
        stop = min(start + exps.size, x.size)
        terms = exps[: stop - start]
        if not kept:
            exp_narrow(x[start:stop], terms, low, slope, slope_low, origin)
        if streamed:
            scale_and_stream(terms, out[start:stop], inverse, inverse_low, peak, share)
        else:
            scale_narrow(terms, out[start:stop], inverse, inverse_low, peak, share)


@kernel
def log_softmax_narrow(x, out, m, temperature, log_sum):
    slope = 1.0 / temperature
    for i in range(x.size):
        out[i] = (np.float64(x[i]) - m) * slope - log_sum
