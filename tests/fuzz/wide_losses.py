"""Losses and their gradients in longdouble, for the sweep; what they share is in `wide`.

Gradients are those of the sum over rows, for temperatures that are neither 0 nor infinite. Each is
given with the size of the terms that it is a difference of. Imports nothing from hotmax.
"""

from __future__ import annotations

import numpy as np

from fuzz.wide import (
    WIDE,
    Array,
    Rows,
    at_label,
    digits_of,
    filled,
    jvp,
    quotient,
    sum_of_others,
    two_difference,
)

Pair = tuple[Array, Array]
NORMAL = WIDE(2.0**-1022)
LEAST, MOST = WIDE(2.0**-1074), WIDE(np.finfo(np.float64).max)  # of float64


def is_label(rows: Rows, labels: Array) -> Array:
    return np.arange(rows.p.shape[1]) == labels[:, None]


def over_temperature(rows: Rows, by_z: Array) -> Array:
    return filled(np.where(rows.present, rows.sign * by_z / rows.size, WIDE(0)), rows, 0.0)


def slope_of_label(rows: Rows, labels: Array, slope: Array) -> Pair:
    """slope (p - y) / T: of a loss of the label's probability alone."""
    right = is_label(rows, labels)
    size = np.where(right, digits_of(rows.others), digits_of(rows.p)) * np.abs(slope) / rows.size
    return over_temperature(rows, slope * np.where(right, -rows.others, rows.p)), size


def label_gradient(rows: Rows, labels: Array) -> Pair:
    """(p - y) / T. At the label 1 - p is a float64 before it is divided by T."""
    gradient, size = slope_of_label(rows, labels, np.ones_like(rows.size))
    return gradient, np.where(is_label(rows, labels), size, np.abs(gradient))


def mae_gradient(rows: Rows, labels: Array) -> Pair:
    p = at_label(rows.p, labels)
    gradient, _ = slope_of_label(rows, labels, p)
    return gradient, slope_of_label(rows, labels, digits_of(p))[1]


def focal_gradient(rows: Rows, labels: Array) -> Pair:
    """gamma is 2."""
    p, others = at_label(rows.p, labels), at_label(rows.others, labels)
    log_p = np.where(p > 0, at_label(rows.logs, labels), WIDE(0))
    gradient, size = slope_of_label(rows, labels, others**2 - 2 * others * p * log_p)
    return gradient, np.maximum(size, NORMAL / rows.size)  # squares are float64 before they are / T


def brier_gradient(rows: Rows, labels: Array) -> Pair:
    right = is_label(rows, labels)
    v = np.where(right, -2 * rows.others, 2 * rows.p)
    own = rows.others * v - sum_of_others(rows, rows.p * v)
    p = digits_of(rows.p)
    size = rows.others * np.abs(v) + sum_of_others(rows, p * np.abs(v))
    size = np.maximum(p * size, NORMAL)  # squares are float64 before they are divided by T
    return over_temperature(rows, rows.p * own), size / rows.size


# --- targets other than one label ----------------------------------------------------------------


def amounts(rows: Rows, y: Array, weight: Array, smoothing: float) -> Array:
    """What the target puts on each class: (1 - s) w y + s w / n over the n classes present."""
    s, w = WIDE(smoothing), weight.astype(WIDE)
    count = np.maximum(rows.present.sum(-1, keepdims=True), 1).astype(WIDE)
    return w * ((1 - s) * y.astype(WIDE) + np.where(rows.present, s / count, WIDE(0)))


def soft_loss(rows: Rows, a: Array, weight: Array, smoothing: float) -> Array:
    logs = np.where(a > 0, rows.logs, WIDE(0))
    own = -(a * logs).sum(-1, keepdims=True)
    if smoothing > 0:  # inf where the sum of all gaps leaves float64, though its share may not
        gaps = np.where(rows.present & (weight > 0), -rows.gap, WIDE(0)) * np.maximum(weight, 0)
        unit = np.where(rows.size > 2.0**900, WIDE(2.0**-200), WIDE(0.25))  # that they are in
        total = gaps.sum(-1, keepdims=True) * np.maximum(WIDE(1), rows.size * unit)
        own = np.where(total > MOST, np.inf, own)
    return filled(own, rows, np.inf)


def soft_gradient(rows: Rows, a: Array) -> Pair:
    """(A p - a) / T, where A is the sum of a: as (A - a) p - a (1 - p)."""
    total = a.sum(-1, keepdims=True)
    own = sum_of_others(rows, a) * rows.p - a * rows.others
    size = np.maximum(total * digits_of(rows.p), a) / rows.size
    return over_temperature(rows, own), size


# --- divergences ---------------------------------------------------------------------------------


def excess(v: Array) -> Array:
    """e^v - 1 - v for abs(v) <= 1, from its series."""
    total = np.zeros_like(v)
    for k in range(24, 2, -1):
        total = (total + 1) * v / k
    return v * v / 2 * (total + 1)


def gaps_between(x: Array, y: Array, rows: Rows, other: Rows, base: Array) -> Array:
    """log(p / q) up to a constant, (x - y) / T less that of the class where `base` is largest."""
    there = rows.present & other.present
    place = np.argmax(base, axis=-1)[:, None]

    def from_base(v: Array) -> Pair:
        v = np.where(there, v.astype(WIDE), WIDE(0))
        return two_difference(v, np.take_along_axis(v, place, 1))

    (a, a_low), (b, b_low) = from_base(x), from_base(y)
    d, low = two_difference(a, b)
    d, low = quotient(d, low + (a_low - b_low), np.where(rows.size > 0, rows.size, WIDE(1)))
    return np.where(there, rows.sign * (d + low), WIDE(0))


def divergence(x: Array, y: Array, rows: Rows, other: Rows) -> tuple[Array, Array, Array, Array]:
    """(KL(p, q), its size, q - p, its size); p and q may be nearly equal.

    With v = log(p / q) less its mean under q: p / q is e^v / (1 + A), where A is the sum of
    q (e^v - 1 - v), and nothing cancels in KL = sum of (p - q) v - log(1 + A).
    """
    v = gaps_between(x, y, rows, other, other.p)
    for _ in range(2):
        v = np.where(rows.present, v - (other.p * v).sum(-1, keepdims=True), WIDE(0))
    near = np.abs(v).max(-1, keepdims=True) <= 1
    v = np.where(near, v, WIDE(0))
    more = excess(v)
    total = (other.p * more).sum(-1, keepdims=True)
    apart = other.p * ((v + more) - total) / (1 + total)  # p - q
    close = (apart * v).sum(-1, keepdims=True) - np.log1p(total)
    there = rows.p > 0
    logs, its = (np.where(there, r.logs, WIDE(0)) for r in (rows, other))
    terms = rows.p * (logs - its)
    far_size = np.maximum(
        np.abs(terms).sum(-1, keepdims=True),
        (rows.p * (np.abs(logs) + np.abs(its))).sum(-1, keepdims=True) / 2**10,
    )
    value = np.where(near, close, terms.sum(-1, keepdims=True))
    size = np.where(near, close, far_size)
    difference = np.where(near, -apart, other.p - rows.p)
    p, q = digits_of(rows.p), digits_of(other.p)
    deviation = np.sqrt(np.maximum((other.p * v * v).sum(-1, keepdims=True), 0))
    difference_size = np.where(near, q * np.maximum(np.abs(v), deviation), np.maximum(p, q))
    return value, size, difference, difference_size


def both(result: Array, rows: Rows, other: Rows) -> Array:
    """nan if one of two rows is bad, 0 if nothing is allowed."""
    bad = (rows.bad | other.bad) & ~(rows.masked | other.masked)
    return np.where(bad, WIDE(np.nan), np.where(rows.masked, WIDE(0), result))


def lost(rows: Rows, other: Rows) -> Array:
    """Classes with mass whose log q leaves float64: q has none there, and KL is inf."""
    return (rows.p >= LEAST) & (other.gap < -MOST)


def unseen(rows: Rows, other: Rows) -> Array:
    """Gaps are divided by T in two words: a difference of less than 2**-53 of them loses digits."""
    both_gaps = np.where(rows.p > 0, np.abs(rows.gap) + np.abs(other.gap), WIDE(0))
    return np.minimum(both_gaps, MOST).max(-1, keepdims=True) * WIDE(2.0**-53)


def kl(x: Array, y: Array, rows: Rows, other: Rows) -> Pair:
    value, size, _, _ = divergence(x, y, rows, other)
    value = np.where(lost(rows, other).any(-1, keepdims=True), np.inf, value)
    return both(value, rows, other), np.maximum(size, unseen(rows, other) ** 2)


def kl_gradients(x: Array, y: Array, rows: Rows, other: Rows) -> tuple[Pair, Pair]:
    """p (log(p / q) - KL) / T and (q - p) / T."""
    v = gaps_between(x, y, rows, other, rows.p)
    by_p, size_p = jvp(rows, v)
    least = np.maximum(digits_of(rows.p) * unseen(rows, other), NORMAL)
    size_p = np.maximum(size_p, least / rows.size)  # a float64 before it is over T
    gone, there = lost(rows, other), rows.p >= LEAST
    # An infinite KL falls as p leaves the classes that q lacks, if it has others to go to.
    endless = np.where(gone, rows.sign * np.inf, np.where(there, -rows.sign * np.inf, WIDE(0)))
    endless = np.where((there & ~gone).any(-1, keepdims=True), endless, WIDE(0))
    by_p = np.where(gone.any(-1, keepdims=True), endless, by_p)
    _, _, difference, size_q = divergence(x, y, rows, other)
    size_q = np.maximum(size_q, digits_of(other.p) * unseen(rows, other))
    by_q = rows.sign * difference / rows.size
    return (both(by_p, rows, other), size_p), (both(by_q, rows, other), size_q / rows.size)


def distillation(x: Array, y: Array, rows: Rows, other: Rows) -> tuple[Pair, Pair]:
    """T^2 KL(teacher, student) and T (q - p); x is the student's, y the teacher's."""
    value, size, difference, size_q = divergence(y, x, other, rows)
    square = rows.size * rows.size
    loss = both(square * value, rows, other)
    gradient = both(rows.sign * rows.size * difference, rows, other)
    # The kernel counts gaps and T in a unit, so that no square overflows; small ones underflow.
    unit = np.where(rows.size > 1, WIDE(2.0**-10), WIDE(2.0**-2))
    digits = np.maximum(WIDE(1), NORMAL / (rows.size * unit))  # T too is one of these
    size = np.maximum(square * size * digits, NORMAL / unit**2)
    return (loss, size), (gradient, np.maximum(rows.size * size_q * digits, NORMAL / unit))
