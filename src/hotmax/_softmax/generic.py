"""softmax and its family in array-API operations: for jax, torch on a GPU and others.

The steps are those of the kernels (maximum first, then the temperature; entries at the maximum
counted, the others summed; log1p with one maximal term left out), in the arithmetic that every
array library has: two words where a rounding would show, no fma, no loop over entries.

Derivatives through these operations are right, to any order, wherever a library takes them: no nan
comes from a branch that was not taken.

`xp` is an array namespace. The classes of a row lie along the last axis; temperature has length 1
there, or no axes at all. Sums run over halves, so a row's bits do not depend on its neighbours.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._backends.protocol import placement, stop_gradient
from hotmax._core.arrays import (
    ACCEPTED,
    FLOATS,
    Axis,
    as_mask,
    as_temperature,
    is_foreign,
    normalize_axes,
)

# The least exponent whose exponential is not 0; and the bits that Dekker's product splits at.
LEAST = {32: -104.0, 64: -746.0}
SPLIT = {32: 4097.0, 64: 134217729.0}
MILD = {32: 2.0**90, 64: 2.0**900}  # temperatures that can be split without overflow

Array = Any


class Layout:
    """Which axes of a shape are the classes, and how to bring them to the end and back."""

    def __init__(self, shape: tuple[int, ...], axis: Axis) -> None:
        self.shape = tuple(shape)
        self.axes = normalize_axes(axis, len(self.shape))
        self.others = tuple(a for a in range(len(self.shape)) if a not in self.axes)
        self.reduced = tuple(1 if a in self.axes else n for a, n in enumerate(self.shape))
        self.classes = math.prod([self.shape[a] for a in self.axes])

    def rows(self, xp: Any, array: Array, classes: int | None = None) -> Array:
        """array with its classes along one last axis."""
        order = self.others + self.axes
        turned = array if order == tuple(range(len(order))) else xp.permute_dims(array, order)
        count = self.classes if classes is None else classes
        return xp.reshape(turned, (*(self.shape[a] for a in self.others), count))

    def entries(self, xp: Any, rows: Array) -> Array:
        """The way back from `rows`."""
        order = self.others + self.axes
        turned = xp.reshape(rows, tuple(self.shape[a] for a in order))
        back = tuple(order.index(a) for a in range(len(order)))
        return turned if back == tuple(range(len(back))) else xp.permute_dims(turned, back)

    def numbers(self, xp: Any, rows: Array, keepdims: bool) -> Array:
        """One number for each row, from an array of length 1 along its last axis."""
        return xp.reshape(rows, self.reduced if keepdims else self.kept())

    def kept(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.others)

    def indices(self, xp: Any, like: Array) -> Array:
        """The index of each class, in C order, to broadcast against an array of this shape."""
        shape = tuple(n if a in self.axes else 1 for a, n in enumerate(self.shape))
        return xp.reshape(xp.arange(self.classes, dtype=like.dtype, **placement(like)), shape)


def type_name(array: Array) -> str:
    """float32, int64 and so on, in every library."""
    return str(array.dtype).rpartition(".")[2]


class Given:
    """The arguments of a call: checked, in the type to compute in, broadcast to the shape of x.

    `wide` is the type that integers are computed in. `traced`: the values of x and T are not known
    yet, so that a temperature of nan cannot be told, and makes its rows nan.
    """

    def __init__(
        self,
        xp: Any,
        x: Array,
        axis: Axis,
        temperature: Any,
        where: Any,
        wide: Any,
        traced: bool = False,
    ) -> None:
        self.xp, self.layout = xp, Layout(tuple(x.shape), axis)
        kind = type_name(x)
        if kind not in FLOATS and not kind.startswith(("int", "uint", "bool")):
            raise TypeError(f"x must hold {ACCEPTED}, got {x.dtype}")
        narrow = kind in ("float16", "bfloat16", "float32")
        compute = xp.float32 if narrow else xp.float64 if kind == "float64" else wide
        self.dtype = x.dtype if kind in FLOATS else wide  # of the result
        self.x = x if x.dtype == compute else xp.astype(x, compute)
        self.temperature = self._temperature(temperature, traced)
        self.where = None if where is None else self._mask(where)

    def _temperature(self, temperature: Any, traced: bool) -> Any:
        if not is_foreign(temperature):
            numbers = as_temperature(temperature)
            if numbers.size == 1 and numbers.ndim <= len(self.layout.shape):
                return float(numbers.reshape(()))
            temperature = constant(self.xp, numbers, self.x)
        elif type_name(temperature) not in FLOATS and not type_name(temperature).startswith(
            ("int", "uint", "bool")
        ):
            raise TypeError(f"temperature must hold real numbers, got {temperature.dtype}")
        elif not traced and bool(self.xp.any(temperature != temperature)):
            raise ValueError("temperature must not be nan; it may be 0, inf or negative")
        if type_name(temperature) not in (type_name(self.x), "float64"):
            temperature = self.xp.astype(temperature, self.x.dtype)
        return self._spread(temperature, self.layout.reduced, "temperature must be a number or")

    def _mask(self, where: Any) -> Array:
        if not is_foreign(where):
            where = constant(self.xp, as_mask(where), self.x)
        if type_name(where) != "bool":
            raise TypeError(f"where must hold bools, got {where.dtype}")
        return self._spread(where, self.layout.shape, "where must")

    def _spread(self, array: Array, shape: tuple[int, ...], claim: str) -> Array:
        came = tuple(array.shape)
        if len(came) > len(shape) or any(
            n not in (1, m) for n, m in zip(came[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f"{claim} broadcast to {shape}, got shape {came}")
        return array if came == shape else self.xp.broadcast_to(array, shape)


def evaluate(
    name: str, xp: Any, x: Array, temperature: Any, where: Array | None, layout: Layout
) -> Array:
    """A function of FUNCTIONS in the layout of x; reductions keep their axes, with length 1."""
    known = isinstance(temperature, float | tuple)
    t = temperature if known else layout.rows(xp, temperature, 1)
    mask = None if where is None else layout.rows(xp, where)
    result = FUNCTIONS[name](xp, layout.rows(xp, x), t, mask)
    return layout.numbers(xp, result, True) if name in REDUCES else layout.entries(xp, result)


def constant(xp: Any, array: Any, like: Array) -> Array:
    """A NumPy array as one of this library, where `like` is; in memory of its own.

    torch and jax would share the memory, and a later change would reach a backward pass unseen.
    """
    return xp.asarray(own_copy(array), **placement(like))


def own_copy(array: Any) -> Any:
    """A writeable copy in native byte order; what was broadcast is copied once."""
    shown = tuple(slice(None, None if step else 1) for step in array.strides)
    copy = array[shown or ...].astype(array.dtype.newbyteorder("="), order="K")
    if copy.shape == array.shape:
        return copy
    steps = [new if old else 0 for new, old in zip(copy.strides, array.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(copy, array.shape, steps)


def number(xp: Any, value: float, like: Array) -> Array:
    return xp.asarray(value, dtype=like.dtype, **placement(like))


def words(xp: Any, temperature: Any, like: Array) -> tuple[Array, Array]:
    """The temperature in two words of the type of `like`; a number keeps all its digits."""
    if isinstance(temperature, tuple):
        return temperature
    if isinstance(temperature, float):
        with np.errstate(all="ignore"):  # beyond float32 it becomes 0 or inf: the right limits
            high = float(np.float32(temperature)) if bits(xp, like) == 32 else temperature
        low = temperature - high if math.isfinite(high) else 0.0
        return number(xp, high, like), number(xp, low, like)
    high = xp.astype(temperature, like.dtype)
    if temperature.dtype == like.dtype:
        return high, xp.zeros_like(high)
    rest = temperature - xp.astype(high, temperature.dtype)  # float64 beside float32 logits
    finite = xp.abs(high) < math.inf
    return high, xp.where(finite, xp.astype(rest, like.dtype), xp.zeros_like(high))


def bits(xp: Any, like: Array) -> int:
    return int(xp.finfo(like.dtype).bits)


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
        high = c - (c - v)
        return high, v - high

    (a1, a2), (b1, b2) = split(a), split(b)
    return ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def total(xp: Any, terms: Array) -> tuple[Array, Array]:
    """The sum along the last axis, which stays with length 1, in two words: halves upon halves."""
    high, low = terms, xp.zeros_like(terms)
    if high.shape[-1] == 0:
        return xp.sum(high, axis=-1, keepdims=True), xp.sum(low, axis=-1, keepdims=True)
    while (n := high.shape[-1]) > 1:
        half = n // 2
        s, carry = two_sum(high[..., :half], high[..., half : 2 * half])
        carry = carry + (low[..., :half] + low[..., half : 2 * half])
        if n % 2:
            s = xp.concat([s, high[..., 2 * half :]], axis=-1)
            carry = xp.concat([carry, low[..., 2 * half :]], axis=-1)
        high, low = s, carry
    return high, low


class Row(NamedTuple):
    """What the rows are, once their maxima and sums are known. Names as in the kernels."""

    values: Array  # x, turned by the sign of the temperature; -inf where masked
    sign: Array
    top: Array
    heat: Array  # abs(temperature); 1 at the limits
    d: Array  # z times the divisor
    divisor: Array
    z: Array  # (x - top) / T in two words; 0 where its exponential is 0, or has no meaning
    z_low: Array
    exps: Array  # exp(z); at the limits 1 for those that share the mass, else 0
    ties: Array
    below: Array
    below_low: Array
    hard: Array  # bools, one for each row
    flat: Array
    nothing: Array
    nan: Array
    shut: Array  # nothing allowed by `where`


def rows_of(xp: Any, x: Array, temperature: Any, where: Array | None) -> Row:
    t, t_low = words(xp, temperature, x)
    zero, one, infinity = number(xp, 0.0, x), number(xp, 1.0, x), number(xp, math.inf, x)
    upside = (t < 0) | ((t == 0) & (one / xp.where(t == 0, t, one) < 0))
    sign = xp.where(upside, -one, one)
    values, heat, heat_low = sign * x, sign * t, sign * t_low
    if where is not None:
        values = xp.where(where, values, -infinity)
    bad = xp.isnan(values)
    nan = xp.any(bad, axis=-1, keepdims=True) | (t != t)
    if x.shape[-1]:
        top = stop_gradient(xp.max(xp.where(bad, -infinity, values), axis=-1, keepdims=True))
    else:
        top = xp.sum(values, axis=-1, keepdims=True) - infinity
    nothing = (top == -infinity) & ~nan
    hard = ((top == infinity) | (heat == 0)) & ~nothing & ~nan
    flat = (heat == infinity) & ~hard & ~nothing & ~nan
    plain = ~(hard | flat | nothing | nan)

    # A quarter of everything above temperature 1, so that x - max stays in range.
    mild = (heat > 0) & (heat < infinity)
    heat = xp.where(mild, heat, one)
    scale = xp.where(heat > 1, one / 4, one)
    present = plain & (values > -infinity)
    peak = xp.where(plain, top, zero)
    d, d_low = two_difference(xp.where(present, values, peak) * scale, peak * scale)
    d_low = xp.where(xp.abs(d) < infinity, d_low, zero)
    divisor = heat * scale
    least = LEAST[bits(xp, x)]
    far = d / divisor < least
    z = xp.where(far, zero, d) / divisor  # with far ones a derivative by T would meet 0 * inf
    limit = MILD[bits(xp, x)]
    split = ~far & (divisor < limit) & (divisor > 1 / limit)
    a, b = xp.where(split, z, one), xp.where(split, divisor, one)
    rest = xp.where(split, (d - a * b) - rest_of_product(xp, a, b, a * b), zero)
    z_low = (rest + xp.where(far, zero, d_low) - z * (heat_low * scale)) / divisor
    e = xp.exp(z)
    e = xp.where(far, zero, e + e * z_low)
    sharing = xp.where(hard, values == top, values > -infinity)
    exps = xp.where(present, e, xp.where(sharing & (hard | flat), one, zero))
    atop = xp.where(plain, values == top, exps > 0)
    ties = xp.sum(xp.where(atop, exps, zero), axis=-1, keepdims=True)
    below, below_low = total(xp, xp.where(atop, zero, exps))
    shut = xp.zeros_like(nan) if where is None else ~xp.any(where, axis=-1, keepdims=True)
    return Row(
        values, sign, top, heat, d, divisor, z, z_low, exps, ties, below, below_low, hard, flat,
        nothing, nan, shut,
    )  # fmt: skip


def whole_quotient(xp: Any, row: Row) -> Array:
    """z of far entries too; where its derivative by T overflows, it is the largest number.

    T counts as a constant there, but for a term that is 0 and has that derivative: 0 times the
    largest number is 0, 0 times inf is nan.
    """
    d, fixed = row.d, stop_gradient(row.divisor)
    zero, most = number(xp, 0.0, d), number(xp, float(xp.finfo(d.dtype).max), d)
    steep = -d > most * fixed * fixed
    usual = xp.where(steep, zero, d) / row.divisor
    return xp.where(steep, d / fixed + (row.divisor - fixed) * most, usual)


def log_sum(xp: Any, row: Row) -> tuple[Array, Array]:
    """log(ties + below) in two words."""
    s, carry = two_sum(row.ties - 1, row.below)
    s = xp.where(s < 0, s * 0, s)
    return xp.log1p(s), (carry + row.below_low) / (1 + s)


def softmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    s, carry = two_sum(row.ties, row.below)
    s = xp.where(s > 0, s, s * 0 + 1)
    correction = (carry + row.below_low) / s
    p = (row.exps - row.exps * correction) / s
    p = xp.where(row.nan | row.nothing, number(xp, math.nan, x), p)
    return xp.where(row.shut, number(xp, 0.0, x), p)


def log_softmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    infinity = number(xp, math.inf, x)
    high, low = log_sum(xp, row)
    y = (whole_quotient(xp, row) - high) + (row.z_low - low)
    limits = row.hard | row.flat
    y = xp.where(limits, xp.where(row.exps > 0, -high, -infinity), y)
    y = xp.where((row.values == -infinity) & ~limits, -infinity, y)
    y = xp.where(row.nan | row.nothing, number(xp, math.nan, x), y)
    return xp.where(row.shut, -infinity, y)


def logsumexp(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    high, low = log_sum(xp, row)
    infinity = number(xp, math.inf, x)
    top = xp.where(xp.abs(row.top) < infinity, row.top, row.top * 0 + 1)
    top = xp.where(xp.isnan(top), high, top)
    q = top / row.heat
    usual = q + (high + low)
    at_zero = xp.where(row.top == 0, high, xp.where(row.top > 0, infinity, -infinity))
    y = xp.where(row.flat, high, xp.where(row.hard, at_zero, usual))
    y = xp.where(row.nothing, -infinity, y)
    return xp.where(row.nan, number(xp, math.nan, x), y)


def smoothmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    high, low = log_sum(xp, row)
    infinity = number(xp, math.inf, x)
    at_limit = xp.where(high > 0, infinity, high * 0)
    extra = xp.where(row.flat, at_limit, row.heat * (high + low))
    y = row.sign * xp.where(row.hard | row.nothing, row.top, row.top + extra)
    return xp.where(row.nan, number(xp, math.nan, x), y)


def entropy(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    high, low = log_sum(xp, row)
    limits = row.hard | row.flat
    zero = number(xp, 0.0, x)
    terms = xp.where(limits | (row.exps == 0), zero, -(row.z + row.z_low) * row.exps)
    moment, moment_low = total(xp, terms)
    s = row.ties + (row.below + row.below_low)
    h = high + ((moment + moment_low) / xp.where(s > 0, s, zero + 1) + low)
    h = xp.where(row.nan | row.nothing, number(xp, math.nan, x), h)
    return xp.where(row.shut | (x.shape[-1] == 0), zero, h)


def softargmax(xp: Any, x: Array, temperature: Any, where: Array | None) -> Array:
    row = rows_of(xp, x, temperature, where)
    zero = number(xp, 0.0, x)
    index = xp.arange(x.shape[-1], dtype=x.dtype, **placement(x))
    moment, moment_low = total(xp, row.exps * index)
    s = row.ties + (row.below + row.below_low)
    mean = (moment + moment_low) / xp.where(s > 0, s, zero + 1)
    mean = xp.where(row.nan | row.nothing, number(xp, math.nan, x), mean)
    return xp.where(row.shut | (x.shape[-1] == 0), zero, mean)


FUNCTIONS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "smoothmax": smoothmax,
    "entropy": entropy,
    "softargmax": softargmax,
}
REDUCES = ("logsumexp", "smoothmax", "entropy", "softargmax")


def weighted(
    xp: Any,
    x: Array,
    weights: Any,
    axis: Axis,
    temperature: Any,
    where: Any,
    return_sign: bool,
    keepdims: bool,
    wide: Any,
    traced: bool = False,
) -> Any:
    """logsumexp with weights: log |sum w exp(x / T)|, and the sign of the sum.

    Plain operations, so that every library can differentiate them. A weight of 0 means not there.
    """
    if not is_foreign(weights):
        weights = constant(xp, np.asarray(weights), x)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(weights.shape))
    given = Given(xp, xp.broadcast_to(x, shape), axis, temperature, where, wide, traced)
    layout = given.layout
    if type_name(weights) == "float64":  # beside float32 logits, whose type cannot hold them
        given.x = xp.astype(given.x, weights.dtype)
    w = layout.rows(xp, xp.broadcast_to(xp.astype(weights, given.x.dtype), shape))
    present = w != 0
    if given.where is not None:
        present = present & layout.rows(xp, given.where)
    t = given.temperature
    t = t if isinstance(t, float) else layout.rows(xp, t, 1)
    rows = layout.rows(xp, given.x)
    like = rows
    one, zero, infinity = number(xp, 1.0, like), number(xp, 0.0, like), number(xp, math.inf, like)
    heat, _ = words(xp, t, rows)
    upside = (heat < 0) | ((heat == 0) & (one / xp.where(heat == 0, heat, one) < 0))
    sign = xp.where(upside, -one, one)
    values = xp.where(present, sign * rows, -infinity)
    nan = xp.any(xp.isnan(values) | (present & xp.isnan(w)), axis=-1, keepdims=True)
    if layout.classes:
        top = xp.max(xp.where(xp.isnan(values), -infinity, values), axis=-1, keepdims=True)
    else:
        top = xp.sum(values, axis=-1, keepdims=True) - infinity
    nothing, hard = top == -infinity, (top == infinity) | (heat == 0)
    flat = xp.abs(heat) == infinity
    usual = ~(nothing | hard | flat | nan)
    there = usual & (values > -infinity)
    divisor = xp.where(usual, sign * heat, one)
    peak = stop_gradient(xp.where(usual, top, zero))
    quarter = xp.where(divisor > 1, one / 4, one)  # x - max may be beyond all numbers
    d = xp.where(there, xp.where(there, values, peak) * quarter - peak * quarter, zero)
    far = d / (divisor * quarter) < LEAST[bits(xp, like)]
    there = there & ~far
    z = xp.where(far, zero, d) / (divisor * quarter)
    shares = xp.where(hard, values == top, values > -infinity)
    e = xp.where(usual, xp.where(there, xp.exp(z), zero), xp.where(shares, one, zero))
    high, low = total(xp, xp.where(present & (e > 0), w, zero) * e)
    mass = xp.where(xp.abs(high) < infinity, high + low, high)  # inf leaves no remainder
    log_mass = xp.log(xp.where(mass == 0, one, xp.abs(mass)))
    log_mass = xp.where(mass == 0, -infinity, log_mass)
    steep = xp.where(top == 0, log_mass, xp.where(top > 0, infinity, -infinity))
    y = xp.where(hard, steep, xp.where(flat, log_mass, peak / divisor + log_mass))
    bad = number(xp, math.nan, like)
    y = xp.where(nan, bad, xp.where(nothing, -infinity, y))
    signs = xp.where(nan, bad, xp.where(nothing, zero, xp.sign(mass)))
    if not return_sign:
        y = xp.where(signs < 0, bad, y)  # the logarithm of a negative sum
    y, signs = (xp.astype(layout.numbers(xp, part, keepdims), given.dtype) for part in (y, signs))
    return (y, signs) if return_sign else y
