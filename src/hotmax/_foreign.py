"""Losses and derivatives of softmax on arrays of other libraries: jax, torch, the array API.

Formulas over hotmax's own softmax and log_softmax of those arrays, which know their derivatives; so
these are differentiable too, and can be compiled. Targets are checked if their values are known;
while jax traces a function they are not, and a label out of range makes its loss nan.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._boundary import Axis, Rows, library_of
from hotmax._generic import Layout, place, type_name
from hotmax._softmax import log_softmax, softmax
from hotmax._targets import (
    as_class_numbers,
    as_probabilities,
    as_smoothing,
    as_weight,
    check_reduction,
)

Array = Any


def is_traced(array: Any) -> bool:
    """Is this a stand-in for values that are not known yet?"""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.core.Tracer)


def as_numpy(array: Any) -> Any:
    """The values of an array of any library, where NumPy can read them."""
    if library_of(array) == "torch":
        array = array.detach().cpu()
        return (array.float() if type_name(array) == "bfloat16" else array).numpy()
    return np.asarray(array)


def widened(x: Array) -> Array:
    """Half precision as float32, integers as floats."""
    xp, kind = array_namespace(x), type_name(x)
    if kind in ("float16", "bfloat16"):
        return xp.astype(x, xp.float32)
    if kind in ("float32", "float64"):
        return x
    return xp.astype(x, xp.asarray(1.0).dtype)


class At:
    """Logits as rows of classes, their log-probabilities, and which classes are there."""

    def __init__(self, x: Array, axis: Axis, temperature: Any, where: Any) -> None:
        self.xp = array_namespace(x)
        self.given = x
        self.x = widened(x)
        self.axis, self.temperature, self.where = axis, temperature, where
        self.layout = Layout(tuple(x.shape), axis)
        self.classes = self.layout.classes

    def rows(self, array: Array) -> Array:
        return self.layout.rows(self.xp, array)

    def entries(self, rows: Array) -> Array:
        return self.layout.entries(self.xp, rows)

    def constant(self, array: Any) -> Array:
        """An array from elsewhere, as one of this library, on the same device."""
        if library_of(array) is None:
            return self.xp.asarray(np.asarray(array), **place(self.x))
        return array

    def heat(self) -> Any:
        """The temperature: a number, or an array of length 1 along the classes."""
        t = self.temperature
        if library_of(t) is None:
            t = np.asarray(t, np.float64)
            if t.size == 1:
                return float(t.reshape(()))
        t = self.xp.astype(self.constant(t), self.x.dtype)
        spread = self.xp.broadcast_to(t, self.layout.reduced)
        return self.layout.rows(self.xp, spread, 1)

    def mask(self) -> Array | None:
        if self.where is None:
            return None
        return self.rows(self.xp.broadcast_to(self.constant(self.where), self.layout.shape))

    def present(self) -> Array:
        t = self.heat()
        if isinstance(t, float):
            there = self.rows(self.x) != -math.copysign(math.inf, t)
        else:
            limits = self.xp.where(t < 0, self.xp.ones_like(t), -self.xp.ones_like(t)) * math.inf
            there = self.rows(self.x) != limits
        mask = self.mask()
        return there if mask is None else there & mask

    def options(self) -> dict[str, Any]:
        return {"axis": self.axis, "temperature": self.temperature, "where": self.where}

    def logs(self) -> Array:
        return self.rows(log_softmax(self.x, **self.options()))

    def chances(self) -> Array:
        return self.rows(softmax(self.x, **self.options()))

    def zeros(self, like: Array) -> Array:
        return self.xp.zeros_like(like)

    def result(self, value: Array) -> Array:
        """In the type that the logits came in."""
        kind = self.given.dtype if "float" in type_name(self.given) else value.dtype
        return value if value.dtype == kind else self.xp.astype(value, kind)

    def divided(self, v: Array) -> Array:
        """v / T; 0 if v is, at T = 0 too."""
        t, xp = self.heat(), self.xp
        nothing = v == 0
        if isinstance(t, float):
            inverse = math.copysign(math.inf, t) if t == 0.0 else 1.0 / t
            return xp.where(nothing, self.zeros(v), xp.where(nothing, xp.ones_like(v), v) * inverse)
        t = xp.reshape(t, (*t.shape, *(1,) * (v.ndim - t.ndim)))
        return xp.where(nothing, self.zeros(v), v / t)


def labels_of(at: At, targets: Any, ignore_index: Any) -> tuple[Array, Array]:
    """(class numbers as (..., 1), which of them count); a number out of range is -1."""
    shape = at.layout.kept()
    if is_traced(targets):
        labels = targets
        known = (labels >= 0) & (labels < at.classes)
        counted = at.xp.ones_like(known) if ignore_index is None else labels != ignore_index
        labels = at.xp.where(known, labels, -at.xp.ones_like(labels))
    else:
        numbers = as_class_numbers(as_numpy(targets), shape, at.classes, ignore_index)
        labels = at.constant(numbers.reshape(shape))
        counted = labels >= 0
    return at.xp.expand_dims(labels, axis=-1), counted


def hot(at: At, labels: Array) -> Array:
    """True at the class of each label."""
    device = place(at.x)
    return at.xp.arange(at.classes, **device) == labels


def reduced(at: At, losses: Array, reduction: str, count: Any) -> Array:
    if reduction == "none":
        return at.result(losses)
    total = at.xp.sum(losses)
    if reduction == "mean":
        if isinstance(count, float):
            total = total / count if count else total * 0.0
        else:
            some = count > 0
            one = at.xp.ones_like(count)
            total = at.xp.where(
                some, total / at.xp.where(some, count, one), at.xp.zeros_like(total)
            )
    return at.result(total)


def cross_entropy(
    logits: Array,
    targets: Any,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    weight: Any = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    smoothing = as_smoothing(label_smoothing)
    at = At(logits, axis, temperature, where)
    xp = at.xp
    weights = as_weight(None if weight is None else as_numpy(weight), at.classes)
    w = xp.astype(at.constant(weights if weights.size else np.ones(at.classes)), at.x.dtype)
    kind = type_name(targets) if library_of(targets) else np.asarray(targets).dtype.name
    if "float" in kind:
        if not is_traced(targets):
            rows = Rows(np.empty(at.layout.shape, np.bool_), axis, 1.0, None)
            as_probabilities(as_numpy(targets), rows, ignore_index)
        y = at.rows(xp.astype(at.constant(targets), at.x.dtype))
        counted, count = None, float(math.prod(at.layout.kept()))
    else:
        labels, counted = labels_of(at, targets, ignore_index)
        right = hot(at, labels)
        y = xp.astype(right, at.x.dtype)
        count = xp.sum(xp.where(counted, xp.sum(y * w, axis=-1), 0.0 * xp.sum(y, axis=-1)))
        at.x = quiet(at, counted)
    logs, present = at.logs(), at.present()
    amounts = (1.0 - smoothing) * w * y
    if smoothing:
        there = xp.astype(present, at.x.dtype)
        number = xp.sum(there, axis=-1, keepdims=True)
        amounts = amounts + smoothing * w * there / xp.where(number > 0, number, number + 1.0)
    some = amounts > 0
    terms = xp.where(some, amounts * xp.where(some, -logs, at.zeros(logs)), at.zeros(logs))
    losses = xp.sum(terms, axis=-1) + unknown(at, logs)
    if counted is not None:
        outside = counted & ~xp.any(right, axis=-1)
        losses = xp.where(outside, at.zeros(losses) + math.nan, losses)
        losses = xp.where(counted, losses, at.zeros(losses))
    return reduced(at, losses, reduction, count)


def quiet(at: At, counted: Array) -> Array:
    """The logits with 0 in the rows that are ignored, so that nothing in them shows."""
    kept = at.xp.reshape(counted, at.layout.reduced)
    return at.xp.where(kept, at.x, at.zeros(at.x))


def unknown(at: At, logs: Array) -> Array:
    """nan for rows that are nan, though their target may have no weight; else 0."""
    bad = at.xp.any(logs != logs, axis=-1)
    zero = at.xp.zeros(bad.shape, dtype=logs.dtype, **place(at.x))
    return at.xp.where(bad, zero + math.nan, zero)


def perplexity(
    logits: Array,
    targets: Any,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    ignore_index: int | None = None,
) -> Array:
    xp = array_namespace(logits)
    loss = cross_entropy(
        widened(logits), targets, axis, temperature, where, ignore_index=ignore_index
    )
    return At(logits, axis, 1.0, None).result(xp.exp(loss))


def nll_loss(
    log_probabilities: Array,
    targets: Any,
    axis: Axis = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    at = At(log_probabilities, axis, 1.0, None)
    xp = at.xp
    weights = as_weight(None if weight is None else as_numpy(weight), at.classes)
    w = xp.astype(at.constant(weights if weights.size else np.ones(at.classes)), at.x.dtype)
    labels, _ = labels_of(at, targets, ignore_index)
    amounts = xp.astype(hot(at, labels), at.x.dtype) * w
    some, logs = amounts > 0, at.rows(at.x)
    terms = xp.where(some, amounts * xp.where(some, -logs, at.zeros(logs)), at.zeros(logs))
    return reduced(at, xp.sum(terms, axis=-1), reduction, xp.sum(amounts))


def of_right_class(
    logits: Array, targets: Any, axis: Axis, temperature: Any, where: Any, ignore_index: Any
) -> tuple[At, Array, Array, Array]:
    """(logits, which class is right, the chances of all, which rows count)."""
    at = At(logits, axis, temperature, where)
    labels, counted = labels_of(at, targets, ignore_index)
    at.x = quiet(at, counted)
    return at, hot(at, labels), at.chances(), counted


def finished(at: At, losses: Array, counted: Array, reduction: str, weights: Any = None) -> Array:
    check_reduction(reduction)
    amounts = at.xp.astype(counted, losses.dtype)
    if weights is not None:
        amounts = amounts * weights
    some = amounts > 0
    losses = at.xp.where(some, amounts * losses, at.zeros(losses))
    return reduced(at, losses, reduction, at.xp.sum(amounts))


def mae_loss(
    logits: Array,
    targets: Any,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    at, right, p, counted = of_right_class(logits, targets, axis, temperature, where, ignore_index)
    others = at.xp.sum(at.xp.where(right, at.zeros(p), p), axis=-1)
    return finished(at, others, counted, reduction)


def brier_loss(
    logits: Array,
    targets: Any,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    at, right, p, counted = of_right_class(logits, targets, axis, temperature, where, ignore_index)
    others = at.xp.where(right, at.zeros(p), p)
    missing = at.xp.sum(others, axis=-1)
    return finished(at, at.xp.sum(others**2, axis=-1) + missing**2, counted, reduction)


def focal_loss(
    logits: Array,
    targets: Any,
    gamma: float = 2.0,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    at, right, p, counted = of_right_class(logits, targets, axis, temperature, where, ignore_index)
    xp, logs = at.xp, at.logs()
    others = xp.sum(xp.where(right, at.zeros(p), p), axis=-1)
    loss = xp.sum(xp.where(right, -logs, at.zeros(logs)), axis=-1)
    weights = as_weight(None if weight is None else as_numpy(weight), at.classes)
    factors = None
    if weights.size:
        w = xp.astype(at.constant(weights), at.x.dtype)
        factors = xp.sum(xp.where(right, w, xp.zeros_like(w)), axis=-1)
    return finished(at, others**gamma * loss, counted, reduction, factors)


def divergences(first: At, second: At) -> Array:
    """KL of every row."""
    xp, p = first.xp, first.chances()
    some = p > 0
    gap = xp.where(some, first.logs(), first.zeros(p)) - xp.where(
        some, second.logs(), first.zeros(p)
    )
    return xp.sum(xp.where(some, p * gap, first.zeros(p)), axis=-1)


def kl_divergence(
    logits_p: Array,
    logits_q: Array,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    same_shape(logits_p, logits_q, "logits_p", "logits_q")
    first = At(logits_p, axis, temperature, where)
    second = At(first.constant(logits_q), axis, temperature, where)
    count = float(math.prod(first.layout.kept()))
    return reduced(first, divergences(first, second), reduction, count)


def same_shape(a: Array, b: Array, first: str, second: str) -> None:
    if tuple(a.shape) != tuple(np.shape(b)):
        raise ValueError(
            f"{first} and {second} must have one shape, got {tuple(a.shape)} and {np.shape(b)}"
        )


def distillation_loss(
    student: Array,
    teacher: Array,
    temperature: Any = 1.0,
    axis: Axis = -1,
    where: Any = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    same_shape(student, teacher, "student", "teacher")
    at = At(student, axis, temperature, where)
    fixed = At(held(at.constant(teacher)), axis, temperature, where)
    xp, t = at.xp, at.heat()
    count = float(math.prod(at.layout.kept()))
    if isinstance(t, float) and abs(t) == math.inf:
        there = at.present() & fixed.present()
        number = xp.sum(xp.astype(there, at.x.dtype), axis=-1, keepdims=True)
        gap = xp.where(there, at.rows(at.x) - fixed.rows(fixed.x), at.zeros(at.rows(at.x)))
        off = xp.where(there, gap - xp.sum(gap, axis=-1, keepdims=True) / number, at.zeros(gap))
        losses = xp.sum(off**2 / (2.0 * number), axis=-1)
    elif isinstance(t, float) and t == 0.0:
        losses = xp.sum(at.zeros(at.rows(at.x)), axis=-1)
    else:
        squared = t * t if isinstance(t, float) else xp.squeeze(t * t, axis=-1)
        losses = divergences(fixed, at) * squared
    return reduced(at, losses, reduction, count)


def held(array: Array) -> Array:
    """The array as a constant, which no derivative goes through."""
    if library_of(array) == "torch":
        return array.detach()
    if library_of(array) == "jax":
        import jax

        return jax.lax.stop_gradient(array)
    return array


def linear_cross_entropy(
    hidden: Array,
    weight: Array,
    targets: Any,
    bias: Any = None,
    temperature: Any = 1.0,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """All logits at once: the library's own compiler has to save the memory."""
    xp = array_namespace(hidden)
    logits = xp.matmul(hidden, xp.permute_dims(weight, (1, 0)))
    if bias is not None:
        logits = logits + bias
    return cross_entropy(
        logits,
        targets,
        temperature=temperature,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
        reduction=reduction,
    )
