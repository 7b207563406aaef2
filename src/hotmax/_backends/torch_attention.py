"""Attention on torch tensors: the streaming kernels inside autograd, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotmax._attention import generic
from hotmax._attention.backward import AttentionGradients, Backward, like
from hotmax._attention.forward import run as forward
from hotmax._attention.heads import Heads
from hotmax._backends import torch_softmax as library
from hotmax._backends.torch_losses import Arguments, as_numpy, as_tensor, save, saved, tensors_in
from hotmax._softmax.generic import own_copy

POINTS = ("q", "k", "v", "temperature", "bias", "sink")  # attention can be differentiated by these


def run(function: Callable[..., Any], formula: Callable[..., Any], arguments: Arguments) -> Any:
    tensors = tensors_in(arguments)
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    direct = all(library.is_direct(t) for t in tensors)
    name = function.__name__
    if name == "attention_vjp" and (needs or not direct):
        return vjp_of_formula(arguments, needs)
    if not direct or (needs and name != "attention"):
        return formula(**arguments)
    if needs:
        return differentiable(formula, arguments)
    return by_kernel(function, arguments)


def is_plain(change: torch.Tensor) -> bool:
    return library.is_direct(change) and not library.is_batched(change)


def in_numpy(arguments: Arguments) -> Arguments:
    return {
        name: as_numpy(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def result_type(arguments: Arguments) -> torch.dtype:
    """The common float type of q, k and v; integers count as float64."""
    kinds = []
    for name in ("q", "k", "v"):
        array = arguments.get(name)
        if array is not None:
            if not isinstance(array, torch.Tensor):  # an empty one has the same type
                array = torch.from_numpy(own_copy(np.asarray(array).reshape(-1)[:0]))
            kinds.append(array.dtype if array.is_floating_point() else torch.float64)
    kind = kinds[0]
    for other in kinds[1:]:
        kind = torch.promote_types(kind, other)
    return kind


def by_kernel(function: Callable[..., Any], arguments: Arguments) -> Any:
    result = function(**in_numpy(arguments))
    if isinstance(result, AttentionGradients):
        return AttentionGradients(
            **{
                name: tensor_like(gradient, arguments[name])
                for name, gradient in vars(result).items()
                if gradient is not None
            }
        )
    kind = result_type(arguments)
    if isinstance(result, tuple):
        return tuple(as_tensor(part, kind) for part in result)
    return as_tensor(result, kind)


def tensor_like(array: Any, argument: Any) -> torch.Tensor:
    """In the float type of an argument, which may be a number or an array of NumPy."""
    if isinstance(argument, torch.Tensor) and argument.is_floating_point():
        return as_tensor(array, argument.dtype).to(argument.dtype)
    return as_tensor(array, torch.float64)


def differentiable(formula: Callable[..., Any], arguments: Arguments) -> Any:
    points = [arguments[name] for name in POINTS]
    others = {name: value for name, value in arguments.items() if name not in POINTS}
    wanted = others.pop("return_logsumexp")
    heads = Heads(**in_numpy({**others, **dict(zip(POINTS, points, strict=True))}))
    if heads.is_steep:  # the kernels have no gradient there; the formula has that of v
        return formula(**arguments)
    out, logsumexp = Streamed.apply(heads, others, *points)
    return (out, logsumexp) if wanted else out


class Streamed(torch.autograd.Function):
    """attention and its logsumexp; the weights are made again on the way back."""

    @staticmethod
    def forward(ctx: Any, heads: Heads, others: Arguments, *points: Any) -> Any:
        arguments = {**others, **dict(zip(POINTS, points, strict=True))}
        out, numbers = (torch.from_numpy(part) for part in forward(heads))
        # Saved and returned it is one tensor, of which autograd counts the changes in place.
        save(ctx, arguments, out, numbers)
        ctx.set_materialize_grads(False)
        kind = result_type(arguments)
        return out.to(kind), numbers[..., 0].to(kind, copy=True)

    @staticmethod
    def backward(ctx: Any, g: Any, g_logsumexp: Any) -> Any:
        given, (out, numbers) = saved(ctx)
        needed = dict(zip(POINTS, ctx.needs_input_grad[2:], strict=True))
        changes = [c for c in (g, g_logsumexp) if c is not None]
        if torch.is_grad_enabled() or not all(is_plain(c) for c in changes):
            return (None, None, *again(given, needed, g, g_logsumexp))
        heads = Heads(**in_numpy(given))
        dout = np.zeros(out.shape, heads.kind) if g is None else as_numpy(g)
        by_logsumexp = None if g_logsumexp is None else as_numpy(g_logsumexp)
        work = Backward(heads, dout, as_numpy(out), numbers.numpy(), by_logsumexp)
        found: dict[str, Any] = dict.fromkeys(POINTS)
        if any(needed[name] for name in ("q", "k", "v", "temperature")):
            found["q"], found["k"], found["v"] = work.run()
        if needed["temperature"]:
            found["temperature"] = work.temperature(found["q"])
        if needed["bias"]:
            found["bias"] = work.bias(as_numpy(given["bias"]))
        if needed["sink"]:
            found["sink"] = work.sink()
        changed = (gradient_of(found[n], given[n]) if needed[n] else None for n in POINTS)
        return (None, None, *changed)


def gradient_of(gradient: Any, point: torch.Tensor) -> torch.Tensor:
    return tensor_like(like(gradient, as_numpy(point)), point)


def again(arguments: Arguments, needed: dict[str, bool], *changes: Any) -> list[Any]:
    """The gradient by plain tensor operations, which can be differentiated or batched."""
    names = [name for name in POINTS if needed[name]]
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        if not create:
            fresh = {name: arguments[name].detach().requires_grad_() for name in names}
            arguments = {**arguments, **fresh}
        results = generic.attention(**arguments, return_logsumexp=True)
        pairs = [(r, c) for r, c in zip(results, changes, strict=True) if c is not None]
        outputs, gradients = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outputs, [arguments[name] for name in names], gradients,
            create_graph=create, allow_unused=True,
        )  # fmt: skip
    by_name = dict(zip(names, found, strict=True))
    return [by_name.get(name) for name in POINTS]


def vjp_of_formula(arguments: Arguments, create: bool) -> AttentionGradients:
    points, options, gradient = generic.points_of(arguments)
    with torch.enable_grad():
        at = {
            name: point if point.requires_grad else point.detach().requires_grad_()
            for name, point in points.items()
        }
        out = generic.attention(**at, **options)
        found = torch.autograd.grad(out, list(at.values()), gradient, create_graph=create)
    return AttentionGradients(**dict(zip(at, found, strict=True)))
