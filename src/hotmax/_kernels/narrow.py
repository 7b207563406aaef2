"""The float32 path: long rows of float32 at everyday temperatures, in float32 arithmetic.

exp((x - m) / T) is 2**(slope * x - offset), with slope and offset in two float32 words each. Its
loop takes two thirds of the time of the float64 one, which has half the lanes; sums are float64.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import (
    LOG2E,
    LOWEST32,
    UNBIAS32,
    add_in_any_order,
    address_of,
    exp2_line32,
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
    """The arguments of exp2_line32 for exp((x - m) / T)."""
    wide = LOG2E / temperature
    slope = np.float32(wide)
    offset = np.rint(m * wide * 1024.0) / 1024.0
    return (
        np.float32(m + LOWEST32 / wide),
        slope,
        np.float32(wide - np.float64(slope)),
        np.float32(offset),
        np.float32(m * wide - offset),
    )


@kernel
def exp_narrow(x, out, low, slope, slope_low, offset, offset_low):
    half = x.size // 2
    for i in range(half):  # two at once: their latencies overlap
        j = i + half
        out[i] = exp2_line32(x[i], low, slope, slope_low, offset, offset_low)
        out[j] = exp2_line32(x[j], low, slope, slope_low, offset, offset_low)
    if x.size % 2:
        i = x.size - 1
        out[i] = exp2_line32(x[i], low, slope, slope_low, offset, offset_low)


@kernel
def total_of(exps):
    total = 0.0
    for i in range(exps.size):
        total = add_in_any_order(total, np.float64(exps[i]))
    return total * UNBIAS32


@kernel
def ties_and_below(x, exps, m):
    ties, below = 0.0, 0.0
    for i in range(x.size):
        ties = add_in_any_order(ties, 0.0 if x[i] < m else 1.0)
        below = add_in_any_order(below, np.float64(exps[i]) if x[i] < m else 0.0)
    return ties, below * UNBIAS32


@kernel
def sums_narrow(x, exps, m, temperature, upcoming):
    """(ties, below); `exps` keeps the exponentials, times 2**BIAS32, if it is long enough.

    Ties are told apart only in a chunk that sums to nearly 1: elsewhere they can share a float64
    with the rest and lose nothing. While it computes, the row that comes next is fetched, which
    saves a large array a tenth of its time.
    """
    low, slope, slope_low, offset, offset_low = line32(m, temperature)
    keep = exps.size >= x.size
    ties, below = 0.0, 0.0
    for start in range(0, x.size, CHUNK):
        stop = min(start + CHUNK, x.size)
        for i in range(start, min(stop, upcoming.size), 16):
            prefetch(upcoming, i)
        at = start if keep else 0
        terms = exps[at : at + stop - start]
        exp_narrow(x[start:stop], terms, low, slope, slope_low, offset, offset_low)
        count, total = 0.0, total_of(terms)
        if abs(total - 1.0) < 2.0**-10:
            count, total = ties_and_below(x[start:stop], terms, np.float32(m))
        ties += count
        below += total
    return ties, below


@kernel
def scale_narrow(exps, out, inverse, inverse_low):
    for i in range(exps.size):
        out[i] = fma(exps[i], inverse, exps[i] * inverse_low)


@kernel
def scale_in_place(exps, inverse, inverse_low):
    """scale_narrow(exps, exps) would find its arrays overlapping and run one entry at a time."""
    for i in range(exps.size):
        exps[i] = fma(exps[i], inverse, exps[i] * inverse_low)


@kernel
def scale_and_stream(exps, out, inverse, inverse_low):
    """As scale_narrow, but past the caches, line by line; overwrites exps.

    Nobody reads a large result soon: writing it through the caches would first read it in.
    """
    start = min(((-address_of(out)) % 64) // 4, exps.size)
    stop = start + (exps.size - start) // 16 * 16
    scale_narrow(exps[:start], out[:start], inverse, inverse_low)
    for first in range(start, stop, CHUNK):
        last = min(first + CHUNK, stop)
        scale_in_place(exps[first:last], inverse, inverse_low)
        for i in range(first, last, 8):
            stream_half_line(out, i, exps, i)
    scale_narrow(exps[stop:], out[stop:], inverse, inverse_low)


@kernel
def settle():
    """Make what was streamed visible to other threads."""
    fence()


@kernel
def softmax_narrow(x, out, exps, kept, m, temperature, total, streamed):
    low, slope, slope_low, offset, offset_low = line32(m, temperature)
    inverse = np.float32(UNBIAS32 / total)
    inverse_low = np.float32(UNBIAS32 / total - np.float64(inverse))
    for start in range(0, x.size, exps.size):
        stop = min(start + exps.size, x.size)
        terms = exps[: stop - start]
        if not kept:
            exp_narrow(x[start:stop], terms, low, slope, slope_low, offset, offset_low)
        if streamed:
            scale_and_stream(terms, out[start:stop], inverse, inverse_low)
        else:
            scale_narrow(terms, out[start:stop], inverse, inverse_low)


@kernel
def log_softmax_narrow(x, out, m, temperature, log_sum):
    slope = 1.0 / temperature
    for i in range(x.size):
        out[i] = (np.float64(x[i]) - m) * slope - log_sum
