"""What calibration asks of rows of logits and their labels.

    survey     what a row has to say before any temperature is known
    add_moments   the likelihood of 1 / T over rows, with two derivatives
    score         confidence, correctness, negative log-likelihood and Brier score of each row

A row whose weight is 0 is not looked at, whatever it holds. Sums run over a fixed block of rows
in a fixed order. Rows of up to SHORT classes go side by side, as in `lanes`.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    BIAS64,
    LN2,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    LOWEST64,
    ROUND64,
    UNBIAS64,
    two_sum,
)
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order, bits64, float64_of, fma, maximum
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.short import SHORT

MOST = 1.7976931348623157e308

# What is wrong with a row.
FINE, HAS_NAN, HAS_INF, IS_EMPTY, LABEL_IS_ABSENT = 0, 1, 2, 3, 4

# What `survey` and `add_flat_moments` sum, what `add_moments` sums, and what `score` writes.
WEIGHT, MISSES, SURVEYED = 0, 1, 2
NLL, GRADIENT, CURVATURE, MOMENTS = 1, 2, 3, 4
CONFIDENCE, CORRECT, LOSS, BRIER, SCORED = 0, 1, 2, 3, 4

# Where each word of the LANES rows begins in the workspace, before the tile of their logits.
PEAK, TOTAL, FIRST, SECOND, GAP, BEST, WORDS = range(0, 7 * LANES, LANES)


@inline
def power_of_two(y):
    """2**(y + BIAS64) to the last bit or so, for LOWEST64 <= y <= 1: exp2_parts in one word."""
    shifted = y + ROUND64
    f = y - (shifted - ROUND64)
    g = f * f
    even = fma(4.456676030826705e-10, g, 1.0178051724308302e-07)
    odd = fma(7.072586161230777e-09, g, 1.3215442586728665e-06)
    even = fma(even, g, 1.5252733853289477e-05)
    odd = fma(odd, g, 0.00015403530441738291)
    even = fma(even, g, 0.0013333558146395995)
    odd = fma(odd, g, 0.009618129107606887)
    even = fma(even, g, 0.05550410866482166)
    odd = fma(odd, g, 0.24022650695910097)
    t = fma(f, LN2, g * fma(even, f, odd))
    power = float64_of((bits64(shifted) << 52) + ((1023 + BIAS64) << 52))
    return fma(power, t, power)


@inline
def cut(y):
    """y, or LOWEST64 if it is below: there 2**y is 0, whatever it is added to."""
    return LOWEST64 if y < LOWEST64 else y


@inline
def log1p_plain(s):
    """log(1 + s) for s >= 0 to the last bit or so, without a branch: it vectorises."""
    whole = 1.0 + s
    rest = s - (whole - 1.0) if s < 1.0 else 1.0 - (whole - s)
    k = (bits64(whole) - bits64(0.7071067811865476)) >> 52
    shrink = float64_of((1023 - k) << 52)
    u = s if k == 0 else (whole * shrink - 1.0) + rest * shrink
    r = u / (2.0 + u)
    w = r * r
    series = fma(1.0 / 23.0, w, 1.0 / 21.0)
    series = fma(series, w, 1.0 / 19.0)
    series = fma(series, w, 1.0 / 17.0)
    series = fma(series, w, 1.0 / 15.0)
    series = fma(series, w, 1.0 / 13.0)
    series = fma(series, w, 1.0 / 11.0)
    series = fma(series, w, 1.0 / 9.0)
    series = fma(series, w, 1.0 / 7.0)
    series = fma(series, w, 1.0 / 5.0)
    series = fma(series, w, 1.0 / 3.0)
    series = 2.0 * r * (w * series)
    return np.float64(k) * LN2_HIGH + (2.0 * r + (series + np.float64(k) * LN2_LOW))


# --- before any temperature -------------------------------------------------------------------


@kernel
def row_max(row):
    """The maximum, or nan if any is nan."""
    m = row[0]
    for c in range(row.size):
        m = maximum(m, row[c])
    return np.float64(m)


@kernel
def checked_max(row):
    """As row_max, and faster on a short row."""
    if row.size > SHORT:
        return row_max(row)
    m, total = -np.inf, 0.0
    for c in range(row.size):
        v = np.float64(row[c])
        m = v if v > m else m
        total += v
    return m if total == total else row_max(row)  # a nan, or inf - inf: look again


@kernel
def label_gap(row, label, soft, m):
    """The label's logit below the maximum: of soft labels, their mean. -inf: it is not there."""
    if label >= 0:
        if row[label] == -np.inf:
            return -np.inf
        return max(np.float64(row[label]) - m, -MOST)
    gap, total = 0.0, 0.0
    for c in range(row.size):
        q = np.float64(soft[c])
        if q > 0.0:
            if row[c] == -np.inf:
                return -np.inf
            total += q
            gap += q * (np.float64(row[c]) - m)
    return max(gap / total, -MOST)


@kernel
def survey(x, labels, soft, weights, gaps, sums):
    """gaps[r]: how far the label of row r lies below the maximum. (what is wrong, with which row).

    `sums` takes the weight of all rows, and that of the rows whose label is not a maximum.
    """
    for r in range(x.shape[0]):
        w = of_row(weights, r)
        gaps[r] = 0.0
        if w > 0.0:
            m = checked_max(x[r])
            if not abs(m) < np.inf:
                return HAS_NAN if m != m else HAS_INF if m > 0.0 else IS_EMPTY, r
            label = labels[r] if labels.size else -1
            gap = label_gap(x[r], label, soft[r if soft.shape[0] > 1 else 0], m)
            if gap == -np.inf:
                return LABEL_IS_ABSENT, r
            gaps[r] = gap
            sums[WEIGHT] += w
            sums[MISSES] += w if gap < 0.0 else 0.0
    return FINE, 0


@kernel
def add_flat_moments(x, gaps, weights, sums):
    """As add_moments, in the limit 1 / T = 0, with the derivatives by 1 / T itself."""
    gradient, rest = 0.0, 0.0
    for r in range(x.shape[0]):
        w = of_row(weights, r)
        if w > 0.0:
            m = row_max(x[r])
            total, square, count = 0.0, 0.0, 0.0
            for c in range(x.shape[1]):
                d = np.float64(x[r, c]) - m
                there = d > -np.inf
                d = d if there else 0.0
                total = add_in_any_order(total, d)
                square = add_in_any_order(square, d * d)
                count = add_in_any_order(count, 1.0 if there else 0.0)
            mean = total / count
            sums[WEIGHT] += w
            sums[NLL] += w * log1p_plain(count - 1.0)
            gradient, lost = two_sum(gradient, w * (mean - gaps[r]))
            rest += lost
            sums[CURVATURE] += w * max(square / count - mean * mean, 0.0)
    sums[GRADIENT] += gradient + rest


# --- the likelihood of 1 / T ------------------------------------------------------------------


@kernel
def row_moments(row, m, slope):
    """Sums of 2**y, y 2**y and y y 2**y over y = (x - m) slope, times 2**BIAS64."""
    total, first, second = 0.0, 0.0, 0.0
    for c in range(row.size):
        y = cut((np.float64(row[c]) - m) * slope)
        e = power_of_two(y)
        total = add_in_any_order(total, e)
        first = add_in_any_order(first, e * y)
        second = add_in_any_order(second, e * y * y)
    return total, first, second


@kernel
def load_tile(x, first, width, room):
    """room[WORDS + c * LANES + r] = row first + r, class c; its maximum, and where it is."""
    for r in range(width):
        m, best, total = -np.inf, 0, 0.0
        for c in range(x.shape[1]):
            v = np.float64(x[first + r, c])
            best = c if v > m else best
            m = v if v > m else m
            total += v
            room[WORDS + c * LANES + r] = v
        room[PEAK + r] = m if total == total else row_max(x[first + r])
        room[BEST + r] = best


@kernel
def tile_moments(room, classes, slope):
    """row_moments of all rows of a tile."""
    for r in range(LANES):
        room[TOTAL + r] = 0.0
        room[FIRST + r] = 0.0
        room[SECOND + r] = 0.0
    for c in range(classes):
        for r in range(LANES):
            y = cut((room[WORDS + c * LANES + r] - room[PEAK + r]) * slope)
            e = power_of_two(y)
            room[TOTAL + r] += e
            room[FIRST + r] += e * y
            room[SECOND + r] += e * y * y


@kernel
def tile_logs(room):
    """Sums of powers become log(sum); first and second moments become mean and variance of y."""
    for r in range(LANES):
        total = room[TOTAL + r]
        mean = room[FIRST + r] / total
        room[FIRST + r] = mean
        room[SECOND + r] = room[SECOND + r] / total - mean * mean
        room[TOTAL + r] = log1p_plain(total * UNBIAS64 - 1.0)


@kernel
def add_moments(x, gaps, weights, inverse, sums):
    """Add the rows' likelihood at 1 / T = inverse: weight, nll, its slope and its curvature.

    The derivatives are those by the logarithm's own scale: times 1 / T, and times 1 / T squared,
    so that they are plain numbers whatever the size of the logits.
    """
    slope = inverse * LOG2E
    room = np.zeros(WORDS + min(x.shape[1], SHORT) * LANES)
    nll, gradient, curvature = 0.0, 0.0, 0.0
    for first in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - first)
        if x.shape[1] <= SHORT:
            load_tile(x, first, width, room)
            tile_moments(room, x.shape[1], slope)
        else:
            for r in range(width):
                if of_row(weights, first + r) > 0.0:
                    m = row_max(x[first + r])
                    moments = row_moments(x[first + r], m, slope)
                    room[TOTAL + r], room[FIRST + r], room[SECOND + r] = moments
        tile_logs(room)
        for r in range(width):
            w = of_row(weights, first + r)
            if w > 0.0:
                gap = gaps[first + r] * inverse
                nll += w * (room[TOTAL + r] - gap)
                gradient += w * (room[FIRST + r] * LN2 - gap)
                curvature += w * (room[SECOND + r] * (LN2 * LN2))
                sums[WEIGHT] += w
    sums[NLL] += nll
    sums[GRADIENT] += gradient
    sums[CURVATURE] += curvature


# --- one row's scores -------------------------------------------------------------------------


@kernel
def row_squares(row, m, slope):
    """Sums of 2**y and its square over y = (x - m) slope, times 2**BIAS64 and its square."""
    total, square = 0.0, 0.0
    for c in range(row.size):
        e = power_of_two(cut((np.float64(row[c]) - m) * slope))
        total = add_in_any_order(total, e)
        square = add_in_any_order(square, e * e)
    return total, square


@kernel
def tile_squares(room, classes, slope):
    """row_squares of all rows of a tile."""
    for r in range(LANES):
        room[TOTAL + r] = 0.0
        room[SECOND + r] = 0.0
    for c in range(classes):
        for r in range(LANES):
            e = power_of_two(cut((room[WORDS + c * LANES + r] - room[PEAK + r]) * slope))
            room[TOTAL + r] += e
            room[SECOND + r] += e * e


@kernel
def tile_scores(room, inverse):
    """Sums become the confidence (TOTAL), the nll (FIRST) and the Brier score (SECOND)."""
    for r in range(LANES):
        total = room[TOTAL + r]
        y = room[GAP + r] * inverse
        p = power_of_two(cut(y * LOG2E)) / total
        squares = room[SECOND + r] / total / total
        brier = 1.0 - 2.0 * p + squares
        room[FIRST + r] = log1p_plain(total * UNBIAS64 - 1.0) - y
        room[SECOND + r] = brier if brier > 0.0 else 0.0
        room[TOTAL + r] = 1.0 / (total * UNBIAS64)


@kernel
def first_at(row, m):
    """The first class whose logit is the maximum."""
    for c in range(row.size):
        if row[c] == m:
            return c
    return 0


@kernel
def score_soft(row, soft, m, inverse, confidence, log_total, brier):
    """(nll, Brier score) of a row with soft labels, from those with the maximum as its label."""
    loss, score = 0.0, brier - 1.0 + 2.0 * confidence
    for c in range(row.size):
        q = np.float64(soft[c])
        if q > 0.0:
            y = (np.float64(row[c]) - m) * inverse
            p = power_of_two(cut(y * LOG2E)) * UNBIAS64 * confidence
            loss += q * (log_total - y)
            score += q * (q - 2.0 * p)
    return loss, max(score, 0.0)


@kernel
def score(x, labels, soft, weights, inverse, predictions, scores):
    """Confidence, correctness, nll and Brier score of each row at 1 / T = inverse.

    Returns what is wrong with a row, and with which. A label on a class that is not there has an
    nll of inf. Rows without weight are left at 0.
    """
    slope = inverse * LOG2E
    short = x.shape[1] <= SHORT
    room = np.zeros(WORDS + min(x.shape[1], SHORT) * LANES)
    for first in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - first)
        if short:
            load_tile(x, first, width, room)
            tile_squares(room, x.shape[1], slope)
        else:
            for r in range(width):
                row = x[first + r]
                m = row_max(row)
                room[PEAK + r] = m
                room[BEST + r] = first_at(row, m)
                room[TOTAL + r], room[SECOND + r] = row_squares(row, m, slope)
        for r in range(width):
            room[GAP + r] = 0.0
            if labels.size:
                room[GAP + r] = np.float64(x[first + r, labels[first + r]]) - room[PEAK + r]
        tile_scores(room, inverse)
        for r in range(width):
            at, m = first + r, room[PEAK + r]
            there = of_row(weights, at) > 0.0
            if there and not abs(m) < np.inf:
                return HAS_NAN if m != m else HAS_INF if m > 0.0 else IS_EMPTY, at
            best = np.int64(room[BEST + r]) if there else 0
            predictions[at] = best
            scores[CONFIDENCE, at] = room[TOTAL + r] if there else 0.0
            scores[LOSS, at] = room[FIRST + r] if there else 0.0
            scores[BRIER, at] = room[SECOND + r] if there else 0.0
            if labels.size:
                scores[CORRECT, at] = 1.0 if there and best == labels[at] else 0.0
            else:
                scores[CORRECT, at] = soft[at, best] if there else 0.0
                if there:
                    known = scores[CONFIDENCE, at], scores[LOSS, at], scores[BRIER, at]
                    loss, brier = score_soft(x[at], soft[at], m, inverse, *known)
                    scores[LOSS, at] = loss
                    scores[BRIER, at] = brier
    return FINE, 0
