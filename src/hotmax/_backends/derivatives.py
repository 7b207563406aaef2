"""The derivatives of softmax and its family, as formulas that every array library can run.

With p = softmax(x / T), z = x / T and every sum over the classes:

    pullback: from g, a derivative by the result, to those by x and T
    pushforward: from dx and dT to the change of the result

Every function but smoothmax depends on x and T only through z, so df/dx = df/dz / T and
df/dT = -sum(z df/dz) / T. Every function but logsumexp and smoothmax is unchanged by a shift of x,
so x is measured from the dominating entry: the maximum, or the minimum for T < 0. At the
temperatures 0 and inf derivatives are 0. Absent classes (-inf, or masked) have derivative 0, and
the entries of g that belong to them are ignored.

Derivatives by z are divided by T last, so that nothing overflows or becomes inf * 0 on the way.
Limits of the accuracy: a g beyond a quarter of the largest number may overflow. The terms of
log_softmax's derivative by T may overflow one by one, so that an infinite derivative becomes nan.
The derivative by x of a class with nearly all the mass has an error of a few roundings of
max |g| / T. jax flushes subnormal numbers, also subnormal temperatures, to 0.

The formulas call the functions that they differentiate (`value`), so that they can be
differentiated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hotmax._backends.layout import Layout, bits, scalar_like
from hotmax._backends.protocol import Array

Functions = Callable[[str], Array]  # name of a function -> its value at this x and T


def sum_over_classes(xp: Any, terms: Array, layout: Layout) -> Array:
    return xp.sum(terms, axis=layout.axes, keepdims=True) if layout.axes else terms


class Reach(NamedTuple):
    """1 / T is a normal number for T in low..high; other T are multiplied by root or 1 / root."""

    low: float
    high: float
    root: float


REACH = {32: Reach(2.0**-100, 2.0**100, 2.0**32), 64: Reach(2.0**-900, 2.0**900, 2.0**100)}
COLD = 2.0**-50  # above this |T| a quarter of x - top is used, which stays in range


class DerivativePoint:
    """x and T, and what all derivatives there share.

    z is (x - top) / T. 1 / T and z / T may overflow where a derivative does not, so they are kept
    as factors: 1 / T is `half * root`, and z / T is `gap * half * half / quarter`.
    """

    def __init__(
        self,
        xp: Any,
        x: Array,
        temperature: Any,
        where: Array | None,
        layout: Layout,
        value: Functions,
    ) -> None:
        self.xp, self.x, self.layout, self.value = xp, x, layout, value
        zero, one = scalar_like(xp, 0.0, x), scalar_like(xp, 1.0, x)
        t = scalar_like(xp, temperature, x) if isinstance(temperature, float) else temperature
        t = xp.astype(t, x.dtype)
        self.zero, self.one, self.temperature = zero, one, t
        size, reach = xp.abs(t), REACH[bits(xp, x)]
        self.root = xp.where(
            size < reach.low, reach.root * one, xp.where(size > reach.high, one / reach.root, one)
        )
        self.quarter = xp.where(size < COLD, one, one / 4)
        scaled = t * self.root
        usual = (scaled != 0) & (xp.abs(scaled) < math.inf)
        self.half = xp.where(usual, one / xp.where(usual, scaled, one), zero)
        down = (t < 0) | ((t == 0) & (one / xp.where(t == 0, t, one) < 0))
        sign = xp.where(down, -one, one)
        present = x != -sign * math.inf
        self.present = present if where is None else present & where
        self.finite = self.present & (xp.abs(x) < math.inf)
        # The dominating entry: the maximum, or the minimum for T < 0.
        some = xp.where(self.finite, x, zero)
        most = xp.max(
            xp.where(self.finite, sign * x, -one * math.inf),
            axis=layout.axes or None,
            keepdims=True,
        )
        self.top = sign * xp.where(most > -math.inf, most, zero) if layout.axes else some
        gap = (some * self.quarter - self.top * self.quarter) * self.root * self.root
        gap = self.within(gap)
        self.gap = xp.where(self.finite, gap, zero)
        # Where an entry is +inf it has all the mass, and softmax is constant.
        infinite = self.present & (xp.abs(x) == math.inf)
        self.finite_half = xp.where(self.any(infinite), zero, self.half)

    def within(self, values: Array) -> Array:
        """Infinities replaced by the largest finite numbers, so that 0 times them is 0."""
        most = float(self.xp.finfo(self.x.dtype).max)
        return self.xp.clip(values, -most, most)

    def any(self, marks: Array) -> Array:
        return sum_over_classes(self.xp, self.xp.where(marks, self.one, self.zero), self.layout) > 0

    def sum(self, terms: Array) -> Array:
        return sum_over_classes(self.xp, terms, self.layout)

    def only_present(self, values: Array) -> Array:
        return self.xp.where(self.present, values, self.zero)

    def mean(self, p: Array, values: Array) -> Array:
        """The mean under p, over classes that have any mass."""
        counts = self.present & (p != 0)
        return self.sum(self.xp.where(counts, p * self.xp.where(counts, values, self.zero), 0.0))

    def deviations(self, p: Array, values: Array) -> Array:
        """values minus their mean under p; 0 for classes that have no mass."""
        counts = self.present & (p != 0)
        values = self.xp.where(counts, values, self.zero)
        return self.xp.where(counts, values - self.mean(p, values), self.zero)

    def surprise(self, p: Array) -> Array:
        """log p + entropy, computed as z minus its mean under p, which keeps more digits."""
        z = self.xp.where(p != 0, self.gap, self.zero) * self.half / (self.root * self.quarter)
        return self.deviations(p, z)

    def distance(self, p: Array) -> Array:
        """The index of each class minus its mean under p, counted from the dominating class."""
        index = self.layout.indices(self.xp, self.x)
        first = self.xp.where(self.finite & (self.x == self.top), index, -self.one)
        if self.layout.axes:
            first = self.xp.max(first, axis=self.layout.axes, keepdims=True)
        return self.deviations(p, index - first)


# --- derivatives by z ----------------------------------------------------------------------------


def pull_softmax(at: DerivativePoint, p: Array, g: Array) -> Array:
    return p * (at.only_present(g) - at.mean(p, g))


def pull_log_softmax(at: DerivativePoint, p: Array, g: Array) -> Array:
    g = at.only_present(g)
    return g - p * at.sum(g)


def pull_logsumexp(at: DerivativePoint, p: Array, g: Array) -> Array:
    return g * p


def pull_entropy(at: DerivativePoint, p: Array, g: Array) -> Array:
    return -g * (p * at.surprise(p))


def pull_softargmax(at: DerivativePoint, p: Array, g: Array) -> Array:
    return g * (p * at.distance(p))


PULL = {
    "softmax": pull_softmax,
    "log_softmax": pull_log_softmax,
    "logsumexp": pull_logsumexp,
    "entropy": pull_entropy,
    "softargmax": pull_softargmax,
}


def pull(
    name: str, at: DerivativePoint, g: Array, by_temperature: bool
) -> tuple[Array, Array | None]:
    """The derivatives by x, and by T if wanted, one for each row."""
    p = at.value("softmax")
    if name == "smoothmax":
        return at.only_present(g * p), g * entropy_of(at) if by_temperature else None
    by_z = at.only_present(PULL[name](at, p, g))
    half = at.half if name == "logsumexp" else at.finite_half
    by_x = by_z * half * at.root
    if not by_temperature:
        return by_x, None
    change = at.sum(by_z * half * at.gap) / at.quarter
    if name == "logsumexp":  # the shift shows here
        change = change + at.sum(by_z) * half * shift(at) / at.quarter
    return by_x, -change * half


def entropy_of(at: DerivativePoint) -> Array:
    """The entropy; 0 where no class is there."""
    return at.xp.where(at.any(at.present), at.value("entropy"), at.zero)


def shift(at: DerivativePoint) -> Array:
    """What `half * half / quarter` turns into top / T^2."""
    return at.within(at.top * at.quarter * at.root * at.root)


# --- changes along z -----------------------------------------------------------------------------


def change_along(name: str, at: DerivativePoint, p: Array, v: Array) -> Array:
    """The change of a function as z moves along v."""
    if name == "softmax":
        return p * at.deviations(p, v)
    if name == "log_softmax":
        return at.only_present(v - at.mean(p, v))
    if name == "logsumexp":
        return at.mean(p, v)
    if name == "entropy":
        return -at.mean(p, at.surprise(p) * v)
    return at.mean(p, at.distance(p) * v)


def push(name: str, at: DerivativePoint, dx: Array, dt: Array | None) -> Array:
    """The change of a function as x moves by dx and T by dt, or T is fixed."""
    p = at.value("softmax")
    dx = at.only_present(dx)
    if name == "smoothmax":
        change = at.mean(p, dx)
        return change if dt is None else change + entropy_of(at) * dt
    half = at.half if name == "logsumexp" else at.finite_half
    change = change_along(name, at, p, dx) * half * at.root
    if dt is None:
        return change
    # In this order neither the change nor its transpose, a gradient, meets inf * 0.
    by_t = dt / at.quarter * half
    moved = change_along(name, at, p, at.only_present(at.gap * by_t))
    if name == "logsumexp":  # the shift shows here
        moved = moved + shift(at) * by_t
    return change - moved * half
