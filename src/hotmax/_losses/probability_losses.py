"""Losses of the probability of the right class, other than its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._backends.operation import LABELS, NATIVE, dispatch, operation
from hotmax._core.arrays import FLOAT64, Axis
from hotmax._core.checks import (
    as_bool,
    as_class_numbers,
    as_gamma,
    as_weight,
    check_reduction,
    fill_masked_rows,
    in_type,
    label_count,
    reduce_values,
    scale_of_gradient,
    weights_in_range,
)
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.losses.probability_losses import brier_rows, focal_rows, mae_rows
from hotmax._losses import generic


def _loss(
    kernel: Callable[..., None],
    logits: object,
    targets: object,
    axis: Axis,
    temperature: object,
    where: object,
    ignore_index: object,
    reduction: object,
    return_grad: bool,
    empty: float,
    weight: object = None,
    parameters: tuple[float, ...] = (),
) -> Any:
    """A loss of float64 rows; `empty` is that of a row with nothing allowed by `where`."""
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    plan = RowPlan(logits, axis, temperature, where, "logits")
    weights = as_weight(weight, plan.classes)
    labels = as_class_numbers(targets, plan.row_shape, plan.classes, ignore_index)
    weights = weights_in_range(weights, labels, reduction)
    count = label_count(labels, weights)
    scale = scale_of_gradient(reduction, count[0])
    values = np.zeros(plan.count)
    gradient = np.empty(plan.shape, plan.dtype) if return_grad else None
    none = np.empty((0, plan.classes))
    given = (weights, *parameters) if parameters else ()

    def visit(block: Block) -> None:
        grads, rows = block.outs[0] if block.outs else none, block.rows
        kernel(block.x, labels[rows], *given, scale, values[rows], grads, block.temperatures)

    plan.for_blocks(visit, FLOAT64, outs=() if gradient is None else (gradient,))
    if plan.where is not None:
        fill_masked_rows(values, plan, empty)
    value = reduce_values(values, reduction, count, plan.row_shape)
    value = in_type(value, plan.dtype)
    return (value, gradient) if return_grad else value


@operation(LABELS, generic.mae_loss, differentiable=("logits",))
def mae_loss(
    logits: object,
    targets: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """The probability that is not on the right class: 1 - p[y].

    It is half the absolute difference from the one-hot target. Its gradient at the right class is
    -p (1 - p) / T: it vanishes where the answer is right, and also where it is confidently wrong,
    so that such a row is hardly learnt from.

    Args:
        logits, targets, axis, temperature, where, ignore_index: As in `cross_entropy`; targets are
            labels.
        reduction, return_grad: As in `cross_entropy`.

    Example:
        >>> import hotmax as hm
        >>> float(hm.mae_loss([0.0, -40.0], 0))
        4.248354255291589e-18
        >>> loss, gradient = hm.mae_loss([0.0, 40.0], 0, return_grad=True)
        >>> float(loss), gradient
        (1.0, array([-4.24835426e-18,  4.24835426e-18]))

    The same in NumPy, as long as nothing overflows or is lost:
        (1 - (np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))[np.arange(len(y)), y]).mean()
    """
    if type(logits) not in NATIVE:
        return dispatch(mae_loss, locals())
    return _loss(
        mae_rows, logits, targets, axis, temperature, where, ignore_index, reduction, return_grad,
        empty=1.0,
    )  # fmt: skip


@operation(LABELS, generic.brier_loss, differentiable=("logits",))
def brier_loss(
    logits: object,
    targets: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """The Brier score: the squared distance of p from the one-hot target, from 0 to 2.

    Args:
        logits, targets, axis, temperature, where, ignore_index: As in `cross_entropy`; targets are
            labels.
        reduction, return_grad: As in `cross_entropy`.

    Example:
        >>> import hotmax as hm
        >>> float(hm.brier_loss([[0.0, 0.0]], [1]))
        0.5

    The same in NumPy, as long as nothing overflows or is lost:
        ((np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True) - np.eye(x.shape[-1])[y]) ** 2
        ).sum(-1).mean()

    Reference:
        Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    if type(logits) not in NATIVE:
        return dispatch(brier_loss, locals())
    return _loss(
        brier_rows, logits, targets, axis, temperature, where, ignore_index, reduction, return_grad,
        empty=1.0,
    )  # fmt: skip


@operation(LABELS, generic.focal_loss, differentiable=("logits",))
def focal_loss(
    logits: object,
    targets: object,
    *,
    gamma: float = 2.0,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    weight: object = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """Cross entropy that easy rows hardly count in: -(1 - p[y])^gamma log p[y].

    Args:
        gamma: At least 0; 0 is cross entropy.
        logits, targets, axis, temperature, where, ignore_index: As in `cross_entropy`; targets are
            labels.
        weight, reduction, return_grad: As in `cross_entropy`.

    Example:
        >>> import hotmax as hm
        >>> round(float(hm.focal_loss([[0.0, 0.0]], [1])), 6)
        0.173287

    The same in NumPy, as long as nothing overflows or is lost, for gamma = 2:
        (lambda p: -((1 - p) ** 2 * np.log(p)).mean())(
        (np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))[np.arange(len(y)), y])

    Reference:
        Lin et al., Focal loss for dense object detection, 2017.
    """
    if type(logits) not in NATIVE:
        return dispatch(focal_loss, locals())
    power = as_gamma(gamma)
    return _loss(
        focal_rows, logits, targets, axis, temperature, where, ignore_index, reduction, return_grad,
        empty=np.inf, weight=weight, parameters=(power,),
    )  # fmt: skip
