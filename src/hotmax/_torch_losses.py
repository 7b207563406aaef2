"""Losses and derivatives of torch tensors: on the CPU by the kernels, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotmax._boundary import normalize_axes
from hotmax._libraries.torch import is_direct

Arguments = dict[str, Any]


def tensors_in(arguments: Arguments) -> list[torch.Tensor]:
    return [a for a in arguments.values() if isinstance(a, torch.Tensor)]


def as_numpy(tensor: torch.Tensor) -> Any:
    """NumPy has no bfloat16: the kernels compute in float32 anyway."""
    tensor = tensor.detach()
    return tensor.float().numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy()


def as_tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    array = np.asarray(array)
    if not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if dtype is torch.bfloat16 else tensor


def run(
    function: Callable[..., Any],
    formula: Callable[..., Any],
    by: tuple[str, ...],
    arguments: Arguments,
    return_grad: bool,
) -> Any:
    needs = torch.is_grad_enabled() and [t for t in tensors_in(arguments) if t.requires_grad]
    points = [arguments[name] for name in by]
    beyond = needs and not all(any(t is p for p in points) for t in needs)
    apart = by[:1] == ("hidden",) and arguments["reduction"] == "none"  # no gradient for each row
    if not all(is_direct(t) for t in tensors_in(arguments)) or beyond or (needs and apart):
        if return_grad:
            return with_gradient(formula, by, arguments)
        return formula(**arguments)
    if not needs:
        return by_kernel(function, by, arguments, return_grad)
    value: Any = Fused.apply(function, formula, by, arguments, *points)  # type: ignore[no-untyped-call]
    if return_grad:
        return value, by_kernel(function, by, arguments, True)[1]
    return value


def by_kernel(
    function: Callable[..., Any], by: tuple[str, ...], arguments: Arguments, return_grad: bool
) -> Any:
    """The NumPy function, on the memory of the tensors."""
    first = next(iter(arguments.values()))
    given = {
        name: as_numpy(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    kind = first.dtype
    if not return_grad:
        return as_tensor(function(**given), kind)
    value, gradient = function(**given, return_grad=True)
    if isinstance(gradient, tuple):
        kinds = [getattr(arguments[name], "dtype", kind) for name in by]
        return as_tensor(value, kind), tuple(
            None if g is None else as_tensor(g, its) for g, its in zip(gradient, kinds, strict=True)
        )
    return as_tensor(value, kind), as_tensor(gradient, kind)


def with_gradient(formula: Callable[..., Any], by: tuple[str, ...], arguments: Arguments) -> Any:
    """(value, gradient of its sum), by torch's own derivative of the formula."""
    names = [name for name in by if arguments[name] is not None]
    with torch.enable_grad():
        points = {name: arguments[name].detach().requires_grad_() for name in names}
        value = formula(**{**arguments, **points})
        gradients = torch.autograd.grad(value.sum(), list(points.values()))
    found = dict(zip(names, gradients, strict=True))
    every = tuple(found.get(name) for name in by)
    return value.detach(), every if len(every) > 1 else every[0]


class Fused(torch.autograd.Function):
    """A loss whose gradient is computed in the same visit; the second derivative by the formula."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Any],
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        *points: Any,
    ) -> Any:
        value, gradients = by_kernel(function, by, arguments, True)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        gradients += (None,) * (len(points) - len(gradients))
        ctx.formula, ctx.by, ctx.arguments = formula, by, arguments
        ctx.save_for_backward(*points, *gradients)
        return value

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        count = len(ctx.by)
        saved = ctx.saved_tensors  # read once: checkpoints allow no second time
        points, gradients = saved[:count], saved[count:]
        needed = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            return (None,) * 4 + again(ctx, points, needed, g)
        if g.ndim:
            g = along_classes(g, points[0], ctx.arguments.get("axis", -1))
        return (None,) * 4 + tuple(
            gradient * g if need and gradient is not None else None
            for gradient, need in zip(gradients, needed, strict=True)
        )


def again(ctx: Any, points: Any, needed: Any, g: Any) -> tuple[Any, ...]:
    """The gradient as a function that can be differentiated."""
    given = {**ctx.arguments, **dict(zip(ctx.by, points, strict=True))}
    chosen = [p for p, need in zip(points, needed, strict=True) if need]
    value = ctx.formula(**given)
    found = iter(torch.autograd.grad(value, chosen, g, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def along_classes(g: torch.Tensor, x: torch.Tensor, axis: Any) -> torch.Tensor:
    """A number for each row, in a shape that broadcasts against x."""
    axes = normalize_axes(axis, x.ndim)
    return g.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
