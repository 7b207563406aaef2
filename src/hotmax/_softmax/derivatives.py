"""Every derivative of softmax: by its logits, by its temperature, and along a direction.

Logits, directions and temperatures may be of any size and sign: a derivative beyond the largest
number is inf, and no other result is. Probabilities, and products of them, below the smallest
number count as 0, whatever a tiny temperature would make of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._backends.operation import EVERYWHERE, NATIVE, dispatch, operation
from hotmax._core.arrays import FLOAT64, Array, Axis, fill_masked, result_or_out
from hotmax._core.rows import RowPlan
from hotmax._kernels.softmax.derivatives import (
    direction_rows,
    entropy_derivative_rows,
    hessian_rows,
    jacobian_rows,
    probability_rows,
    temperature_derivative_rows,
)
from hotmax._softmax import generic_derivatives


def _probabilities(plan: RowPlan) -> tuple[Array, Array]:
    """p and 1 - p as (rows, classes), in float64; both 0 where `where` excludes a class."""
    p, complements = np.zeros(plan.shape), np.zeros(plan.shape)
    plan.for_blocks(
        lambda block: probability_rows(block.x, *block.outs, block.temperatures),
        FLOAT64,
        outs=(p, complements),
    )
    return np.ascontiguousarray(plan.matrix(p)), np.ascontiguousarray(plan.matrix(complements))


def _tensor(
    kernel: Callable[..., None],
    order: int,
    x: object,
    axis: Axis,
    temperature: object,
    where: object,
) -> Any:
    """A derivative with `order` further dimensions for each row, over T^(order - 1)."""
    plan = RowPlan(x, axis, temperature, where)
    out = np.empty((plan.count, *(plan.classes,) * order))
    kernel(*_probabilities(plan), out)
    if plan.where is not None and plan.classes:  # a class that is excluded is 0 in rows of nan too
        absent = ~plan.matrix(plan.where)
        for axis in range(1, order + 1):
            np.moveaxis(out, axis, 1)[absent] = 0.0
    temperatures = plan.temperatures.reshape(-1, *(1,) * order)
    with np.errstate(all="ignore"):
        for _ in range(order - 1):
            np.divide(out, temperatures, out=out, where=out != 0.0)
        result = out.astype(plan.dtype, copy=False)
    return result.reshape(*plan.row_shape, *(plan.classes,) * order)


@operation(EVERYWHERE, generic_derivatives.softmax_jacobian, class_axes=2)
def softmax_jacobian(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """The derivatives of softmax by its logits: (diag(p) - p p^T) / T.

    It is symmetric and positive semidefinite, and its rows add up to 0.

    Args:
        x, axis, temperature, where: As in `softmax`. At temperature 0 it is 0, but for ties, where
            it is infinite; at inf it is 0.

    Returns:
        (..., n, n) in the float type of x: its dimensions without `axis`, and two of n classes.
        Several axes count as one, in C order.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax_jacobian([0.0, 0.0])
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: (p[..., None] * np.eye(x.shape[-1]) - p[..., None] * p[..., None, :]) / T)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(softmax_jacobian, locals())
    return _tensor(jacobian_rows, 2, x, axis, temperature, where)


@operation(EVERYWHERE, composed_of="softmax_jacobian")
def smoothmax_hessian(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """The second derivatives of `smoothmax`, T log sum exp(x / T): the Jacobian of softmax.

    Softmax is the gradient of smoothmax. (Those of `logsumexp`, without the T, are 1 / T of it.)

    Args:
        x, axis, temperature, where: As in `softmax_jacobian`, and so is the result.

    Example:
        >>> import hotmax as hm
        >>> hm.smoothmax_hessian([0.0, 0.0])
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: (p[..., None] * np.eye(x.shape[-1]) - p[..., None] * p[..., None, :]) / T)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    return softmax_jacobian(x, axis=axis, temperature=temperature, where=where)


@operation(EVERYWHERE, generic_derivatives.softmax_hessian, class_axes=3)
def softmax_hessian(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """The second derivatives of softmax: d^2 p[i] / dx[j] dx[k], the same in any order of i, j, k.

    p[i] ((d[ij] - p[j]) (d[ik] - p[k]) - p[j] (d[jk] - p[k])) / T^2, with d the identity.

    Args:
        x, axis, temperature, where: As in `softmax_jacobian`.

    Returns:
        (..., n, n, n) in the float type of x.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax_hessian([0.0, 1.0])[0].round(4)
        array([[ 0.0909, -0.0909],
               [-0.0909,  0.0909]])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p, d: p[..., None, None] * ((d[:, :, None] - p[..., None, :, None])
        * (d[:, None, :] - p[..., None, None, :])
        - p[..., None, :, None] * (d - p[..., None, None, :])) / T**2)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True), np.eye(x.shape[-1]))
    """
    if type(x) not in NATIVE:
        return dispatch(softmax_hessian, locals())
    return _tensor(hessian_rows, 3, x, axis, temperature, where)


def _along(
    x: object, vector: object, name: str, axis: Axis, temperature: object, where: object
) -> Any:
    plan = RowPlan(x, axis, temperature, where)
    direction = fill_masked(vector, name, 0.0)
    try:
        direction = np.broadcast_to(direction, plan.shape)
    except ValueError:
        raise ValueError(
            f"{name} must broadcast to the shape of x, {plan.shape}, got {direction.shape}"
        ) from None
    if plan.where is not None:  # what hides under the mask does not leak
        direction = np.where(plan.where, direction, 0)
    out = np.empty(plan.shape, plan.dtype)
    plan.for_blocks(
        lambda block: direction_rows(block.x, *block.others, *block.outs, block.temperatures),
        FLOAT64,
        (direction,),
        (out,),
    )
    return out if out.ndim else out[()]


@operation(EVERYWHERE, generic_derivatives.softmax_jvp)
def softmax_jvp(
    x: object,
    tangent: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
) -> Any:
    """How softmax changes as its logits move along a tangent: p (v - sum p v) / T.

    The Jacobian times v, without the Jacobian.

    Args:
        x, axis, temperature, where: As in `softmax`.
        tangent: v, which broadcasts to the shape of x.

    Returns:
        The derivative in the shape and float type of x.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax_jvp([0.0, 0.0], [1.0, 0.0])
        array([ 0.25, -0.25])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: p * (v - (p * v).sum(-1, keepdims=True)) / T)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(softmax_jvp, locals())
    return _along(x, tangent, "tangent", axis, temperature, where)


@operation(EVERYWHERE, generic_derivatives.softmax_vjp)
def softmax_vjp(
    x: object,
    cotangent: object,
    *,
    axis: Axis = -1,
    temperature: object = 1.0,
    where: object = None,
) -> Any:
    """A gradient by softmax turned into one by its logits: p (v - sum p v) / T.

    v times the Jacobian, without the Jacobian; since that is symmetric, the same as `softmax_jvp`.

    Args:
        x, axis, temperature, where: As in `softmax`.
        cotangent: v, which broadcasts to the shape of x.

    Returns:
        The gradient in the shape and float type of x.

    Example:
        >>> import hotmax as hm
        >>> hm.softmax_vjp([0.0, 0.0], [1.0, 0.0])
        array([ 0.25, -0.25])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: p * (v - (p * v).sum(-1, keepdims=True)) / T)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(softmax_vjp, locals())
    return _along(x, cotangent, "cotangent", axis, temperature, where)


@operation(EVERYWHERE, generic_derivatives.temperature_derivative)
def temperature_derivative(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """How softmax changes with its temperature: dp / dT = -p (x - sum p x) / T^2.

    Args:
        x, axis, temperature, where: As in `softmax`. At 0 and at inf it is 0, the limit.

    Returns:
        The derivative in the shape and float type of x.

    Example:
        >>> import hotmax as hm
        >>> hm.temperature_derivative([0.0, 1.0]).round(4)
        array([ 0.1966, -0.1966])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: -p * (x - (p * x).sum(-1, keepdims=True)) / T**2)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(temperature_derivative, locals())
    plan = RowPlan(x, axis, temperature, where)
    out = np.empty(plan.shape, plan.dtype)
    plan.for_blocks(
        lambda block: temperature_derivative_rows(block.x, *block.outs, block.temperatures),
        FLOAT64,
        outs=(out,),
    )
    return out if out.ndim else out[()]


@operation(EVERYWHERE, composed_of="temperature_derivative")
def entropy_gradient(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """The derivatives of softmax's entropy by its logits: -p (x - sum p x) / T^2.

    They are those of the probabilities by the temperature, `temperature_derivative`: entropy and
    probabilities are both derivatives of smoothmax, which may be taken in either order.

    Args:
        x, axis, temperature, where: As in `temperature_derivative`, and so is the result.

    Example:
        >>> import hotmax as hm
        >>> hm.entropy_gradient([0.0, 1.0]).round(4)
        array([ 0.1966, -0.1966])

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: -p * (x - (p * x).sum(-1, keepdims=True)) / T**2)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    return temperature_derivative(x, axis=axis, temperature=temperature, where=where)


@operation(EVERYWHERE, generic_derivatives.entropy_temperature_derivative, reduces=True)
def entropy_temperature_derivative(
    x: object, *, axis: Axis = -1, temperature: object = 1.0, where: object = None
) -> Any:
    """How softmax's entropy grows with its temperature: the variance of x under p, over T^3.

    Args:
        x, axis, temperature, where: As in `softmax`. At 0 and at inf it is 0, the limit.

    Returns:
        One number for each row, in the float type of x; never below 0 at a temperature above 0.

    Example:
        >>> import hotmax as hm
        >>> round(float(hm.entropy_temperature_derivative([0.0, 1.0])), 4)
        0.1966

    The same in NumPy, as long as nothing overflows or is lost:
        (lambda p: ((p * x**2).sum(-1) - (p * x).sum(-1) ** 2) / T**3)(
        np.exp(x / T) / np.exp(x / T).sum(-1, keepdims=True))
    """
    if type(x) not in NATIVE:
        return dispatch(entropy_temperature_derivative, locals())
    plan = RowPlan(x, axis, temperature, where)
    values = np.zeros(plan.count)
    plan.for_blocks(
        lambda block: entropy_derivative_rows(block.x, values[block.rows], block.temperatures),
        FLOAT64,
    )
    empty_rows = plan.empty_rows
    if empty_rows is not None:
        values[empty_rows] = 0.0
    return result_or_out(values, plan.row_shape, plan.dtype)
