"""The softmax family on torch tensors that are differentiated, or that kernels cannot read.

A tensor on the CPU shares its memory with NumPy, so nothing is copied. Other devices, tensors
inside torch.func and torch.compile, and subclasses of Tensor take the formula.
"""

from __future__ import annotations

from typing import Any

import array_api_compat.torch as xp
import numpy as np
import torch
from torch.autograd import forward_ad

from hotmax._backends import torch_tensors as tensors
from hotmax._backends.call_arguments import CallArguments, apply_row_formula
from hotmax._backends.derivatives import DerivativePoint, pull
from hotmax._backends.layout import Layout
from hotmax._backends.operation import OPERATIONS
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._backends.torch_tensors import is_batched, is_compiling, is_wrapped
from hotmax._core.arrays import Array
from hotmax._core.kernel_choice import address_of_kernel
from hotmax._core.row_functions import LAST, SMALL
from hotmax._core.rows import STEP
from hotmax._core.threads import for_ranges
from hotmax._kernels.pool.calls import address_call, pullback_call
from hotmax._kernels.softmax.pullback import softmax_pullback


def run_family(operation: ArrayOperation, arguments: Arguments) -> torch.Tensor:
    x = arguments["x"]
    if x.layout is not torch.strided:
        raise TypeError(f"x must be a strided tensor, got layout {x.layout}")
    checked = CallArguments(xp, x, arguments["axis"], arguments["temperature"], arguments["where"])
    y = family_value(
        operation.name, checked.x, checked.temperature, checked.where, checked.layout.axes
    )
    if operation.reduces and not arguments["keepdims"]:
        y = y.reshape(checked.layout.kept())
    return y if y.dtype == checked.dtype else y.to(checked.dtype)


is_grad_enabled, empty_like = torch.is_grad_enabled, torch.empty_like
FLOAT32, FLOAT64 = torch.float32, torch.float64


def is_everyday(x: torch.Tensor) -> bool:
    """Contiguous numbers that kernels may read as they are."""
    return (
        (x.dtype is FLOAT32 or x.dtype is FLOAT64)
        and x.numel() > 0
        and x.is_contiguous()
        and tensors.is_direct(x)
        and not x.is_neg()
        and x.ndim > 0
    )


def run_everyday(operation: ArrayOperation, arguments: Arguments) -> torch.Tensor | None:
    """An everyday tensor, its last axis, and a number for the temperature."""
    x, temperature = arguments["x"], arguments["temperature"]
    if (
        type(temperature) is not float
        or temperature != temperature
        or arguments["axis"] is not LAST
        or arguments["where"] is not None
        or arguments["out"] is not None
        or not is_everyday(x)
    ):
        return None
    if operation.reduces and (
        arguments["keepdims"] is not False
        or arguments.get("weights") is not None
        or arguments.get("return_sign")
    ):
        return None
    if x.requires_grad and is_grad_enabled():
        if operation.reduces:
            return None
        result: torch.Tensor = Differentiable.apply(
            x, temperature, None, operation.name, (x.ndim - 1,)
        )
        return result
    return compute_everyday(operation, x, temperature)


def compute_everyday(
    operation: ArrayOperation, x: torch.Tensor, temperature: float
) -> torch.Tensor:
    if x.nbytes > SMALL:
        values = operation.function(x.detach().numpy(), temperature=temperature)
        return torch.from_numpy(values) if type(values) is np.ndarray else x.new_tensor(values)
    # Only addresses go to a kernel: a view for NumPy and one back would take twice as long.
    out = x.new_empty(x.shape[:-1]) if operation.reduces else empty_like(x)
    classes = x.shape[-1]
    function = address_of_kernel(operation.kernels, x)  # type: ignore[arg-type]
    at = x.data_ptr(), out.data_ptr()
    address_call()(function, *at, x.numel() // classes, classes, temperature)
    return out


def is_transformed(x: torch.Tensor) -> bool:
    """Is x inside torch.func or forward-mode derivatives? They follow the steps of the formula."""
    if is_compiling():
        return False
    return is_wrapped(x) or forward_ad._current_level >= 0


def family_value(
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
    return compute_family(x, temperature, where, name, axes)


def compute_family(
    x: torch.Tensor, temperature: Any, where: Any, name: str, axes: tuple[int, ...]
) -> torch.Tensor:
    operation = OPERATIONS[name]
    if (
        where is None
        and type(temperature) is float
        and axes == (x.ndim - 1,)
        and is_everyday(x)
        and not operation.reduces
    ):
        return compute_everyday(operation, x, temperature)
    arrays = {"x": x, "temperature": temperature, "where": where}
    if all(map(tensors.is_direct, tensors.tensors_in(arrays))):
        axis = -1 if axes == (x.ndim - 1,) else axes
        options = {"axis": axis, "keepdims": True} if operation.reduces else {"axis": axis}
        result: torch.Tensor = tensors.by_kernel(operation, arrays | options)
        return result
    layout = Layout(tuple(x.shape), axes)
    return apply_row_formula(operation, xp, x, temperature, where, layout)


class Differentiable(torch.autograd.Function):
    """A function of x and temperature, whose derivatives can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, temperature: Any, where: Any, name: str, axes: tuple[int, ...]
    ) -> Any:
        y = compute_family(x, temperature, where, name, axes)
        if not is_compiling() and y._is_view():  # torch forbids to change such a result in place
            y = y.clone()
        ctx.number = None if isinstance(temperature, torch.Tensor) else temperature
        ctx.save_for_backward(x, temperature if ctx.number is None else None, where, y)
        ctx.name, ctx.axes = name, axes
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        by_temperature = ctx.needs_input_grad[1]
        x, saved, where, y = ctx.saved_tensors  # read once: checkpoints allow no second time
        temperature = saved if ctx.number is None else ctx.number
        if (
            ctx.name == "softmax"
            and not by_temperature
            and not torch.is_grad_enabled()
            and ctx.axes == (x.ndim - 1,)
            and where is None
            and all(map(tensors.is_direct, (x, y, g)))
            and not is_batched(g)
        ):
            if saved is None and x.nbytes <= SMALL and all(map(is_everyday, (x, y, g))):
                return pull_back_small(x, y, g, ctx.number), None, None, None, None
            numbers = [ctx.number] if saved is None else saved.detach().double().numpy().reshape(-1)
            return softmax_vjp_by_kernel(x, y, g, np.asarray(numbers)), None, None, None, None

        def function(name: str) -> torch.Tensor:
            return y if name == ctx.name else family_value(name, x, temperature, where, ctx.axes)

        layout = Layout(tuple(x.shape), ctx.axes)
        point = DerivativePoint(xp, x, temperature, where, layout, function)
        by_x, by_t = pull(ctx.name, point, g, by_temperature)
        return by_x, by_t, None, None, None


def pull_back_small(
    x: torch.Tensor, p: torch.Tensor, g: torch.Tensor, temperature: float
) -> torch.Tensor:
    """The derivative of softmax by x; p, a result of ours, is laid out as x is."""
    out, classes = empty_like(x), x.shape[-1]
    at = x.data_ptr(), p.data_ptr(), g.data_ptr(), out.data_ptr()
    pullback_call(x.dtype is FLOAT32)(*at, x.numel() // classes, classes, temperature)
    return out


def softmax_vjp_by_kernel(
    x: torch.Tensor, p: torch.Tensor, g: torch.Tensor, temperature: Array
) -> torch.Tensor:
    """The derivative of softmax by x, in one visit to each row."""
    result = np.empty(x.shape, p.detach().numpy().dtype)
    if result.size:
        n = result.shape[-1]
        rows = [a.detach().resolve_neg().numpy().reshape(-1, n) for a in (x, p, g)]
        out = result.reshape(-1, n)

        def work(start: int, stop: int) -> None:
            softmax_pullback(*rows, out, temperature, start, stop)

        for_ranges(work, len(out), max(1, STEP // n))
    return torch.from_numpy(result)
