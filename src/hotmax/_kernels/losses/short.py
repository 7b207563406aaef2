"""Cross entropy of short float32 rows against labels, WIDTH of them side by side, as in `short`.

A row that is out of the ordinary (limits of temperature, label smoothing) goes through `label_row`,
whatever its neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.losses.cross_entropy import is_ordinary, label_row
from hotmax._kernels.numeric.arithmetic import exp2_plain
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import WIDTH, choose, load, spread, store, store_some, widened
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.rows import PLAIN, limit_sums, regime, sign_of
from hotmax._kernels.softmax.short import room_for_group, turn_group_in, turn_group_out
from hotmax._kernels.softmax.short_logs import (
    HEAT,
    are_plain,
    gap,
    log1p_short,
    peaks_of,
    take_temperatures,
    words_of,
)

# Where the words of WIDTH rows are kept: the logit of the label and its weight; scale / T, and that
# times the weight; the sums; what exponentials are multiplied by, and the gradient at a label that
# is the largest.
OWN, WEIGHT, SLANT, STEEP, TIES, BELOW, FACTOR, AT_PEAK, MORE = range(0, 9 * WIDTH, WIDTH)


@inline
def load_labels(x, labels, weights, first, width, more):
    """The logits and weights of the labels; False if a row is ignored, or not ordinary."""
    ordinary = True
    for r in range(width):
        label = labels[first + r]
        ordinary = ordinary and label >= 0
        label = max(label, 0)
        more[OWN + r] = x[first + r, label]
        more[WEIGHT + r] = weights[label] if weights.size else 1.0
        ordinary = ordinary and is_ordinary(more[SLANT + r] * more[WEIGHT + r])
    return ordinary


@inline
def add_up(tile, n, words, terms, more):
    """The exponentials, and their sums."""
    ties, below = spread(0.0), spread(0.0)
    for c in range(n):
        d = gap(tile, c, words)
        e = exp2_plain(d * words[2])
        store(terms, c * WIDTH, e)
        ties = ties + choose(d < 0.0, 0.0, 1.0)
        below = below + choose(d < 0.0, e, 0.0)
    store(more, TIES, ties)
    store(more, BELOW, below)


@inline
def losses_of(words, more):
    """weight * (log(ties + below) + (m - x) / T)."""
    sign, m, inverse, weight = words[0], words[1], words[3], load(more, WEIGHT)
    rest = (load(more, TIES) - 1.0) + load(more, BELOW)
    loss = (widened(m) - widened(sign) * load(more, OWN)) * inverse + log1p_short(rest)
    return choose(weight > 0.0, loss * weight, 0.0)


@inline
def take_gradients(tile, n, terms, more):
    """A tile becomes p * weight * scale / T."""
    rest = (load(more, TIES) - 1.0) + load(more, BELOW)
    steep = load(more, SLANT) * load(more, WEIGHT)
    factor = steep / (1.0 + rest)
    store(more, STEEP, steep)
    store(more, FACTOR, factor)
    store(more, AT_PEAK, -factor * rest)
    for c in range(n):
        store(tile, c * WIDTH, load(terms, c * WIDTH) * factor)


@inline
def mark_labels(tile, terms, labels, first, width, more):
    """At the label, p - 1: from the sums if p is the largest, so that it keeps its digits."""
    for r in range(width):
        at = max(labels[first + r], 0) * WIDTH + r
        if terms[at] == 1.0:
            tile[at] = more[AT_PEAK + r]
        else:
            tile[at] = terms[at] * more[FACTOR + r] - more[STEEP + r]


@kernel
def label_short(x, labels, weights, smoothing, scale, values, grads, temperature):
    rows, n = x.shape
    tile, copied = room_for_group(n)
    terms, more = np.empty(tile.size), np.zeros(MORE)
    signs, heat = np.empty(WIDTH, np.float32), np.empty(HEAT)
    x, values = borrowed(x), borrowed(values)
    source, target = x.reshape(-1), borrowed(grads).reshape(-1)
    between = True
    for first in range(0, rows, WIDTH):
        width = min(WIDTH, rows - first)
        if temperature.size > 1 or first == 0:
            between = take_temperatures(x, temperature, first, rows, signs, heat)
            for r in range(WIDTH):
                more[SLANT + r] = scale / of_row(temperature, min(first + r, rows - 1))
        ordinary = load_labels(x, labels, weights, first, width, more)
        turn_group_in(source, first, width, n, copied, tile)
        m = peaks_of(tile, n, load(signs, 0))
        words = words_of(m, signs, heat)
        add_up(tile, n, words, terms, more)
        if smoothing == 0.0:
            store_some(values, first, width, losses_of(words, more))
            if grads.shape[0]:
                take_gradients(tile, n, terms, more)
                mark_labels(tile, terms, labels, first, width, more)
                turn_group_out(tile, n, copied, target, first, width)
            if ordinary and are_plain(m, between):
                continue
        for r in range(width):
            row, label = first + r, labels[first + r]
            t = of_row(temperature, row)
            grad = grads[row] if grads.shape[0] else grads.reshape(-1)
            peak = top(x[row], sign_of(x, t))
            plain = regime(peak, t) == PLAIN
            if label < 0:
                values[row] = 0.0
                grad[:] = 0.0
            elif not (
                smoothing == 0.0 and plain and is_ordinary(more[SLANT + r] * more[WEIGHT + r])
            ):
                sums = (more[TIES + r], more[BELOW + r], 0.0)
                if not plain:
                    sums = limit_sums(x[row], peak, t)
                values[row] = label_row(
                    x[row], label, weights, smoothing, scale, grad, peak, t, sums, None, False
                )
