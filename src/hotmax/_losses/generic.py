"""Losses on arrays of other libraries: jax, torch, the array API.

Formulas over hotmax's own softmax and log_softmax of those arrays, which know their derivatives; so
these are differentiable too, and can be compiled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.layout import type_name
from hotmax._backends.protocol import (
    Array,
    is_traced,
    placement,
    stop_gradient,
    values_of,
    widest_float,
)
from hotmax._core.arrays import Axis, is_other_library, normalize_axes
from hotmax._core.checks import (
    as_class_numbers,
    as_gamma,
    as_integer,
    as_probabilities,
    as_smoothing,
    as_weight,
    check_reduction,
    class_count,
)
from hotmax._core.rows import RowPlan
from hotmax._softmax.generic_problem import (
    LogitsProblem,
    default_float,
    hot,
    in_compute_type,
    label_column,
    outside,
    quiet,
    reduced_losses,
    unknown,
)

NO_MASS = 800.0  # -log p of a class whose p is 0 in every type


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
    at = LogitsProblem(logits, axis, temperature, where)
    xp = at.xp
    kind = type_name(targets) if is_other_library(targets) else np.asarray(targets).dtype.name
    soft = "float" in kind
    if soft:
        w = weights_of(at, weight)
        if not is_traced(targets):
            plan = RowPlan(np.empty(at.layout.shape, np.bool_), axis)
            as_probabilities(values_of(targets), plan, ignore_index)
        y = at.rows(xp.astype(at.constant(targets), at.x.dtype))
        counted, count = None, float(math.prod(at.layout.kept()))
    else:
        labels, counted = label_column(at, targets, ignore_index)
        w = weights_of(at, weight, labels if reduction == "mean" else None)
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
    losses = shut_out(at, xp.sum(terms, axis=-1) + unknown(at, logs), math.inf)
    if counted is not None:
        losses = xp.where(outside(at, right, counted), at.zeros(losses) + math.nan, losses)
        losses = xp.where(counted, losses, at.zeros(losses))
    return reduced_losses(at, losses, reduction, count)


def weights_of(at: LogitsProblem, weight: Any, labels: Array | None = None) -> Array:
    """A weight for each class; 1 if there are none. While it is traced, its numbers are taken.

    `labels`: those of the rows, if the loss is divided by the sum of their weights. They are then
    scaled by a power of two, where that sum would overflow or lose bits in the type of the logits.
    """
    xp = at.xp
    if is_traced(weight):
        if tuple(weight.shape) != (at.classes,):
            raise ValueError(f"weight must have shape {(at.classes,)}, got {tuple(weight.shape)}")
        weights = xp.astype(weight, at.x.dtype)
        return weights if labels is None else over_largest(at, weights, labels)
    given = as_weight(None if weight is None else values_of(weight), at.classes)
    if not given.size:
        return xp.ones(at.classes, dtype=at.x.dtype, **placement(at.x))
    if labels is not None and not is_traced(labels):
        numbers = values_of(labels).reshape(-1)
        exponent = int(np.frexp(given[numbers[numbers >= 0]].max(initial=0.0))[1])
        if abs(exponent) > usual_exponents(at):
            with np.errstate(all="ignore"):
                given = np.minimum(np.ldexp(given, -exponent), float(xp.finfo(at.x.dtype).max))
    weights = xp.astype(at.constant(given), at.x.dtype)
    return (
        over_largest(at, weights, labels) if labels is not None and is_traced(labels) else weights
    )


def usual_exponents(at: LogitsProblem) -> int:
    """Weights between 2 to minus this and 2 to this are taken as they are."""
    return 60 if type_name(at.x) == "float32" else 500


def over_largest(at: LogitsProblem, weights: Array, labels: Array) -> Array:
    """Weights over the power of two next to the largest that counts, while values are traced."""
    xp, limit = at.xp, usual_exponents(at)
    used = xp.any(xp.reshape(hot(at, labels), (-1, at.classes)), axis=0)
    largest = stop_gradient(xp.max(xp.where(used, weights, xp.zeros_like(weights))))
    exponent = xp.floor(xp.log2(xp.where(largest > 0, largest, xp.ones_like(largest))))
    half = xp.where(xp.abs(exponent) > limit, -exponent / 2, xp.zeros_like(exponent))
    scale = 2.0 ** xp.floor(half)  # applied twice: once it might overflow
    return weights * scale * scale


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
        in_compute_type(logits), targets, axis, temperature, where, ignore_index=ignore_index
    )
    # Beyond the largest number the gradient is that of the largest: inf times 0 would be nan.
    limit = math.log(float(xp.finfo(loss.dtype).max))
    beyond = loss > limit
    finite = xp.where(beyond & xp.isinf(loss), xp.zeros_like(loss), loss)
    value = xp.exp(xp.where(beyond, finite - stop_gradient(finite) + (limit - 0.001), finite))
    return LogitsProblem(logits, axis, 1.0, None).result(xp.where(beyond, value + math.inf, value))


def nll_loss(
    log_probabilities: Array,
    targets: Any,
    axis: Axis = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    at = LogitsProblem(log_probabilities, axis, 1.0, None)
    xp = at.xp
    labels, counted = label_column(at, targets, ignore_index)
    w = weights_of(at, weight, labels if reduction == "mean" else None)
    right = hot(at, labels)
    amounts = xp.astype(right, at.x.dtype) * w
    some, logs = amounts > 0, at.rows(at.x)
    terms = xp.where(some, amounts * xp.where(some, -logs, at.zeros(logs)), at.zeros(logs))
    losses = xp.sum(terms, axis=-1)
    losses = xp.where(outside(at, right, counted), at.zeros(losses) + math.nan, losses)
    return reduced_losses(at, losses, reduction, xp.sum(amounts))


def of_right_class(
    logits: Array, targets: Any, axis: Axis, temperature: Any, where: Any, ignore_index: Any
) -> tuple[LogitsProblem, Array, Array, Array]:
    """(logits, which class is right, the probabilities of all, which rows count)."""
    at = LogitsProblem(logits, axis, temperature, where)
    labels, counted = label_column(at, targets, ignore_index)
    at.x = quiet(at, counted)
    right, p = hot(at, labels), at.probabilities()
    strange = at.xp.expand_dims(outside(at, right, counted), axis=-1)
    return at, right, at.xp.where(strange, at.zeros(p) + math.nan, p), counted


def finished(
    at: LogitsProblem, losses: Array, counted: Array, reduction: str, weights: Any = None
) -> Array:
    check_reduction(reduction)
    amounts = at.xp.astype(counted, losses.dtype)
    if weights is not None:
        amounts = amounts * weights
    some = amounts > 0
    losses = at.xp.where(some, amounts * losses, at.zeros(losses))
    return reduced_losses(at, losses, reduction, at.xp.sum(amounts))


def shut_out(at: LogitsProblem, losses: Array, value: float) -> Array:
    """The losses, with this value in rows with nothing allowed by `where`."""
    mask = at.mask()
    if mask is None or not at.classes:
        return losses
    none = ~at.xp.any(mask, axis=-1)
    return at.xp.where(none, at.zeros(losses) + value, losses)


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
    others = at.xp.sum(at.xp.where(right, at.zeros(p), p), axis=-1) + unknown(at, p)
    return finished(at, shut_out(at, others, 1.0), counted, reduction)


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
    losses = at.xp.sum(others**2, axis=-1) + missing**2 + unknown(at, p)
    return finished(at, shut_out(at, losses, 1.0), counted, reduction)


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
    power = as_gamma(gamma)
    at, right, p, counted = of_right_class(logits, targets, axis, temperature, where, ignore_index)
    xp, logs = at.xp, at.logs()
    others = xp.sum(xp.where(right, at.zeros(p), p), axis=-1)
    loss = xp.sum(xp.where(right, -logs, at.zeros(logs)), axis=-1)
    factors = None
    if weight is not None:
        labels, _ = label_column(at, targets, ignore_index)
        w = weights_of(at, weight, labels if reduction == "mean" else None)
        factors = xp.sum(xp.where(right, w, xp.zeros_like(w)), axis=-1)
    least = float(xp.finfo(at.x.dtype).smallest_normal)
    none = others <= least  # the derivative of others**gamma may be beyond all numbers there
    factor = xp.where(none, xp.ones_like(others), others) ** power
    # A class without mass moves nothing: its factor is a constant, or a gradient meets 0 * inf.
    factor = xp.where(loss > NO_MASS, stop_gradient(factor), factor)
    losses = xp.where(none, at.zeros(loss), factor * loss) if power else loss
    losses = losses + unknown(at, p)
    return finished(at, shut_out(at, losses, math.inf), counted, reduction, factors)


def one_hot(labels: Array, num_classes: int, axis: int = -1, name: str = "labels") -> Array:
    xp, count = array_namespace(labels), class_count(num_classes, "labels")
    (at,) = normalize_axes(as_integer(axis, "axis"), labels.ndim + 1)
    if not is_traced(labels):
        as_class_numbers(values_of(labels), tuple(labels.shape), count, None, name)
    numbers = xp.expand_dims(labels, axis=-1)
    hot = xp.astype(xp.arange(count, **placement(labels)) == numbers, default_float(xp))
    if is_traced(labels):
        hot = xp.where((numbers >= 0) & (numbers < count), hot, hot + math.nan)
    return xp.moveaxis(hot, -1, at)


def smooth_labels(
    targets: Array, label_smoothing: float, num_classes: int | None = None, axis: int = -1
) -> Array:
    smoothing = as_smoothing(label_smoothing)
    if "float" not in type_name(targets):
        count = class_count(num_classes, "targets")
        return (1.0 - smoothing) * one_hot(targets, count, axis, "targets") + smoothing / count
    at = LogitsProblem(targets, as_integer(axis, "axis"), 1.0, None)
    if not is_traced(targets):
        plan = RowPlan(np.empty(at.layout.shape, np.bool_), axis)
        as_probabilities(values_of(targets), plan)
    if num_classes is not None and num_classes != at.classes:
        raise ValueError(f"num_classes must be {at.classes}, that of targets, got {num_classes}")
    float64_targets = at.xp.astype(at.x, widest_float(at.xp, at.x))
    return at.result((1.0 - smoothing) * float64_targets + smoothing / at.classes)
