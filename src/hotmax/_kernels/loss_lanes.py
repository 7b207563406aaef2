"""Cross entropy of short rows against labels, LANES of them side by side, as in `lanes`.

A row that is out of the ordinary (limits of temperature, label smoothing) goes through `label_row`,
whatever its neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import LN2, UNBIAS64, reciprocal, two_sum
from hotmax._kernels.compiling import inline, kernel
from hotmax._kernels.lanes import (
    BELOW,
    BELOW_LOW,
    HIGH,
    LANES,
    LOW,
    PEAK,
    SCALE,
    TIES,
    WORDS,
    lane_sums,
    set_slopes,
    temperature_at,
)
from hotmax._kernels.losses import chance_parts, label_row, loss_parts
from hotmax._kernels.softmax import PLAIN, regime
from hotmax._kernels.vectors import bits64, float64_of, fma
from hotmax._kernels.wide import product

# Where each word of the LANES rows begins in a second workspace.
SLANT, FLATTEN, STEEP, WEIGHT, OWN, AT_LABEL, MORE = range(0, 7 * LANES, LANES)

TWO_52 = 0x4330000000000000  # the bits of 2**52: an integer below it, put in, becomes a float64


@inline
def log1p_plain(s):
    """log(1 + s) in float64 for s >= 0, right to 2**-36 relative; it vectorises."""
    whole, rest = two_sum(1.0, s)
    k = np.int64(np.uint64(bits64(whole) - bits64(0.7071067811865476)) >> np.uint64(52))
    shrink = float64_of((1023 - k) << 52)
    u = (whole * shrink - 1.0) + rest * shrink
    r = u / (2.0 + u)
    w = r * r
    series = fma(w, 1.0 / 13.0, 1.0 / 11.0)
    series = fma(w, series, 1.0 / 9.0)
    series = fma(w, series, 1.0 / 7.0)
    series = fma(w, series, 1.0 / 5.0)
    series = fma(w, series, 1.0 / 3.0)
    exponent = float64_of(k + TWO_52) - 4503599627370496.0
    return fma(exponent, LN2, 2.0 * fma(r * w, series, r))


@kernel
def set_slants(scale, temperature, first, width, more):
    """scale / T of each row, and 1 / T."""
    for r in range(width):
        t = temperature_at(temperature, first + r)
        more[SLANT + r] = scale / t
        more[FLATTEN + r] = min(1.0 / abs(t), 1e300)


@inline
def is_ordinary(m, slant):
    """May the lanes compute this row? PLAIN, and a gradient of ordinary size."""
    return abs(m) < np.inf and 2.0**-300 < abs(slant) < 2.0**300


@kernel
def load_labels(x, labels, weights, first, width, work, more):
    """The entries and weights of the labels; True if every row is ordinary and none ignored."""
    ordinary = True
    for r in range(width):
        label = labels[first + r]
        ordinary = ordinary and label >= 0 and is_ordinary(work[PEAK + r], more[SLANT + r])
        label = max(label, 0)
        more[OWN + r] = np.float64(x[first + r, label])
        more[WEIGHT + r] = weights[label] if weights.size else 1.0
    return ordinary


@kernel
def losses_of_lanes(values, first, width, work, more):
    """weight * (log(ties + below) + (m - x) / T) of float32 rows."""
    for r in range(width):
        log_sum = log1p_plain((work[TIES + r] - 1.0) + work[BELOW + r])
        sign = work[SCALE + r]  # of T: float32 rows need no other scale
        loss = (work[PEAK + r] - sign * more[OWN + r]) * more[FLATTEN + r] + log_sum
        weight = more[WEIGHT + r]
        values[first + r] = loss * weight if weight > 0.0 else 0.0


@kernel
def losses_in_two_words(values, temperature, first, width, work, more):
    for r in range(width):
        t = temperature_at(temperature, first + r)
        sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
        high, low = loss_parts(more[OWN + r], work[PEAK + r], t, sums)
        loss, weight = high + low, more[WEIGHT + r]
        values[first + r] = loss * weight if weight > 0.0 else 0.0


@kernel
def scale_lanes(tile, n, width, work, more):
    """What float32 exponentials are multiplied by, and the share of the other classes."""
    for r in range(width):
        steep = more[SLANT + r] * more[WEIGHT + r]
        inverse = 1.0 / (work[TIES + r] + work[BELOW + r])
        more[STEEP + r] = steep
        work[HIGH + r] = steep * inverse
        more[AT_LABEL + r] = -steep * ((work[TIES + r] - 1.0) + work[BELOW + r]) * inverse


@kernel
def scale_in_two_words(tile, powers, temperature, first, n, width, work, more):
    for r in range(width):
        t, sums = (
            temperature_at(temperature, first + r),
            (work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]),
        )
        steep = more[SLANT + r] * more[WEIGHT + r]
        more[AT_LABEL + r] = -steep * chance_parts(more[OWN + r], work[PEAK + r], t, sums)[1]
        total, carry = two_sum(sums[0], sums[1])
        inverse, inverse_low = reciprocal(total, carry + sums[2])
        work[HIGH + r], work[LOW + r] = product(inverse, inverse_low, steep, 0.0)
    for c in range(n):
        for r in range(width):
            p = work[HIGH + r] + fma(tile[c * LANES + r], work[HIGH + r], work[LOW + r])
            tile[c * LANES + r] = p * powers[c * LANES + r] * UNBIAS64
    for r in range(width):
        work[HIGH + r] = 1.0


@kernel
def write_lanes(tile, labels, grads, first, width, work, more, at_maximum_only):
    """The gradients of float32 rows take 1 - p at the label from the sums if p is largest."""
    n = grads.shape[1]
    for r in range(width):
        factor = work[HIGH + r]
        for c in range(n):
            grads[first + r, c] = tile[c * LANES + r] * factor
        label = max(labels[first + r], 0)
        if not at_maximum_only or work[SCALE + r] * more[OWN + r] == work[PEAK + r]:
            grads[first + r, label] = more[AT_LABEL + r]
        else:
            grads[first + r, label] = tile[label * LANES + r] * factor - more[STEEP + r]


@kernel
def label_lanes(x, labels, weights, smoothing, scale, values, grads, temperature, powers):
    rows, n = x.shape
    room = np.empty(WORDS + n * LANES)
    work, tile, more = room[:WORDS], room[WORDS:], np.empty(MORE)
    for first in range(0, rows, LANES):
        width = min(LANES, rows - first)
        if first == 0 or temperature.size > 1:
            set_slopes(temperature, first, width, work, powers)
            set_slants(scale, temperature, first, width, more)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        plain = load_labels(x, labels, weights, first, width, work, more) and plain
        if smoothing == 0.0:
            if powers is None:
                losses_of_lanes(values, first, width, work, more)
            else:
                losses_in_two_words(values, temperature, first, width, work, more)
            if grads.shape[0]:
                if powers is None:
                    scale_lanes(tile, n, width, work, more)
                else:
                    scale_in_two_words(tile, powers, temperature, first, n, width, work, more)
                write_lanes(tile, labels, grads, first, width, work, more, powers is None)
        if plain and smoothing == 0.0:
            continue
        for r in range(width):
            row, label = first + r, labels[first + r]
            t, m = temperature_at(temperature, row), work[PEAK + r]
            grad = grads[row] if grads.shape[0] else grads.reshape(-1)
            if label < 0:
                values[row] = 0.0
                grad[:] = 0.0
            elif not (
                smoothing == 0.0 and regime(m, t) == PLAIN and is_ordinary(m, more[SLANT + r])
            ):
                sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
                values[row] = label_row(
                    x[row], label, weights, smoothing, scale, grad, m, t, sums, None, False
                )
