"""The derivatives of softmax and its family, as formulas that every array library can run.

With p = softmax(x / T), and every sum over the classes:

    pullback: from g, a derivative by the result, to those by x and T
    pushforward: from dx and dT to the change of the result

Each function but smoothmax is one of z = x / T, so T df/dT = -sum(x df/dx); and each but those two
of logsumexp's kind does not change if x is shifted, so x may be taken from its maximum. At the
temperatures 0 and inf derivatives are 0. Classes that are not there (-inf, or masked) get 0, and
nothing that is held against them counts.

The formulas call the functions that they are the derivatives of, `f`, so they can be
differentiated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hotmax._generic import Layout, number

Array = Any
Functions = Callable[[str], Array]  # by name, the value of a function at the point in question


def sum_of(xp: Any, terms: Array, layout: Layout) -> Array:
    return xp.sum(terms, axis=layout.axes, keepdims=True) if layout.axes else terms


class Point:
    """x and T, and what all derivatives there share."""

    def __init__(
        self, xp: Any, x: Array, temperature: Any, where: Array | None, layout: Layout, f: Functions
    ) -> None:
        self.xp, self.x, self.layout, self.f = xp, x, layout, f
        zero, one = number(xp, 0.0, x), number(xp, 1.0, x)
        t = number(xp, temperature, x) if isinstance(temperature, float) else temperature
        t = xp.astype(t, x.dtype)
        self.zero, self.one, self.temperature = zero, one, t
        usual = (t != 0) & (xp.abs(t) < math.inf)
        self.inverse = xp.where(usual, one / xp.where(usual, t, one), zero)
        down = (t < 0) | ((t == 0) & (one / xp.where(t == 0, t, one) < 0))
        present = x != xp.where(down, one, -one) * math.inf
        self.present = present if where is None else present & where
        finite = self.present & (xp.abs(x) < math.inf)
        # The maximum, as a constant: what is taken from it does not change with a shift.
        some = xp.where(finite, x, zero)
        top = xp.max(xp.where(finite, x, -one * math.inf), axis=layout.axes or None, keepdims=True)
        self.top = xp.where(top > -math.inf, top, zero) if layout.axes else some
        self.centred = xp.where(finite, x - self.top, zero)
        # +inf takes all the mass, whatever the others do: there softmax is constant.
        infinite = self.present & (xp.abs(x) == math.inf)
        self.slope = xp.where(self.any(infinite), zero, self.inverse)

    def any(self, marks: Array) -> Array:
        return sum_of(self.xp, self.xp.where(marks, self.one, self.zero), self.layout) > 0

    def sum(self, terms: Array) -> Array:
        return sum_of(self.xp, terms, self.layout)

    def only_present(self, values: Array) -> Array:
        return self.xp.where(self.present, values, self.zero)

    def mean(self, p: Array, values: Array) -> Array:
        """The mean under p, over classes that have any mass."""
        counts = self.present & (p != 0)
        return self.sum(self.xp.where(counts, p * self.xp.where(counts, values, self.zero), 0.0))


def pull_softmax(at: Point, g: Array) -> Array:
    p = at.f("softmax")
    return at.only_present(p * (at.only_present(g) - at.mean(p, g)) * at.slope)


def pull_log_softmax(at: Point, g: Array) -> Array:
    g = at.only_present(g)
    return at.only_present((g - at.f("softmax") * at.sum(g)) * at.slope)


def pull_logsumexp(at: Point, g: Array) -> Array:
    return at.only_present(g * at.f("softmax") * at.inverse)


def pull_smoothmax(at: Point, g: Array) -> Array:
    return at.only_present(g * at.f("softmax"))


def pull_entropy(at: Point, g: Array) -> Array:
    return at.only_present(-g * surprise(at) * at.slope)


def pull_softargmax(at: Point, g: Array) -> Array:
    index = at.layout.indices(at.xp, at.x)
    return at.only_present(g * at.f("softmax") * (index - at.f("softargmax")) * at.slope)


def entropy_of(at: Point) -> Array:
    """The entropy; 0 where no class is there."""
    return at.xp.where(at.any(at.present), at.f("entropy"), at.zero)


def surprise(at: Point) -> Array:
    """p (log p + entropy): what entropy loses by a change of z."""
    p, xp = at.f("softmax"), at.xp
    some = at.present & (p != 0)
    log_p = xp.where(some, at.f("log_softmax"), at.zero)
    return xp.where(some, p * (log_p + at.f("entropy")), at.zero)


PULL = {
    "softmax": pull_softmax,
    "log_softmax": pull_log_softmax,
    "logsumexp": pull_logsumexp,
    "smoothmax": pull_smoothmax,
    "entropy": pull_entropy,
    "softargmax": pull_softargmax,
}


def pull_temperature(name: str, at: Point, g: Array, by_x: Array) -> Array:
    """The derivative by T, one for each row, given that by x."""
    if name == "smoothmax":
        return g * entropy_of(at)
    slope = at.inverse if name == "logsumexp" else at.slope
    change = -at.sum(by_x * at.centred) * slope
    if name == "logsumexp":  # the shift by the maximum shows here
        change = change - at.sum(by_x) * at.top * slope
    return change


def push(name: str, at: Point, dx: Array, dt: Array) -> Array:
    """The change of a function as x moves by dx and T by dt."""
    p = at.f("softmax")
    dx = at.only_present(dx)
    if name == "smoothmax":
        return at.mean(p, dx) + entropy_of(at) * dt
    slope = at.inverse if name == "logsumexp" else at.slope
    dz = at.only_present((dx - at.centred * (dt * slope)) * slope)
    if name == "logsumexp":
        return at.mean(p, dz) - at.top * slope * (dt * slope)
    if name == "softmax":
        return at.only_present(p * (dz - at.mean(p, dz)))
    if name == "log_softmax":
        return at.only_present(dz - at.mean(p, dz))
    if name == "entropy":
        return -at.sum(surprise(at) * dz)
    index = at.layout.indices(at.xp, at.x)
    return at.mean(p, (index - at.f("softargmax")) * dz)
