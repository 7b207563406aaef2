"""Cross entropy of short float32 rows against labels, WIDTH rows side by side.

The arithmetic is that of softmax/short.py. Special rows (limits of temperature, label smoothing,
extreme factors) are recomputed by `label_row`, whatever their neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.losses.cross_entropy import LossOptions, label_row
from hotmax._kernels.losses.probabilities import is_ordinary_factor
from hotmax._kernels.numeric.arithmetic import exp2_33_bits
from hotmax._kernels.simd.memory import borrowed, of_row
from hotmax._kernels.simd.vectors import (
    WIDTH,
    choose,
    load,
    splat,
    store,
    store_partial,
    to_float64,
)
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import PLAIN, limit_sums, regime, sign_of
from hotmax._kernels.softmax.logs import log1p_vector
from hotmax._kernels.softmax.short import group_buffers, load_group, store_group
from hotmax._kernels.softmax.short_logs import (
    TEMPERATURES,
    are_plain,
    gap,
    group_fields,
    peaks_of,
    take_temperatures,
)

# Offsets of the fields of WIDTH rows in `fields`: logit and weight of the label; scale / T, and
# that times the weight; the sums; the factor of the exponentials, and the gradient at a label that
# is the maximum.
LABEL_LOGIT, WEIGHT, SCALE_OVER_T, LABEL_FACTOR, TIES, BELOW, FACTOR, AT_PEAK, LABEL_FIELDS = range(
    0, 9 * WIDTH, WIDTH
)


@inline
def load_group_labels(x, labels, weights, first, width, fields):
    """Logits and weights of the labels. False if a row is ignored or has an extreme factor."""
    ordinary = True
    for r in range(width):
        label = labels[first + r]
        ordinary = ordinary and label >= 0
        label = max(label, 0)
        fields[LABEL_LOGIT + r] = x[first + r, label]
        fields[WEIGHT + r] = weights[label] if weights.size else 1.0
        ordinary = ordinary and is_ordinary_factor(fields[SCALE_OVER_T + r] * fields[WEIGHT + r])
    return ordinary


@inline
def add_up(tile, n, row_fields, terms, fields):
    """Exponentials into `terms`, and their sums into TIES and BELOW."""
    ties, below = splat(0.0), splat(0.0)
    for c in range(n):
        d = gap(tile, c, row_fields)
        e = exp2_33_bits(d * row_fields[2])
        store(terms, c * WIDTH, e)
        ties = ties + choose(d < 0.0, 0.0, 1.0)
        below = below + choose(d < 0.0, e, 0.0)
    store(fields, TIES, ties)
    store(fields, BELOW, below)


@inline
def losses_of(row_fields, fields):
    """weight * (log(ties + below) + (m - x) / T)."""
    sign, m, inverse, weight = row_fields[0], row_fields[1], row_fields[3], load(fields, WEIGHT)
    rest = (load(fields, TIES) - 1.0) + load(fields, BELOW)
    loss = (to_float64(m) - to_float64(sign) * load(fields, LABEL_LOGIT)) * inverse + log1p_vector(
        rest
    )
    return choose(weight > 0.0, loss * weight, 0.0)


@inline
def write_gradients(tile, n, terms, fields):
    """tile = p * weight * scale / T."""
    rest = (load(fields, TIES) - 1.0) + load(fields, BELOW)
    label_factor = load(fields, SCALE_OVER_T) * load(fields, WEIGHT)
    factor = label_factor / (1.0 + rest)
    store(fields, LABEL_FACTOR, label_factor)
    store(fields, FACTOR, factor)
    store(fields, AT_PEAK, -factor * rest)
    for c in range(n):
        store(tile, c * WIDTH, load(terms, c * WIDTH) * factor)


@inline
def mark_labels(tile, terms, labels, first, width, fields):
    """At the label p - 1, from the sums if p is the largest, so that it keeps its digits."""
    for r in range(width):
        at = max(labels[first + r], 0) * WIDTH + r
        if terms[at] == 1.0:
            tile[at] = fields[AT_PEAK + r]
        else:
            tile[at] = terms[at] * fields[FACTOR + r] - fields[LABEL_FACTOR + r]


@kernel
def label_short(x, labels, weights, smoothing, scale, values, grads, temperature):
    options = LossOptions(weights, smoothing, scale)
    rows, n = x.shape
    tile, copied = group_buffers(n)
    terms, fields = np.empty(tile.size), np.zeros(LABEL_FIELDS)
    signs, temperature_fields = np.empty(WIDTH, np.float32), np.empty(TEMPERATURES)
    x, values = borrowed(x), borrowed(values)
    source, target = x.reshape(-1), borrowed(grads).reshape(-1)
    between = True
    for first in range(0, rows, WIDTH):
        width = min(WIDTH, rows - first)
        if temperature.size > 1 or first == 0:
            between = take_temperatures(x, temperature, first, rows, signs, temperature_fields)
            for r in range(WIDTH):
                fields[SCALE_OVER_T + r] = scale / of_row(temperature, min(first + r, rows - 1))
        ordinary = load_group_labels(x, labels, weights, first, width, fields)
        load_group(source, first, width, n, copied, tile)
        m = peaks_of(tile, n, load(signs, 0))
        row_fields = group_fields(m, signs, temperature_fields)
        add_up(tile, n, row_fields, terms, fields)
        if smoothing == 0.0:
            store_partial(values, first, width, losses_of(row_fields, fields))
            if grads.shape[0]:
                write_gradients(tile, n, terms, fields)
                mark_labels(tile, terms, labels, first, width, fields)
                store_group(tile, n, copied, target, first, width)
            if ordinary and are_plain(m, between):
                continue
        for r in range(width):
            row, label = first + r, labels[first + r]
            t = of_row(temperature, row)
            grad = grads[row] if grads.shape[0] else grads.reshape(-1)
            peak = row_maximum(x[row], sign_of(x, t))
            plain = regime(peak, t) == PLAIN
            if label < 0:
                values[row] = 0.0
                grad[:] = 0.0
            elif not (
                smoothing == 0.0
                and plain
                and is_ordinary_factor(fields[SCALE_OVER_T + r] * fields[WEIGHT + r])
            ):
                sums = (fields[TIES + r], fields[BELOW + r], 0.0)
                if not plain:
                    sums = limit_sums(x[row], peak, t)
                values[row] = label_row(x[row], label, options, grad, peak, t, sums, None, False)
