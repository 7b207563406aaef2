"""Cross entropy of short float64 rows against labels, LANES of them side by side, as in `lanes`.

A row that is out of the ordinary (limits of temperature, label smoothing) goes through `label_row`,
whatever its neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.cross_entropy import chance_parts, is_ordinary, label_row, loss_parts
from hotmax._kernels.numeric.arithmetic import UNBIAS64, reciprocal, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.float64 import product
from hotmax._kernels.softmax.lanes import (
    BELOW,
    BELOW_LOW,
    HIGH,
    LANES,
    LOW,
    PEAK,
    TIES,
    WORDS,
    lane_sums,
    set_slopes,
)
from hotmax._kernels.softmax.rows import PLAIN, regime

# Where each word of the LANES rows begins in a second workspace.
SLANT, WEIGHT, OWN, AT_LABEL, MORE = range(0, 5 * LANES, LANES)


@kernel
def set_slants(scale, temperature, first, width, more):
    """scale / T of each row."""
    for r in range(width):
        more[SLANT + r] = scale / of_row(temperature, first + r)


@kernel
def load_labels(x, labels, weights, first, width, work, more):
    """The entries and weights of the labels; True if every row is ordinary and none ignored."""
    ordinary = True
    for r in range(width):
        label = labels[first + r]
        ordinary = ordinary and label >= 0
        label = max(label, 0)
        more[OWN + r] = np.float64(x[first + r, label])
        more[WEIGHT + r] = weights[label] if weights.size else 1.0
        ordinary = ordinary and is_ordinary(more[SLANT + r] * more[WEIGHT + r])
    return ordinary


@kernel
def losses_in_two_words(values, temperature, first, width, work, more):
    for r in range(width):
        t = of_row(temperature, first + r)
        sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
        high, low = loss_parts(more[OWN + r], work[PEAK + r], t, sums)
        loss, weight = high + low, more[WEIGHT + r]
        values[first + r] = loss * weight if weight > 0.0 else 0.0


@kernel
def scale_in_two_words(tile, powers, temperature, first, n, width, work, more):
    for r in range(width):
        t, sums = (
            of_row(temperature, first + r),
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


@kernel
def write_lanes(tile, labels, grads, first, width, more):
    """The gradients, which at the labels come from the sums."""
    for r in range(width):
        for c in range(grads.shape[1]):
            grads[first + r, c] = tile[c * LANES + r]
        grads[first + r, max(labels[first + r], 0)] = more[AT_LABEL + r]


@kernel
def label_lanes(x, labels, weights, smoothing, scale, values, grads, temperature, powers):
    rows, n = x.shape
    room = np.empty(WORDS + n * LANES)
    work, tile, more = room[:WORDS], room[WORDS:], np.empty(MORE)
    for first in range(0, rows, LANES):
        width = min(LANES, rows - first)
        if first == 0 or temperature.size > 1:
            set_slopes(temperature, first, width, work)
            set_slants(scale, temperature, first, width, more)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        plain = load_labels(x, labels, weights, first, width, work, more) and plain
        if smoothing == 0.0:
            losses_in_two_words(values, temperature, first, width, work, more)
            if grads.shape[0]:
                scale_in_two_words(tile, powers, temperature, first, n, width, work, more)
                write_lanes(tile, labels, grads, first, width, more)
        if plain and smoothing == 0.0:
            continue
        for r in range(width):
            row, label = first + r, labels[first + r]
            t, m = of_row(temperature, row), work[PEAK + r]
            grad = grads[row] if grads.shape[0] else grads.reshape(-1)
            if label < 0:
                values[row] = 0.0
                grad[:] = 0.0
            elif not (
                smoothing == 0.0
                and regime(m, t) == PLAIN
                and is_ordinary(more[SLANT + r] * more[WEIGHT + r])
            ):
                sums = work[TIES + r], work[BELOW + r], work[BELOW_LOW + r]
                values[row] = label_row(
                    x[row], label, weights, smoothing, scale, grad, m, t, sums, None, False
                )
