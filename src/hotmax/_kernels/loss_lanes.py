"""Cross entropy of short rows against labels, LANES of them side by side, as in `lanes`.

A row that is out of the ordinary (limits of temperature, label smoothing) goes through `label_row`,
whatever its neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import (
    LN2,
    UNBIAS64,
    bits64,
    float64_of,
    fma,
    inline,
    kernel,
    reciprocal,
    two_sum,
)
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
from hotmax._kernels.wide import product

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


@inline
def is_ordinary(m, temperature, steep):
    """May the lanes compute this row's gradient, of slope `steep`? 0 is one that is ignored."""
    return regime(m, temperature) == PLAIN and (steep == 0.0 or 2.0**-300 < abs(steep) < 2.0**300)


@kernel
def set_slopes_of_loss(labels, weights, scale, temperature, first, width, steep):
    """weight * scale / T of each row: what its gradient is multiplied by; 0 if ignored."""
    for r in range(width):
        label = labels[first + r]
        amount = scale if label >= 0 else 0.0
        if weights.size and label >= 0:
            amount *= weights[label]
        t = temperature_at(temperature, first + r)
        steep[r] = amount / t if amount != 0.0 else 0.0


@kernel
def logs_of_sums(work, width):
    """log(ties + below) of float32 rows."""
    for r in range(width):
        work[LOW + r] = log1p_plain((work[TIES + r] - 1.0) + work[BELOW + r])


@kernel
def scale_lanes(tile, powers, n, width, work, steep):
    """Exponentials become probabilities, times `steep`."""
    if powers is not None:
        for r in range(width):
            total, carry = two_sum(work[TIES + r], work[BELOW + r])
            inverse, inverse_low = reciprocal(total, carry + work[BELOW_LOW + r])
            high, low = product(inverse, inverse_low, steep[r], 0.0)
            work[HIGH + r], work[LOW + r] = high, low
        for c in range(n):
            for r in range(width):
                p = work[HIGH + r] + fma(tile[c * LANES + r], work[HIGH + r], work[LOW + r])
                tile[c * LANES + r] = p * powers[c * LANES + r] * UNBIAS64
        for r in range(width):
            work[HIGH + r] = 1.0
    else:
        for r in range(width):
            work[HIGH + r] = steep[r] / (work[TIES + r] + work[BELOW + r])


@kernel
def write_lanes(tile, grads, first, width, work):
    n = grads.shape[1]
    for r in range(width):
        for c in range(n):
            grads[first + r, c] = tile[c * LANES + r] * work[HIGH + r]


@kernel
def label_lanes(x, labels, weights, smoothing, scale, values, grads, temperature, powers):
    rows, n = x.shape
    room = np.empty(WORDS + n * LANES)
    work, tile, steep = room[:WORDS], room[WORDS:], np.empty(LANES)
    for first in range(0, rows, LANES):
        width = min(LANES, rows - first)
        if first == 0 or temperature.size > 1:
            set_slopes(temperature, first, width, work, powers)
        set_slopes_of_loss(labels, weights, scale, temperature, first, width, steep)
        lane_sums(x, temperature, first, width, work, tile, powers)
        if powers is None:
            logs_of_sums(work, width)
        for r in range(width):
            label, t, m = labels[first + r], temperature_at(temperature, first + r), work[PEAK + r]
            if label < 0 or smoothing > 0.0 or not is_ordinary(m, t, steep[r]):
                continue
            own = np.float64(x[first + r, label])
            if powers is None and own * work[SCALE + r] > -np.inf:
                gap = (m - own * work[SCALE + r]) * min(1.0 / abs(t), 1e300)
                loss = gap + work[LOW + r]
            else:
                sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
                high, low = loss_parts(own, m, t, sums)
                loss = high + low
            weight = weights[label] if weights.size else 1.0
            values[first + r] = loss * weight if weight > 0.0 else 0.0
        if grads.shape[0]:
            scale_lanes(tile, powers, n, width, work, steep)
            write_lanes(tile, grads, first, width, work)
        for r in range(width):
            row, label = first + r, labels[first + r]
            t, m = temperature_at(temperature, row), work[PEAK + r]
            grad = grads[row] if grads.shape[0] else grads.reshape(-1)
            sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
            if label < 0:
                values[row] = 0.0
                grad[:] = 0.0
            elif smoothing > 0.0 or not is_ordinary(m, t, steep[r]):
                values[row] = label_row(
                    x[row], label, weights, smoothing, scale, grad, m, t, sums, None, False
                )
            elif grads.shape[0]:
                own, total = np.float64(x[row, label]), sums[0] + sums[1]
                if powers is None and own * work[SCALE + r] == m:
                    grad[label] = -steep[r] * ((sums[0] - 1.0) + sums[1]) / total
                elif powers is None:
                    grad[label] = tile[label * LANES + r] * work[HIGH + r] - steep[r]
                else:
                    grad[label] = -steep[r] * chance_parts(own, m, t, sums)[1]
