"""Arguments beside the logits, checked: each kind has one checker, which every function uses.

Labels, probabilities and weights are arrays; counts, fractions, seeds and flags are scalars. Errors
are raised before any work, and name the argument, what it got and what it takes.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from hotmax._core.arrays import (
    FLOAT64,
    Array,
    Axis,
    as_array,
    check_size,
    is_integer,
    is_real,
    result_or_out,
    split_mask,
)
from hotmax._core.rows import Block, RowPlan
from hotmax._kernels.losses.labels import (
    count_labels,
    find_outside,
    mean_of_losses,
    remap_ignored_labels,
    sum_compensated,
)
from hotmax._kernels.losses.targets import check_targets
from hotmax._kernels.softmax.segments import count_segments, order_segments

REDUCTIONS = ("mean", "sum", "none")
SUM_TOLERANCE = 0.01  # see `check_probabilities`
MOST_SEGMENTS = 2**31  # unless num_segments asks for more: a wrong id must not fill memory
LABEL_RANGE = range(-(2**63), 2**64)  # of the types that labels come in
LARGEST_WEIGHT, SMALLEST_WEIGHT = 2.0**500, 2.0**-500  # whose products and sums stay in range


def as_class_numbers(
    targets: object,
    shape: tuple[int, ...],
    classes: int,
    ignore_index: object = None,
    name: str = "targets",
) -> Array:
    """Class numbers, one for each row, one-dimensional; -1 where they are ignored or masked."""
    labels, present = split_mask(targets, name)
    if labels.dtype.kind not in "iu" and labels.size:
        raise TypeError(f"{name} must hold integers, the numbers of classes, got {labels.dtype}")
    if labels.dtype.kind not in "iu":
        labels = labels.astype(np.int64)
    ignored = None if ignore_index is None else as_ignored(ignore_index)
    if labels.shape != shape:
        second = len(shape) > 1 and labels.shape == (shape[0], *shape[2:], classes)
        raise ValueError(
            f"{name} of integers are class numbers and must have the shape of the logits without "
            f"axis, {shape}, got {labels.shape}; "
            + (
                "they fit classes along the second dimension, as torch has them: axis=1" * second
                or "probabilities are given as floats"
            )
        )
    flat = np.ascontiguousarray(labels, labels.dtype.newbyteorder("=")).reshape(-1)
    masked = None if present is None else ~present.reshape(-1)
    place, remapped = _remapped(flat, classes, ignored, masked)
    if place >= 0:
        index = tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()
        besides = "" if ignored is None else f", or be ignore_index, {ignored}"
        raise ValueError(
            f"{name} must lie in 0..{classes - 1}{besides}, got {flat[place]} at {index}"
        )
    return remapped


def _remapped(
    flat: Array, classes: int, ignored: int | None, masked: Array | None
) -> tuple[int, Array]:
    """(the first label out of range or -1, labels as int64 with -1 where ignored or masked)."""
    if flat.dtype == np.int64 and ignored is None and masked is None:
        return find_outside(flat, classes), flat
    skipped = np.zeros(flat.size, np.bool_) if masked is None else masked
    bounds = np.iinfo(flat.dtype)
    if ignored is not None and not bounds.min <= ignored <= bounds.max:
        ignored = None  # no label of this type equals it
    if flat.dtype == np.uint64:  # an int64 would wrap
        if ignored is not None:
            skipped = skipped | (flat == np.uint64(ignored))
            ignored = None
        beyond = (flat > np.iinfo(np.int64).max) & ~skipped
        if beyond.any():
            return int(np.argmax(beyond)), flat
    if skipped.any():
        flat = np.where(skipped, flat.dtype.type(0), flat)
    remapped = np.empty(flat.size, np.int64)
    wide = flat.astype(np.int64, copy=False)
    place = remap_ignored_labels(wide, ignored or 0, ignored is not None, classes, remapped)
    remapped[skipped] = -1
    return place, remapped


def as_ignored(ignore_index: object) -> int:
    """The label that is ignored."""
    ignored = as_integer(ignore_index, "ignore_index")
    if ignored not in LABEL_RANGE:
        raise ValueError(f"ignore_index must be an int from -2**63 to 2**64 - 1, got {ignored}")
    return ignored


def as_integer(number: object, name: str, least: int | None = None) -> int:
    """An int, of at least `least` if that is given: a count, say."""
    if not is_integer(number):
        raise TypeError(f"{name} must be an int, got {number!r}")
    integer = operator.index(number)
    if least is not None and integer < least:
        raise ValueError(f"{name} must be at least {least}, got {integer}")
    return integer


def as_seed(seed: object, others: str = "") -> int:
    """A seed of 64 bits. `others` says what else is accepted."""
    if not is_integer(seed):
        raise TypeError(f"seed must be an int from 0 to 2**64 - 1{others}, got {seed!r}")
    number = operator.index(seed)
    if not 0 <= number < 2**64:
        raise ValueError(f"seed must be an int from 0 to 2**64 - 1{others}, got {number}")
    return number


def is_one_of(word: object, words: tuple[str, ...]) -> bool:
    """Is this one of the words? An array, which cannot be compared with one, is none."""
    return isinstance(word, str) and word in words


def as_bool(flag: object, name: str) -> bool:
    """True or False, of Python's or NumPy's."""
    if not isinstance(flag, bool | np.bool_):
        raise TypeError(f"{name} must be a bool, True or False, got {flag!r}")
    return bool(flag)


def as_real(number: object, name: str, accepted: str = "a real number") -> float:
    """A real number as a float; an int of hundreds of digits is inf."""
    if not is_real(number):
        raise TypeError(f"{name} must be {accepted}, got {number!r}")
    try:
        return float(number)
    except OverflowError:
        return math.inf if operator.gt(number, 0) else -math.inf


def as_fraction(number: object, name: str) -> float:
    """A real number from 0 to 1."""
    if type(number) is float and 0.0 <= number <= 1.0:
        return number
    fraction = as_real(number, name)
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"{name} must lie in 0..1, got {number!r}")
    return fraction


as_smoothing = functools.partial(as_fraction, name="label_smoothing")


def is_probabilities(targets: object, shape: tuple[int, ...]) -> bool:
    """Are these targets probabilities (floats), and not labels (integers, of this shape)?"""
    array = targets if type(targets) is np.ndarray else split_mask(targets, "targets")[0]
    return array.dtype.kind in "fV" and not (array.size == 0 and array.shape == shape)


def as_probabilities(targets: object, plan: RowPlan, ignore_index: object = None) -> Array:
    """Probabilities in the shape of x: no number below 0, and rows that add up to 1."""
    array = as_array(targets, "targets")
    if ignore_index is not None:
        raise ValueError("ignore_index needs targets that are class numbers, got probabilities")
    if array.shape != plan.shape:
        raise ValueError(
            f"targets of floats are probabilities and must have the shape of the logits, "
            f"{plan.shape}, got {array.shape}; class numbers are given as integers"
        )
    check_probabilities(array, plan.axes, "targets that are probabilities")
    return array


def check_probabilities(p: Array, axis: Axis, name: str, hint: str = "") -> None:
    """Raise unless each row of p is at least 0 and adds up to 1, within SUM_TOLERANCE.

    Probabilities come rounded: to two or three digits in a file, to half precision in a model. A
    sum over bfloat16 probabilities is off by up to 2^-9 = 0.002. Logits, counts and percentages
    are off by far more than 0.01. One tolerance serves every function, whatever the float type.
    """
    found: list[tuple[int, int, float]] = []

    def visit(block: Block) -> None:
        wrong, row, number = check_targets(block.x, SUM_TOLERANCE)
        if wrong:
            found.append((block.rows.start + row, wrong, number))

    plan = RowPlan(p, axis, name=name)
    plan.for_blocks(visit)
    if found:
        row, wrong, number = min(found)
        must = "be at least 0" if wrong == 1 else "add up to 1 over axis"
        raise ValueError(f"{name} must {must}, got {number} in row {row}{hint}")
    if plan.count and not plan.classes:
        raise ValueError(f"{name} must add up to 1, got no classes")


def as_weight(weight: object, classes: int) -> Array:
    """Class weights in one line; without entries if there are none given."""
    if weight is None:
        return np.empty(0)
    array = as_array(weight, "weight")
    if array.size != classes or array.ndim == 0:
        raise ValueError(
            f"weight must hold one number for each of {classes} classes, got shape {array.shape}"
        )
    flat = np.array(array, np.float64).reshape(-1)
    if not ((flat >= 0.0) & (flat < np.inf)).all():
        raise ValueError("weight must hold finite numbers of at least 0")
    return flat


def as_gamma(gamma: object) -> float:
    power = as_real(gamma, "gamma")
    if not 0.0 <= power < math.inf:
        raise ValueError(f"gamma must be a finite number of at least 0, got {gamma!r}")
    return power


def check_reduction(reduction: object) -> None:
    if not is_one_of(reduction, REDUCTIONS):
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def weights_in_range(weights: Array, labels: Array, reduction: object) -> Array:
    """Class weights scaled by a power of two, so that their sum over the labels stays in range.

    A mean divides by that sum, so it does not change. Only weights whose products would overflow or
    lose bits are scaled.
    """
    if reduction != "mean" or not weights.size:
        return weights
    if weights.max() <= LARGEST_WEIGHT and not (weights < SMALLEST_WEIGHT)[weights > 0].any():
        return weights
    counted = weights[labels[labels >= 0]]
    if not counted.any():
        return weights
    _, exponent = np.frexp(counted.max())
    with np.errstate(all="ignore"):
        scaled: Array = np.minimum(np.ldexp(weights, -exponent), np.finfo(FLOAT64).max)
    return scaled


def label_count(labels: Array, weights: Array) -> tuple[float, float]:
    """The divisor of a mean, a double-double: the count of labels, or the sum of their weights."""
    return count_labels(labels, weights)  # type: ignore[no-any-return]


def scale_of_gradient(reduction: object, count: float) -> float:
    """The factor of the gradient: 1, or 1 / count for a mean; 0 for a mean over nothing."""
    if reduction != "mean":
        return 1.0
    return 1.0 / count if count else 0.0


def reduce_values(
    values: Array, reduction: object, count: tuple[float, float], shape: tuple[int, ...]
) -> Any:
    """The mean or the sum of the losses of rows, or the losses themselves, in float64."""
    if reduction == "none":
        return values.reshape(shape)
    if reduction == "sum":
        high, low = sum_compensated(values)
        return np.float64(high + low)
    mean = np.float64(mean_of_losses(values, *count))
    if np.isinf(mean) and np.isfinite(values).all():  # the sum overflows, its mean need not
        with np.errstate(over="ignore"):
            return np.ldexp(mean_of_losses(np.ldexp(values, -64), *count), 64)
    return mean


def fill_masked_rows(values: Array, plan: RowPlan, loss: float = math.inf) -> None:
    """Set the loss of rows in which `where` allows no class: their target has no probability."""
    empty_rows = plan.empty_rows
    if empty_rows is not None:
        values[empty_rows & np.isnan(values)] = loss


def in_type(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number, or an array of them, in the type of the logits."""
    array = np.asarray(value)
    return result_or_out(array, array.shape, dtype)


def check_segments(ids: Array, entries: int, num_segments: object) -> tuple[Array, Array]:
    """(indices that sort the entries by group, where each group starts among them)."""
    if ids.dtype.kind not in "iu" and ids.size:
        raise TypeError(f"segment_ids must hold integers, got {ids.dtype}")
    if ids.shape != (entries,):
        raise ValueError(
            f"segment_ids must have shape {(entries,)}, one for each entry along axis, "
            f"got {ids.shape}"
        )
    low, high = (int(ids.min()), int(ids.max())) if ids.size else (0, -1)
    count = high + 1 if num_segments is None else as_integer(num_segments, "num_segments", 0)
    if low < 0:
        raise ValueError(f"segment_ids must be at least 0, got {low}")
    if high >= count:
        raise ValueError(f"segment_ids must lie in 0..{count - 1}, got {high}")
    if num_segments is None and count > MOST_SEGMENTS:
        raise ValueError(
            f"segment_ids must lie below {MOST_SEGMENTS} if num_segments is not given, got {high}"
        )
    check_size((count + 1,), "num_segments", count)
    ids = ids.astype(np.int64)
    starts, order = np.empty(count + 1, np.int64), np.empty(ids.size, np.int64)
    count_segments(ids, starts)
    order_segments(ids, starts, order)
    return order, starts


def class_count(num_classes: object, name: str) -> int:
    """How many classes there are; `name` is that of the class numbers."""
    if num_classes is None:
        raise ValueError(f"num_classes must be given if {name} are class numbers")
    return as_integer(num_classes, "num_classes", 1)
