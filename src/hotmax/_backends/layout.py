"""Arrays of any library, seen as rows of classes; and constants beside them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._backends.protocol import Array, placement
from hotmax._core.arrays import Axis, normalize_axes


class Layout:
    """Which axes of a shape are the classes, and how to bring them to the end and back."""

    def __init__(self, shape: tuple[int, ...], axis: Axis) -> None:
        self.shape = tuple(shape)
        self.axes = normalize_axes(axis, len(self.shape))
        self.others = tuple(a for a in range(len(self.shape)) if a not in self.axes)
        self.reduced = tuple(1 if a in self.axes else n for a, n in enumerate(self.shape))
        self.classes = math.prod([self.shape[a] for a in self.axes])

    def rows(self, xp: Any, array: Array, classes: int | None = None) -> Array:
        """array with its classes along one last axis."""
        order = self.others + self.axes
        permuted = array if order == tuple(range(len(order))) else xp.permute_dims(array, order)
        count = self.classes if classes is None else classes
        return xp.reshape(permuted, (*(self.shape[a] for a in self.others), count))

    def entries(self, xp: Any, rows: Array) -> Array:
        """The way back from `rows`."""
        order = self.others + self.axes
        permuted = xp.reshape(rows, tuple(self.shape[a] for a in order))
        back = tuple(order.index(a) for a in range(len(order)))
        return permuted if back == tuple(range(len(back))) else xp.permute_dims(permuted, back)

    def numbers(self, xp: Any, rows: Array, keepdims: bool) -> Array:
        """One number for each row, from an array of length 1 along its last axis."""
        return xp.reshape(rows, self.reduced if keepdims else self.kept())

    def kept(self) -> tuple[int, ...]:
        return tuple(self.shape[a] for a in self.others)

    def indices(self, xp: Any, like: Array) -> Array:
        """The index of each class, in C order, to broadcast against an array of this shape."""
        shape = tuple(n if a in self.axes else 1 for a, n in enumerate(self.shape))
        return xp.reshape(xp.arange(self.classes, dtype=like.dtype, **placement(like)), shape)


def type_name(array: Array) -> str:
    """float32, int64 and so on, in every library."""
    return str(array.dtype).rpartition(".")[2]


def constant(xp: Any, array: Any, like: Array) -> Array:
    """A NumPy array as one of this library, where `like` is; in memory of its own.

    torch and jax would share the memory, and a later change would reach a backward pass unseen.
    """
    return xp.asarray(own_copy(array), **placement(like))


def own_copy(array: Any) -> Any:
    """A writeable copy in native byte order; what was broadcast is copied once."""
    shown = tuple(slice(None, None if step else 1) for step in array.strides)
    copy = array[shown or ...].astype(array.dtype.newbyteorder("="), order="K")
    if copy.shape == array.shape:
        return copy
    steps = [new if old else 0 for new, old in zip(copy.strides, array.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(copy, array.shape, steps)


def scalar_like(xp: Any, value: float, like: Array) -> Array:
    return xp.asarray(value, dtype=like.dtype, **placement(like))


def bits(xp: Any, like: Array) -> int:
    return int(xp.finfo(like.dtype).bits)
