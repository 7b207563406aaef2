"""What each method of structured scaling adds to the scores."""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.structured import ByClass, ByGroup, Pairs, Part, Shared

KNOTS = (-6.0, -4.0, -2.0, -1.0)  # of the spline: log-probabilities of 0.25 % to 37 %
SQUARE = 10.0  # squares of log-probabilities are divided by it, so that they are of their size


def vector_design(z: Array, present: Array) -> dict[str, Part]:
    return {"diagonal": ByClass(z), "bias": ByClass(present.astype(np.float64))}


def matrix_design(z: Array, present: Array) -> dict[str, Part]:
    vector = vector_design(z, present)
    return {"diagonal": vector["diagonal"], "off_diagonal": Pairs(z), "bias": vector["bias"]}


def quadratic_design(z: Array, present: Array) -> dict[str, Part]:
    vector = vector_design(z, present)
    return {**vector, "square": ByClass(z * z / SQUARE)}


def softplus_design(z: Array, present: Array) -> dict[str, Part]:
    """Two slopes, with a smooth turn at the probability of the uniform distribution."""
    turn = np.logaddexp(0.0, z + np.log(z.shape[1]))
    return {"curve": Shared(np.stack([z, turn])), "bias": ByClass(present.astype(np.float64))}


def spline_design(z: Array, present: Array) -> dict[str, Part]:
    """A cubic spline of the log-probability, straight below its lowest knot."""
    cubes = [np.maximum(z - knot, 0.0) ** 3 / abs(knot) ** 2 for knot in KNOTS]
    curve = np.where(present, np.stack([z, *cubes]), 0.0)
    return {"curve": Shared(curve), "bias": ByClass(present.astype(np.float64))}


def class_temperature_design(z: Array, present: Array) -> dict[str, Part]:
    """An inverse temperature for each class that is predicted."""
    predicted = np.where(present, z, -np.inf).argmax(1)
    return {"group": ByGroup(z, predicted, z.shape[1])}
