"""Losses and derivatives of torch tensors: on the CPU by the kernels, with their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotmax._backends.torch_softmax import is_direct
from hotmax._core.arrays import is_foreign, normalize_axes
from hotmax._softmax.generic import own_copy

Arguments = dict[str, Any]
IMMUTABLE = (type(None), bool, int, float, str)


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
            return with_gradient(formula, by, arguments, bool(needs))
        return formula(**arguments)
    if not needs:
        return by_kernel(function, by, arguments, return_grad)
    found = by_kernel(function, by, arguments, True)
    value: Any = Fused.apply(found, formula, by, arguments, *points)
    return (value, unshared(found[1])) if return_grad else value


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


def unshared(gradient: Any) -> Any:
    """The gradient in memory of its own: that of the backward pass must not change."""
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
    if not is_foreign(value) and hasattr(value, "__array__"):  # a column of pandas
        return np.array(value)
    return value


def with_gradient(
    formula: Callable[..., Any], by: tuple[str, ...], arguments: Arguments, needed: bool
) -> Any:
    """(value, gradient of its sum), by torch's own derivative of the formula.

    `needed`: the value itself is to be differentiated later.
    """
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
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        *points: Any,
    ) -> Any:
        """`found`: the loss and its gradients. `points` are the arguments named by `by`."""
        value, gradients = found
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        ctx.formula, ctx.by = formula, by
        save(ctx, arguments, *gradients)
        return value

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        arguments, gradients = saved(ctx)
        needed = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            return (None,) * 4 + again(ctx, arguments, needed, g)
        if g.ndim:
            g = along_classes(g, arguments[ctx.by[0]], arguments.get("axis", -1))
        return (None,) * 4 + tuple(
            gradient * g if need and gradient is not None else None
            for gradient, need in zip(gradients, needed, strict=True)
        )


def again(ctx: Any, arguments: Arguments, needed: Any, g: Any) -> tuple[Any, ...]:
    """The gradient as a function that can be differentiated."""
    chosen = [arguments[name] for name, need in zip(ctx.by, needed, strict=True) if need]
    value = ctx.formula(**arguments)
    found = iter(torch.autograd.grad(value, chosen, g, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


def along_classes(g: torch.Tensor, x: torch.Tensor, axis: Any) -> torch.Tensor:
    """A number for each row, in a shape that broadcasts against x."""
    axes = normalize_axes(axis, x.ndim)
    return g.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
