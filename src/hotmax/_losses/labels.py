"""Class numbers as probabilities: one_hot and smooth_labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._backends.operation import NATIVE, VALUES, dispatch, operation
from hotmax._core.arrays import (
    FLOAT64,
    Array,
    as_array,
    check_size,
    normalize_axes,
)
from hotmax._core.checks import (
    as_class_numbers,
    as_integer,
    as_probabilities,
    as_smoothing,
    class_count,
    is_probabilities,
)
from hotmax._core.rows import RowPlan
from hotmax._losses import generic


@operation(VALUES, generic.one_hot, formula_only=True)
def one_hot(labels: object, num_classes: int, *, axis: int = -1) -> Any:
    """Class numbers as probabilities: 1 at the class, 0 elsewhere.

    Args:
        labels: Integers in 0..num_classes - 1, of any shape.
        num_classes: How many classes there are.
        axis: Where the new dimension goes in the result.

    Returns:
        An array with one dimension more than `labels`: float64, or the default float type of
        another library.

    Example:
        >>> import hotmax as hm
        >>> hm.one_hot([0, 2], 3)
        array([[1., 0., 0.],
               [0., 0., 1.]])

    The same in NumPy:
        np.eye(num_classes)[labels]
    """
    if type(labels) not in NATIVE:
        return dispatch(one_hot, locals())
    return _one_hot(labels, num_classes, axis, "labels")


def _one_hot(labels: object, num_classes: int | None, axis: int, name: str) -> Array:
    array = as_array(labels, name)
    count = class_count(num_classes, "labels")
    (place,) = normalize_axes(as_integer(axis, "axis"), array.ndim + 1)
    check_size((*array.shape, count), "num_classes", count)
    numbers = as_class_numbers(array, array.shape, count, None, name)
    hot = np.zeros((numbers.size, count))
    hot[np.arange(numbers.size), numbers] = 1.0
    return np.moveaxis(hot.reshape(*array.shape, count), -1, place)


@operation(VALUES, generic.smooth_labels, formula_only=True)
def smooth_labels(
    targets: object, label_smoothing: float, *, num_classes: int | None = None, axis: int = -1
) -> Any:
    """Targets mixed with the uniform distribution: (1 - s) y + s / n.

    Args:
        targets: Class numbers, which need `num_classes`, or probabilities along `axis`.
        label_smoothing: s, from 0 (as they are) to 1 (uniform).
        num_classes: How many classes there are, if the targets are class numbers.
        axis: Where the classes go in the result, or lie in the probabilities.

    Example:
        >>> import hotmax as hm
        >>> hm.smooth_labels([0, 2], 0.3, num_classes=3).round(3)
        array([[0.8, 0.1, 0.1],
               [0.1, 0.1, 0.8]])

    The same in NumPy:
        (1 - label_smoothing) * np.eye(num_classes)[targets] + label_smoothing / num_classes

    Reference:
        Szegedy et al., Rethinking the Inception architecture for computer vision, 2016.
    """
    if type(targets) not in NATIVE:
        return dispatch(smooth_labels, locals())
    smoothing = as_smoothing(label_smoothing)
    if is_probabilities(targets, (0,)):
        plan = RowPlan(targets, as_integer(axis, "axis"), name="targets")
        hot = as_probabilities(targets, plan)
        if num_classes is not None and as_integer(num_classes, "num_classes") != plan.classes:
            raise ValueError(
                f"num_classes must be {plan.classes}, that of targets, got {num_classes}"
            )
        soft: Array = (1.0 - smoothing) * hot.astype(FLOAT64) + smoothing / plan.classes
        return soft.astype(plan.dtype)
    count = class_count(num_classes, "targets")
    mixed: Array = (1.0 - smoothing) * _one_hot(targets, count, axis, "targets")
    mixed += smoothing / count
    return mixed
