"""Tensors that share their memory with NumPy: which of them may, and the way there and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from hotmax._backends.layout import own_copy
from hotmax._backends.protocol import Arguments, ArrayOperation
from hotmax._core.arrays import Array

# Bound once: looking attributes up takes a noticeable part of a call on a small tensor.
is_compiling, is_tracing = torch.compiler.is_compiling, torch._C._is_tracing
# How many modes watch or fake what is dispatched (FakeTensorMode, make_fx)?
dispatch_modes = torch._C._len_torch_dispatch_stack
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
# One of autograd.grad's batches of derivatives (is_grads_batched=True)? torch.func's are wrapped.
is_batched = torch._C._functorch.is_legacy_batchedtensor
STRIDED, BFLOAT16 = torch.strided, torch.bfloat16
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


def is_direct(x: Any) -> bool:
    """Whether the kernels may read the memory of this tensor."""
    return (
        not is_compiling()
        and type(x) in PLAIN_TENSORS
        and x.is_cpu
        and not is_wrapped(x)
        and forward_ad._current_level < 0
        and x.layout is STRIDED
        and not is_tracing()
        and not dispatch_modes()
        and not x._is_zerotensor()  # which has no memory
    )


def tensors_in(arguments: Arguments) -> list[torch.Tensor]:
    return [a for a in arguments.values() if isinstance(a, torch.Tensor)]


def as_numpy(tensor: torch.Tensor) -> Array:
    """NumPy has no bfloat16; the kernels compute it in float32."""
    tensor = tensor.detach().resolve_neg()
    return tensor.float().numpy() if tensor.dtype is BFLOAT16 else tensor.numpy()


def in_numpy(arguments: Arguments) -> Arguments:
    return {
        name: as_numpy(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def as_tensor(array: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An array that was computed from tensors; those of bfloat16 were computed in float32."""
    array = np.asarray(array)
    if not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(array)
    return tensor.to(dtype) if dtype is BFLOAT16 else tensor


def tensor_like(array: Any, argument: Any) -> torch.Tensor:
    """In the float type of an argument, which may be a number or an array of NumPy."""
    if isinstance(argument, torch.Tensor) and argument.is_floating_point():
        return as_tensor(array, argument.dtype).to(argument.dtype)
    return as_tensor(array)


def tensor_type(operation: ArrayOperation, arguments: Arguments) -> torch.dtype:
    """The common float type of the arguments that decide on it; integers count as float64."""
    kinds = []
    for name in operation.typed_by:
        array = arguments.get(name)
        if array is not None:
            if not isinstance(array, torch.Tensor):  # an empty one has the same type
                array = torch.from_numpy(own_copy(np.asarray(array).reshape(-1)[:0]))
            kinds.append(array.dtype if array.is_floating_point() else torch.float64)
    kind = kinds[0]
    for other in kinds[1:]:
        kind = torch.promote_types(kind, other)
    return kind


def by_kernel(operation: ArrayOperation, arguments: Arguments, return_grad: bool = False) -> Any:
    """The NumPy function, on the memory of the tensors."""
    half, values = False, {}
    for name, value in arguments.items():
        if (
            type(value) in PLAIN_TENSORS
        ):  # all tensors are direct; isinstance takes three times as long
            value = value.detach().resolve_neg()
            half = half or value.dtype is BFLOAT16
            value = as_numpy(value) if half else value.numpy()
        values[name] = value
    if not return_grad:
        result = operation.function(**values)
        if not half and isinstance(result, (np.ndarray, np.generic)):
            return as_tensor(result)
        return in_tensors(result, operation, arguments)
    value, gradient = operation.function(**values, return_grad=True)
    kind = tensor_type(operation, arguments)
    if not isinstance(gradient, tuple):
        return as_tensor(value, kind), as_tensor(gradient, kind)
    kinds = [getattr(arguments[name], "dtype", kind) for name in operation.differentiable]
    return as_tensor(value, kind), tuple(
        None if g is None else as_tensor(g, its) for g, its in zip(gradient, kinds, strict=True)
    )


def in_tensors(result: Any, operation: ArrayOperation, arguments: Arguments) -> Any:
    """A result of the NumPy function; a dataclass has a gradient by each argument of its fields."""
    if dataclasses.is_dataclass(result):
        gradients = {
            name: None if gradient is None else tensor_like(gradient, arguments[name])
            for name, gradient in vars(result).items()
        }
        return dataclasses.replace(result, **gradients)  # type: ignore[type-var]
    kind = tensor_type(operation, arguments)
    if isinstance(result, tuple):
        return tuple(as_tensor(part, kind) for part in result)
    return as_tensor(result, kind)
