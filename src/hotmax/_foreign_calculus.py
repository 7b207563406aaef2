"""Derivatives of softmax, and softmax over groups, on arrays of other libraries: see `_foreign`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._boundary import Axis
from hotmax._foreign import At, as_numpy, is_traced
from hotmax._softmax import logsumexp, softmax
from hotmax._targets import check_segments

Array = Any


def whole(at: At, tensor: Array, order: int) -> Array:
    return at.result(at.xp.reshape(tensor, (*at.layout.kept(), *(at.classes,) * order)))


def eye(at: At) -> Array:
    return at.constant(np.eye(at.classes, dtype=np.bool_))


def shares(at: At) -> tuple[Array, Array]:
    """p and 1 - p, as (..., n, 1): what the other classes have, added up."""
    xp, p = at.xp, at.chances()
    apart = xp.where(eye(at), at.zeros(p[..., None]), xp.expand_dims(p, axis=-2))
    return p, xp.sum(apart, axis=-1)


def jacobian(x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None) -> Array:
    at = At(x, axis, temperature, where)
    p, others = shares(at)
    down, across = at.xp.expand_dims(p, axis=-1), at.xp.expand_dims(p, axis=-2)
    own = at.xp.expand_dims(p * others, axis=-1)
    return whole(at, at.divided(at.xp.where(eye(at), own, -down * across)), 2)


def hessian(x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None) -> Array:
    at = At(x, axis, temperature, where)
    xp, (p, others) = at.xp, shares(at)
    down, across = xp.expand_dims(p, axis=-1), xp.expand_dims(p, axis=-2)
    off = xp.where(eye(at), xp.expand_dims(others, axis=-1), -across + at.zeros(down))  # d - p
    first, second = xp.expand_dims(off, axis=-1), xp.expand_dims(off, axis=-2)
    spread = xp.expand_dims(down * off, axis=-3)  # p[j] (d[jk] - p[k])
    tensor = xp.expand_dims(down, axis=-1) * (first * second - spread)
    return whole(at, at.divided(at.divided(tensor)), 3)


def along(x: Array, v: Any, axis: Axis, temperature: Any, where: Any, name: str) -> Array:
    at = At(x, axis, temperature, where)
    xp = at.xp
    v = xp.astype(at.constant(v), at.x.dtype)
    try:
        v = xp.broadcast_to(v, at.layout.shape)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"{name} must broadcast to the shape of x, {at.layout.shape}, got {tuple(v.shape)}"
        ) from None
    p, there = at.chances(), at.present()
    v = xp.where(there, at.rows(v), at.zeros(p))
    moved = p * (v - xp.sum(p * v, axis=-1, keepdims=True))
    return at.result(at.entries(at.divided(moved)))


def jvp(
    x: Array, tangent: Any, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    return along(x, tangent, axis, temperature, where, "tangent")


def vjp(
    x: Array, cotangent: Any, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    return along(x, cotangent, axis, temperature, where, "cotangent")


def centred(at: At) -> tuple[Array, Array]:
    """p, and x less its mean, 0 where there is no mass and at the limits of temperature."""
    xp, p, x = at.xp, at.chances(), at.rows(at.x)
    some = (p > 0) & (xp.abs(x) < math.inf)
    x = xp.where(some, x, at.zeros(x))
    top = xp.max(xp.where(some, x, at.zeros(x) - math.inf), axis=-1, keepdims=True)
    gap = xp.where(some, x - xp.where(xp.abs(top) < math.inf, top, at.zeros(top)), at.zeros(x))
    off = xp.where(some, gap - xp.sum(p * gap, axis=-1, keepdims=True), at.zeros(gap))
    t = at.heat()
    if isinstance(t, float):
        return p, off if 0.0 < abs(t) < math.inf else at.zeros(off)
    return p, xp.where((t != 0) & (xp.abs(t) < math.inf), off, at.zeros(off))


def temperature_derivative(
    x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    at = At(x, axis, temperature, where)
    p, off = centred(at)
    return at.result(at.entries(at.divided(at.divided(-p * off))))


def entropy_temperature_derivative(
    x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    at = At(x, axis, temperature, where)
    p, off = centred(at)
    scaled = at.divided(off)
    return at.result(at.xp.sum(at.divided(p * scaled * scaled), axis=-1))


def groups(x: Array, segment_ids: Any, num_segments: Any, axis: int) -> tuple[Any, ...]:
    """x with the entries of each group side by side, and which of these places are filled."""
    if is_traced(segment_ids):
        raise TypeError("segment_ids must be known, not traced: close over them instead")
    at = At(x, axis, 1.0, None)
    order, starts = check_segments(as_numpy(segment_ids), at.classes, num_segments)
    sizes = np.diff(starts)
    longest = int(sizes.max(initial=0))
    filled = np.arange(longest) < sizes[:, None]
    places = np.zeros(filled.shape, np.int64)
    places[filled] = order
    back = np.empty(order.size, np.int64)
    back[order] = np.flatnonzero(filled.reshape(-1))
    rows = at.xp.take(at.rows(at.x), at.constant(places.reshape(-1)), axis=-1)
    return at, at.xp.reshape(rows, (*at.layout.kept(), *filled.shape)), filled, places, back


def masked(at: At, where: Any, filled: Any, places: Any) -> Any:
    mask = at.constant(filled)
    if where is None:
        return mask
    given = at.rows(at.xp.broadcast_to(at.constant(where), at.layout.shape))
    chosen = at.xp.take(given, at.constant(places.reshape(-1)), axis=-1)
    return mask & at.xp.reshape(chosen, (*at.layout.kept(), *filled.shape))


def heat_of(at: At, temperature: Any) -> Any:
    at.temperature = temperature
    t = at.heat()
    return t if isinstance(t, float) else at.xp.expand_dims(t, axis=-1)


def segment_softmax(
    x: Array,
    segment_ids: Any,
    num_segments: int | None = None,
    axis: int = -1,
    temperature: Any = 1.0,
    where: Any = None,
) -> Array:
    at, rows, filled, places, back = groups(x, segment_ids, num_segments, axis)
    mask = masked(at, where, filled, places)
    p = softmax(rows, temperature=heat_of(at, temperature), where=mask)
    flat = at.xp.reshape(p, (*at.layout.kept(), filled.size))
    return at.result(at.entries(at.xp.take(flat, at.constant(back), axis=-1)))


def segment_logsumexp(
    x: Array,
    segment_ids: Any,
    num_segments: int | None = None,
    axis: int = -1,
    temperature: Any = 1.0,
    where: Any = None,
) -> Array:
    at, rows, filled, places, _ = groups(x, segment_ids, num_segments, axis)
    mask = masked(at, where, filled, places)
    sums = logsumexp(rows, temperature=heat_of(at, temperature), where=mask)
    return at.result(at.xp.moveaxis(sums, -1, at.layout.axes[0]))
