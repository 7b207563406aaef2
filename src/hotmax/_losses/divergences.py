"""How far two softmax distributions are apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import EVERYWHERE, NATIVE, dispatch, operation
from hotmax._core.arrays import FLOAT64, Array, Axis, split_mask
from hotmax._core.checks import (
    as_bool,
    check_reduction,
    in_type,
    reduce_values,
    scale_of_gradient,
)
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.losses.divergence import distillation_rows, divergence_rows
from hotmax._losses import generic_divergences


def _second_logits(second: object, name: str, plan: RowPlan, first_name: str) -> Array:
    """The other logits, absent where `where` says so; what is masked in them is absent in both."""
    array, present = split_mask(second, name)
    if array.shape != plan.shape:
        raise ValueError(
            f"{first_name} and {name} must have one shape, got {plan.shape} and {array.shape}"
        )
    if present is not None:
        plan.exclude(present)
    if plan.where is None:
        return array
    t = plan.temperatures
    negative = np.signbit(t[0] if t.size == 1 else t.reshape(plan.reduced_shape))
    return np.where(plan.where, array, np.where(negative, np.inf, -np.inf))


def _fill_masked_rows(values: Array, plan: RowPlan) -> None:
    """Two rows with nothing allowed by `where` do not differ."""
    empty_rows = plan.empty_rows
    if empty_rows is not None:
        values[empty_rows] = 0.0


@operation(EVERYWHERE, generic_divergences.kl_divergence, differentiable=("logits_p", "logits_q"))
def kl_divergence(
    logits_p: object,
    logits_q: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """The Kullback-Leibler divergence of two softmax distributions: sum of p log(p / q).

    It is never negative, and keeps its digits where p and q are nearly equal.

    Args:
        logits_p, logits_q: Logits of p and q, of one shape.
        axis, temperature, where: As in `softmax`, for both.
        reduction: "mean" (over rows), "sum", or "none" for a number for each row.
        return_grad: Also return a pair: the gradients with respect to logits_p and logits_q.

    Returns:
        The divergence in the float type of logits_p; inf if q has no mass where p has some.

    Example:
        >>> import hotmax as hm
        >>> float(hm.kl_divergence([0.0, 0.0], [0.0, 1e-9]))
        1.25e-19

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p, q: (p * np.log(p / q)).sum(-1).mean())(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True),
        np.exp(z / T) / np.exp(z / T).sum(-1, keepdims=True))
    """
    if type(logits_p) not in NATIVE:
        return dispatch(kl_divergence, locals())
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    plan = RowPlan(logits_p, axis, temperature, where, "logits_p")
    other = _second_logits(logits_q, "logits_q", plan, "logits_p")
    count = (float(plan.count), 0.0)
    scale = scale_of_gradient(reduction, count[0])
    values = np.zeros(plan.count)
    gradients = tuple(np.empty(plan.shape, plan.dtype) for _ in range(2 if return_grad else 0))
    none = np.empty((0, plan.classes))

    def visit(block: Block) -> None:
        grads = block.outs or (none, none)
        divergence_rows(
            block.x, *block.others, scale, values[block.rows], *grads, block.temperatures
        )

    plan.for_blocks(visit, FLOAT64, (other,), gradients)
    _fill_masked_rows(values, plan)
    value = reduce_values(values, reduction, count, plan.row_shape)
    value = in_type(value, plan.dtype)
    return (value, gradients) if return_grad else value


@operation(EVERYWHERE, generic_divergences.distillation_loss, differentiable=("student",))
def distillation_loss(
    student: object,
    teacher: object,
    temperature: object = 1.0,
    *,
    axis: Axis = -1,
    where: object = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """How far a student's distribution is from its teacher's: T^2 KL(teacher / T, student / T).

    The factor T^2 keeps the size of the gradient, T (q - p), the same whatever the temperature.
    As T grows, the loss tends to half the variance of the differences of logits, its value at inf;
    at 0 it is 0.

    Args:
        student, teacher: Logits of one shape. The teacher's are taken as fixed.
        temperature: As in `softmax`.
        axis, where: As in `softmax`, for both.
        reduction: "mean" (over rows), "sum", or "none" for a number for each row.
        return_grad: Also return the gradient with respect to the student's logits.

    Example:
        >>> import hotmax as hm
        >>> round(float(hm.distillation_loss([1.0, 2.0], [2.0, 1.0], temperature=4.0)), 6)
        0.497412
        >>> float(hm.distillation_loss([1.0, 2.0], [2.0, 1.0], temperature=float("inf")))
        0.5

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p, q: T**2 * (p * np.log(p / q)).sum(-1).mean())(
        np.exp(z / T) / np.exp(z / T).sum(-1, keepdims=True),
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))

    Reference:
        Hinton, Vinyals, Dean, Distilling the knowledge in a neural network, 2015.
    """
    if type(student) not in NATIVE:
        return dispatch(distillation_loss, locals())
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    plan = RowPlan(student, axis, temperature, where, "student")
    other = _second_logits(teacher, "teacher", plan, "student")
    count = (float(plan.count), 0.0)
    scale = scale_of_gradient(reduction, count[0])
    values = np.zeros(plan.count)
    gradient = np.empty(plan.shape, plan.dtype) if return_grad else None
    none = np.empty((0, plan.classes))

    def visit(block: Block) -> None:
        grads = block.outs[0] if block.outs else none
        distillation_rows(
            *block.others, block.x, scale, values[block.rows], grads, block.temperatures
        )

    plan.for_blocks(visit, FLOAT64, (other,), () if gradient is None else (gradient,))
    _fill_masked_rows(values, plan)
    value = reduce_values(values, reduction, count, plan.row_shape)
    value = in_type(value, plan.dtype)
    return (value, gradient) if return_grad else value
