"""The backend of torch: tensors on any device, inside autograd, torch.func and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from hotmax._backends import torch_attention, torch_losses, torch_softmax, torch_tensors as tensors
from hotmax._backends.operation import NATIVE
from hotmax._backends.protocol import Arguments, ArrayOperation, Backend, Formula

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
    takes_values = True

    def to_numpy(self, x: Any, name: str = "x") -> Any:
        *_, inmost = layers(x)
        if functorch.maybe_current_level() is None:
            return tensors.as_numpy(inmost.cpu())
        from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

        with temporarily_clear_interpreter_stack():  # which would wrap the next result again
            return tensors.as_numpy(inmost.detach().cpu())

    def from_numpy(self, array: Any, like: Any, keep_type: bool = False) -> Any:
        tensor = torch.from_numpy(np.asarray(array)).to(like.device)
        return tensor.to(like.dtype) if keep_type and like.is_floating_point() else tensor

    def writable(self, out: Any) -> Any:
        if not tensors.is_direct(out):
            raise TypeError(
                f"out must be a plain tensor on the CPU, got one on {out.device} of type "
                f"{type(out).__name__}"
            )
        if out.requires_grad and torch.is_grad_enabled():
            raise ValueError("out must not require a gradient: it is written to")
        return None if out.dtype is torch.bfloat16 else out.detach().numpy()

    def written(self, out: Any, result: Any) -> Any:
        if out.dtype is torch.bfloat16:
            if out.shape != result.shape:
                raise ValueError(f"out must have shape {result.shape}, got {tuple(out.shape)}")
            out.detach().copy_(torch.from_numpy(np.asarray(result)))
            return out
        torch.autograd.graph.increment_version(out)  # autograd shall notice
        return out

    def is_direct(self, x: Any) -> bool:
        return tensors.is_direct(x)

    def is_traced(self, x: Any) -> bool:
        return any(map(functorch.is_batchedtensor, layers(x)))

    def hides_values(self, x: Any) -> bool:
        return tensors.is_compiling() or tensors.is_wrapped(x)

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

    def vjp(self, formula: Formula, points: Arguments, options: Arguments, g: Any) -> Arguments:
        given = tensors.tensors_in({**options, **points, "g": g})
        create = torch.is_grad_enabled() and any(t.requires_grad for t in given)
        with torch.enable_grad():
            at = {
                name: point if point.requires_grad else point.detach().requires_grad_()
                for name, point in points.items()
            }
            out = formula(**at, **options)
            found = torch.autograd.grad(out, list(at.values()), g, create_graph=create)
        return dict(zip(at, found, strict=True))

    # Not a method that calls it: a call takes a tenth of a microsecond.
    call_everyday = staticmethod(torch_softmax.run_everyday)

    def call(self, operation: ArrayOperation, arguments: Arguments) -> Any:
        return_grad = arguments.pop("return_grad", False)
        given = [
            a for a in arguments.values() if type(a) not in NATIVE and isinstance(a, torch.Tensor)
        ]
        needs = [t for t in given if t.requires_grad] if torch.is_grad_enabled() else []
        direct = not operation.formula_only and all(map(tensors.is_direct, given))
        if direct and not needs:
            return tensors.by_kernel(operation, arguments, return_grad)
        if operation.takes_row_formula(arguments):
            return torch_softmax.run_family(operation, arguments)
        if direct and operation.kernel_gradient is not None:
            return torch_attention.run_streamed(operation, arguments)
        if direct and torch_losses.has_fused_gradient(operation, arguments, needs):
            return torch_losses.run_fused(operation, arguments, return_grad)
        if return_grad:
            return torch_losses.with_gradient(operation, arguments, bool(needs))
        assert operation.formula is not None
        return operation.formula(**arguments)


BACKEND = Torch()
