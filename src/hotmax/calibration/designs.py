"""What each method of structured scaling adds to the scores of a row, linear in its numbers.

A part gives the scores that numbers add (`scores`); the derivative by the numbers of a function
whose derivative by the scores is known (`adjoint`); the diagonal of the Hessian (`squares`); the
price of the square of each number (`prices`); and the parameter that they make (`values`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array

KNOTS = (-4.0, -2.0, 0.0, 2.0, 4.0)  # of the spline, in centred scores
SQUARE_UNIT = 10.0  # squares of scores are divided by it, so that they are of their size


@dataclass(frozen=True)
class Bias:
    """A number for each class."""

    classes: int

    @property
    def prices(self) -> Array:
        return np.full(self.classes, float(self.classes))

    def scores(self, theta: Array) -> Array:
        return theta

    def adjoint(self, g: Array) -> Array:
        found: Array = g.sum(0)
        return found

    def squares(self, v: Array) -> Array:
        return self.adjoint(v)

    def values(self, theta: Array) -> Array:
        return theta


@dataclass(frozen=True)
class ByClass:
    """A number for each class times a function of its score; last, one that is added to all."""

    feature: Array  # (rows, classes)

    @property
    def prices(self) -> Array:
        k = self.feature.shape[1]
        return np.append(np.full(k, float(k)), 1.0)

    def scores(self, theta: Array) -> Array:
        return self.feature * self.values(theta)

    def adjoint(self, g: Array) -> Array:
        found = np.einsum("nk,nk->k", g, self.feature)
        return np.append(found, found.sum())

    def squares(self, v: Array) -> Array:
        return self.adjoint(v * self.feature)

    def values(self, theta: Array) -> Array:
        found: Array = theta[:-1] + theta[-1]
        return found


@dataclass(frozen=True)
class Pairs:
    """A number for each pair of classes: the score of one times it adds to that of the other.

    Last, a number that is added to those of a class with itself.
    """

    z: Array

    @property
    def prices(self) -> Array:
        k = self.z.shape[1]
        full = np.full((k, k), float(k * (k - 1)))
        np.fill_diagonal(full, float(k))
        return np.append(full, 1.0)

    def scores(self, theta: Array) -> Array:
        found: Array = self.z @ self.values(theta).T
        return found

    def adjoint(self, g: Array) -> Array:
        full = g.T @ self.z
        return np.append(full, np.trace(full))

    def squares(self, v: Array) -> Array:
        full = v.T @ (self.z * self.z)
        return np.append(full, np.trace(full))

    def values(self, theta: Array) -> Array:
        k = self.z.shape[1]
        full = theta[:-1].reshape(k, k).copy()
        full[np.diag_indices(k)] += theta[-1]
        return full


@dataclass(frozen=True)
class Shared:
    """A number for each of several functions of a score, the same for all classes."""

    features: Array  # (functions, rows, classes)

    @property
    def prices(self) -> Array:
        return np.ones(len(self.features))

    def scores(self, theta: Array) -> Array:
        flat = theta @ self.features.reshape(len(theta), -1)
        found: Array = flat.reshape(self.features.shape[1:])
        return found

    def adjoint(self, g: Array) -> Array:
        found: Array = self.features.reshape(len(self.features), -1) @ g.reshape(-1)
        return found

    def squares(self, v: Array) -> Array:
        return np.array([np.vdot(each * each, v) for each in self.features])

    def values(self, theta: Array) -> Array:
        return theta


@dataclass(frozen=True)
class ByGroup:
    """A factor of all scores of a row, for each group of rows; last, one that is added to all."""

    z: Array
    group: Array  # of each row
    groups: int

    @property
    def prices(self) -> Array:
        return np.append(np.full(self.groups, float(self.groups)), 1.0)

    def scores(self, theta: Array) -> Array:
        return self.z * self.values(theta)[self.group][:, None]

    def adjoint(self, g: Array) -> Array:
        found = np.bincount(self.group, np.einsum("nk,nk->n", g, self.z), self.groups)
        return np.append(found, found.sum())

    def squares(self, v: Array) -> Array:
        return self.adjoint(v * self.z)

    def values(self, theta: Array) -> Array:
        found: Array = theta[:-1] + theta[-1]
        return found


Part = Bias | ByClass | Pairs | Shared | ByGroup
Parts = dict[str, Part]  # by name, in the order of their numbers


@dataclass(frozen=True)
class Design:
    """What a method adds to the scores z, which are log-probabilities.

    `centre` says what is taken from them first: "nothing", "rows" (the mean of each row) or
    "columns" (the mean of each class over the rows of the fit, before they are multiplied).
    """

    parts: Callable[[Array, Array], Parts]  # from scores, and from which classes are there
    centre: str = "rows"


def vector_parts(z: Array, present: Array) -> Parts:
    return {"diagonal": ByClass(z), "bias": Bias(z.shape[1])}


def matrix_parts(z: Array, present: Array) -> Parts:
    return {"weights": Pairs(z), "bias": Bias(z.shape[1])}


def quadratic_parts(z: Array, present: Array) -> Parts:
    return {**vector_parts(z, present), "square": ByClass(z * z / SQUARE_UNIT)}


def softplus_parts(z: Array, present: Array) -> Parts:
    """Two slopes, with a smooth turn at the mean score."""
    return {"curve": turning_curve(z, present, (0.0,)), "bias": Bias(z.shape[1])}


def spline_parts(z: Array, present: Array) -> Parts:
    """A smooth curve of the score: a straight line, and a smooth turn at each knot."""
    return {"curve": turning_curve(z, present, KNOTS), "bias": Bias(z.shape[1])}


def turning_curve(z: Array, present: Array, knots: tuple[float, ...]) -> Shared:
    """z, and log(1 + exp(z - knot)) for each knot."""
    turns = [np.maximum(z - knot, 0.0) + np.log1p(np.exp(-np.abs(z - knot))) for knot in knots]
    features = np.stack([z, *turns])
    return Shared(features if present.all() else np.where(present, features, 0.0))


def class_temperature_parts(z: Array, present: Array) -> Parts:
    """An inverse temperature for each class that is predicted."""
    predicted = np.where(present, z, -np.inf).argmax(1)
    return {"group": ByGroup(z, predicted, z.shape[1])}


VECTOR = Design(vector_parts, "nothing")
MATRIX = Design(matrix_parts, "nothing")
DIRICHLET = Design(matrix_parts, "columns")
QUADRATIC = Design(quadratic_parts)
SOFTPLUS = Design(softplus_parts)
SPLINE = Design(spline_parts)
CLASS_TEMPERATURE = Design(class_temperature_parts)
