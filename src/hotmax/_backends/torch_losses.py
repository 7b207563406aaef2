"""Gradients of cross entropy and other losses in autograd, handed over from their kernels.

The kernels in `_kernels/losses/` give a loss and its gradient in one pass; `Fused` hands them to
autograd. Second derivatives, and derivatives by the temperature, are torch's own of the generic
formula.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from hotmax._backends import torch_tensors as tensors
from hotmax._backends.layout import own_copy
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._core.arrays import is_other_library, normalize_axes

IMMUTABLE = (type(None), bool, int, float, str)


def has_fused_gradient(
    operation: ArrayOperation, arguments: Arguments, needs: list[torch.Tensor]
) -> bool:
    """Does `return_grad` give all derivatives that are needed?"""
    points = [arguments[name] for name in operation.differentiable]
    if not operation.rowwise and arguments["reduction"] == "none":
        return False
    return all(any(t is p for p in points) for t in needs)


def run_fused(operation: ArrayOperation, arguments: Arguments, return_grad: bool) -> Any:
    """The loss, and in the same visit its gradient, which autograd keeps."""
    found = tensors.by_kernel(operation, arguments, True)
    points = [arguments[name] for name in operation.differentiable]
    value: Any = Fused.apply(found, operation, arguments, *points)
    return (value, unshared(found[1])) if return_grad else value


def unshared(gradient: Any) -> Any:
    """A copy of the gradient: changes in place must not reach the one kept for backward."""
    if isinstance(gradient, tuple):
        return tuple(None if part is None else part.clone() for part in gradient)
    return gradient.clone()


def save(ctx: Any, arguments: Arguments, *more: Any) -> None:
    """Keep the arguments of a call, and further tensors, for its backward pass.

    autograd notices if one of its saved tensors is changed in place, and refuses to use it. It
    cannot do so for anything else that may change, which is copied.
    """
    tensors, constants = {}, {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        else:
            constants[name] = value if type(value) in IMMUTABLE else snapshot(value)
    ctx.names, ctx.constants = tuple(tensors), constants
    ctx.save_for_backward(*tensors.values(), *more)


def saved(ctx: Any) -> tuple[Arguments, tuple[Any, ...]]:
    """(the arguments, the further tensors) of `save`."""
    tensors = ctx.saved_tensors  # read once: checkpoints allow no second time
    named = dict(zip(ctx.names, tensors, strict=False))
    return {**ctx.constants, **named}, tensors[len(named) :]


def snapshot(value: Any) -> Any:
    """A value that no longer changes with the one that was given."""
    if isinstance(value, np.ma.MaskedArray):
        return value.copy()
    if isinstance(value, np.ndarray):
        return own_copy(value)
    if isinstance(value, list | tuple):
        return copy.deepcopy(value)
    if not is_other_library(value) and hasattr(value, "__array__"):  # a column of pandas
        return np.array(value)
    return value


def with_gradient(operation: ArrayOperation, arguments: Arguments, needed: bool) -> Any:
    """(value, gradient of its sum), by torch's own derivative of the formula.

    `needed`: the value itself is to be differentiated later.
    """
    formula, by = operation.formula, operation.differentiable
    assert formula is not None
    first = arguments[by[0]]
    names = [name for name in by if arguments[name] is not None]
    with torch.enable_grad():
        points = {}
        for name in names:
            point = arguments[name]
            if not isinstance(point, torch.Tensor):
                point = torch.tensor(np.asarray(point), device=first.device)
            learned = needed and point.requires_grad
            points[name] = point if learned else point.detach().requires_grad_()
        value = formula(**{**arguments, **points})
        gradients = torch.autograd.grad(value.sum(), list(points.values()), retain_graph=needed)
    found = dict(zip(names, gradients, strict=True))
    every = tuple(found.get(name) for name in by)
    return value if needed else value.detach(), every if len(every) > 1 else every[0]


class Fused(torch.autograd.Function):
    """A loss whose gradient is computed in the same visit; the second derivative by the formula."""

    @staticmethod
    def forward(
        ctx: Any,
        found: tuple[Any, Any],
        operation: ArrayOperation,
        arguments: Arguments,
        *points: Any,
    ) -> Any:
        """`found`: the loss and its gradients. `points`: what it is differentiated by."""
        value, gradients = found
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        ctx.operation = operation
        save(ctx, arguments, *gradients)
        return value

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        arguments, gradients = saved(ctx)
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            return (None,) * 3 + differentiable_gradients(ctx.operation, arguments, needed, g)
        if g.ndim:
            g = along_classes(g, arguments[ctx.operation.first], arguments.get("axis", -1))
        return (None,) * 3 + tuple(
            gradient * g if need and gradient is not None else None
            for gradient, need in zip(gradients, needed, strict=True)
        )


def differentiable_gradients(
    operation: ArrayOperation, arguments: Arguments, needed: Any, g: Any
) -> tuple[Any, ...]:
    """The gradients as functions that can be differentiated: those of the formula."""
    assert operation.formula is not None
    wanted = zip(operation.differentiable, needed, strict=True)
    value = operation.formula(**arguments)
    points = [arguments[name] for name, need in wanted if need]
    found = iter(torch.autograd.grad(value, points, g, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def along_classes(g: torch.Tensor, x: torch.Tensor, axis: Any) -> torch.Tensor:
    """A number for each row, in a shape that broadcasts against x."""
    axes = normalize_axes(axis, x.ndim)
    return g.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
