"""Losses of logits against labels or probabilities, with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import LABELS, NATIVE, dispatch, operation
from hotmax._core.arrays import FLOAT32, FLOAT64, Array, Axis, compute_type, fill_masked
from hotmax._core.checks import (
    as_bool,
    as_class_numbers,
    as_probabilities,
    as_smoothing,
    as_weight,
    check_reduction,
    fill_masked_rows,
    in_type,
    is_probabilities,
    reduce_values,
    scale_of_gradient,
    weights_in_range,
)
from hotmax._core.rows import Block, RowPlan
from hotmax._core.workspace import borrow, release
from hotmax._kernels.losses.cross_entropy import label_rows
from hotmax._kernels.losses.labels import count_labels
from hotmax._kernels.losses.lanes import label_lanes
from hotmax._kernels.losses.short import label_short
from hotmax._kernels.losses.targets import target_rows
from hotmax._kernels.softmax.lanes import LANES
from hotmax._kernels.softmax.overlapped import LONGEST_BUFFERED
from hotmax._kernels.softmax.short import SHORT
from hotmax._losses import generic


def label_losses(
    x: Array,
    labels: Array,
    weights: Array,
    smoothing: float,
    scale: float,
    values: Array,
    grads: Array,
    temperature: Array,
) -> None:
    """The losses of contiguous rows, in the calling thread; grads without rows are not wanted."""
    classes, options = x.shape[1], (weights, smoothing, scale, values, grads, temperature)
    if x.dtype == FLOAT32 and classes <= SHORT:
        label_short(x, labels, *options)
    elif classes <= SHORT:
        label_lanes(x, labels, *options, np.empty(classes * LANES))
    elif x.dtype == FLOAT32:
        exps = borrow("exps", min(classes, LONGEST_BUFFERED))
        label_rows(x, labels, *options, exps)
        release("exps", exps)
    else:
        label_rows(x, labels, *options, None)


def target_losses(
    x: Array,
    targets: Array,
    weights: Array,
    smoothing: float,
    scale: float,
    values: Array,
    grads: Array,
    temperature: Array,
) -> None:
    """The same against rows of probabilities, of the type of x."""
    options = (weights, smoothing, scale, values, grads, temperature)
    if x.dtype == FLOAT32 and x.shape[1] > SHORT:
        exps = borrow("exps", min(x.shape[1], LONGEST_BUFFERED))
        target_rows(x, targets, *options, exps)
        release("exps", exps)
    else:
        target_rows(x, targets, *options, None)


def _cross_entropy(
    plan: RowPlan,
    targets: object,
    weight: object,
    label_smoothing: object,
    ignore_index: object,
    reduction: object,
    return_grad: bool,
    gradient_type: np.dtype[Any] | None = None,
) -> tuple[Any, Array | None]:
    """(the loss in float64, its gradient in the type of the logits unless told)."""
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    smoothing = as_smoothing(label_smoothing)
    weights = np.empty(0) if weight is None else as_weight(weight, plan.classes)
    soft = is_probabilities(targets, plan.row_shape)
    kind = plan.compute_dtype
    if soft:
        probabilities = as_probabilities(targets, plan, ignore_index)
        kind = max(kind, compute_type(probabilities.dtype), key=lambda k: k.itemsize)
        count = (float(plan.count), 0.0)
    else:
        labels = as_class_numbers(targets, plan.row_shape, plan.classes, ignore_index)
        if weights.size:
            weights = weights_in_range(weights, labels, reduction)
        count = count_labels(labels, weights)
    if (smoothing or soft) and not weights.size:
        weights = np.ones(plan.classes)
    scale = scale_of_gradient(reduction, count[0])
    values = np.zeros(plan.count)
    gradient = np.empty(plan.shape, gradient_type or plan.dtype) if return_grad else None
    none = np.empty((0, plan.classes), kind)

    def visit(block: Block) -> None:
        grads = block.outs[0] if block.outs else none
        options = (weights, smoothing, scale, values[block.rows], grads, block.temperatures)
        if soft:
            target_losses(block.x, block.others[0], *options)
        else:
            label_losses(block.x, labels[block.rows], *options)

    others = (probabilities,) if soft else ()
    plan.for_blocks(visit, kind, others, () if gradient is None else (gradient,))
    if plan.where is not None:
        fill_masked_rows(values, plan)
    return reduce_values(values, reduction, count, plan.row_shape), gradient


def float64_losses(
    logits: object,
    targets: object,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    weight: object = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Array:
    """The cross entropy of each row, as it is before it is rounded to the type of the logits."""
    plan = RowPlan(logits, axis, temperature, where, "logits")
    losses: Array = _cross_entropy(
        plan, targets, weight, label_smoothing, ignore_index, "none", False
    )[0]
    return losses


@operation(LABELS, generic.cross_entropy, differentiable=("logits",), float64_losses=float64_losses)
def cross_entropy(
    logits: object,
    targets: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    weight: object = None,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """Cross entropy of softmax(logits / T) against targets: -sum y log p.

    It keeps all its digits where the right class is nearly certain, down to losses of 1e-300.

    Args:
        logits, axis, temperature, where: As in `softmax`.
        targets: Integers, the classes, in the shape of the logits without `axis`; or floats,
            probabilities, in the shape of the logits. A target without probability gives inf.
            Where torch has logits (N, C, d1, ...), the classes are axis=1; with C = d1 labels fit
            the last axis too, and nobody can tell: `hotmax.torch.CrossEntropyLoss` always takes 1.
        weight: A factor for each class.
        label_smoothing: s: the target is (1 - s) y + s / n over the n classes that are there. A
            class at -inf, or excluded by `where`, takes no part of it.
        ignore_index: Rows with this label count for nothing.
        reduction: "mean", "sum", or "none" for a loss for each row. A mean over labels is over the
            sum of their weights, one over probabilities is over the number of rows, and one over
            nothing (no rows, all ignored, weights of 0) is 0.
        return_grad: Also return the gradient with respect to the logits, computed in the same
            visit; with "none" it is that of the sum.

    Returns:
        The loss in the float type of the logits, or (loss, gradient).

    Example:
        >>> import hotmax as hm
        >>> float(hm.cross_entropy([0.0, -40.0], 0))
        4.248354255291589e-18
        >>> loss, gradient = hm.cross_entropy([[1.0, 2.0], [3.0, 1.0]], [0, 0], return_grad=True)
        >>> gradient.round(4)
        array([[-0.3655,  0.3655],
               [-0.0596,  0.0596]])

    The same in NumPy, as long as nothing overflows or is lost:
        (np.log(np.exp(x / T).sum(-1)) - x[np.arange(len(y)), y] / T).mean()
    """
    if type(logits) not in NATIVE:
        return dispatch(cross_entropy, locals())
    plan = RowPlan(logits, axis, temperature, where, "logits")
    value, gradient = _cross_entropy(
        plan, targets, weight, label_smoothing, ignore_index, reduction, return_grad
    )
    value = in_type(value, plan.dtype)
    return (value, gradient) if return_grad else value


@operation(LABELS, generic.perplexity, differentiable=("logits",), float64_losses=float64_losses)
def perplexity(
    logits: object,
    targets: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    ignore_index: int | None = None,
    return_grad: bool = False,
) -> Any:
    """exp of the mean cross entropy: the number of classes, equally likely, that it stands for.

    Args:
        logits, targets, axis, temperature, where, ignore_index: As in `cross_entropy`.
        return_grad: Also return the gradient with respect to the logits.

    Returns:
        One number, from 1 to inf; 1 if there is nothing to take the mean of.

    Example:
        >>> import hotmax as hm
        >>> round(float(hm.perplexity([[0.0, 0.0, 0.0]], [1])), 12)
        3.0

    The same in NumPy, as long as nothing overflows or is lost:
        np.exp((np.log(np.exp(x / T).sum(-1)) - x[np.arange(len(y)), y] / T).mean())
    """
    if type(logits) not in NATIVE:
        return dispatch(perplexity, locals())
    plan = RowPlan(logits, axis, temperature, where, "logits")
    gradient_type = plan.compute_dtype  # rounded once, after the product
    value, gradient = _cross_entropy(
        plan, targets, None, 0.0, ignore_index, "mean", return_grad, gradient_type
    )
    loss = value
    with np.errstate(over="ignore"):
        value = np.exp(loss)
    if gradient is None:
        return in_type(value, plan.dtype)
    with np.errstate(all="ignore"):
        if value == np.inf:  # a small derivative times exp(loss) may be a number; one of 0 stays 0
            powers = np.exp(np.log(np.abs(gradient.astype(FLOAT64))) + loss)
            product = np.where(gradient == 0.0, 0.0, np.copysign(powers, gradient))
        else:
            product = gradient * value
        return in_type(value, plan.dtype), product.astype(plan.dtype, copy=False)


@operation(LABELS, generic.nll_loss, differentiable=("log_probabilities",))
def nll_loss(
    log_probabilities: object,
    targets: object,
    *,
    axis: Axis = -1,
    weight: object = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """The negative log-likelihood of labels under log-probabilities, such as of `log_softmax`.

    Args:
        log_probabilities: Of any shape; they are taken as they are.
        targets: Integers, the classes, in the shape of log_probabilities without `axis`.
        axis, weight, ignore_index, reduction: As in `cross_entropy`.
        return_grad: Also return the gradient with respect to log_probabilities.

    Example:
        >>> import hotmax as hm
        >>> float(hm.nll_loss([[-0.5, -1.0], [-2.0, -0.25]], [0, 1]))
        0.375

    The same in NumPy:
        -x[np.arange(len(y)), y].mean()
    """
    if type(log_probabilities) not in NATIVE:
        return dispatch(nll_loss, locals())
    logs = fill_masked(log_probabilities, "log_probabilities", -np.inf)
    plan = RowPlan(logs, axis, name="log_probabilities")
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    weights = as_weight(weight, plan.classes)
    labels = as_class_numbers(targets, plan.row_shape, plan.classes, ignore_index)
    weights = weights_in_range(weights, labels, reduction)
    count = count_labels(labels, weights)
    scale = scale_of_gradient(reduction, count[0])
    counted = labels >= 0
    factors = np.where(counted, weights[labels] if weights.size else 1.0, 0.0)
    x3 = plan.grid(plan.x)
    positions = (*np.divmod(np.arange(plan.count), max(x3.shape[1], 1)), np.maximum(labels, 0))
    values = np.zeros(plan.count)
    if plan.classes:
        np.multiply(-x3[positions].astype(FLOAT64), factors, out=values, where=factors > 0.0)
    value = reduce_values(values, reduction, count, plan.row_shape)
    value = in_type(value, plan.dtype)
    if not return_grad:
        return value
    gradient3 = np.zeros(x3.shape, plan.dtype)
    if plan.classes:
        with np.errstate(all="ignore"):
            gradient3[positions] = -factors * scale
    gradient = np.empty(plan.shape, plan.dtype)
    plan.write_back(gradient3, gradient)
    return value, gradient
