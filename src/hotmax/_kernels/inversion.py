"""One class from weights: the first at which the cumulated weight passes u times the total.

Weights are summed in blocks. The target u * total is a number in two words, and so is what is left
of it after each block, and then after each class of one block: nothing of it is rounded away. A
class is drawn with its own probability to within 2**-53, most to many more digits, and a class of
weight 0 cannot be passed, so it is never drawn.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.arithmetic import BIAS64, add_in_any_order, fma, inline, kernel, two_difference
from hotmax._kernels.lanes import (
    BELOW,
    HIGH,
    LANES,
    LOW,
    PEAK,
    TIES,
    WORDS,
    lane_sums,
    set_slopes,
)
from hotmax._kernels.random import DRAW, uniform
from hotmax._kernels.softmax import HARD, PLAIN, regime, sign_of, top
from hotmax._kernels.wide import softmax_wide

PART = 256  # classes whose weights are summed apart
NOTHING_LEFT = 2.0 ** (BIAS64 - 1074)  # a weight, times 2**BIAS64, that is 0 in float64

# What stands for a class where none can be drawn.
NO_CLASS, NOT_A_NUMBER, TOO_FEW = -1, -2, -3


@kernel
def weigh(x, weights, m, temperature):
    """exp((x - m) / T) of classes whose row has the maximum m; 0 for one that is not there."""
    kind = regime(m, temperature)
    if kind == PLAIN:
        softmax_wide(x, weights, m, temperature, 1.0, 0.0)
        return
    sign, peak = sign_of(x, temperature), x.dtype.type(m)
    for i in range(x.size):
        v = sign * x[i]
        weights[i] = 1.0 if (v == peak if kind == HARD else v > -np.inf) else 0.0


@kernel
def total_of(weights):
    total = 0.0
    for i in range(weights.size):
        total = add_in_any_order(total, weights[i])
    return total


@inline
def target_of(total, u, u_low):
    """u * total in two words."""
    target = u * total
    return target, fma(u, total, -target) + u_low * total


@kernel
def pass_weights(weights, target, target_low):
    """(i, target, target_low): weight i is the one at which the target is passed.

    What is given back is left of the target before it. Should rounding leave some target beyond the
    last weight, it is the last that is not 0.
    """
    last, kept, kept_low = -1, 0.0, 0.0
    for i in range(weights.size):
        if weights[i] > 0.0:
            last, kept, kept_low = i, target, target_low
            target, carry = two_difference(target, weights[i])
            target_low += carry
            if target + target_low < 0.0:
                break
    return last, kept, kept_low


@kernel
def set_totals(weights, totals):
    """The total of each part, and of all."""
    parts = -(-weights.size // PART)
    for b in range(parts):
        totals[b] = total_of(weights[b * PART : min((b + 1) * PART, weights.size)])
    return total_of(totals[:parts])


@kernel
def invert(weights, totals, total, u, u_low):
    """The index at which the cumulated weight passes (u + u_low) * total."""
    parts = -(-weights.size // PART)
    target, target_low = target_of(total, u, u_low)
    b, target, target_low = pass_weights(totals[:parts], target, target_low)
    part = weights[b * PART : min((b + 1) * PART, weights.size)]
    return b * PART + pass_weights(part, target, target_low)[0]


@kernel
def first_at(x, sign, m):
    for i in range(x.size):
        if sign * x[i] == m:
            return i
    return 0


@kernel
def draw_rows(x, out, temperature, keys, rows, stream, first_tie, totals, start, stop):
    """Draws from whole rows start..stop, as many as out has columns.

    Only the totals of parts are kept, and the weights of one part made again: a long row needs no
    room.
    """
    n, draws = x.shape[1], out.shape[1]
    parts = -(-n // PART)
    weights = np.empty(PART)
    for r in range(start, stop):
        t = temperature[r if temperature.size > 1 else 0]
        row, key = x[r], keys[r if keys.size > 1 else 0]
        m = top(row, sign_of(x, t))
        if m != m or m == -np.inf:
            out[r, :] = NOT_A_NUMBER if m != m else NO_CLASS
            continue
        if first_tie and t == 0.0:
            out[r, :] = first_at(row, sign_of(x, t), x.dtype.type(m))
            continue
        for b in range(parts):
            size = min(PART, n - b * PART)
            weigh(row[b * PART : b * PART + size], weights[:size], m, t)
            totals[b] = total_of(weights[:size])
        total = total_of(totals[:parts])
        for d in range(draws):
            u, u_low = uniform(key, rows[r], d, stream + DRAW)
            target, target_low = target_of(total, u, u_low)
            b, target, target_low = pass_weights(totals[:parts], target, target_low)
            size = min(PART, n - b * PART)
            if parts > 1:
                weigh(row[b * PART : b * PART + size], weights[:size], m, t)
            out[r, d] = b * PART + pass_weights(weights[:size], target, target_low)[0]


@kernel
def draw_lanes(x, out, temperature, keys, rows, stream, first_tie, totals, start, stop):
    """draw_rows for short rows, side by side: the same weights, in one part."""
    n = x.shape[1]
    room = np.empty(WORDS + 2 * n * LANES)
    work, tile, powers = room[:WORDS], room[WORDS : WORDS + n * LANES], room[WORDS + n * LANES :]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work, powers)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        join_words(tile, powers, n, width, work)
        for d in range(out.shape[1]):
            for r in range(width):
                key = keys[first + r if keys.size > 1 else 0]
                u, u_low = uniform(key, rows[first + r], d, stream + DRAW)
                work[HIGH + r], work[LOW + r] = target_of(work[BELOW + r], u, u_low)
            pass_lanes(tile, n, width, work)
            for r in range(width):
                out[first + r, d] = np.int64(work[TIES + r])
                if work[TIES + r] == n:
                    out[first + r, d] = last_present(tile, n, r)
        if not plain:
            for r in range(first, first + width):
                t = temperature[r if temperature.size > 1 else 0]
                if regime(work[PEAK + r - first], t) != PLAIN:
                    draw_rows(x, out, temperature, keys, rows, stream, first_tie, totals, r, r + 1)


@kernel
def join_words(tile, powers, n, width, work):
    """t and its power become a weight, 0 where a class is not there, and each row's are summed."""
    for r in range(width):
        work[BELOW + r] = 0.0
    for c in range(n):
        for r in range(width):
            weight = fma(powers[c * LANES + r], tile[c * LANES + r], powers[c * LANES + r])
            weight = 0.0 if weight < NOTHING_LEFT else weight
            tile[c * LANES + r] = weight
            work[BELOW + r] += weight


@kernel
def pass_lanes(tile, n, width, work):
    """The number of weights that each row's target outlasts, into TIES."""
    for r in range(width):
        work[TIES + r] = 0.0
    for c in range(n):
        for r in range(width):
            target, carry = two_difference(work[HIGH + r], tile[c * LANES + r])
            work[HIGH + r] = target
            work[LOW + r] += carry
            work[TIES + r] += 1.0 if target + work[LOW + r] >= 0.0 else 0.0


@kernel
def last_present(tile, n, r):
    last = 0
    for c in range(n):
        last = c if tile[c * LANES + r] > 0.0 else last
    return last
