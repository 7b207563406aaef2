"""What comes in with the rows: labels or probabilities, and the weight of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import check_probabilities


def target_probabilities(y: Array) -> Array:
    """Rows of probabilities, checked."""
    if y.dtype.kind not in "fiub":
        raise TypeError(f"y with several columns must hold probabilities, got {y.dtype}")
    check_probabilities(y, 1, "y with several columns, which holds probabilities,")
    return y


def class_numbers_of(y: Array, classes: Array) -> Array:
    """The class number of each label: its index among the classes."""
    indices = np.searchsorted(classes, y)
    indices[indices == classes.size] = 0
    wrong = np.flatnonzero(classes[indices] != y)
    if wrong.size:
        label = y[wrong[:1]].tolist()[0]
        raise ValueError(f"y holds {label!r}, which is not one of the classes {classes.tolist()}")
    return indices.astype(np.int64, copy=False)


def weigh(
    weights: Array | None,
    class_weight: Mapping[Any, float] | str | None,
    labels: Array | None,
    probabilities: Array | None,
    classes: Array,
) -> Array | None:
    """The weight of each row, with that of its class."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, Mapping):
        known = classes.tolist()
        strange = [c for c in class_weight if c not in known]
        if strange:
            raise ValueError(f"class_weight names {strange[0]!r}, which is not among the classes")
        factors = np.array([float(class_weight.get(c, 1.0)) for c in known])
        if not ((factors >= 0.0) & (factors < np.inf)).all():
            raise ValueError(f"class_weight must hold finite numbers of at least 0: {class_weight}")
    else:
        if labels is not None:
            counts = np.bincount(labels, weights, classes.size)
        else:
            assert probabilities is not None
            counts = probabilities.sum(axis=0) if weights is None else weights @ probabilities
        there = counts > 0.0
        factors = np.where(there, counts.sum() / (classes.size * np.where(there, counts, 1.0)), 0.0)
    own = factors[labels] if labels is not None else probabilities @ factors
    return own if weights is None else weights * own
