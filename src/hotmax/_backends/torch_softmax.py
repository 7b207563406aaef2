"""The softmax family on torch tensors: the kernels on the CPU, else the generic path, in autograd.

A tensor on the CPU shares its memory with NumPy, so nothing is copied. Other devices, tensors
inside torch.func and torch.compile, and subclasses of Tensor take the generic path.
"""

from __future__ import annotations

from typing import Any

import array_api_compat.torch as xp
import numpy as np
import torch
from torch.autograd import forward_ad

from hotmax._backends import FEW
from hotmax._backends.derivatives import Point, pull
from hotmax._core.arrays import Array, Axis
from hotmax._core.dispatch import STEP, Operation, map_entries, reduce_rows, reduce_weighted
from hotmax._core.threads import for_ranges
from hotmax._kernels.softmax.pullback import softmax_pullback
from hotmax._kernels.softmax.short import SHORT, softmax_small_at
from hotmax._kernels.softmax.weighted import weighted_rows
from hotmax._softmax.generic import Given, Layout, evaluate, weighted
from hotmax._softmax.operations import OPERATIONS, SMALL

# Names of their own: a small tensor has no time to look them up.
is_compiling, is_tracing = torch.compiler.is_compiling, torch._C._is_tracing
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
is_grad_enabled, from_numpy = torch.is_grad_enabled, torch.from_numpy
STRIDED, BFLOAT16, FLOAT32 = torch.strided, torch.bfloat16, torch.float32
PLAIN = (torch.Tensor, torch.nn.Parameter)


def run(
    operation: Operation,
    x: torch.Tensor,
    axis: Axis,
    temperature: Any,
    where: Any,
    keepdims: bool,
) -> torch.Tensor:
    if (
        type(temperature) is float
        and where is None
        and is_direct(x)
        and not (x.requires_grad and is_grad_enabled())
    ):
        return by_kernel(operation, x, axis, temperature, None, keepdims)
    if x.layout is not torch.strided:
        raise TypeError(f"x must be a strided tensor, got layout {x.layout}")
    given = Given(xp, x, axis, temperature, where, torch.float64, is_traced(x))
    y = value(operation.name, given.x, given.temperature, given.where, given.layout.axes)
    if operation.reduces and not keepdims:
        y = y.reshape(given.layout.kept())
    return y if y.dtype == given.dtype else y.to(given.dtype)


def softmax_of_few(x: torch.Tensor, temperature: object) -> torch.Tensor | None:
    """A few short rows of float32, or None for anything else."""
    if (
        x.dtype is FLOAT32
        and len(shape := x.shape) == 2
        and 0 < shape[1] <= SHORT
        and shape[0] <= SMALL
        and type(temperature) is float
        and temperature == temperature
        and is_direct(x)
        and not (x.requires_grad and is_grad_enabled())
        and x.is_contiguous()
        and softmax_small_at(x.data_ptr(), out := np.empty(shape, np.float32), temperature)
    ):
        return from_numpy(out)
    return None


FEW[torch.Tensor] = softmax_of_few


def run_weighted(
    x: torch.Tensor,
    weights: Any,
    axis: Axis,
    temperature: Any,
    where: Any,
    return_sign: bool,
    keepdims: bool,
) -> Any:
    points = [a for a in (x, weights, temperature, where) if isinstance(a, torch.Tensor)]
    if all(is_direct(a) for a in points) and not (
        is_grad_enabled() and any(a.requires_grad for a in points)
    ):
        source, weights, temperature, where = (
            as_numpy(a) if isinstance(a, torch.Tensor) else a
            for a in (x, weights, temperature, where)
        )
        result: Any = reduce_weighted(
            weighted_rows, source, weights, axis, temperature, where, return_sign, keepdims, None
        )
        kind = x.dtype if x.is_floating_point() else torch.float64
        if return_sign:
            return tuple(torch.from_numpy(np.asarray(part)).to(kind) for part in result)
        return torch.from_numpy(np.asarray(result)).to(kind)
    return weighted(
        xp, x, weights, axis, temperature, where, return_sign, keepdims,
        wide=torch.float64, traced=is_traced(x),
    )  # fmt: skip


def is_traced(x: torch.Tensor) -> bool:
    return torch.compiler.is_compiling() or is_wrapped(x)


def is_transformed(x: torch.Tensor) -> bool:
    """Is x inside torch.func or forward-mode derivatives? They follow the generic path's steps."""
    if is_compiling():
        return False
    return is_wrapped(x) or forward_ad._current_level >= 0


def is_direct(x: Any) -> bool:
    """May the kernels read this tensor's memory?"""
    return (
        not is_compiling()
        and type(x) in PLAIN
        and x.is_cpu
        and not is_wrapped(x)
        and forward_ad._current_level < 0
        and x.layout is STRIDED
        and not is_tracing()
    )


def is_batched(g: torch.Tensor) -> bool:
    """Is this one of autograd.grad's batches of derivatives (is_grads_batched=True)?"""
    return "Batched" in str(torch._C._dispatch_keys(g))


def as_numpy(tensor: torch.Tensor) -> Array:
    """NumPy has no bfloat16; the kernels compute it in float32."""
    tensor = tensor.detach()
    return tensor.float().numpy() if tensor.dtype is BFLOAT16 else tensor.numpy()


def by_kernel(
    operation: Operation, x: torch.Tensor, axis: Axis, temperature: Any, where: Any, keepdims: bool
) -> torch.Tensor:
    half, source = x.dtype is BFLOAT16, as_numpy(x)
    result: Any
    if operation.reduces:
        result = reduce_rows(operation, source, axis, temperature, where, keepdims, None)
    else:
        result = map_entries(operation, source, axis, temperature, where, None)
    tensor = torch.from_numpy(result if type(result) is np.ndarray else np.asarray(result))
    return tensor.to(torch.bfloat16) if half else tensor


def value(
    name: str, x: torch.Tensor, temperature: Any, where: Any, axes: tuple[int, ...]
) -> torch.Tensor:
    """A function of float32 or float64 tensors; reductions keep their axes, with length 1."""
    points = [a for a in (x, temperature) if isinstance(a, torch.Tensor)]
    if (
        torch.is_grad_enabled()
        and any(a.requires_grad for a in points)
        and not any(is_transformed(a) for a in points)
    ):
        result: torch.Tensor = Differentiable.apply(x, temperature, where, name, axes)
        return result
    return compute(x, temperature, where, name, axes)


def compute(
    x: torch.Tensor, temperature: Any, where: Any, name: str, axes: tuple[int, ...]
) -> torch.Tensor:
    arrays = [x, *(a for a in (temperature, where) if isinstance(a, torch.Tensor))]
    if all(is_direct(array) for array in arrays):
        heat, mask = (a.detach().numpy() if isinstance(a, torch.Tensor) else a
                      for a in (temperature, where))  # fmt: skip
        return by_kernel(OPERATIONS[name], x, axes, heat, mask, True)
    return evaluate(name, xp, x, temperature, where, Layout(tuple(x.shape), axes))


class Differentiable(torch.autograd.Function):
    """A function of x and temperature, whose derivatives can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, temperature: Any, where: Any, name: str, axes: tuple[int, ...]
    ) -> Any:
        y = compute(x, temperature, where, name, axes)
        if not is_compiling() and y._is_view():  # torch forbids to change such a result in place
            y = y.clone()
        ctx.number = None if isinstance(temperature, torch.Tensor) else temperature
        ctx.save_for_backward(x, temperature if ctx.number is None else None, where, y)
        ctx.name, ctx.axes = name, axes
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        by_temperature = ctx.needs_input_grad[1]
        x, heat, where, y = ctx.saved_tensors  # read once: checkpoints allow no second time
        if (
            ctx.name == "softmax"
            and not by_temperature
            and not torch.is_grad_enabled()
            and ctx.axes == (x.ndim - 1,)
            and where is None
            and all(is_direct(a) for a in (x, y, g))
            and not is_batched(g)
        ):
            heats = [ctx.number] if heat is None else heat.detach().double().numpy().reshape(-1)
            return quick_pullback(x, y, g, np.asarray(heats)), None, None, None, None
        at = point_of(ctx, x, heat, where, y)
        by_x, by_t = pull(ctx.name, at, g, by_temperature)
        return by_x, by_t, None, None, None


def point_of(ctx: Any, x: Any, heat: Any, where: Any, y: Any) -> Point:
    temperature = heat if ctx.number is None else ctx.number

    def function(name: str) -> torch.Tensor:
        return y if name == ctx.name else value(name, x, temperature, where, ctx.axes)

    return Point(xp, x, temperature, where, Layout(tuple(x.shape), ctx.axes), function)


def quick_pullback(
    x: torch.Tensor, p: torch.Tensor, g: torch.Tensor, temperature: Array
) -> torch.Tensor:
    """The derivative of softmax by x, in one visit to each row."""
    result = np.empty(x.shape, p.detach().numpy().dtype)
    if result.size:
        n = result.shape[-1]
        rows = [a.detach().numpy().reshape(-1, n) for a in (x, p, g)]
        out = result.reshape(-1, n)

        def work(start: int, stop: int) -> None:
            softmax_pullback(*rows, out, temperature, start, stop)

        for_ranges(work, len(out), max(1, STEP // n))
    return torch.from_numpy(result)
