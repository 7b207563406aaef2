"""Cross entropy of a linear layer on arrays of other libraries, some rows at a time.

A tile's logits are computed again for the gradient and never kept, so that of those only one tile
is there at one time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._boundary import library_of
from hotmax._foreign import Array, as_numpy, is_traced
from hotmax._foreign_losses import cross_entropy
from hotmax._generic import place
from hotmax._targets import as_class_numbers, check_reduction

TILE = 3 << 22  # logits that are there at one time (50 MB of float32)

Loss = Callable[[Array, Array], Array]


def linear_cross_entropy(
    hidden: Array,
    weight: Array,
    targets: Any,
    bias: Any = None,
    temperature: Any = 1.0,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    xp = array_namespace(hidden)
    if library_of(weight) is None:
        weight = xp.asarray(np.asarray(weight), **place(hidden))
    if bias is not None and library_of(bias) is None:
        bias = xp.asarray(np.asarray(bias), **place(hidden))
    if hidden.ndim == 0 or weight.ndim != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"hidden must be (..., features) and weight (classes, features), got "
            f"{tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    shape, (classes, features) = tuple(hidden.shape[:-1]), weight.shape
    if bias is not None and tuple(bias.shape) != (classes,):
        raise ValueError(f"bias must have shape {(classes,)}, got {tuple(bias.shape)}")
    rows = math.prod(shape)
    if is_traced(targets):
        labels = targets
    else:
        ignored = -1
        numbers = as_class_numbers(as_numpy(targets), shape, classes, ignore_index)
        labels = xp.asarray(np.where(numbers < 0, ignored, numbers), **place(hidden))
        ignore_index = ignored
    labels = xp.reshape(labels, (rows,))

    def loss(h: Array, y: Array) -> Array:
        logits = xp.matmul(h, xp.permute_dims(weight, (1, 0)))
        return cross_entropy(
            logits if bias is None else logits + bias,
            y,
            temperature=temperature,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            reduction="none",
        )

    step = max(TILE // max(classes, 1), 16)
    losses = in_tiles(loss, xp.reshape(hidden, (rows, features)), labels, step)
    if reduction == "none":
        return xp.reshape(losses, shape)
    total = xp.sum(losses)
    if reduction == "sum":
        return total
    counted = xp.ones_like(labels) if ignore_index is None else labels != ignore_index
    count = xp.sum(xp.astype(counted, losses.dtype))
    return total / xp.where(count > 0, count, count + 1.0)


def in_tiles(loss: Loss, hidden: Array, labels: Array, step: int) -> Array:
    """loss(hidden, labels) of `step` rows at a time."""
    rows, library = hidden.shape[0], library_of(hidden)
    if rows <= step:
        return loss(hidden, labels)
    if library == "jax":
        return in_jax(loss, hidden, labels, step)
    if library == "torch":
        loss = forgetful(loss)
    tiles = [slice(first, min(first + step, rows)) for first in range(0, rows, step)]
    return array_namespace(hidden).concat([loss(hidden[t, :], labels[t]) for t in tiles])


def in_jax(loss: Loss, hidden: Array, labels: Array, step: int) -> Array:
    """Tiles of one size, the last one filled up with rows that are left out of the result."""
    import jax

    rows, features = hidden.shape
    more = -rows % step
    tiles = (
        jax.numpy.pad(hidden, ((0, more), (0, 0))).reshape(-1, step, features),
        jax.numpy.pad(labels, (0, more)).reshape(-1, step),
    )
    again = jax.checkpoint(loss)
    return jax.lax.map(lambda tile: again(*tile), tiles).reshape(-1)[:rows]


def forgetful(loss: Loss) -> Loss:
    """A loss of torch that keeps nothing for its derivative: torch.func alone cannot do it."""
    import torch
    from torch.utils.checkpoint import checkpoint

    if not torch.is_grad_enabled() or torch._C._functorch.maybe_current_level() is not None:
        return loss
    return lambda h, y: checkpoint(loss, h, y, use_reentrant=False)
