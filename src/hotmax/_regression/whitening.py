"""Coordinates in which the objective is nearly round, so that few steps find its minimum.

At theta = 0 the Hessian is that of all classes alike: the second moments of the columns, over
classes T^2, and the penalty. In coordinates v with theta = v A, A^-T A^-1 = that matrix, it is the
identity. The minimum is the same one: only the way to it is shorter (26 evaluations instead of 532,
for 60,000 x 784 x 10 of scikit-learn's make_classification down to a gradient of 1e-4).

The intercept takes in the means of the columns, so they are as good as centred, sparse or not.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.blas import dsyrk

from hotmax._core.arrays import FLOAT64, Array
from hotmax._kernels.numeric.sparse import add_squares
from hotmax._regression.objective import Data, Passes, row_blocks

SQUARE = 1024  # columns up to which all their products are taken, whatever the rows are
MOST_COLUMNS = 4096  # the same, if the square is no larger than an array of rows x classes
ROWS_PER_COLUMN = 4  # rows for each column, to take products of
LEAST_SAMPLED_ROWS = 2048  # rows
OFFSET = 300.0  # means over deviations, and deviations, that leave float32 digits enough


class Coordinates(Protocol):
    is_mild: bool  # can float32 tell the rows apart?

    def theta(self, v: Array) -> Array: ...

    def gradient(self, g: Array) -> Array:
        """By v, from that by theta."""


class Scaled:
    """theta = v / scale for each column, and the intercept less what the means bring."""

    def __init__(self, scale: Array, means: Array, level: float) -> None:
        self.scale, self.means, self.level = scale, means, level
        self.is_mild = False

    def theta(self, v: Array) -> Array:
        return self._with_intercept(v, v[:, : self.scale.size] / self.scale)

    def gradient(self, g: Array) -> Array:
        by_weights, last = self._without_intercept(g)
        return np.concatenate([by_weights / self.scale, last], axis=1)

    def _with_intercept(self, v: Array, weights: Array) -> Array:
        if v.shape[1] == weights.shape[1]:
            return weights
        last = v[:, -1] / self.level - weights @ self.means
        return np.concatenate([weights, last[:, None]], axis=1)

    def _without_intercept(self, g: Array) -> tuple[Array, Array]:
        if g.shape[1] == self.means.size:
            return g, g[:, :0]
        return g[:, :-1] - np.outer(g[:, -1], self.means), g[:, -1:] / self.level


class Rotated(Scaled):
    """The same with a triangular matrix for the scales: M = L L^T, theta = v L^-1."""

    def __init__(self, lower: Array, means: Array, level: float, is_mild: bool) -> None:
        self.lower, self.means, self.level, self.is_mild = lower, means, level, is_mild

    def theta(self, v: Array) -> Array:
        inner = v[:, : self.means.size].T
        options: dict[str, Any] = {"lower": True, "check_finite": False}
        weights = solve_triangular(self.lower, inner, trans="T", **options).T
        return self._with_intercept(v, weights)

    def gradient(self, g: Array) -> Array:
        by_weights, last = self._without_intercept(g)
        inner = solve_triangular(self.lower, by_weights.T, lower=True, check_finite=False).T
        return np.concatenate([inner, last], axis=1)


def column_moments(data: Data) -> tuple[Array, Array]:
    """(means, variances) of all columns; about 0 if there is no intercept."""
    rows, features = data.x.shape
    sums, squares = np.zeros(features), np.zeros(features)
    for part in row_blocks(rows, features):
        s = np.ones(part.stop - part.start) if data.weights is None else data.weights[part]
        if data.is_sparse:
            add_squares(*Passes(data).rows.tile(part), s, sums, squares)
        else:
            x = data.x[part].astype(FLOAT64, copy=False)
            sums += s @ x
            squares += s @ np.square(x)
    sums, squares = sums / data.total, squares / data.total
    if not data.intercept:
        return np.zeros(features), squares
    return sums, np.maximum(squares - sums**2, 0.0)


def column_products(data: Data) -> tuple[Array, Array, int]:
    """(means, products, rows) of evenly spaced rows; only the lower triangle of the products."""
    rows, features = data.x.shape
    step = max(rows // max(ROWS_PER_COLUMN * features, LEAST_SAMPLED_ROWS), 1)
    chosen = np.arange(0, rows, step)
    s = np.ones(chosen.size) if data.weights is None else data.weights[chosen]
    total = float(s.sum())
    if not total > 0.0:  # all the weight is elsewhere: any will do
        s, total = np.ones(chosen.size), float(chosen.size)
    means = np.zeros(features)
    blocks = row_blocks(chosen.size, features)
    if data.intercept:
        for part in blocks:
            means += s[part] @ data.x[chosen[part]]
        means /= total
    products = np.zeros((features, features), order="F")
    for part in blocks:
        x = data.x[chosen[part]]
        x = x.toarray() if data.is_sparse else x
        x = (x - means) * np.sqrt(s[part] / total)[:, None]
        dsyrk(1.0, x.T, beta=1.0, c=products, lower=1, overwrite_c=1)
    return means, products, chosen.size


def whiten(data: Data, price: Array) -> Coordinates:
    """Coordinates for this data, with a price for each column (a mean one, if classes differ)."""
    rows, features = data.x.shape
    curve = 1.0 / (data.classes * data.temperature**2)
    price = np.broadcast_to(price, data.shape).mean(axis=0)
    level = np.sqrt(curve + price[-1]) if data.intercept else 1.0
    price = price[:features]
    small = features**2 <= 2 * rows * data.classes and features <= MOST_COLUMNS
    if features <= SQUARE or small:
        means, products, used = column_products(data)
        diagonal_indices = np.diag_indices(features)
        diagonal = products[diagonal_indices]
        deviations = np.sqrt(diagonal)
        varies = deviations > 1e-12 * np.abs(means)
        near = np.abs(means[varies]) <= OFFSET * deviations[varies]
        sizes = (deviations[varies] > OFFSET**-3) & (deviations[varies] < OFFSET**3)
        is_mild = bool((near & sizes).all())
        products *= curve
        if used < rows and (diagonal > 0.0).any():
            # A column that the chosen rows do not see may still be there.
            rare = np.median(diagonal[diagonal > 0.0]) / used
            diagonal = np.where(diagonal > 0.0, diagonal, rare)
        own = diagonal * curve + price
        # What no row can tell apart (constant columns, copies) must not become a direction of its
        # own length: more so with the noise of float32.
        noise = np.sqrt(np.finfo(data.x.dtype).eps)
        products[diagonal_indices] = np.where(own > 0.0, own * (1.0 + noise), 1.0)
        lower = cholesky(products, lower=True, overwrite_a=True, check_finite=False)
        return Rotated(lower, means, level, is_mild)
    means, variances = column_moments(data)
    scale = np.sqrt(variances * curve + price)
    return Scaled(np.where(scale > 0.0, scale, 1.0), means, level)
