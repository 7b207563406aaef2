"""The backend of torch: tensors on any device, inside autograd, torch.func and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hotmax._backends import torch_attention, torch_losses, torch_softmax
from hotmax._backends.protocol import Arguments, Backend
from hotmax._core.arrays import Axis
from hotmax._core.dispatch import Operation

functorch = torch._C._functorch  # what torch.func is made of: torch has no public names for it


def layers(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, and what torch.func has wrapped in it, to the innermost."""
    yield tensor
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
        yield tensor


class Torch(Backend):
    """Tensors of torch, on any device, inside autograd, torch.func and torch.compile or not."""

    name = "torch"
    has_gradients = takes_values = True

    def to_numpy(self, x: Any, name: str = "x") -> Any:
        *_, inmost = layers(x)
        if functorch.maybe_current_level() is None:
            return torch_softmax.as_numpy(inmost.cpu())
        from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

        with temporarily_clear_interpreter_stack():  # which would wrap the next result again
            return torch_softmax.as_numpy(inmost.detach().cpu())

    def from_numpy(self, array: Any, like: Any, keep_type: bool = False) -> Any:
        tensor = torch.from_numpy(np.asarray(array)).to(like.device)
        return tensor.to(like.dtype) if keep_type and like.is_floating_point() else tensor

    def is_direct(self, x: Any) -> bool:
        return torch_softmax.is_direct(x)

    def is_traced(self, x: Any) -> bool:
        return any(map(functorch.is_batchedtensor, layers(x)))

    def stop_gradient(self, x: Any) -> Any:
        return x.detach()

    def map_tiles(
        self,
        function: Callable[..., Any],
        rows: Any,
        labels: Any,
        shared: tuple[Any, ...],
        step: int,
    ) -> Any:
        """All tensors are arguments: torch notices changes of those, not of a closure's."""
        if torch.is_grad_enabled() and functorch.maybe_current_level() is None:
            function = partial(checkpoint, function, use_reentrant=False)
        return super().map_tiles(function, rows, labels, shared, step)

    def run(
        self, operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
    ) -> Any:
        return torch_softmax.run(operation, x, axis, temperature, where, keepdims)

    def run_weighted(
        self,
        x: Any,
        weights: Any,
        axis: Axis,
        temperature: Any,
        where: Any,
        return_sign: bool,
        keepdims: bool,
    ) -> Any:
        return torch_softmax.run_weighted(
            x, weights, axis, temperature, where, return_sign, keepdims
        )

    def call(
        self,
        function: Callable[..., Any],
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        return_grad: bool,
    ) -> Any:
        return torch_losses.run(function, formula, by, arguments, return_grad)

    def attend(
        self, function: Callable[..., Any], formula: Callable[..., Any], arguments: Arguments
    ) -> Any:
        return torch_attention.run(function, formula, arguments)


BACKEND = Torch()
