"""Softmax and what follows from it in longdouble, many rows at once: the truth for the sweep.

Imports nothing from hotmax. x is (rows, classes), the temperature (rows, 1). x - max and its
quotient by T are kept in two longdoubles, so that exp has all its digits: results are right to some
2**-62 of their terms, 1/500 ULP of a float64. Where `np.longdouble` is a plain double this is no
truth, and the sweep says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Array = np.ndarray
WIDE = np.longdouble
SPLITTER = WIDE(2**32 + 1)  # halves the 64 bits of a longdouble
# bits of the significand, least and greatest exponent of a normal number
FORMATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def is_wide() -> bool:
    return bool(np.finfo(WIDE).nmant >= 63)


def two_difference(a: Array, b: Array) -> tuple[Array, Array]:
    """(d, e): d + e = a - b exactly."""
    d = a - b
    t = d - a
    return d, (a - (d - t)) - (b + t)


def split(a: Array) -> tuple[Array, Array]:
    high = SPLITTER * a
    high = high - (high - a)
    return high, a - high


def quotient(high: Array, low: Array, divisor: Array) -> tuple[Array, Array]:
    """(high + low) / divisor in two longdoubles."""
    q = high / divisor
    (a, b), (c, d) = split(q), split(divisor)
    product = q * divisor
    error = ((a * c - product) + a * d + b * c) + b * d
    return q, ((high - product) - error + low) / divisor


class Rows(NamedTuple):
    """Rows of logits, sorted out; everything is (rows, classes) or (rows, 1)."""

    present: Array  # allowed, and not -inf (+inf at T < 0)
    masked: Array  # nothing is allowed
    bad: Array  # nan, or nothing there though something is allowed
    is_nan: Array
    sign: Array
    size: Array  # abs(T)
    top: Array  # the largest sign * x
    gap: Array  # (sign * x - top) / size, at most 0; -inf for what is not there
    gap_low: Array
    p: Array
    others: Array  # 1 - p
    logs: Array
    log_total: Array  # log sum exp(gap)
    peak: Array  # top / size


def rows_of(x: Array, temperature: Array, where: Array | None = None) -> Rows:
    t = temperature.astype(WIDE)
    sign, size = np.copysign(WIDE(1), t), np.abs(t)
    values = sign * x.astype(WIDE)
    allowed = np.ones(x.shape, bool) if where is None else where
    values = np.where(allowed, values, -np.inf)
    present = values != -np.inf
    is_nan = (np.isnan(values) & allowed).any(-1, keepdims=True)
    masked = ~allowed.any(-1, keepdims=True)
    values = np.where(np.isnan(values), WIDE(0), values)
    top = values.max(-1, keepdims=True, initial=-np.inf)
    nothing = top == -np.inf
    flat, hard = np.isinf(size) & (top < np.inf), (size == 0) | (top == np.inf)
    usual = ~(flat | hard | nothing)
    base, divisor = np.where(usual, top, WIDE(0)), np.where(usual, size, WIDE(1))
    high, low = two_difference(np.where(present & usual, values, base), base)
    gap, gap_low = quotient(high, low, divisor)
    limit = np.where(present & (flat | (values == top)), WIDE(0), -np.inf)
    gap = np.where(usual & present, gap, limit)
    gap_low = np.where(usual & present, gap_low, WIDE(0))
    e = np.where(gap > -np.inf, np.exp(gap) * (1 + gap_low), WIDE(0))
    ties = (gap == 0) & (gap_low == 0)
    count = ties.sum(-1, keepdims=True).astype(WIDE)
    below = np.where(ties, WIDE(0), e).sum(-1, keepdims=True)
    total = np.where(nothing, WIDE(1), below + count)
    others = np.where(ties, below + (count - 1), total - e) / total
    log_total = np.log1p(np.where(nothing, WIDE(0), below + (count - 1)))
    logs = np.where(gap > -np.inf, (gap - log_total) + gap_low, -np.inf)
    peak = np.where(np.isinf(size), np.where(np.isinf(top), top, WIDE(0)), top / divisor)
    infinite = np.where(top == 0, WIDE(0), np.copysign(WIDE(np.inf), top))
    peak = np.where(usual | np.isinf(size), peak, infinite)
    bad = is_nan | (nothing & ~masked)
    return Rows(
        *(present, masked, bad, is_nan, sign, size, top, gap, gap_low),
        *(e / total, others, logs, log_total, peak),
    )


def filled(result: Array, rows: Rows, empty: float) -> Array:
    """nan for rows that are bad, `empty` for those with nothing allowed."""
    result = np.where(rows.masked, WIDE(empty), result)
    return np.where(rows.bad & ~rows.masked, WIDE(np.nan), result)


def softmax(rows: Rows) -> Array:
    return filled(rows.p, rows, 0.0)


def log_softmax(rows: Rows) -> Array:
    return filled(rows.logs, rows, -np.inf)


def logsumexp(rows: Rows) -> Array:
    own = np.where(np.isfinite(rows.peak), rows.peak + rows.log_total, rows.peak)
    return np.where(rows.is_nan, WIDE(np.nan), np.where(rows.top == -np.inf, -np.inf, own))


def logsumexp_scale(rows: Rows) -> Array:
    return np.maximum(np.abs(rows.peak), np.abs(logsumexp(rows)))


def smoothmax(rows: Rows) -> Array:
    more = np.where(rows.log_total == 0, WIDE(0), rows.size * rows.log_total)
    own = rows.sign * (rows.top + np.where(rows.size == 0, WIDE(0), more))
    own = np.where(rows.top == -np.inf, -rows.sign * np.inf, own)
    return np.where(rows.is_nan, WIDE(np.nan), own)


def smoothmax_scale(rows: Rows) -> Array:
    return np.maximum(np.abs(rows.top), np.abs(smoothmax(rows)))


def finite_gap(rows: Rows) -> Array:
    return np.where(rows.p > 0, rows.gap, WIDE(0))


def entropy(rows: Rows) -> Array:
    own = rows.log_total - (rows.p * finite_gap(rows)).sum(-1, keepdims=True)
    return filled(own, rows, 0.0)


def softargmax(rows: Rows) -> Array:
    index = np.arange(rows.p.shape[1]).astype(WIDE)
    return filled((rows.p * index).sum(-1, keepdims=True), rows, 0.0)


# --- derivatives, for temperatures that are neither 0 nor infinite ------------------------------


def jvp(rows: Rows, v: Array) -> tuple[Array, Array]:
    """(p (v - sum p v) / T, the size of its terms)."""
    v = np.where(rows.p > 0, v.astype(WIDE), WIDE(0))
    # v - mean = (1 - p) v - the sum over the other classes, which do not cancel where p is near 1.
    own = rows.others * v - sum_of_others(rows, rows.p * v)
    p = digits_of(rows.p)
    size = rows.others * np.abs(v) + sum_of_others(rows, p * np.abs(v))
    return filled(rows.sign * rows.p * own / rows.size, rows, 0.0), p * size / rows.size


def sum_of_others(rows: Rows, terms: Array) -> Array:
    """The sum of all terms but each entry's own; that of the likeliest is added up apart."""
    place = np.argmax(rows.p, axis=-1)[:, None]
    rest = terms.copy()
    np.put_along_axis(rest, place, WIDE(0), -1)
    result = terms.sum(-1, keepdims=True) - terms
    np.put_along_axis(result, place, rest.sum(-1, keepdims=True), -1)
    return result


def digits_of(p: Array) -> Array:
    """Kernels hold probabilities in float64, which has fewer digits below its normal numbers."""
    return np.maximum(p, np.where(p > 0, WIDE(2.0**-1022), WIDE(0)))


def temperature_derivative(rows: Rows) -> tuple[Array, Array]:
    z = finite_gap(rows)
    mean = (rows.p * z).sum(-1, keepdims=True)
    p = digits_of(rows.p)
    size = p * (np.abs(z) + (p * np.abs(z)).sum(-1, keepdims=True)) / rows.size
    # Differences of logits are float64 before they are divided by T twice.
    common = (rows.size > 2.0**-300) & (rows.size < 2.0**300)
    size = np.where(common, np.maximum(size, WIDE(2.0**-1022) / rows.size**2), size)
    return filled(-rows.sign * rows.p * (z - mean) / rows.size, rows, 0.0), size


def entropy_temperature_derivative(rows: Rows) -> tuple[Array, Array]:
    z = finite_gap(rows)
    mean = (rows.p * z).sum(-1, keepdims=True)
    own = rows.sign * (rows.p * (z - mean) ** 2).sum(-1, keepdims=True) / rows.size
    size = (digits_of(rows.p) * z**2).sum(-1, keepdims=True) / rows.size
    return filled(own, rows, 0.0), size


def jacobian(rows: Rows) -> tuple[Array, Array]:
    """And its size: products of probabilities are float64 before they are divided by T."""
    n = rows.p.shape[1]
    eye = np.eye(n, dtype=bool)
    full = np.where(eye, (rows.p * rows.others)[:, :, None], -rows.p[:, :, None] * rows.p[:, None])
    result = rows.sign[:, :, None] * full / rows.size[:, :, None]
    size = np.maximum(np.abs(result), WIDE(2.0**-1022) / rows.size[:, :, None])
    result = np.where(rows.masked[:, :, None], WIDE(0), result)
    return np.where((rows.bad & ~rows.masked)[:, :, None], WIDE(np.nan), result), size


# --- losses of each row against its label -------------------------------------------------------


def at_label(array: Array, labels: Array) -> Array:
    return np.take_along_axis(array, labels[:, None], 1)


def cross_entropy(rows: Rows, labels: Array) -> Array:
    return filled(-at_label(rows.logs, labels), rows, np.inf)


def cross_entropy_gradient(rows: Rows, labels: Array) -> Array:
    right = np.arange(rows.p.shape[1]) == labels[:, None]
    gradient = np.where(right, -rows.others, rows.p)
    gradient = np.where(rows.present, gradient, WIDE(0))
    return filled(rows.sign * gradient / rows.size, rows, 0.0)


def mae_loss(rows: Rows, labels: Array) -> Array:
    return filled(at_label(rows.others, labels), rows, 1.0)


def brier_loss(rows: Rows, labels: Array) -> Array:
    right = np.arange(rows.p.shape[1]) == labels[:, None]
    rest = np.where(right, WIDE(0), rows.p**2).sum(-1, keepdims=True)
    return filled(rest + at_label(rows.others, labels) ** 2, rows, 1.0)


def focal_loss(rows: Rows, labels: Array, gamma: float) -> Array:
    loss = -at_label(rows.logs, labels)
    return filled(at_label(rows.others, labels) ** WIDE(gamma) * loss, rows, np.inf)


def kl_divergence(rows: Rows, other: Rows) -> tuple[Array, Array]:
    there = rows.p > 0
    gap = np.where(there, rows.logs - np.where(there, other.logs, WIDE(0)), WIDE(0))
    terms = rows.p * gap
    sizes = np.where(there, np.abs(rows.logs) + np.abs(np.where(there, other.logs, 0)), WIDE(0))
    size = np.abs(terms).sum(-1, keepdims=True)
    size = np.maximum(size, (rows.p * sizes).sum(-1, keepdims=True) / 2**10)
    value = terms.sum(-1, keepdims=True)
    bad = (rows.bad | other.bad) & ~(rows.masked | other.masked)
    return np.where(bad, WIDE(np.nan), np.where(rows.masked, WIDE(0), value)), size


# --- errors --------------------------------------------------------------------------------------


def ulps(got: Array, true: Array, type_name: str, scale: Array | None = None) -> Array:
    """The error in units in the last place of `scale` (of the true value, if not given)."""
    digits, least, greatest = FORMATS[type_name]
    got = got.astype(np.float64).astype(WIDE)
    size = np.abs(true if scale is None else scale)
    _, exponent = np.frexp(np.where(np.isfinite(size) & (size > 0), size, WIDE(0)))
    exponent = np.where(size > 0, exponent - 1, least)
    # A term beyond the type has its own ULP: what is left of it when others are taken off is known
    # no better.
    most = greatest if scale is None else 1 << 14
    exponent = np.where(np.isinf(size), greatest, np.clip(exponent, least, most))
    unit = np.ldexp(WIDE(1), exponent - digits + 1)
    edge = np.ldexp(WIDE(1), np.array(greatest + 1))  # what an infinity stands for
    distance = np.where(
        np.isinf(got), np.maximum(edge - np.sign(got) * true, 0), np.abs(got - true)
    )
    error = distance / unit
    if scale is None:
        error = np.where(np.isinf(got) & (np.sign(got) != np.sign(true)), WIDE(np.inf), error)
    error = np.where(np.isinf(true), np.where(got == true, WIDE(0), WIDE(np.inf)), error)
    nan = np.isnan(true) | np.isnan(got)
    agree = np.isnan(true) & np.isnan(got)
    return np.where(nan, np.where(agree, WIDE(0), WIDE(np.inf)), error)
