"""The objective of softmax regression, its gradient and curvature, some rows at a time.

With theta = (W, b) of shape (classes, features + 1), rows x that end in 1, z = theta x and row
weights s that add up to S,

    value     1/S sum of s cross_entropy(z / T, target)  +  1/2 sum of price (theta - centre)^2

A tile of rows is multiplied out by BLAS, turned into losses and gradients by the kernels, and
multiplied into a sum: no array of rows x classes is ever there. The tiles of a chunk are summed in
order, and then the chunks, so that the number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import FLOAT64, Array
from hotmax._kernels.numeric.sparse import add_sparse, sparse_logits
from hotmax._kernels.softmax.derivatives import direction_rows
from hotmax._losses.cross_entropy import label_losses, target_losses
from hotmax._softmax.functions import softmax

TILE_ENTRIES = 1 << 19  # entries of X in a tile: 4 MB of float64, which stay in the cache
LARGE = 1 << 20  # entries of X
CHUNKS = 16  # sums that are kept apart, at most
APART = 1 << 20  # entries of all of them, at most, if there are more than two


class DenseRows:
    """Rows of an array, as BLAS can read them."""

    def __init__(self, x: Array, kind: np.dtype[Any]) -> None:
        self.x, self.kind = x, kind
        self.readable = x.itemsize in x.strides

    def tile(self, part: slice) -> Array:
        x = self.x[part]
        if x.dtype != self.kind or not self.readable:
            return np.ascontiguousarray(x, self.kind)
        return x

    def logits(self, x: Array, weights: Array) -> Array:
        z: Array = np.matmul(x, weights.T)
        return z

    def add(self, x: Array, g: Array, total: Array) -> None:
        total += np.matmul(g.T, x)

    def squared(self, x: Array) -> Array:
        return np.square(x)

    def dense(self, x: Array) -> Array:
        return np.asarray(x, FLOAT64)


def check_columns(x: Any) -> None:
    """Refuse a CSR array with entries outside of it: kernels trust it, and SciPy does not look."""
    if not hasattr(x, "indptr"):
        return
    starts, columns = x.indptr, x.indices
    stored = min(columns.size, x.data.size)
    if (
        starts.size != x.shape[0] + 1
        or starts[0] < 0
        or starts[-1] > stored
        or (starts[1:] < starts[:-1]).any()
        or (columns.size and not 0 <= columns.min() <= columns.max() < x.shape[1])
    ):
        raise ValueError(
            f"X must be a sparse matrix whose columns lie in 0..{x.shape[1] - 1}, with rows that "
            f"lie in their order among its {stored} entries; see X.check_format()"
        )


class SparseRows:
    """Rows of a SciPy CSR array; a tile is (values, columns, starts)."""

    kind = FLOAT64

    def __init__(self, x: Any) -> None:
        self.x = x

    def tile(self, part: slice) -> tuple[Array, Array, Array]:
        starts = self.x.indptr[part.start : part.stop + 1]
        inside = slice(starts[0], starts[-1])
        return self.x.data[inside], self.x.indices[inside], starts - starts[0]

    def logits(self, x: tuple[Array, Array, Array], weights: Array) -> Array:
        z = np.zeros((x[2].size - 1, len(weights)), self.kind)
        sparse_logits(*x, np.ascontiguousarray(weights.T), z)
        return z

    def add(self, x: tuple[Array, Array, Array], g: Array, total: Array) -> None:
        add_sparse(*x, g, total)

    def squared(self, x: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        return x[0] ** 2, x[1], x[2]

    def dense(self, x: tuple[Array, Array, Array]) -> Array:
        rows = np.zeros((x[2].size - 1, self.x.shape[1]))
        np.add.at(rows, (np.repeat(np.arange(len(rows)), np.diff(x[2])), x[1]), x[0])
        return rows


@dataclass(frozen=True, eq=False)
class Data:
    """What a model is fitted to.

    Attributes:
        x: (rows, features): an array, or a CSR array of SciPy.
        labels: Class numbers, or None if there are `probabilities`.
        probabilities: Probabilities of the classes, or None.
        weights: A float64 weight for each row, or None if all are 1.
    """

    x: Any
    labels: Array | None
    probabilities: Array | None
    weights: Array | None
    classes: int
    intercept: bool
    temperature: float = 1.0
    smoothing: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Of theta."""
        return self.classes, self.x.shape[1] + self.intercept

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.x, np.ndarray)

    @property
    def is_large(self) -> bool:
        """Are these dense rows, enough of them to think about the speed of their products?"""
        return not self.is_sparse and bool(np.prod(self.x.shape) >= LARGE)

    @cached_property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.x.shape[0] if self.weights is None else self.weights.sum())

    @cached_property
    def shares(self) -> Array:
        """The weight of each class among the targets, over that of all rows."""
        counts = np.zeros(self.classes)
        for part in row_blocks(self.x.shape[0], self.classes):
            s = None if self.weights is None else self.weights[part]
            if self.labels is not None:
                counts += np.bincount(self.labels[part], s, self.classes)
            elif self.probabilities is not None:
                y = self.probabilities[part].astype(FLOAT64, copy=False)
                counts += y.sum(0) if s is None else s @ y
        share: Array = counts / self.total
        return share


def row_blocks(rows: int, width: int) -> list[slice]:
    """Slices of rows of that many entries each."""
    step = max(TILE_ENTRIES // max(width, 1), 16)
    return [slice(first, min(first + step, rows)) for first in range(0, rows, step)]


class Passes:
    """Sums over all rows, each in one visit."""

    def __init__(self, data: Data, kind: np.dtype[Any] = FLOAT64) -> None:
        self.data = data
        self.rows: Any = SparseRows(data.x) if data.is_sparse else DenseRows(data.x, kind)
        self.temperature = np.array([data.temperature])
        self.class_weights = np.empty(0)
        if data.smoothing or data.probabilities is not None:
            self.class_weights = np.ones(data.classes)

    def _sum(self, work: Callable[[slice, Array], None], size: int) -> Array:
        """The sum of what work(tile, total) adds to its total."""
        rows, features = self.data.x.shape
        tile = row_blocks(rows, max(features, 4 * self.data.classes))[0].stop
        chunks = CHUNKS if CHUNKS * size <= APART else 2 if size <= 4 * APART else 1
        chunk = -(-rows // chunks)
        chunk = max(-(-chunk // tile) * tile, tile)
        totals = np.zeros((-(-rows // chunk), size))

        def run(start: int, stop: int) -> None:
            for first in range(start, stop, tile):
                work(slice(first, min(first + tile, stop)), totals[start // chunk])

        threads.for_ranges(run, rows, chunk)
        total: Array = totals.sum(axis=0)
        return total

    def _split(self, theta: Array, kind: Any) -> tuple[Array, Array | None]:
        features = self.data.x.shape[1]
        weights = np.ascontiguousarray(theta[:, :features], kind)
        return weights, theta[:, features].astype(kind) if self.data.intercept else None

    def _logits(self, x: Any, weights: Array, bias: Array | None) -> Array:
        z: Array = self.rows.logits(x, weights)
        if bias is not None:
            z += bias
        return z

    def _add(self, x: Any, g: Array, total: Array) -> None:
        features = self.data.x.shape[1]
        self.rows.add(x, g, total[:, :features])
        if self.data.intercept:
            total[:, features] += g.sum(axis=0, dtype=FLOAT64)

    def losses(self, theta: Array) -> tuple[float, Array]:
        """The sum of the losses of all rows, and its gradient."""
        data = self.data
        weights, bias = self._split(theta, self.rows.kind)

        def work(part: slice, total: Array) -> None:
            x = self.rows.tile(part)
            z = self._logits(x, weights, bias)
            g, values = np.empty_like(z), np.empty(len(z))
            options = (self.class_weights, data.smoothing, 1.0, values, g, self.temperature)
            if data.labels is not None:
                label_losses(z, data.labels[part], *options)
            elif data.probabilities is not None:
                target_losses(z, np.ascontiguousarray(data.probabilities[part], z.dtype), *options)
            if data.weights is not None:
                values *= data.weights[part]
                g *= data.weights[part, None].astype(z.dtype)
            total[0] += values.sum()
            self._add(x, g, total[1:].reshape(data.shape))

        total = self._sum(work, 1 + int(np.prod(data.shape)))
        return float(total[0]), total[1:].reshape(data.shape)

    def products(self, theta: Array, direction: Array) -> Array:
        """The Hessian of the sum of the losses, times a direction."""
        data = self.data
        both, biases = self._split(np.concatenate([theta, direction]), self.rows.kind)

        def work(part: slice, total: Array) -> None:
            x = self.rows.tile(part)
            z = self._logits(x, both, biases).astype(FLOAT64, copy=False)
            v, g = np.ascontiguousarray(z[:, data.classes :]), np.empty((len(z), data.classes))
            direction_rows(np.ascontiguousarray(z[:, : data.classes]), v, g, self.temperature)
            g *= self._row_weights(part) / data.temperature
            self._add(x, g.astype(self.rows.kind, copy=False), total.reshape(data.shape))

        return self._sum(work, int(np.prod(data.shape))).reshape(data.shape)

    def curvatures(self, theta: Array) -> Array:
        """The diagonal of the Hessian of the sum of the losses."""
        data = self.data
        weights, bias = self._split(theta, self.rows.kind)

        def work(part: slice, total: Array) -> None:
            x = self.rows.tile(part)
            p = softmax(self._logits(x, weights, bias), temperature=data.temperature)
            g = p * (1.0 - p) * (self._row_weights(part) / data.temperature**2)
            g = g.astype(self.rows.kind, copy=False)
            self._add(self.rows.squared(x), g, total.reshape(data.shape))

        return self._sum(work, int(np.prod(data.shape))).reshape(data.shape)

    def information(self, theta: Array) -> Array:
        """The Hessian of the sum of the losses by theta[1:] - theta[0], row after row."""
        data = self.data
        weights, bias = self._split(theta, FLOAT64)
        free, width = data.classes - 1, data.shape[1]

        def work(part: slice, total: Array) -> None:
            tile = self.rows.tile(part)
            x = self.rows.dense(tile)
            z = x @ weights.T + (0.0 if bias is None else bias)
            p = softmax(z, temperature=data.temperature)[:, 1:]
            if data.intercept:
                x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
            s = np.broadcast_to(self._row_weights(part) / data.temperature**2, (len(x), 1))
            sums = total.reshape(free, width, free, width)
            for a in range(free):
                scaled = x * (s * p[:, a, None])
                sums[a, :, a] += scaled.T @ x
                for b in range(a + 1):
                    product = scaled.T @ (x * p[:, b, None])
                    sums[a, :, b] -= product
                    if b < a:
                        sums[b, :, a] -= product.T

        return self._sum(work, (free * width) ** 2).reshape(free * width, free * width)

    def _row_weights(self, part: slice) -> Any:
        return 1.0 if self.data.weights is None else self.data.weights[part, None]


class Objective:
    """The mean loss and the penalty, as a function of theta."""

    def __init__(self, data: Data, price: Array, centre: Array | None = None) -> None:
        self.data, self.price, self.centre = data, price, centre
        self.passes = Passes(data)

    def compute_in(self, kind: np.dtype[Any]) -> None:
        """Make products of dense rows in this type from now on, whatever X is of."""
        self.passes = Passes(self.data, kind)

    def at(self, theta: Array) -> tuple[float, Array]:
        """The value and the gradient."""
        loss, gradient = self.passes.losses(theta)
        away = theta if self.centre is None else theta - self.centre
        pull = self.price * away
        gradient /= self.data.total
        gradient += pull
        return loss / self.data.total + 0.5 * float(np.vdot(pull, away)), gradient

    def product(self, theta: Array, direction: Array) -> Array:
        """The Hessian times a direction."""
        product = self.passes.products(theta, direction)
        product /= self.data.total
        product += self.price * direction
        return product
