"""Derivatives of softmax, and softmax over groups, on arrays of other libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._backends.derivatives import REACH
from hotmax._backends.layout import bits, type_name
from hotmax._backends.protocol import Array, is_traced, placement, values_of, widest_float
from hotmax._core.arrays import Axis
from hotmax._core.checks import check_segments
from hotmax._softmax.functions import logsumexp, softmax
from hotmax._softmax.generic_problem import LogitsProblem


def with_class_axes(at: LogitsProblem, tensor: Array, order: int) -> Array:
    return at.result(at.xp.reshape(tensor, (*at.layout.kept(), *(at.classes,) * order)))


def eye(at: LogitsProblem) -> Array:
    return at.constant(np.eye(at.classes, dtype=np.bool_))


def shares_and_rest(at: LogitsProblem) -> tuple[Array, Array]:
    """p, and 1 - p as the sum over the other classes, which keeps its digits."""
    xp, p = at.xp, at.probabilities()
    apart = xp.where(eye(at), at.zeros(p[..., None]), xp.expand_dims(p, axis=-2))
    return p, xp.sum(apart, axis=-1)


def softmax_jacobian(x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None) -> Array:
    at = LogitsProblem(x, axis, temperature, where)
    p, others = shares_and_rest(at)
    down, across = at.xp.expand_dims(p, axis=-1), at.xp.expand_dims(p, axis=-2)
    own = at.xp.expand_dims(p * others, axis=-1)
    tensor = at.divided(at.xp.where(eye(at), own, -down * across))
    return with_class_axes(at, of_allowed(at, tensor, 2), 2)


def of_allowed(at: LogitsProblem, tensor: Array, order: int) -> Array:
    """0 wherever one of the classes is excluded by `where`, in rows of nan too."""
    mask = at.mask()
    if mask is None:
        return tensor
    for axis in range(order):
        shape = (*mask.shape[:-1], *(at.classes if i == axis else 1 for i in range(order)))
        tensor = at.xp.where(at.xp.reshape(mask, shape), tensor, at.zeros(tensor))
    return tensor


def softmax_hessian(x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None) -> Array:
    at = LogitsProblem(x, axis, temperature, where)
    xp, (p, others) = at.xp, shares_and_rest(at)
    down, across = xp.expand_dims(p, axis=-1), xp.expand_dims(p, axis=-2)
    off = xp.where(eye(at), xp.expand_dims(others, axis=-1), -across + at.zeros(down))  # d - p
    first, second = xp.expand_dims(off, axis=-1), xp.expand_dims(off, axis=-2)
    covariance = xp.expand_dims(down * off, axis=-3)  # p[j] (d[jk] - p[k])
    tensor = xp.expand_dims(down, axis=-1) * (first * second - covariance)
    return with_class_axes(at, of_allowed(at, at.divided(at.divided(tensor)), 3), 3)


def directional_derivative(
    x: Array, v: Any, axis: Axis, temperature: Any, where: Any, name: str
) -> Array:
    at = LogitsProblem(x, axis, temperature, where)
    xp = at.xp
    v = at.constant(v)
    if type_name(v) not in ("float16", "bfloat16", "float32"):  # wider than x may be
        at.x = xp.astype(at.x, widest_float(xp, at.x))
    v = xp.astype(v, at.x.dtype)
    try:
        v = xp.broadcast_to(v, at.layout.shape)
    except (ValueError, RuntimeError):
        raise ValueError(
            f"{name} must broadcast to the shape of x, {at.layout.shape}, got {tuple(v.shape)}"
        ) from None
    p = at.probabilities()
    counts = at.present() & (p != 0)
    v = xp.where(counts, at.rows(v), at.zeros(p))
    unit = direction_unit(at, v)
    off = deviations(at, p, v * unit, counts)
    return at.result(at.entries(at.divided(p * off) / unit))


def direction_unit(at: LogitsProblem, v: Array) -> Array:
    """1, or a power of two that brings v to an ordinary size."""
    xp, reach = at.xp, REACH[bits(at.xp, v)]
    most = xp.max(xp.abs(v), axis=-1, keepdims=True) if at.classes else at.zeros(v)
    one = xp.ones_like(most)
    small = xp.where(most < reach.low, one * reach.root, one)
    return xp.where(most > reach.high, one / reach.root, small)


def deviations(at: LogitsProblem, p: Array, v: Array, counts: Array) -> Array:
    """v minus its mean under p, by differences from the likeliest class, to keep digits."""
    xp, none = at.xp, at.zeros(v)
    if not at.classes:
        return v
    first = xp.expand_dims(xp.argmax(xp.where(counts, p, none - 1.0), axis=-1), axis=-1)
    chosen = xp.arange(at.classes, **placement(p)) == first
    base = xp.sum(xp.where(chosen, v, none), axis=-1, keepdims=True)
    gap = xp.where(counts, v - base, none)
    return xp.where(counts, gap - xp.sum(p * gap, axis=-1, keepdims=True), none)


def softmax_jvp(
    x: Array, tangent: Any, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    return directional_derivative(x, tangent, axis, temperature, where, "tangent")


def softmax_vjp(
    x: Array, cotangent: Any, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    return directional_derivative(x, cotangent, axis, temperature, where, "cotangent")


def centred_logits(at: LogitsProblem) -> tuple[Array, Array, Array]:
    """(p, z, T): z is x / T minus its mean; 0 without mass, and at the limits, where T is 1."""
    xp, p, x, t = at.xp, at.probabilities(), at.rows(at.x), at.divisor()
    one = xp.ones_like(t)
    usual = (t != 0) & (xp.abs(t) < math.inf)
    t = xp.where(usual, t, one)
    counts = usual & (p != 0) & (xp.abs(x) < math.inf)
    quarter = xp.where(xp.abs(t) > 1, one / 4, one)  # differences of x may overflow
    off = deviations(at, p, xp.where(counts, x, at.zeros(x)) * quarter, counts)
    return p, off / (t * quarter), t


def temperature_derivative(
    x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    at = LogitsProblem(x, axis, temperature, where)
    p, z, t = centred_logits(at)
    return at.result(at.entries(-p * z / t))


def entropy_temperature_derivative(
    x: Array, axis: Axis = -1, temperature: Any = 1.0, where: Any = None
) -> Array:
    at = LogitsProblem(x, axis, temperature, where)
    p, z, t = centred_logits(at)
    xp = at.xp
    # The square of a tiny z is lost, where that over T need not be.
    is_tiny = xp.abs(z) < xp.finfo(z.dtype).smallest_normal ** 0.5
    tiny = xp.where(is_tiny, z, at.zeros(z))
    terms = xp.where(is_tiny, p * tiny * (tiny / t), p * z * z / t)
    return at.result(xp.sum(terms, axis=-1))


def groups(x: Array, segment_ids: Any, num_segments: Any, axis: int) -> tuple[Any, ...]:
    """x with the entries of each group side by side, and which positions are filled."""
    if is_traced(segment_ids):
        raise TypeError("segment_ids must be known, not traced: close over them instead")
    at = LogitsProblem(x, axis, 1.0, None)
    order, starts = check_segments(values_of(segment_ids), at.classes, num_segments)
    sizes = np.diff(starts)
    longest = int(sizes.max(initial=0))
    filled = np.arange(longest) < sizes[:, None]
    positions = np.zeros(filled.shape, np.int64)
    positions[filled] = order
    back = np.empty(order.size, np.int64)
    back[order] = np.flatnonzero(filled.reshape(-1))
    rows = at.xp.take(at.rows(at.x), at.constant(positions.reshape(-1)), axis=-1)
    return at, at.xp.reshape(rows, (*at.layout.kept(), *filled.shape)), filled, positions, back


def masked(at: LogitsProblem, where: Any, filled: Any, positions: Any) -> Any:
    mask = at.constant(filled)
    if where is None:
        return mask
    given = at.rows(at.xp.broadcast_to(at.constant(where), at.layout.shape))
    chosen = at.xp.take(given, at.constant(positions.reshape(-1)), axis=-1)
    return mask & at.xp.reshape(chosen, (*at.layout.kept(), *filled.shape))


def segment_temperature(at: LogitsProblem, temperature: Any) -> Any:
    at.temperature = temperature
    t = at.row_temperatures()
    return t if isinstance(t, float) else at.xp.expand_dims(t, axis=-1)


def segment_softmax(
    x: Array,
    segment_ids: Any,
    num_segments: int | None = None,
    axis: int = -1,
    temperature: Any = 1.0,
    where: Any = None,
) -> Array:
    at, rows, filled, positions, back = groups(x, segment_ids, num_segments, axis)
    mask = masked(at, where, filled, positions)
    p = softmax(rows, temperature=segment_temperature(at, temperature), where=mask)
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
    at, rows, filled, positions, _ = groups(x, segment_ids, num_segments, axis)
    mask = masked(at, where, filled, positions)
    sums = logsumexp(rows, temperature=segment_temperature(at, temperature), where=mask)
    return at.result(at.xp.moveaxis(sums, -1, at.layout.axes[0]) if at.layout.axes else sums)
