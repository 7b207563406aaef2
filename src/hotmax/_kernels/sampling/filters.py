"""Which classes of a row stay: top-k, top-p and their kind, one step after another.

A row is first copied into a list of candidates (value, place), in the order of their places, and in
float64 whatever its type was. A step marks those that it keeps, and the list closes up. At least
one candidate always stays.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.sampling.inversion import (
    NO_CLASS,
    NOT_A_NUMBER,
    PART,
    TOO_FEW,
    invert,
    set_totals,
    total_of,
    weigh,
)
from hotmax._kernels.sampling.random import CHANCE, DRAW, NOISE, gumbel, uniform
from hotmax._kernels.sampling.selection import extremes, find_cut
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import top
from hotmax._kernels.softmax.rows import sign_of

# The steps. A step's numbers are in columns 0 to 2 of its line, and its rule for ties in column 3.
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
) = range(11)

# Which of the candidates that tie at a cut stay: all, the last ones needed, or the first ones.
ALL, LAST, FIRST = 0, 1, 2

SMALLEST = 5e-324  # a product of temperatures above 0 stays above it


@inline
def shifted_logit(value, m, temperature):
    """(value - m) / T, for a value up to m and T > 0; the difference may be beyond float64."""
    d = value - m
    beyond = d == -np.inf
    z = (0.5 * value - 0.5 * m if beyond else d) / temperature
    return 2.0 * z if beyond else z


@inline
def gap_scale(largest):
    """A power of two for the gaps m - x below a maximum: then their squares are in range.

    The largest gap may be inf, which says only that the difference was beyond float64.
    """
    if largest > 2.0**400:
        return 2.0**-700
    return 2.0**700 if 0.0 < largest < 2.0**-400 else 1.0


@kernel
def load(x, sign, value, place, keep):
    """(candidates, maximum): the classes of a row that are there, their values turned by sign.

    Where some are +inf, they are all that counts.
    """
    m = top(x, sign)
    if m != m or m == -np.inf:
        return 0, m
    for i in range(x.size):
        value[i] = sign * x[i]
        place[i] = i
    n = x.size
    if m == np.inf or extremes(value[:n])[0] == -np.inf:
        for i in range(n):
            keep[i] = value[i] == np.inf if m == np.inf else value[i] > -np.inf
        n = close_up(value, place, keep, n)
    if m == np.inf:
        for i in range(n):
            value[i] = 0.0
        m = 0.0
    return n, m


@kernel
def close_up(value, place, keep, n):
    """Move the candidates that are kept to the front; their number."""
    count = 0
    for i in range(n):
        if keep[i]:
            value[count] = value[i]
            place[count] = place[i]
            count += 1
    return count


@kernel
def keep_top(keys, cut, needed, ties, keep):
    """Mark keys above the cut, and of those at it the first or last `needed`, or all."""
    for i in range(keys.size):
        keep[i] = keys[i] >= cut
    if ties == ALL:
        return
    for j in range(keys.size):
        i = j if ties == FIRST else keys.size - 1 - j
        if keys[i] == cut:
            keep[i] = needed > 0
            needed -= 1


@kernel
def keep_from(value, m, temperature, log_bound, keep):
    """Mark values with (x - m) / T of at least log_bound, and the maximum in any case."""
    for i in range(value.size):
        keep[i] = value[i] == m or shifted_logit(value[i], m, temperature) >= log_bound


@kernel
def keep_within(value, m, deviations, keep):
    """Mark values within so many standard deviations of the maximum."""
    scale = gap_scale(m - extremes(value)[0])
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
        keep[i] = peak - value[i] * scale <= bound


@kernel
def weighted_gap_scale(value, m, temperature):
    """As gap_scale, for the gaps of classes that have a weight: they are at most 746 T.

    Near a maximum of 2**300 and more no other number is as near as a tiny T makes necessary.
    """
    largest = m - extremes(value)[0]
    if temperature < 2.0**-390 and abs(m) < 2.0**300:
        return 2.0**700
    return 1.0 if largest > 2.0**400 and temperature < 2.0**390 else gap_scale(largest)


@kernel
def mean_gap(value, weights, m, temperature, total):
    """(mean of the gaps m - x under the weights, times a scale; the scale)."""
    scale = weighted_gap_scale(value, m, temperature)
    peak = m * scale
    mean = 0.0
    for i in range(value.size):
        if weights[i] > 0.0:
            mean += (peak - value[i] * scale) * weights[i]
    return mean / total, scale


@kernel
def entropy_of(value, weights, m, temperature, total):
    mean, scale = mean_gap(value, weights, m, temperature, total)
    return math.log(total) + mean / (temperature * scale)


@kernel
def cross_out(value, lowest, keep):
    """Of all values from `lowest` up only one stays, the last of the smallest: the XTC rule."""
    at = -1
    for i in range(value.size):
        keep[i] = value[i] < lowest
        if not keep[i] and (at < 0 or value[i] <= value[at]):
            at = i
    if at >= 0:
        keep[at] = True


@kernel
def typical_keys(value, m, mean, scale, keys):
    """Minus the distance of each gap from the mean gap, scaled: -log p - entropy is that over T.

    Only a class whose weight is 0 can lie beyond 1e308.
    """
    for i in range(value.size):
        keys[i] = -min(abs((m * scale - value[i] * scale) - mean), 1e308)


@kernel
def lowest_at_least(value, m, temperature, log_bound):
    """The smallest value that keep_from would mark, as a bound for cross_out; inf for none."""
    low = np.inf
    for i in range(value.size):
        if shifted_logit(value[i], m, temperature) >= log_bound and value[i] < low:
            low = value[i]
    return low


@kernel
def apply_step(step, numbers, own, chance, value, place, m, t, n, weights, keys, keep, room):
    """(n, m, t) after one step: how many candidates stay, their maximum and the temperature."""
    v, w, k = value[:n], weights[:n], keep[:n]
    ties = int(numbers[3])
    if step == TEMPERATURE:
        if own != 0.0:
            return n, m, max(t * abs(own), SMALLEST)
        keep_top(v, m, 0, ALL, k)
        return close_up(value, place, keep, n), m, t
    if step == TOP_K:
        if numbers[0] >= n:
            return n, m, t
        cut, needed = find_cut(v, None, numbers[0], False, room, weights)
        keep_top(v, cut, needed, ties, k)
        return close_up(value, place, keep, n), m, t
    if step == MIN_P:
        keep_from(v, m, t, math.log(numbers[0]), k)
        return close_up(value, place, keep, n), m, t
    if step == TOP_N_SIGMA:
        keep_within(v, m, numbers[0], k)
        return close_up(value, place, keep, n), m, t
    if step == XTC and chance >= numbers[0]:
        return n, m, t

    weigh(v, w, m, t)
    total = total_of(w)
    if step == TOP_P:
        cut, needed = find_cut(v, w, numbers[0] * total, False, room, keys)
        keep_top(v, cut, needed, ties, k)
    elif step == EPSILON:
        keep_from(v, m, t, math.log(numbers[0] * total), k)
    elif step == ETA:
        entropy = entropy_of(v, w, m, t, total)
        bound = min(numbers[0], math.sqrt(numbers[0]) * math.exp(-entropy))
        keep_from(v, m, t, math.log(bound * total), k)
    elif step == MIROSTAT:
        keep_from(v, m, t, math.log(total) - own * math.log(2.0), k)
    elif step == TYPICAL_P:
        mean, scale = mean_gap(v, w, m, t, total)
        typical_keys(v, m, mean, scale, keys[:n])
        target, strict = numbers[0] * total, ties == FIRST
        cut, needed = find_cut(keys[:n], w, target, strict, room, np.empty(n))
        keep_top(keys[:n], cut, needed, ties, k)
    elif step == XTC:
        lowest = lowest_at_least(v, m, t, math.log(numbers[1] * total))
        cross_out(v, lowest, k)
    elif step == DYNAMIC_TEMPERATURE:
        if n == 1:
            return n, m, t
        share = max(entropy_of(v, w, m, t, total) / math.log(n), 0.0)
        heat = numbers[0] + (numbers[1] - numbers[0]) * min(share, 1.0) ** numbers[2]
        if heat > 0.0:
            return n, m, max(t * heat, SMALLEST)
        keep_top(v, m, 0, ALL, k)
    n = close_up(value, place, keep, n)
    return n, top(value[:n], 1.0), t


@kernel
def filter_row(x, temperature, mu, chance, steps, numbers, value, place, weights, keys, keep, room):
    """(n, m, t): candidates left in value and place, their maximum and their temperature."""
    n, m = load(x, sign_of(x, temperature), value, place, keep)
    t = 1.0
    for s in range(steps.size):
        if n > 0:
            own = mu if steps[s] == MIROSTAT else temperature
            n, m, t = apply_step(
                steps[s],
                numbers[s],
                own,
                chance,
                value,
                place,
                m,
                t,
                n,
                weights,
                keys,
                keep,
                room,
            )
    return n, m, t


@kernel
def draw_distinct(value, place, m, t, n, key, row, stream, keys, weights, out):
    """As many different classes as out is long, in the order of their draws; False if too few.

    Gumbel top-k: the largest of (x - m) / T plus Gumbel noise are draws without replacement.
    """
    weigh(value[:n], weights[:n], m, t)
    there = 0
    for i in range(n):
        if weights[i] > 0.0:
            noise = gumbel(key, row, place[i], stream + NOISE)
            keys[there] = shifted_logit(value[i], m, t) + noise
            place[there] = place[i]
            there += 1
    if there < out.size:
        return False
    cut, _ = find_cut(keys[:there], None, float(out.size), False, weights, weights)
    best = 0
    for i in range(there):
        if keys[i] >= cut:
            keys[best] = keys[i]
            place[best] = place[i]
            best += 1
    if best < out.size:  # no key is nan, so this cannot be; memory is not to depend on that
        return False
    order = np.argsort(-keys[:best])
    for d in range(out.size):
        out[d] = place[order[d]]
    return True


@kernel
def sample_rows(
    x, out, temperature, keys, rows, stream, mu, steps, numbers, first_tie, replace, start, stop
):
    """Draws from rows start..stop after the steps; mu gets the surprise of each row's first draw.

    The surprise, in bits, is what mirostat learns from.
    """
    n = x.shape[1]
    value, room = np.empty(n), np.empty(n)
    place, keep = np.empty(n, np.int64), np.empty(n, np.bool_)
    weights, work = np.empty(n), np.empty(n)
    totals = np.empty((-(-n // PART), 2))
    for r in range(start, stop):
        t = of_row(temperature, r)
        key = of_row(keys, r)
        chance = uniform(key, rows[r], 0, stream + CHANCE)[0]
        surprise = mu[r] if mu.size else 0.0
        left, m, heat = filter_row(
            x[r], t, surprise, chance, steps, numbers, value, place, weights, work, keep, room
        )
        if left == 0:
            out[r, :] = NOT_A_NUMBER if m != m else NO_CLASS
        elif not replace:
            enough = draw_distinct(
                value, place, m, heat, left, key, rows[r], stream, work, weights, out[r]
            )
            if not enough:
                out[r, :] = TOO_FEW
        elif first_tie and t == 0.0:
            out[r, :] = place[0]
            if mu.size:
                mu[r] = 0.0  # no other could have come
        else:
            weigh(value[:left], weights[:left], m, heat)
            parts = totals[: -(-left // PART)]
            total, total_low = set_totals(weights[:left], parts)
            for d in range(out.shape[1]):
                u, u_low = uniform(key, rows[r], d, stream + DRAW)
                at = invert(weights[:left], parts, total, total_low, u, u_low)
                out[r, d] = place[at]
                if d == 0 and mu.size:
                    mu[r] = math.log2(total) - math.log2(weights[at])


@kernel
def truncate_rows(x, out, temperature, keys, rows, stream, mu, steps, numbers, status, start, stop):
    """Rows start..stop with -inf where the steps cut (inf at a temperature below 0)."""
    n = x.shape[1]
    value, room = np.empty(n), np.empty(n)
    place, keep = np.empty(n, np.int64), np.empty(n, np.bool_)
    weights, work = np.empty(n), np.empty(n)
    for r in range(start, stop):
        t = of_row(temperature, r)
        key = of_row(keys, r)
        chance = uniform(key, rows[r], 0, stream + CHANCE)[0]
        surprise = mu[r] if mu.size else 0.0
        left, m, _ = filter_row(
            x[r], t, surprise, chance, steps, numbers, value, place, weights, work, keep, room
        )
        status[r] = left if left > 0 else (NOT_A_NUMBER if m != m else NO_CLASS)
        for i in range(n):
            out[r, i] = math.copysign(np.inf, -t)
        for j in range(left):
            out[r, place[j]] = x[r, place[j]]
