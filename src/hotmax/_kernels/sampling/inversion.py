"""Draws by inversion: the first class at which the cumulated weight exceeds u times the total.

Weights are summed in blocks of WEIGHT_BLOCK. The sums, the target u * total and what is left of it
after each block, and then after each class of one block, are double-doubles: nothing is rounded
away. So a class is drawn with its own probability, to the digits of its weight, and a class of
weight 0 is never drawn. Ties at T = 0 have equal weights (`exp_weights`), or `first_equal` picks
one.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import BIAS64, add_double_double
from hotmax._kernels.numeric.double_double import two_diff, two_sum
from hotmax._kernels.sampling.random import DRAW, uniform
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order, fma
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.float64 import softmax_float64
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
from hotmax._kernels.softmax.limits import HARD, PLAIN, regime, sign_of

WEIGHT_BLOCK = 256  # classes whose weights are summed together
UNDERFLOW = 2.0 ** (BIAS64 - 1074)  # a weight times 2**BIAS64 below this is 0 in float64

# Status codes in place of a class where none can be drawn.
NO_CLASS, NOT_A_NUMBER, TOO_FEW = -1, -2, -3


@kernel
def exp_weights(x, weights, m, temperature):
    """exp((x - m) / T) for a row with maximum m: 0 at -inf, and 1 for each tie at T = 0."""
    kind = regime(m, temperature)
    if kind == PLAIN:
        softmax_float64(x, weights, m, temperature, 1.0, 0.0, False)
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
def sum_double_double(weights):
    """The sum as a double-double: four interleaved sums, whose latencies overlap."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    a_lo, b_lo, c_lo, d_lo = 0.0, 0.0, 0.0, 0.0
    whole = weights.size // 4 * 4
    for i in range(0, whole, 4):
        a, carry = two_sum(a, weights[i])
        a_lo += carry
        b, carry = two_sum(b, weights[i + 1])
        b_lo += carry
        c, carry = two_sum(c, weights[i + 2])
        c_lo += carry
        d, carry = two_sum(d, weights[i + 3])
        d_lo += carry
    for i in range(whole, weights.size):
        a, carry = two_sum(a, weights[i])
        a_lo += carry
    a, a_lo = add_double_double(a, a_lo, b, b_lo)
    c, c_lo = add_double_double(c, c_lo, d, d_lo)
    return add_double_double(a, a_lo, c, c_lo)


@inline
def target_of(total, total_lo, u, u_lo):
    """(u + u_lo) * (total + total_lo) as a double-double."""
    target = u * total
    return target, fma(u, total, -target) + fma(u, total_lo, u_lo * total)


@kernel
def pass_blocks(totals, target, target_lo):
    """(block, target, target_lo): the block that exceeds the target, and what is left of it there.

    If rounding leaves a target beyond the last block, it is the last block that is not empty.
    """
    last, kept, kept_lo = 0, 0.0, 0.0
    for b in range(len(totals)):
        if totals[b, 0] > 0.0:
            last, kept, kept_lo = b, target, target_lo
            target, carry = two_diff(target, totals[b, 0])
            target_lo += carry - totals[b, 1]
            if target + target_lo < 0.0:
                break
    return last, kept, kept_lo


@kernel
def pass_weights(weights, target, target_lo):
    """The index at which the cumulated weight exceeds the target; else the last that is not 0."""
    last = 0
    for i in range(weights.size):
        if weights[i] > 0.0:
            last = i
            target, carry = two_diff(target, weights[i])
            target_lo += carry
            if target + target_lo < 0.0:
                break
    return last


@kernel
def set_totals(weights, totals):
    """The total of each block into `totals`; returns that of all. Double-doubles."""
    total, total_lo = 0.0, 0.0
    for b in range(len(totals)):
        part = sum_double_double(
            weights[b * WEIGHT_BLOCK : min((b + 1) * WEIGHT_BLOCK, weights.size)]
        )
        totals[b, 0], totals[b, 1] = part
        total, total_lo = add_double_double(total, total_lo, part[0], part[1])
    return total, total_lo


@kernel
def invert(weights, totals, total, total_lo, u, u_lo):
    """The index at which the cumulated weight exceeds (u + u_lo) * (total + total_lo)."""
    target, target_lo = target_of(total, total_lo, u, u_lo)
    b, target, target_lo = pass_blocks(totals, target, target_lo)
    part = weights[b * WEIGHT_BLOCK : min((b + 1) * WEIGHT_BLOCK, weights.size)]
    return b * WEIGHT_BLOCK + pass_weights(part, target, target_lo)


@kernel
def first_equal(x, sign, m):
    """The first class at the maximum m."""
    for i in range(x.size):
        if sign * x[i] == m:
            return i
    return 0


@kernel
def draw_rows(x, out, temperature, keys, rows, streams, first_tie, totals, start, stop):
    """Draws from whole rows start..stop, as many as out has columns.

    Only the totals of blocks are stored, and the weights of one block are recomputed for each draw:
    memory does not grow with the row.
    """
    n, draws = x.shape[1], out.shape[1]
    blocks = -(-n // WEIGHT_BLOCK)
    weights = np.empty(WEIGHT_BLOCK)
    for r in range(start, stop):
        t = of_row(temperature, r)
        row, key = x[r], of_row(keys, r)
        m = row_maximum(row, sign_of(x, t))
        if m != m or m == -np.inf:
            out[r, :] = NOT_A_NUMBER if m != m else NO_CLASS
            continue
        if first_tie and t == 0.0:
            out[r, :] = first_equal(row, sign_of(x, t), x.dtype.type(m))
            continue
        total, total_lo = 0.0, 0.0
        for b in range(blocks):
            size = min(WEIGHT_BLOCK, n - b * WEIGHT_BLOCK)
            exp_weights(row[b * WEIGHT_BLOCK : b * WEIGHT_BLOCK + size], weights[:size], m, t)
            totals[b, 0], totals[b, 1] = sum_double_double(weights[:size])
            total, total_lo = add_double_double(total, total_lo, totals[b, 0], totals[b, 1])
        for d in range(draws):
            u, u_lo = uniform(key, rows[r], d, of_row(streams, r) + DRAW)
            target, target_lo = target_of(total, total_lo, u, u_lo)
            b, target, target_lo = pass_blocks(totals, target, target_lo)
            size = min(WEIGHT_BLOCK, n - b * WEIGHT_BLOCK)
            if blocks > 1:
                exp_weights(row[b * WEIGHT_BLOCK : b * WEIGHT_BLOCK + size], weights[:size], m, t)
            out[r, d] = b * WEIGHT_BLOCK + pass_weights(weights[:size], target, target_lo)


@kernel
def draw_lanes(x, out, temperature, keys, rows, streams, first_tie, totals, start, stop):
    """draw_rows for LANES short rows side by side: the same weights, in one block."""
    n = x.shape[1]
    workspace = np.empty(FIELDS + 2 * n * LANES)
    work, tile, powers = (
        workspace[:FIELDS],
        workspace[FIELDS : FIELDS + n * LANES],
        workspace[FIELDS + n * LANES :],
    )
    for first in range(start, stop, LANES):
        width = min(LANES, stop - first)
        if first == start or temperature.size > 1:
            set_betas(temperature, first, width, work)
        plain = lane_sums(x, temperature, first, width, work, tile, powers)
        store_weights(tile, powers, n, width, work)
        for d in range(out.shape[1]):
            for r in range(width):
                key = of_row(keys, first + r)
                stream = of_row(streams, first + r) + DRAW
                u, u_lo = uniform(key, rows[first + r], d, stream)
                work[HI + r], work[LO + r] = target_of(work[BELOW + r], work[BELOW_LO + r], u, u_lo)
            pass_lanes(tile, n, width, work)
            for r in range(width):
                out[first + r, d] = np.int64(work[TIES + r])
                if work[TIES + r] == n:
                    out[first + r, d] = last_present(tile, n, r)
        if not plain:
            for r in range(first, first + width):
                t = of_row(temperature, r)
                if regime(work[PEAK + r - first], t) != PLAIN:
                    draw_rows(x, out, temperature, keys, rows, streams, first_tie, totals, r, r + 1)


@kernel
def store_weights(tile, powers, n, width, work):
    """tile = weights power * (1 + t), 0 at -inf; their sums into BELOW."""
    for r in range(width):
        work[BELOW + r] = 0.0
        work[BELOW_LO + r] = 0.0
    for c in range(n):
        for r in range(width):
            weight = fma(powers[c * LANES + r], tile[c * LANES + r], powers[c * LANES + r])
            weight = 0.0 if weight < UNDERFLOW else weight
            tile[c * LANES + r] = weight
            total, carry = two_sum(work[BELOW + r], weight)
            work[BELOW + r] = total
            work[BELOW_LO + r] += carry


@kernel
def pass_lanes(tile, n, width, work):
    """How many weights each row's target exceeds, cumulated, into TIES."""
    for r in range(width):
        work[TIES + r] = 0.0
    for c in range(n):
        for r in range(width):
            target, carry = two_diff(work[HI + r], tile[c * LANES + r])
            work[HI + r] = target
            work[LO + r] += carry
            work[TIES + r] += 1.0 if target + work[LO + r] >= 0.0 else 0.0


@kernel
def last_present(tile, n, r):
    """The last class of nonzero weight."""
    last = 0
    for c in range(n):
        last = c if tile[c * LANES + r] > 0.0 else last
    return last
