"""One class from weights: the first at which the cumulated weight passes u times the total.

Weights are summed in parts. The sums are in two words, and so are the target u * total and what is
left of it after each part, and then after each class of one part: nothing is rounded away. So a
class is drawn with its own probability, to the digits of its weight, and a class of weight 0 cannot
be passed, so it is never drawn.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import BIAS64, two_difference, two_sum
from hotmax._kernels.sampling.random import DRAW, uniform
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order, fma
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.float64 import softmax_wide
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
from hotmax._kernels.softmax.rows import HARD, PLAIN, regime, sign_of

PART = 256  # classes whose weights are summed apart
NOTHING_LEFT = 2.0 ** (BIAS64 - 1074)  # a weight, times 2**BIAS64, that is 0 in float64

# What stands for a class where none can be drawn.
NO_CLASS, NOT_A_NUMBER, TOO_FEW = -1, -2, -3


@kernel
def weigh(x, weights, m, temperature):
    """exp((x - m) / T) of classes whose row has the maximum m; 0 for one that is not there."""
    kind = regime(m, temperature)
    if kind == PLAIN:
        softmax_wide(x, weights, m, temperature, 1.0, 0.0, False)
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


@kernel
def sum_of(weights):
    """The sum in two words: four sums side by side, whose latencies overlap."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    a_low, b_low, c_low, d_low = 0.0, 0.0, 0.0, 0.0
    whole = weights.size // 4 * 4
    for i in range(0, whole, 4):
        a, carry = two_sum(a, weights[i])
        a_low += carry
        b, carry = two_sum(b, weights[i + 1])
        b_low += carry
        c, carry = two_sum(c, weights[i + 2])
        c_low += carry
        d, carry = two_sum(d, weights[i + 3])
        d_low += carry
    for i in range(whole, weights.size):
        a, carry = two_sum(a, weights[i])
        a_low += carry
    a, a_low = add_words(a, a_low, b, b_low)
    c, c_low = add_words(c, c_low, d, d_low)
    return add_words(a, a_low, c, c_low)


@inline
def add_words(a, a_low, b, b_low):
    total, carry = two_sum(a, b)
    return two_sum(total, carry + (a_low + b_low))


@inline
def target_of(total, total_low, u, u_low):
    """(u + u_low) * (total + total_low) in two words."""
    target = u * total
    return target, fma(u, total, -target) + fma(u, total_low, u_low * total)


@kernel
def pass_parts(totals, target, target_low):
    """(part, target, target_low): the part in which the target is passed, and what is left of it.

    Should rounding leave some target beyond the last part, it is the last that is not empty.
    """
    last, kept, kept_low = 0, 0.0, 0.0
    for b in range(len(totals)):
        if totals[b, 0] > 0.0:
            last, kept, kept_low = b, target, target_low
            target, carry = two_difference(target, totals[b, 0])
            target_low += carry - totals[b, 1]
            if target + target_low < 0.0:
                break
    return last, kept, kept_low


@kernel
def pass_weights(weights, target, target_low):
    """The index of the weight at which the target is passed; else the last that is not 0."""
    last = 0
    for i in range(weights.size):
        if weights[i] > 0.0:
            last = i
            target, carry = two_difference(target, weights[i])
            target_low += carry
            if target + target_low < 0.0:
                break
    return last


@kernel
def set_totals(weights, totals):
    """The total of each part, and of all, in two words."""
    total, total_low = 0.0, 0.0
    for b in range(len(totals)):
        part = sum_of(weights[b * PART : min((b + 1) * PART, weights.size)])
        totals[b, 0], totals[b, 1] = part
        total, total_low = add_words(total, total_low, part[0], part[1])
    return total, total_low


@kernel
def invert(weights, totals, total, total_low, u, u_low):
    """The index at which the cumulated weight passes (u + u_low) * (total + total_low)."""
    target, target_low = target_of(total, total_low, u, u_low)
    b, target, target_low = pass_parts(totals, target, target_low)
    part = weights[b * PART : min((b + 1) * PART, weights.size)]
    return b * PART + pass_weights(part, target, target_low)


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
        t = of_row(temperature, r)
        row, key = x[r], of_row(keys, r)
        m = top(row, sign_of(x, t))
        if m != m or m == -np.inf:
            out[r, :] = NOT_A_NUMBER if m != m else NO_CLASS
            continue
        if first_tie and t == 0.0:
            out[r, :] = first_at(row, sign_of(x, t), x.dtype.type(m))
            continue
        total, total_low = 0.0, 0.0
        for b in range(parts):
            size = min(PART, n - b * PART)
            weigh(row[b * PART : b * PART + size], weights[:size], m, t)
            totals[b, 0], totals[b, 1] = sum_of(weights[:size])
            total, total_low = add_words(total, total_low, totals[b, 0], totals[b, 1])
        for d in range(draws):
            u, u_low = uniform(key, rows[r], d, stream + DRAW)
            target, target_low = target_of(total, total_low, u, u_low)
            b, target, target_low = pass_parts(totals, target, target_low)
            size = min(PART, n - b * PART)
            if parts > 1:
                weigh(row[b * PART : b * PART + size], weights[:size], m, t)
            out[r, d] = b * PART + pass_weights(weights[:size], target, target_low)


@kernel
def draw_lanes(x, out, temperature, keys, rows, stream, first_tie, totals, start, stop):
    """draw_rows for short rows, side by side: the same weights, in one part."""
    n = x.shape[1]
    room = np.empty(WORDS + 2 * n * LANES)
    work, tile, powers = room[:WORDS], room[WORDS : WORDS + n * LANES], room[WORDS + n * LANES :]
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_slopes(temperature, first, width, work)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        join_words(tile, powers, n, width, work)
        for d in range(out.shape[1]):
            for r in range(width):
                key = of_row(keys, first + r)
                u, u_low = uniform(key, rows[first + r], d, stream + DRAW)
                work[HIGH + r], work[LOW + r] = target_of(
                    work[BELOW + r], work[BELOW_LOW + r], u, u_low
                )
            pass_lanes(tile, n, width, work)
            for r in range(width):
                out[first + r, d] = np.int64(work[TIES + r])
                if work[TIES + r] == n:
                    out[first + r, d] = last_present(tile, n, r)
        if not plain:
            for r in range(first, first + width):
                t = of_row(temperature, r)
                if regime(work[PEAK + r - first], t) != PLAIN:
                    draw_rows(x, out, temperature, keys, rows, stream, first_tie, totals, r, r + 1)


@kernel
def join_words(tile, powers, n, width, work):
    """t and its power become a weight, 0 where a class is not there, and each row's are summed."""
    for r in range(width):
        work[BELOW + r] = 0.0
        work[BELOW_LOW + r] = 0.0
    for c in range(n):
        for r in range(width):
            weight = fma(powers[c * LANES + r], tile[c * LANES + r], powers[c * LANES + r])
            weight = 0.0 if weight < NOTHING_LEFT else weight
            tile[c * LANES + r] = weight
            total, carry = two_sum(work[BELOW + r], weight)
            work[BELOW + r] = total
            work[BELOW_LOW + r] += carry


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
