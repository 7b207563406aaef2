"""softmax and its family in array-API operations, masks and limits included: jax, GPUs, others.

The steps are those of the kernels (maximum first, then the temperature; entries at the maximum
counted, the others summed; log1p with one maximal term left out), in the arithmetic that every
array library has: double-doubles where a rounding would show, no fma, no loop over entries.

Derivatives through these operations are right, to any order, wherever a library takes them: no nan
comes from a branch that was not taken.

`xp` is an array namespace. The classes of a row lie along the last axis; temperature has length 1
there, or no axes at all. Sums run over halves, so a row's bits do not depend on its neighbours.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from hotmax._backends.call_arguments import temperature_hi_lo
from hotmax._backends.layout import bits, scalar_like
from hotmax._backends.protocol import Array, placement, stop_gradient

# The least exponent whose exponential is not 0; and the bits that Dekker's product splits at.
LEAST = {32: -104.0, 64: -746.0}
SPLIT = {32: 4097.0, 64: 134217729.0}
MILD = {32: 2.0**90, 64: 2.0**900}  # temperatures that can be split without overflow


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_difference(a: Array, b: Array) -> tuple[Array, Array]:
    d = a - b
    t = d - a
    return d, (a - (d - t)) - (b + t)


def rest_of_product(xp: Any, a: Array, b: Array, product: Array) -> Array:
    """a * b - product, exactly, by Dekker's splitting."""
    splitter = SPLIT[bits(xp, a)]

    def split(v: Array) -> tuple[Array, Array]:
        c = v * splitter
        hi = c - (c - v)
        return hi, v - hi

    (a1, a2), (b1, b2) = split(a), split(b)
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def total(xp: Any, terms: Array) -> tuple[Array, Array]:
    """The sum along the last axis, kept with length 1, as a double-double: halves upon halves."""
    hi, lo = terms, xp.zeros_like(terms)
    if hi.shape[-1] == 0:
        return xp.sum(hi, axis=-1, keepdims=True), xp.sum(lo, axis=-1, keepdims=True)
    while (n := hi.shape[-1]) > 1:
        half = n // 2
        s, carry = two_sum(hi[..., :half], hi[..., half : 2 * half])
        carry = carry + (lo[..., :half] + lo[..., half : 2 * half])
        if n % 2:
            s = xp.concat([s, hi[..., 2 * half :]], axis=-1)
            carry = xp.concat([carry, lo[..., 2 * half :]], axis=-1)
        hi, lo = s, carry
    return hi, lo


class Row(NamedTuple):
    """What the rows are, once their maxima and sums are known. Names as in the kernels."""

    values: Array  # x times the sign of the temperature; -inf where masked
    sign: Array
    top: Array
    size: Array  # abs(temperature); 1 at the limits
    d: Array  # z times the divisor
    divisor: Array
    z: Array  # (x - top) / T as a double-double; 0 where its exponential is 0, or has no meaning
    z_lo: Array
    exps: Array  # exp(z); at the limits 1 for those that share the mass, else 0
    ties: Array
    below: Array
    below_lo: Array
    hard: Array  # bools, one for each row
    flat: Array
    nothing: Array
    nan: Array
    shut: Array  # nothing allowed by `where`


def rows_of(xp: Any, x: Array, temperature: Any, where: Array | None) -> Row:
    t, t_lo = temperature_hi_lo(xp, temperature, x)
    zero, one, infinity = [scalar_like(xp, v, x) for v in (0.0, 1.0, math.inf)]
    upside = (t < 0) | ((t == 0) & (one / xp.where(t == 0, t, one) < 0))
    sign = xp.where(upside, -one, one)
    values, size, size_lo = sign * x, sign * t, sign * t_lo
    if where is not None:
        values = xp.where(where, values, -infinity)
    bad = xp.isnan(values)
    nan = xp.any(bad, axis=-1, keepdims=True) | (t != t)
    if x.shape[-1]:
        top = stop_gradient(xp.max(xp.where(bad, -infinity, values), axis=-1, keepdims=True))
    else:
        top = xp.sum(values, axis=-1, keepdims=True) - infinity
    nothing = (top == -infinity) & ~nan
    hard = ((top == infinity) | (size == 0)) & ~nothing & ~nan
    flat = (size == infinity) & ~hard & ~nothing & ~nan
    plain = ~(hard | flat | nothing | nan)

    # A quarter of everything above temperature 1, so that x - max stays in range.
    mild = (size > 0) & (size < infinity)
    size = xp.where(mild, size, one)
    scale = xp.where(size > 1, one / 4, one)
    present = plain & (values > -infinity)
    peak = xp.where(plain, top, zero)
    d, d_lo = two_difference(xp.where(present, values, peak) * scale, peak * scale)
    d_lo = xp.where(xp.abs(d) < infinity, d_lo, zero)
    divisor = size * scale
    least = LEAST[bits(xp, x)]
    far = d / divisor < least
    z = xp.where(far, zero, d) / divisor  # with far ones a derivative by T would meet 0 * inf
    limit = MILD[bits(xp, x)]
    split = ~far & (divisor < limit) & (divisor > 1 / limit)
    a, b = xp.where(split, z, one), xp.where(split, divisor, one)
    rest = xp.where(split, (d - a * b) - rest_of_product(xp, a, b, a * b), zero)
    z_lo = (rest + xp.where(far, zero, d_lo) - z * (size_lo * scale)) / divisor
    e = xp.exp(z)
    e = xp.where(far, zero, e + e * z_lo)
    sharing = xp.where(hard, values == top, values > -infinity)
    exps = xp.where(present, e, xp.where(sharing & (hard | flat), one, zero))
    atop = xp.where(plain, values == top, exps > 0)
    ties = xp.sum(xp.where(atop, exps, zero), axis=-1, keepdims=True)
    below, below_lo = total(xp, xp.where(atop, zero, exps))
    shut = xp.zeros_like(nan) if where is None else ~xp.any(where, axis=-1, keepdims=True)
    return Row(
        values, sign, top, size, d, divisor, z, z_lo, exps, ties, below, below_lo, hard, flat,
        nothing, nan, shut,
    )  # fmt: skip


def whole_quotient(xp: Any, row: Row) -> Array:
    """z of far entries too; where its derivative by T overflows, it is the largest number.

    T counts as a constant there, but for a term that is 0 and has that derivative: 0 times the
    largest number is 0, 0 times inf is nan.
    """
    d, fixed = row.d, stop_gradient(row.divisor)
    zero, most = scalar_like(xp, 0.0, d), scalar_like(xp, float(xp.finfo(d.dtype).max), d)
    overflows = -d > most * fixed * fixed
    usual = xp.where(overflows, zero, d) / row.divisor
    return xp.where(overflows, d / fixed + (row.divisor - fixed) * most, usual)


def log_sum(xp: Any, row: Row) -> tuple[Array, Array]:
    """log(ties + below) as a double-double."""
    s, carry = two_sum(row.ties - 1, row.below)
    s = xp.where(s < 0, s * 0, s)
    return xp.log1p(s), (carry + row.below_lo) / (1 + s)


def softmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    s, carry = two_sum(row.ties, row.below)
    s = xp.where(s > 0, s, s * 0 + 1)
    correction = (carry + row.below_lo) / s
    p = (row.exps - row.exps * correction) / s
    p = xp.where(row.nan | row.nothing, scalar_like(xp, math.nan, x), p)
    return xp.where(row.shut, scalar_like(xp, 0.0, x), p)


def log_softmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    infinity = scalar_like(xp, math.inf, x)
    hi, lo = log_sum(xp, row)
    y = (whole_quotient(xp, row) - hi) + (row.z_lo - lo)
    limits = row.hard | row.flat
    y = xp.where(limits, xp.where(row.exps > 0, -hi, -infinity), y)
    y = xp.where((row.values == -infinity) & ~limits, -infinity, y)
    y = xp.where(row.nan | row.nothing, scalar_like(xp, math.nan, x), y)
    return xp.where(row.shut, -infinity, y)


def logsumexp(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    hi, lo = log_sum(xp, row)
    infinity = scalar_like(xp, math.inf, x)
    top = xp.where(xp.abs(row.top) < infinity, row.top, row.top * 0 + 1)
    top = xp.where(xp.isnan(top), hi, top)
    q = top / row.size
    usual = q + (hi + lo)
    at_zero = xp.where(row.top == 0, hi, xp.where(row.top > 0, infinity, -infinity))
    y = xp.where(row.flat, hi, xp.where(row.hard, at_zero, usual))
    y = xp.where(row.nothing, -infinity, y)
    return xp.where(row.nan, scalar_like(xp, math.nan, x), y)


def smoothmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    hi, lo = log_sum(xp, row)
    infinity = scalar_like(xp, math.inf, x)
    at_limit = xp.where(hi > 0, infinity, hi * 0)
    extra = xp.where(row.flat, at_limit, row.size * (hi + lo))
    # By itself it may be beyond all numbers, where the result is not.
    halved = 2 * (row.top / 2 + xp.where(row.flat, at_limit, row.size / 2 * (hi + lo)))
    more = xp.where(extra < infinity, row.top + extra, halved)
    y = row.sign * xp.where(row.hard | row.nothing, row.top, more)
    return xp.where(row.nan, scalar_like(xp, math.nan, x), y)


def entropy(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    hi, lo = log_sum(xp, row)
    limits = row.hard | row.flat
    zero = scalar_like(xp, 0.0, x)
    terms = xp.where(limits | (row.exps == 0), zero, -(row.z + row.z_lo) * row.exps)
    moment, moment_lo = total(xp, terms)
    s = row.ties + (row.below + row.below_lo)
    h = hi + ((moment + moment_lo) / xp.where(s > 0, s, zero + 1) + lo)
    h = xp.where(row.nan | row.nothing, scalar_like(xp, math.nan, x), h)
    return xp.where(row.shut | (x.shape[-1] == 0), zero, h)


def softargmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    zero = scalar_like(xp, 0.0, x)
    index = xp.arange(x.shape[-1], dtype=x.dtype, **placement(x))
    moment, moment_lo = total(xp, row.exps * index)
    s = row.ties + (row.below + row.below_lo)
    mean = (moment + moment_lo) / xp.where(s > 0, s, zero + 1)
    mean = xp.where(row.nan | row.nothing, scalar_like(xp, math.nan, x), mean)
    return xp.where(row.shut | (x.shape[-1] == 0), zero, mean)
