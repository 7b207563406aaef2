"""Cross entropy of a linear layer, whose logits are computed a tile of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import LABELS, NATIVE, dispatch, operation
from hotmax._core import threads
from hotmax._core.arrays import FLOAT32, Array, as_array, as_temperature, compute_type, result_type
from hotmax._core.checks import (
    as_bool,
    as_class_numbers,
    as_smoothing,
    check_reduction,
    in_type,
    label_count,
    reduce_values,
    scale_of_gradient,
)
from hotmax._kernels.softmax.short import SHORT
from hotmax._losses import generic_linear
from hotmax._losses.cross_entropy import label_losses
from hotmax._losses.generic_linear import TILE_LOGITS

GRADIENT_CLASSES = 4096  # classes whose gradient by the weight is added at one time
TASK = 8  # rows of logits that a thread takes at one time


def _tiles(rows: int, classes: int) -> list[slice]:
    """Rows whose logits are computed together: enough for BLAS to be fast."""
    step = max(min(TILE_LOGITS // max(classes, 1), rows), 16)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


@operation(
    LABELS,
    generic_linear.linear_cross_entropy,
    differentiable=("hidden", "weight", "bias"),
    rowwise=False,
)
def linear_cross_entropy(
    hidden: object,
    weight: object,
    targets: object,
    bias: object = None,
    *,
    temperature: float = 1.0,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    return_grad: bool = False,
) -> Any:
    """Cross entropy of the logits hidden @ weight.T + bias, some rows of them at a time.

    With a large vocabulary the logits, and their gradient, are by far the largest arrays of a
    training step. Here a tile of rows is multiplied out, turned into its gradient in place, and
    multiplied into the gradients of hidden and weight.

    Args:
        hidden: (..., features).
        weight: (classes, features).
        targets: Integers, the classes, in the shape of `hidden` without its last dimension.
        bias: (classes,), or None.
        temperature: A number, as in `softmax`.
        label_smoothing, ignore_index, reduction: As in `cross_entropy`.
        return_grad: Also return the gradients (d_hidden, d_weight, d_bias); d_bias is None if bias
            is.

    Returns:
        The loss in the float type of hidden, or (loss, gradients). The products are NumPy's (BLAS),
        on its own threads: unlike elsewhere, the last bits may depend on the batch and on them.

    Example:
        >>> import numpy as np
        >>> import hotmax as hm
        >>> hidden, weight = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> loss, (d_hidden, d_weight, d_bias) = hm.linear_cross_entropy(
        ...     hidden, weight, [0, 1], return_grad=True)
        >>> round(float(loss), 6)
        0.220095

    The same in NumPy, as long as nothing overflows and the logits z = hidden @ weight.T fit:
        (np.log(np.exp(hidden @ weight.T / T).sum(-1))
        - (hidden @ weight.T / T)[np.arange(len(y)), y]).mean()
    """
    if type(hidden) not in NATIVE:
        return dispatch(linear_cross_entropy, locals())
    check_reduction(reduction)
    return_grad = as_bool(return_grad, "return_grad")
    smoothing = as_smoothing(label_smoothing)
    t = as_temperature(temperature)
    if t.ndim:
        raise ValueError(f"temperature must be one number, got shape {t.shape}")
    h, w = as_array(hidden, "hidden"), as_array(weight, "weight")
    if h.ndim == 0 or w.ndim != 2 or h.shape[-1] != w.shape[1]:
        raise ValueError(
            f"hidden must be (..., features) and weight (classes, features), got {h.shape} and "
            f"{w.shape}"
        )
    shape, (classes, features) = h.shape, w.shape
    offset = None if bias is None else as_array(bias, "bias")
    if offset is not None and offset.shape != (classes,):
        raise ValueError(f"bias must have shape {(classes,)}, got {offset.shape}")
    labels = as_class_numbers(targets, shape[:-1], classes, ignore_index)
    kind = max((compute_type(a.dtype) for a in (h, w)), key=lambda k: k.itemsize)
    types = [result_type(a.dtype) for a in (h, w)]
    h = np.ascontiguousarray(h.reshape(labels.size, features), kind)
    if (labels < 0).any():  # what is ignored may be nan, and 0 * nan is
        h = np.where(labels[:, None] < 0, kind.type(0), h)
    w = np.ascontiguousarray(w, kind)
    offset_in_kind = None if offset is None else offset.astype(kind)
    nothing = np.empty(0)
    count = label_count(labels, nothing)
    layer = _Layer(
        h, w, offset_in_kind, labels, float(t), smoothing, scale_of_gradient(reduction, count[0])
    )
    with np.errstate(all="ignore"):
        layer.run(return_grad)
    value = in_type(reduce_values(layer.values, reduction, count, shape[:-1]), types[0])
    if not return_grad:
        return value
    with np.errstate(all="ignore"):
        d_hidden = layer.d_hidden.astype(types[0], copy=False).reshape(shape)
        d_weight = layer.d_weight.astype(types[1], copy=False)
        d_bias = None
        if offset is not None:
            d_bias = layer.d_bias.astype(result_type(offset.dtype), copy=False)
    return value, (d_hidden, d_weight, d_bias)


class _Layer:
    """The tiles of one call, one after the other."""

    def __init__(
        self,
        hidden: Array,
        weight: Array,
        bias: Array | None,
        labels: Array,
        temperature: float,
        smoothing: float,
        scale: float,
    ) -> None:
        self.hidden, self.weight, self.bias, self.labels = hidden, weight, bias, labels
        self.temperature = np.array([temperature])
        self.smoothing, self.scale = smoothing, scale
        self.shares = np.ones(len(weight)) if smoothing else np.empty(0)
        self.values = np.zeros(len(hidden))

    def run(self, with_gradients: bool) -> None:
        rows, classes = len(self.hidden), len(self.weight)
        kind = self.hidden.dtype
        tiles = _tiles(rows, classes)
        if with_gradients:
            self.d_hidden = np.zeros_like(self.hidden)
            self.d_weight = np.zeros_like(self.weight)
            self.d_bias = np.zeros(classes)
            product = np.empty((min(GRADIENT_CLASSES, classes), self.weight.shape[1]), kind)
        if not (tiles and classes):
            return
        size = tiles[0].stop
        logits = np.empty((size, classes), kind)
        # In place, but where the kernels still read logits after they write gradients.
        apart = self.smoothing > 0.0 or classes <= SHORT or kind != FLOAT32
        grads = np.empty_like(logits) if apart and with_gradients else logits
        for tile in tiles:
            used = slice(0, tile.stop - tile.start)
            x = np.matmul(self.hidden[tile], self.weight.T, out=logits[used])
            if self.bias is not None:
                x += self.bias
            self._losses(x, grads[used] if with_gradients else grads[:0], tile)
            if with_gradients:
                g = grads[used]
                np.matmul(g, self.weight, out=self.d_hidden[tile])
                if self.bias is not None:
                    self.d_bias += g.sum(axis=0, dtype=np.float64)
                for first in range(0, classes, GRADIENT_CLASSES):
                    some = slice(first, min(first + GRADIENT_CLASSES, classes))
                    part = product[: some.stop - first]
                    np.matmul(g[:, some].T, self.hidden[tile], out=part)
                    self.d_weight[some] += part

    def _losses(self, x: Array, grads: Array, tile: slice) -> None:
        values, labels = self.values[tile], self.labels[tile]

        def work(start: int, stop: int) -> None:
            rows = slice(start, stop)
            label_losses(
                x[rows],
                labels[rows],
                self.shares,
                self.smoothing,
                self.scale,
                values[rows],
                grads[rows],
                self.temperature,
            )

        threads.for_ranges(work, len(x), max(TASK, (1 << 17) // x.shape[1]))
