"""Cross entropy of short float64 rows against labels, LANES rows side by side.

The arithmetic is that of softmax/lanes.py. Special rows (limits of temperature, label smoothing,
extreme factors) are recomputed by `label_row`, whatever their neighbours are.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.losses.cross_entropy import LossOptions, label_row
from hotmax._kernels.losses.probabilities import (
    is_ordinary_factor,
    negative_log_probability,
    probability_and_complement,
)
from hotmax._kernels.numeric.arithmetic import UNBIAS64
from hotmax._kernels.numeric.double_double import dd_mul, dd_reciprocal, two_sum
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import fma
from hotmax._kernels.softmax.lanes import (
    BELOW,
    BELOW_LO,
    FIELDS,
    HI,
    LANES,
    LO,
    PEAK,
    TIES,
    lane_sums,
    set_betas,
)
from hotmax._kernels.softmax.limits import PLAIN, regime

# Offsets of the fields of LANES rows in `fields`: scale / T, weight and logit of the label, and the
# gradient at the label.
SCALE_OVER_T, WEIGHT, LABEL_LOGIT, AT_LABEL, LABEL_FIELDS = range(0, 5 * LANES, LANES)


@kernel
def set_scales(scale, temperature, first, width, fields):
    """scale / T of each row."""
    for r in range(width):
        fields[SCALE_OVER_T + r] = scale / of_row(temperature, first + r)


@kernel
def load_lane_labels(x, labels, weights, first, width, work, fields):
    """Logits and weights of the labels. True if no row is ignored or has an extreme factor."""
    ordinary = True
    for r in range(width):
        label = labels[first + r]
        ordinary = ordinary and label >= 0
        label = max(label, 0)
        fields[LABEL_LOGIT + r] = np.float64(x[first + r, label])
        fields[WEIGHT + r] = weights[label] if weights.size else 1.0
        ordinary = ordinary and is_ordinary_factor(fields[SCALE_OVER_T + r] * fields[WEIGHT + r])
    return ordinary


@kernel
def write_losses(values, temperature, first, width, work, fields):
    """weight * -log p of each row."""
    for r in range(width):
        t = of_row(temperature, first + r)
        sums = work[TIES + r], work[BELOW + r], work[BELOW_LO + r]
        hi, lo = negative_log_probability(fields[LABEL_LOGIT + r], work[PEAK + r], t, sums)
        loss, weight = hi + lo, fields[WEIGHT + r]
        values[first + r] = loss * weight if weight > 0.0 else 0.0


@kernel
def scale_gradients(tile, powers, temperature, first, n, width, work, fields):
    """tile = p * weight * scale / T, and the gradient at each label."""
    for r in range(width):
        t, sums = (
            of_row(temperature, first + r),
            (work[TIES + r], work[BELOW + r], work[BELOW_LO + r]),
        )
        factor = fields[SCALE_OVER_T + r] * fields[WEIGHT + r]
        fields[AT_LABEL + r] = (
            -factor
            * probability_and_complement(fields[LABEL_LOGIT + r], work[PEAK + r], t, sums)[1]
        )
        total, carry = two_sum(sums[0], sums[1])
        inverse, inverse_lo = dd_reciprocal(total, carry + sums[2])
        work[HI + r], work[LO + r] = dd_mul(inverse, inverse_lo, factor, 0.0)
    for c in range(n):
        for r in range(width):
            p = work[HI + r] + fma(tile[c * LANES + r], work[HI + r], work[LO + r])
            tile[c * LANES + r] = p * powers[c * LANES + r] * UNBIAS64


@kernel
def write_lanes(tile, labels, grads, first, width, fields):
    """Copy the gradients to `grads`; at the labels they come from the sums."""
    for r in range(width):
        for c in range(grads.shape[1]):
            grads[first + r, c] = tile[c * LANES + r]
        grads[first + r, max(labels[first + r], 0)] = fields[AT_LABEL + r]


@kernel
def label_lanes(x, labels, weights, smoothing, scale, values, grads, temperature, powers):
    options = LossOptions(weights, smoothing, scale)
    rows, n = x.shape
    workspace = np.empty(FIELDS + n * LANES)
    work, tile, fields = workspace[:FIELDS], workspace[FIELDS:], np.empty(LABEL_FIELDS)
    for first in range(0, rows, LANES):
        width = min(LANES, rows - first)
        if first == 0 or temperature.size > 1:
            set_betas(temperature, first, width, work)
            set_scales(scale, temperature, first, width, fields)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        plain = load_lane_labels(x, labels, weights, first, width, work, fields) and plain
        if smoothing == 0.0:
            write_losses(values, temperature, first, width, work, fields)
            if grads.shape[0]:
                scale_gradients(tile, powers, temperature, first, n, width, work, fields)
                write_lanes(tile, labels, grads, first, width, fields)
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
                and is_ordinary_factor(fields[SCALE_OVER_T + r] * fields[WEIGHT + r])
            ):
                sums = work[TIES + r], work[BELOW + r], work[BELOW_LO + r]
                values[row] = label_row(x[row], label, options, grad, m, t, sums, None, False)
