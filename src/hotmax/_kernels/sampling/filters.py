"""Filters of a row: top-k, top-p and similar steps, applied one after another.

A row is first copied into a list of candidates (value, class), in order of their classes, and in
float64 whatever its type. A step marks the candidates that stay (`stays`), and `compact` moves them
to the front. At least one candidate always stays. `apply_step` is where each filter cuts. The
classes are written once candidates are gone: until then they are 0, 1, 2 and so on.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.sampling.inversion import exp_weights, total_of
from hotmax._kernels.sampling.selection import cut_by_buckets, find_cut, min_and_max
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import sign_of

# Codes of the steps.
(
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    TYPICAL_P,
    EPSILON,
    ETA,
    TOP_N_SIGMA,
    XTC,
    MIROSTAT,
    DYNAMIC_TEMPERATURE,
    TOP_A,
) = range(12)
OFF = np.nan  # as the first number of a step: it is left out for this row

# Which of the candidates that tie at a cut stay: all, the last ones needed, or the first ones.
ALL, LAST, FIRST = 0, 1, 2

SMALLEST_TEMPERATURE = 5e-324  # a product of temperatures above 0 does not underflow to 0


class Steps(NamedTuple):
    """The steps of a sampler, in order."""

    codes: Any
    numbers: Any  # (1 or rows, steps, 4): the parameters, and the rule for ties in column 3


class Candidates(NamedTuple):
    """The candidates of one row, and workspace of the same length for the filters."""

    value: Any  # logits, negated below temperature 0
    index: Any  # classes, ascending; only in use while there are fewer candidates than classes
    stays: Any  # bools that a step sets
    weights: Any
    keys: Any
    scratch: Any


@inline
def shifted_logit(value, m, temperature):
    """(value - m) / T for value <= m and T > 0, where the difference may overflow float64."""
    d = value - m
    overflows = d == -np.inf
    z = (0.5 * value - 0.5 * m if overflows else d) / temperature
    return 2.0 * z if overflows else z


@inline
def gap_scale(largest):
    """A power of two that keeps the squares of the gaps m - x, up to `largest`, in range.

    `largest` may be inf, where the difference overflows float64.
    """
    if largest > 2.0**400:
        return 2.0**-700
    return 2.0**700 if 0.0 < largest < 2.0**-400 else 1.0


@kernel
def load_candidates(x, sign, candidates):
    """(count, maximum): the classes of a row above -inf, their logits times sign.

    Where some are +inf, they are the only candidates, with value 0.
    """
    value, stays = candidates.value, candidates.stays
    m = row_maximum(x, sign)
    if m != m or m == -np.inf:
        return 0, m
    n = x.size
    for i in range(n):
        value[i] = sign * x[i]
    if m == np.inf or row_maximum(x, -sign) == np.inf:
        for i in range(n):
            stays[i] = value[i] == np.inf if m == np.inf else value[i] > -np.inf
        n = compact(candidates, n)
    if m == np.inf:
        for i in range(n):
            value[i] = 0.0
        m = 0.0
    return n, m


@kernel
def compact(candidates, n):
    """Move the candidates that stay to the front. Returns their number."""
    value, index, stays = candidates.value, candidates.index, candidates.stays
    count, is_whole = 0, n == value.size
    for i in range(n):
        if stays[i]:
            value[count] = value[i]
            index[count] = i if is_whole else index[i]
            count += 1
    return count


@kernel
def keep_top(keys, cut, needed, ties, stays):
    """Mark keys above the cut, and of those equal to it the first or last `needed`, or all."""
    equal = 0
    for i in range(keys.size):
        stays[i] = keys[i] >= cut
        equal += 1 if keys[i] == cut else 0
    if ties == ALL or equal <= needed:  # mostly: a search for ties takes eight times as long
        return
    for j in range(keys.size):
        i = j if ties == FIRST else keys.size - 1 - j
        if keys[i] == cut:
            stays[i] = needed > 0
            needed -= 1


@kernel
def keep_from(value, m, temperature, log_bound, stays):
    """Mark values with (x - m) / T of at least log_bound, and the maximum in any case."""
    for i in range(value.size):
        stays[i] = value[i] == m or shifted_logit(value[i], m, temperature) >= log_bound


@kernel
def keep_within(value, m, deviations, stays):
    """Mark values within that many standard deviations of the maximum."""
    scale = gap_scale(m - min_and_max(value)[0])
    peak = m * scale
    mean = 0.0
    for i in range(value.size):
        mean += peak - value[i] * scale
    mean /= value.size
    variance = 0.0
    for i in range(value.size):
        variance += ((peak - value[i] * scale) - mean) ** 2
    bound = deviations * math.sqrt(variance / value.size)
    for i in range(value.size):
        stays[i] = peak - value[i] * scale <= bound


@kernel
def weighted_gap_scale(value, m, temperature):
    """gap_scale for the gaps of classes of nonzero weight, which are at most 746 T.

    Near a maximum of 2**300 or more, float64 numbers lie too far apart for gaps as small as a tiny
    T requires.
    """
    largest = m - min_and_max(value)[0]
    if temperature < 2.0**-390 and abs(m) < 2.0**300:
        return 2.0**700
    return 1.0 if largest > 2.0**400 and temperature < 2.0**390 else gap_scale(largest)


@kernel
def mean_gap(value, weights, m, temperature, total):
    """(weighted mean of the gaps m - x times a scale, the scale)."""
    scale = weighted_gap_scale(value, m, temperature)
    peak = m * scale
    mean = 0.0
    for i in range(value.size):
        if weights[i] > 0.0:
            mean += (peak - value[i] * scale) * weights[i]
    return mean / total, scale


@kernel
def entropy_of_weights(value, weights, m, temperature, total):
    mean, scale = mean_gap(value, weights, m, temperature, total)
    return math.log(total) + mean / (temperature * scale)


@kernel
def exclude_top(value, lowest, stays):
    """XTC: of the values >= lowest only one stays, the last of the smallest."""
    at = -1
    for i in range(value.size):
        stays[i] = value[i] < lowest
        if not stays[i] and (at < 0 or value[i] <= value[at]):
            at = i
    if at >= 0:
        stays[at] = True


@kernel
def typical_keys(value, m, mean, scale, keys):
    """-abs(gap - mean gap), scaled. Divided by T the distance is abs(-log p - entropy).

    Only a class of weight 0 can have a distance above 1e308.
    """
    for i in range(value.size):
        keys[i] = -min(abs((m * scale - value[i] * scale) - mean), 1e308)


@kernel
def lowest_at_least(value, m, temperature, log_bound):
    """The smallest value that keep_from would mark, the bound for exclude_top; inf for none."""
    lowest = np.inf
    for i in range(value.size):
        if shifted_logit(value[i], m, temperature) >= log_bound and value[i] < lowest:
            lowest = value[i]
    return lowest


@inline
def lowest_needed(share, total, n, m, temperature):
    """A logit below which top-p need not look: all weights there are at most half of what it cuts.

    The other half is far above what rounding takes from n weights, or else the bound is -inf.
    """
    cut = 1.0 - share
    return m + temperature * math.log(0.5 * cut * total / n) if cut > 2.0**-16 else -np.inf


@kernel
def apply_step(step, numbers, own, coin, candidates, n, m, t):
    """(n, m, t) after one step: how many candidates stay, their maximum and the temperature.

    `own` is the temperature of the row, or its mu for mirostat. A temperature of 0 keeps all that
    tie at the maximum.
    """
    v, w, stays = candidates.value[:n], candidates.weights[:n], candidates.stays[:n]
    keys, scratch = candidates.keys, candidates.scratch
    ties = int(numbers[3])
    if numbers[0] != numbers[0]:  # OFF
        return n, m, t
    if step == TEMPERATURE:
        if own != 0.0:
            return n, m, max(t * abs(own), SMALLEST_TEMPERATURE)
        keep_top(v, m, 0, ALL, stays)
        return compact(candidates, n), m, t
    if step == TOP_K:
        if numbers[0] >= n:
            return n, m, t
        cut, needed = find_cut(v, None, numbers[0], False, scratch, candidates.weights)
        keep_top(v, cut, needed, ties, stays)
        return compact(candidates, n), m, t
    if step == MIN_P:
        keep_from(v, m, t, math.log(numbers[0]), stays)
        return compact(candidates, n), m, t
    if step == TOP_N_SIGMA:
        keep_within(v, m, numbers[0], stays)
        return compact(candidates, n), m, t
    if step == XTC and coin >= numbers[0]:
        return n, m, t

    exp_weights(v, w, m, t)
    total = total_of(w)
    if step == TOP_P:
        bound = lowest_needed(numbers[0], total, n, m, t)
        cut, needed = cut_by_buckets(v, w, numbers[0] * total, False, scratch, keys, bound)
        keep_top(v, cut, needed, ties, stays)
    elif step == EPSILON:
        keep_from(v, m, t, math.log(numbers[0] * total), stays)
    elif step == TOP_A:  # a p_max**2, and the largest weight is 1
        keep_from(v, m, t, math.log(numbers[0]) - math.log(total), stays)
    elif step == ETA:
        entropy = entropy_of_weights(v, w, m, t, total)
        bound = min(numbers[0], math.sqrt(numbers[0]) * math.exp(-entropy))
        keep_from(v, m, t, math.log(bound * total), stays)
    elif step == MIROSTAT:
        keep_from(v, m, t, math.log(total) - own * math.log(2.0), stays)
    elif step == TYPICAL_P:
        mean, scale = mean_gap(v, w, m, t, total)
        typical_keys(v, m, mean, scale, keys[:n])
        target, strict = numbers[0] * total, ties == FIRST
        cut, needed = find_cut(keys[:n], w, target, strict, scratch, np.empty(n))
        keep_top(keys[:n], cut, needed, ties, stays)
    elif step == XTC:
        lowest = lowest_at_least(v, m, t, math.log(numbers[1] * total))
        exclude_top(v, lowest, stays)
    elif step == DYNAMIC_TEMPERATURE:
        if n == 1:
            return n, m, t
        share = max(entropy_of_weights(v, w, m, t, total) / math.log(n), 0.0)
        factor = numbers[0] + (numbers[1] - numbers[0]) * min(share, 1.0) ** numbers[2]
        if factor > 0.0:
            return n, m, max(t * factor, SMALLEST_TEMPERATURE)
        keep_top(v, m, 0, ALL, stays)
    n = compact(candidates, n)
    return n, row_maximum(candidates.value[:n], 1.0), t


@kernel
def filter_row(x, r, temperature, mu, coin, steps, candidates):
    """(n, m, t): how many candidates are left of row r, their maximum and their temperature."""
    numbers = steps.numbers[r if steps.numbers.shape[0] > 1 else 0]
    n, m = load_candidates(x, sign_of(x, temperature), candidates)
    t = 1.0
    for s in range(steps.codes.size):
        if n > 0:
            step = steps.codes[s]
            own = mu if step == MIROSTAT else temperature
            n, m, t = apply_step(step, numbers[s], own, coin, candidates, n, m, t)
    if n == candidates.value.size:
        for i in range(n):
            candidates.index[i] = i
    return n, m, t
