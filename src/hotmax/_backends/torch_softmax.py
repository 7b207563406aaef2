"""The softmax family on torch tensors that are differentiated, or that kernels cannot read.

A tensor on the CPU shares its memory with NumPy, so nothing is copied. Other devices, tensors
inside torch.func and torch.compile, and subclasses of Tensor take the formula.
"""

from __future__ import annotations

from typing import Any

import array_api_compat.torch as xp
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
from hotmax._core.kernel_choice import compute_all, route_of
from hotmax._core.row_functions import LAST, SMALL
from hotmax._core.shared_rows import out_of_memory, share_rows
from hotmax._kernels.pool.calls import address_call
from hotmax._kernels.softmax.pullback import softmax_pullback64_job, softmax_pullback_job


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
        result: torch.Tensor = Differentiable.apply(x, temperature, None, operation.name, None)
        return result
    return compute_everyday(operation, x, temperature)


def compute_everyday(
    operation: ArrayOperation, x: torch.Tensor, temperature: float
) -> torch.Tensor:
    kernels: Any = operation.kernels
    out = x.new_empty(x.shape[:-1]) if operation.reduces else empty_like(x)
    if x.nbytes > SMALL:
        target = out.view(-1) if operation.reduces else out
        compute_all(kernels, x.detach().numpy(), target.numpy(), temperature)
        return out
    # Only addresses go to a kernel: a view for NumPy and one back would take twice as long.
    classes = x.shape[-1]
    known = kernels.addresses32 if x.dtype is FLOAT32 else kernels.addresses64
    function = known.get(classes) or route_of(kernels, x.dtype is FLOAT32, classes)
    rows = x.numel() // classes
    at = x.data_ptr(), out.data_ptr()
    if not address_call()(function, *at, rows, classes, temperature, 0, 0):
        raise out_of_memory()
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
    """A function of x and temperature, whose derivatives can be differentiated again.

    `axes` is None for an everyday tensor, its last axis, and a number for the temperature.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Any, temperature: Any, where: Any, name: str, axes: tuple[int, ...] | None
    ) -> Any:
        ctx.name, ctx.axes = name, axes
        if axes is None:
            y = compute_everyday(OPERATIONS[name], x, temperature)
            ctx.number = temperature
            ctx.save_for_backward(x, None, None, y)
            return y
        y = compute_family(x, temperature, where, name, axes)
        if not is_compiling() and y._is_view():  # torch forbids to change such a result in place
            y = y.clone()
        ctx.number = None if isinstance(temperature, torch.Tensor) else temperature
        ctx.save_for_backward(x, temperature if ctx.number is None else None, where, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        by_temperature = ctx.needs_input_grad[1]
        x, saved, where, y = ctx.saved_tensors  # read once: checkpoints allow no second time
        if x.dtype != y.dtype:  # x.data has been replaced, as by module.half()
            x = x.to(y.dtype)
        axes = (x.ndim - 1,) if ctx.axes is None else ctx.axes
        temperature = saved if ctx.number is None else ctx.number
        if (
            ctx.name == "softmax"
            and not by_temperature
            and not is_grad_enabled()
            and where is None
            and axes == (x.ndim - 1,)
            and tensors.is_direct(x)
            and tensors.is_direct(y)
            and tensors.is_direct(g)
            and not is_batched(g)
            and x.shape == y.shape  # unless x.data has been replaced
        ):
            if saved is not None:
                temperature = saved.detach().double().contiguous().numpy().reshape(-1)
            return pull_back(x, y, g, temperature), None, None, None, None

        def function(name: str) -> torch.Tensor:
            return y if name == ctx.name else family_value(name, x, temperature, where, axes)

        layout = Layout(tuple(x.shape), axes)
        point = DerivativePoint(xp, x, temperature, where, layout, function)
        by_x, by_t = pull(ctx.name, point, g, by_temperature)
        return by_x, by_t, None, None, None


def laid_out(x: torch.Tensor) -> torch.Tensor:
    """x as kernels read it."""
    if x.is_contiguous() and not x.is_neg():
        return x
    return x.detach().resolve_neg().contiguous()


def pull_back(
    x: torch.Tensor, p: torch.Tensor, g: torch.Tensor, temperature: float | Array
) -> torch.Tensor:
    """The derivative of softmax by x, from its result p: in one visit to each row."""
    x, p, g = laid_out(x), laid_out(p), laid_out(g)
    out, size = empty_like(x), x.numel()
    if not size:
        return out
    entry = softmax_pullback_job if x.dtype is FLOAT32 else softmax_pullback64_job
    others = p.data_ptr(), g.data_ptr()
    if type(temperature) is float and out.nbytes <= SMALL:
        rows = size // (classes := x.shape[-1]), classes
        at = x.data_ptr(), out.data_ptr()
        if not address_call()(entry.address, *at, *rows, temperature, *others):
            raise out_of_memory()
    else:
        share_rows(entry.address, x.detach().numpy(), out.numpy(), temperature, others=others)
    return out
