"""Row kernels of calibration: checks, the likelihood of a temperature, and scores.

    survey        checks of each row, and the gap of its label, before any temperature is known
    moments       the likelihood of beta = 1 / T, row by row, with two derivatives
    row_scores    confidence, correctness, negative log-likelihood and Brier score of each row

Powers are computed in base 2, with beta2 = beta / ln 2. A row whose weight is 0 is skipped,
whatever it holds. LANES rows of up to SHORT classes are computed side by side, as in
`softmax/lanes.py`.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import (
    BIAS64,
    LARGEST_FLOAT64,
    LN2,
    LN2_HEAD,
    LN2_TAIL,
    LOG2E,
    LOWEST64,
    ROUND64,
    UNBIAS64,
    exp2_remainder,
)
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.simd.vectors import add_in_any_order, bits64, float64_of, fma, maximum
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.short import SHORT

# Status of a row.
FINE, HAS_NAN, HAS_INF, IS_EMPTY, LABEL_IS_ABSENT = 0, 1, 2, 3, 4

# Fields of the terms of `moments` and `flat_moments`, and of the scores of `row_scores`.
WEIGHT, NLL, GRADIENT, CURVATURE, MOMENTS = 0, 1, 2, 3, 4
CONFIDENCE, CORRECT, LOSS, BRIER, SCORED = 0, 1, 2, 3, 4

# Offsets of the fields of LANES rows in the workspace; the tile of their logits follows.
PEAK, TOTAL, FIRST, SECOND, GAP, BEST, FIELDS = range(0, 7 * LANES, LANES)


@inline
def exp2_biased(y):
    """2**(y + BIAS64) within about 1 ULP, for LOWEST64 <= y <= 1: exp2_parts without lo."""
    shifted = y + ROUND64
    f = y - (shifted - ROUND64)
    t = fma(f, LN2, exp2_remainder(f))
    power = float64_of((bits64(shifted) << 52) + ((1023 + BIAS64) << 52))
    return fma(power, t, power)


@inline
def clip_exponent(y):
    """max(y, LOWEST64): 2**LOWEST64 is too small to change any sum that it is added to."""
    return LOWEST64 if y < LOWEST64 else y


@inline
def log1p_plain(s):
    """log(1 + s) for s >= 0 within about 1 ULP, without a branch, so that it vectorises."""
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
    return np.float64(k) * LN2_HEAD + (2.0 * r + (series + np.float64(k) * LN2_TAIL))


# --- before the temperature is known ----------------------------------------------------------


@kernel
def row_max(row):
    """The maximum, or nan if any is nan."""
    m = row[0]
    for c in range(row.size):
        m = maximum(m, row[c])
    return np.float64(m)


@kernel
def checked_max(row):
    """The same as row_max, faster on a short row."""
    if row.size > SHORT:
        return row_max(row)
    m, total = -np.inf, 0.0
    for c in range(row.size):
        v = np.float64(row[c])
        m = v if v > m else m
        total += v
    return m if total == total else row_max(row)  # nan, or inf - inf: recompute


@kernel
def label_gap(row, label, soft, m):
    """logit of the label - m: for soft labels the mean. -inf if a label's logit is -inf."""
    if label >= 0:
        if row[label] == -np.inf:
            return -np.inf
        return max(np.float64(row[label]) - m, -LARGEST_FLOAT64)
    gap, total = 0.0, 0.0
    for c in range(row.size):
        q = np.float64(soft[c])
        if q > 0.0:
            if row[c] == -np.inf:
                return -np.inf
            total += q
            gap += q * (np.float64(row[c]) - m)
    return max(gap / total, -LARGEST_FLOAT64)


@kernel
def survey(x, labels, soft, weights, gaps):
    """gaps[r] = logit of the label - maximum of row r.

    Returns (status, row of the first error, rows whose label is not a maximum).
    """
    misses = 0
    for r in range(x.shape[0]):
        w = of_row(weights, r)
        gaps[r] = 0.0
        if w > 0.0:
            m = checked_max(x[r])
            if not abs(m) < np.inf:
                return HAS_NAN if m != m else HAS_INF if m > 0.0 else IS_EMPTY, r, 0
            label = labels[r] if labels.size else -1
            gap = label_gap(x[r], label, soft[r if soft.shape[0] > 1 else 0], m)
            if gap == -np.inf:
                return LABEL_IS_ABSENT, r, 0
            gaps[r] = gap
            misses += 1 if gap < 0.0 else 0
    return FINE, 0, misses


@kernel
def flat_moments(x, gaps, weights, terms):
    """`moments` in the limit beta = 0, with derivatives with respect to beta itself."""
    for r in range(x.shape[0]):
        w = of_row(weights, r)
        for field in range(MOMENTS):
            terms[field, r] = 0.0
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
            terms[WEIGHT, r] = w
            terms[NLL, r] = w * log1p_plain(count - 1.0)
            terms[GRADIENT, r] = w * (mean - gaps[r])
            terms[CURVATURE, r] = w * max(square / count - mean * mean, 0.0)


# --- the likelihood of beta -------------------------------------------------------------------


@kernel
def row_moments(row, m, beta2):
    """Sums of 2**y, y 2**y and y^2 2**y over y = (x - m) beta2, times 2**BIAS64."""
    total, first, second = 0.0, 0.0, 0.0
    for c in range(row.size):
        y = clip_exponent((np.float64(row[c]) - m) * beta2)
        e = exp2_biased(y)
        total = add_in_any_order(total, e)
        first = add_in_any_order(first, e * y)
        second = add_in_any_order(second, e * y * y)
    return total, first, second


@kernel
def load_tile(x, first, width, workspace):
    """workspace[FIELDS + c * LANES + r] = x[first + r, c]; also each row's argmax and maximum."""
    for r in range(width):
        m, best, total = -np.inf, 0, 0.0
        for c in range(x.shape[1]):
            v = np.float64(x[first + r, c])
            best = c if v > m else best
            m = v if v > m else m
            total += v
            workspace[FIELDS + c * LANES + r] = v
        workspace[PEAK + r] = m if total == total else row_max(x[first + r])
        workspace[BEST + r] = best


@kernel
def tile_moments(workspace, classes, beta2):
    """row_moments of all rows of a tile."""
    for r in range(LANES):
        workspace[TOTAL + r] = 0.0
        workspace[FIRST + r] = 0.0
        workspace[SECOND + r] = 0.0
    for c in range(classes):
        for r in range(LANES):
            y = clip_exponent((workspace[FIELDS + c * LANES + r] - workspace[PEAK + r]) * beta2)
            e = exp2_biased(y)
            workspace[TOTAL + r] += e
            workspace[FIRST + r] += e * y
            workspace[SECOND + r] += e * y * y


@kernel
def tile_logs(workspace):
    """Turn sums of powers into log(sum), and moments into the mean and variance of y."""
    for r in range(LANES):
        total = workspace[TOTAL + r]
        mean = workspace[FIRST + r] / total
        workspace[FIRST + r] = mean
        workspace[SECOND + r] = workspace[SECOND + r] / total - mean * mean
        workspace[TOTAL + r] = log1p_plain(total * UNBIAS64 - 1.0)


@kernel
def moments(x, gaps, weights, beta, terms):
    """Each row's weight, negative log-likelihood at beta, its gradient and its curvature.

    The derivatives are scaled by beta and beta squared, so that their size does not depend on the
    scale of the logits. All are 0 for a row of weight 0.
    """
    beta2 = beta * LOG2E
    workspace = np.zeros(FIELDS + min(x.shape[1], SHORT) * LANES)
    for first in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - first)
        if x.shape[1] <= SHORT:
            load_tile(x, first, width, workspace)
            tile_moments(workspace, x.shape[1], beta2)
        else:
            for r in range(width):
                if of_row(weights, first + r) > 0.0:
                    m = row_max(x[first + r])
                    sums = row_moments(x[first + r], m, beta2)
                    workspace[TOTAL + r], workspace[FIRST + r], workspace[SECOND + r] = sums
        tile_logs(workspace)
        for r in range(width):
            at = first + r
            w = of_row(weights, at)
            there = w > 0.0
            gap = gaps[at] * beta
            terms[WEIGHT, at] = w
            terms[NLL, at] = w * (workspace[TOTAL + r] - gap) if there else 0.0
            terms[GRADIENT, at] = w * (workspace[FIRST + r] * LN2 - gap) if there else 0.0
            terms[CURVATURE, at] = w * (workspace[SECOND + r] * (LN2 * LN2)) if there else 0.0


# --- one row's scores -------------------------------------------------------------------------


@kernel
def row_squares(row, m, beta2):
    """Sums of 2**y and its square over y = (x - m) beta2, times 2**BIAS64 and its square."""
    total, square = 0.0, 0.0
    for c in range(row.size):
        e = exp2_biased(clip_exponent((np.float64(row[c]) - m) * beta2))
        total = add_in_any_order(total, e)
        square = add_in_any_order(square, e * e)
    return total, square


@kernel
def tile_squares(workspace, classes, beta2):
    """row_squares of all rows of a tile."""
    for r in range(LANES):
        workspace[TOTAL + r] = 0.0
        workspace[SECOND + r] = 0.0
    for c in range(classes):
        for r in range(LANES):
            e = exp2_biased(
                clip_exponent((workspace[FIELDS + c * LANES + r] - workspace[PEAK + r]) * beta2)
            )
            workspace[TOTAL + r] += e
            workspace[SECOND + r] += e * e


@kernel
def tile_scores(workspace, beta):
    """Turn sums into the confidence (TOTAL), the nll (FIRST) and the Brier score (SECOND)."""
    for r in range(LANES):
        total = workspace[TOTAL + r]
        y = workspace[GAP + r] * beta
        p = exp2_biased(clip_exponent(y * LOG2E)) / total
        squares = workspace[SECOND + r] / total / total
        brier = 1.0 - 2.0 * p + squares
        workspace[FIRST + r] = log1p_plain(total * UNBIAS64 - 1.0) - y
        workspace[SECOND + r] = brier if brier > 0.0 else 0.0
        workspace[TOTAL + r] = 1.0 / (total * UNBIAS64)


@kernel
def first_maximum(row, m):
    """The first class whose logit is the maximum."""
    for c in range(row.size):
        if row[c] == m:
            return c
    return 0


@kernel
def soft_scores(row, soft, m, beta, confidence, log_total, brier):
    """(nll, Brier score) with soft labels; `brier` is the score with the maximum as label."""
    loss, score = 0.0, brier - 1.0 + 2.0 * confidence
    for c in range(row.size):
        q = np.float64(soft[c])
        if q > 0.0:
            y = (np.float64(row[c]) - m) * beta
            p = exp2_biased(clip_exponent(y * LOG2E)) * UNBIAS64 * confidence
            loss += q * (log_total - y)
            score += q * (q - 2.0 * p)
    return loss, max(score, 0.0)


@kernel
def row_scores(x, labels, soft, weights, beta, predictions, scores):
    """Confidence, correctness, nll and Brier score of each row at beta = 1 / T.

    Returns (status, row of the first error). A label whose logit is -inf has an nll of inf. Rows
    of weight 0 get scores of 0.
    """
    beta2 = beta * LOG2E
    short = x.shape[1] <= SHORT
    workspace = np.zeros(FIELDS + min(x.shape[1], SHORT) * LANES)
    for first in range(0, x.shape[0], LANES):
        width = min(LANES, x.shape[0] - first)
        if short:
            load_tile(x, first, width, workspace)
            tile_squares(workspace, x.shape[1], beta2)
        else:
            for r in range(width):
                row = x[first + r]
                m = row_max(row)
                workspace[PEAK + r] = m
                workspace[BEST + r] = first_maximum(row, m)
                workspace[TOTAL + r], workspace[SECOND + r] = row_squares(row, m, beta2)
        for r in range(width):
            workspace[GAP + r] = 0.0
            if labels.size:
                workspace[GAP + r] = (
                    np.float64(x[first + r, labels[first + r]]) - workspace[PEAK + r]
                )
        tile_scores(workspace, beta)
        for r in range(width):
            at, m = first + r, workspace[PEAK + r]
            there = of_row(weights, at) > 0.0
            if there and not abs(m) < np.inf:
                return HAS_NAN if m != m else HAS_INF if m > 0.0 else IS_EMPTY, at
            best = np.int64(workspace[BEST + r]) if there else 0
            predictions[at] = best
            scores[CONFIDENCE, at] = workspace[TOTAL + r] if there else 0.0
            scores[LOSS, at] = workspace[FIRST + r] if there else 0.0
            scores[BRIER, at] = workspace[SECOND + r] if there else 0.0
            if labels.size:
                scores[CORRECT, at] = 1.0 if there and best == labels[at] else 0.0
            else:
                scores[CORRECT, at] = soft[at, best] if there else 0.0
                if there:
                    known = scores[CONFIDENCE, at], scores[LOSS, at], scores[BRIER, at]
                    loss, brier = soft_scores(x[at], soft[at], m, beta, *known)
                    scores[LOSS, at] = loss
                    scores[BRIER, at] = brier
    return FINE, 0
