"""Losses under torch.compile: an operator of torch.library, with a backward of its own.

It is taken as it is, without a graph break.

The kernels compute a loss and its gradients in one visit; the gradients are kept for the backward
pass. Second derivatives need the functions of hotmax outside of torch.compile.
"""

from __future__ import annotations

from typing import Any

import torch

from hotmax._backends import torch_tensors as tensors
from hotmax._backends.operation import OPERATIONS
from hotmax._core.arrays import normalize_axes

# The tensors of each loss by their names, in the order of the operator's.
LOSS_TENSORS = {
    "cross_entropy": ("logits", "targets", "weight"),
    "focal_loss": ("logits", "targets", "weight"),
    "brier_loss": ("logits", "targets"),
    "mae_loss": ("logits", "targets"),
    "distillation_loss": ("student", "teacher"),
    "linear_cross_entropy": ("hidden", "targets", "weight", "bias"),
}
# Its further numbers, in order.
LOSS_NUMBERS = {
    "cross_entropy": ("temperature", "label_smoothing"),
    "focal_loss": ("temperature", "gamma"),
    "linear_cross_entropy": ("temperature", "label_smoothing"),
}
LOSS_GRADIENTS = {"linear_cross_entropy": (0, 2, 3)}  # of which of the tensors; else of the first


def gradients_of(name: str) -> tuple[int, ...]:
    return LOSS_GRADIENTS.get(name, (0,))


@torch.library.custom_op("hotmax::loss", mutates_args=())
def loss_operator(
    name: str,
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor | None,
    fourth: torch.Tensor | None,
    numbers: list[float],
    axis: int,
    ignore_index: int | None,
    reduction: str,
    with_gradients: bool,
) -> list[torch.Tensor]:
    """The loss, and with_gradients a gradient for each tensor that it can be differentiated by."""
    given = dict(zip(LOSS_TENSORS[name], (first, second, third, fourth), strict=False))
    options: dict[str, Any] = dict(
        zip(LOSS_NUMBERS.get(name, ("temperature",)), numbers, strict=True)
    )
    if name != "linear_cross_entropy":
        options["axis"] = axis
    if name != "distillation_loss":
        options["ignore_index"] = ignore_index
    arguments = {**given, **options, "reduction": reduction}
    operation = OPERATIONS[name]
    if not with_gradients:
        return [tensors.by_kernel(operation, arguments)]
    loss, gradients = tensors.by_kernel(operation, arguments, True)
    several = gradients if isinstance(gradients, tuple) else (gradients,)
    return [loss, *(g for g in several if g is not None)]


@loss_operator.register_fake
def _(
    name: str,
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor | None,
    fourth: torch.Tensor | None,
    numbers: list[float],
    axis: int,
    ignore_index: int | None,
    reduction: str,
    with_gradients: bool,
) -> list[torch.Tensor]:
    classes = first.ndim - 1 if name == "linear_cross_entropy" else axis % max(first.ndim, 1)
    rows = [n for a, n in enumerate(first.shape) if a != classes]
    loss = torch.empty(rows if reduction == "none" else [], dtype=first.dtype, device=first.device)
    if not with_gradients:
        return [loss]
    given = (first, second, third, fourth)
    points = [t for t in (given[place] for place in gradients_of(name)) if t is not None]
    return [loss, *(torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in points)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    name, *given = inputs[:5]
    ctx.differentiated = [place for place in gradients_of(name) if given[place] is not None]
    ctx.axis, ctx.shape = inputs[6], given[0].shape
    ctx.save_for_backward(*output[1:])


def _backward(ctx: Any, gradients: list[torch.Tensor | None]) -> tuple[Any, ...]:
    g = gradients[0]
    found: list[Any] = [None] * 10
    if g is not None:
        if g.ndim:  # a loss for each row, whose gradient is that row's
            axes = normalize_axes(ctx.axis, len(ctx.shape))
            g = g.reshape([1 if a in axes else n for a, n in enumerate(ctx.shape)])
        for place, gradient in zip(ctx.differentiated, ctx.saved_tensors, strict=True):
            found[1 + place] = gradient * g.to(gradient.dtype)
    return tuple(found)


loss_operator.register_autograd(_backward, setup_context=_save)


def run_loss(
    name: str,
    given: tuple[torch.Tensor | None, ...],
    numbers: list[float],
    axis: int,
    ignore_index: int | None,
    reduction: str,
) -> torch.Tensor:
    """A loss by the operator, with gradients where they are needed."""
    first, second, third, fourth = (*given, None, None)[:4]
    points = [given[place] for place in gradients_of(name) if place < len(given)]
    needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in points)
    found: list[torch.Tensor] = loss_operator(
        name, first, second, third, fourth, numbers, axis, ignore_index, reduction, needed
    )
    return found[0]


def fits_operator(given: tuple[torch.Tensor | None, ...]) -> bool:
    """Can the operator compute it? It reads the memory of the CPU."""
    return all(t is None or t.device.type == "cpu" for t in given)
