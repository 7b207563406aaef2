"""Cross entropy of a linear layer on arrays of other libraries, some rows at a time.

The logits of a tile are recomputed for the gradient instead of kept, so that only one tile of them
is in memory at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.layout import constant
from hotmax._backends.protocol import Array, backend_of, is_traced, placement, values_of
from hotmax._core.arrays import is_other_library
from hotmax._core.checks import as_class_numbers, check_reduction
from hotmax._losses.generic import cross_entropy

TILE_LOGITS = 3 << 22  # logits in memory at one time (50 MB of float32)


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
    if not is_other_library(weight):
        weight = constant(xp, np.asarray(weight), hidden)
    if bias is not None and not is_other_library(bias):
        bias = constant(xp, np.asarray(bias), hidden)
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
        numbers = as_class_numbers(values_of(targets), shape, classes, ignore_index)
        labels = xp.asarray(np.where(numbers < 0, ignored, numbers), **placement(hidden))
        ignore_index = ignored
    labels = xp.reshape(labels, (rows,))

    def loss(h: Array, y: Array, weight: Array, bias: Any, temperature: Any) -> Array:
        logits = xp.matmul(h, xp.permute_dims(weight, (1, 0)))
        return cross_entropy(
            logits if bias is None else logits + bias,
            y,
            temperature=temperature,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            reduction="none",
        )

    step = max(TILE_LOGITS // max(classes, 1), 16)
    shared = (weight, bias, temperature)
    flat, backend = xp.reshape(hidden, (rows, features)), backend_of(hidden)
    if rows <= step or backend is None:
        losses = loss(flat, labels, *shared)
    else:
        losses = backend.map_tiles(loss, flat, labels, shared, step)
    if reduction == "none":
        return xp.reshape(losses, shape)
    total = xp.sum(losses)
    if reduction == "sum":
        return total
    counted = xp.ones_like(labels) if ignore_index is None else labels != ignore_index
    count = xp.sum(xp.astype(counted, losses.dtype))
    return total / xp.where(count > 0, count, count + 1.0)
