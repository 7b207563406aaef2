"""Attention on torch tensors that are differentiated: the streaming kernels inside autograd."""

from __future__ import annotations

from typing import Any

import torch

from hotmax._backends import torch_tensors as tensors
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._backends.torch_losses import save, saved
from hotmax._backends.torch_tensors import as_numpy, in_numpy, tensor_like, tensor_type


def run_streamed(operation: ArrayOperation, arguments: Arguments) -> Any:
    """attention, and its logsumexp if wanted, by the kernels."""
    assert operation.kernel_gradient is not None
    assert operation.formula is not None
    names = operation.kernel_gradient.names
    options = {name: value for name, value in arguments.items() if name not in names}
    wanted = options.pop("return_logsumexp")
    points = {name: arguments[name] for name in names}
    found = operation.kernel_gradient.forward(in_numpy({**options, **points}))
    if found is None:  # the kernels have no gradient there; the formula has that of v
        return operation.formula(**arguments)
    out, logsumexp = Streamed.apply(found, operation, options, *points.values())
    return (out, logsumexp) if wanted else out


class Streamed(torch.autograd.Function):
    """attention and its logsumexp; the weights are computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        found: tuple[Any, Any],
        operation: ArrayOperation,
        options: Arguments,
        *points: Any,
    ) -> Any:
        ctx.operation = operation
        arguments = {**options, **dict(zip(differentiable_names(operation), points, strict=True))}
        out, numbers = (torch.from_numpy(part) for part in found)
        # The tensor that is saved is the one returned, so that autograd notices changes in place.
        save(ctx, arguments, out, numbers)
        ctx.set_materialize_grads(False)
        kind = tensor_type(operation, arguments)
        return out.to(kind), numbers[..., 0].to(kind, copy=True)

    @staticmethod
    def backward(ctx: Any, g: Any, g_logsumexp: Any) -> Any:
        arguments, (out, numbers) = saved(ctx)
        operation = ctx.operation
        needs = zip(differentiable_names(operation), ctx.needs_input_grad[3:], strict=True)
        names = [name for name, need in needs if need]
        gradients = [c for c in (g, g_logsumexp) if c is not None]
        if torch.is_grad_enabled() or not all(map(is_direct_gradient, gradients)):
            found = gradients_of_formula(operation, arguments, names, g, g_logsumexp)
        else:
            by_name = operation.kernel_gradient.backward(
                in_numpy(arguments),
                (as_numpy(out), numbers.numpy()),
                tuple(None if c is None else as_numpy(c) for c in (g, g_logsumexp)),
                names,
            )
            found = {name: tensor_like(by_name[name], arguments[name]) for name in names}
        return (None, None, None, *(found.get(name) for name in differentiable_names(operation)))


def differentiable_names(operation: ArrayOperation) -> tuple[str, ...]:
    assert operation.kernel_gradient is not None
    return operation.kernel_gradient.names


def is_direct_gradient(gradient: torch.Tensor) -> bool:
    return tensors.is_direct(gradient) and not tensors.is_batched(gradient)


def gradients_of_formula(
    operation: ArrayOperation, arguments: Arguments, names: list[str], *gradients: Any
) -> Arguments:
    """The gradient by plain tensor operations, which can be differentiated or batched."""
    assert operation.formula is not None
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        if not create:
            fresh = {name: arguments[name].detach().requires_grad_() for name in names}
            arguments = {**arguments, **fresh}
        results = operation.formula(**arguments, return_logsumexp=True)
        pairs = [(r, c) for r, c in zip(results, gradients, strict=True) if c is not None]
        outputs, factors = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outputs, [arguments[name] for name in names], factors,
            create_graph=create, allow_unused=True,
        )  # fmt: skip
    return dict(zip(names, found, strict=True))
