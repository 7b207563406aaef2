"""Biases and tokens so far, checked, as the kernels read them: flat, with the bounds of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, is_integer, is_real, refuse_masked
from hotmax._core.rows import RowPlan
from hotmax._kernels.sampling import edits as kernels
from hotmax._sampling.steps import Number, one_for_each_row

REPETITION = Number("repetition", 0, float("inf"), open_low=True, open_high=True)
PENALTY_RANGE = (-float("inf"), float("inf"))
FREQUENCY = Number("frequency", *PENALTY_RANGE, open_low=True, open_high=True)
PRESENCE = Number("presence", *PENALTY_RANGE, open_low=True, open_high=True)
PENALTIES = {"repetition": REPETITION, "frequency": FREQUENCY, "presence": PRESENCE}
NO_PENALTY = {"repetition": 1.0, "frequency": 0.0, "presence": 0.0}

Biases = Mapping[int, float] | Iterable[int]


@dataclass(frozen=True)
class Ragged:
    """A flat array, and (start, stop) of each row's part in it, or one part for all rows."""

    flat: Array
    bounds: Array  # (1 or rows, 2)

    def part(self, rows: slice) -> Array:
        return self.bounds if len(self.bounds) == 1 else self.bounds[rows]


NO_TOKENS = Ragged(np.empty(0, np.int64), np.zeros((1, 2), np.int64))


@dataclass(frozen=True)
class RowEdits:
    """What changes the logits before all steps."""

    bias: Ragged = NO_TOKENS
    biases: Array = field(default_factory=lambda: np.empty(0))
    history: Ragged = NO_TOKENS
    penalties: Array = field(default_factory=lambda: np.array([[1.0, 0.0, 0.0]]))

    def __bool__(self) -> bool:
        return bool(self.bias.flat.size or self.history.flat.size)

    def part(self, rows: slice) -> kernels.Edits:
        penalties = self.penalties if len(self.penalties) == 1 else self.penalties[rows]
        return kernels.Edits(
            self.bias.flat,
            self.biases,
            self.bias.part(rows),
            self.history.flat,
            self.history.part(rows),
            penalties,
        )


def as_penalties(given: Mapping[str, Any], plan: RowPlan, suffix: str = "") -> Array:
    """(1 or rows, 3) from checked numbers by name."""
    numbers = [one_for_each_row(given[name], plan, name + suffix) for name in PENALTIES]
    several = any(isinstance(number, np.ndarray) for number in numbers)
    table = np.empty((plan.count if several else 1, 3))
    for column, number in enumerate(numbers):
        table[:, column] = number
    return table


def check_penalties(given: Mapping[str, object], suffix: str = "") -> dict[str, float | Array]:
    """The numbers of penalties; None, for all or for a row, is one that does nothing.

    suffix: What the caller's names of the arguments end with.
    """
    checked: dict[str, float | Array] = {}
    for name, number in PENALTIES.items():
        each = replace(number, name=name + suffix).check_each(given.get(name))
        if isinstance(each, np.ndarray):
            checked[name] = np.where(np.isnan(each), NO_PENALTY[name], each)
        else:
            checked[name] = NO_PENALTY[name] if math.isnan(each) else each
    return checked


# --- tokens so far ----------------------------------------------------------------------------


def as_history(
    tokens: object, offsets: object, shape: tuple[int, ...], classes: int, name: str = "tokens"
) -> Ragged:
    """Tokens so far: one sequence for all rows, an array, a list of sequences, or with offsets."""
    lines = None if offsets is not None else _lines(tokens, name)
    if lines is not None:
        if len(shape) != 1 or len(lines) != shape[0]:
            raise ValueError(
                f"{name} must be one sequence, or one for each row in shape {shape}, got "
                f"{len(lines)} sequences"
            )
        sizes = np.array([line.size for line in lines], np.int64)
        flat = np.concatenate(lines) if lines else np.empty(0, np.int64)
        return _checked(flat, _bounds(np.concatenate([[0], np.cumsum(sizes)])), classes, name)
    array = _as_ints(tokens, name)
    if offsets is not None:
        return _checked(array, _offsets(offsets, array, shape, name), classes, name)
    if array.ndim == 0 or (array.ndim > 1 and array.shape[:-1] != shape):
        raise ValueError(
            f"{name} must be one sequence, or one for each row in shape {shape}, got shape "
            f"{array.shape}"
        )
    length = array.shape[-1]
    rows = array.size // length if length else 1
    starts = np.arange(rows + 1) * length
    return _checked(array.reshape(-1), _bounds(starts), classes, name)


def _bounds(cuts: Array) -> Array:
    return np.ascontiguousarray(np.stack([cuts[:-1], cuts[1:]], axis=1), np.int64)


def _offsets(offsets: object, flat: Array, shape: tuple[int, ...], name: str) -> Array:
    if flat.ndim != 1:
        raise ValueError(f"{name} must be one sequence beside offsets, got shape {flat.shape}")
    cuts, count = _as_ints(to_numpy(offsets, "offsets"), "offsets"), int(np.prod(shape))
    if cuts.shape != (count + 1,):
        raise ValueError(
            f"offsets must be {count + 1} ints, where each of {count} rows begins and the end of "
            f"the last, got shape {cuts.shape}"
        )
    if cuts[0] != 0 or cuts[-1] != flat.size or (cuts[1:] < cuts[:-1]).any():
        raise ValueError(
            f"offsets must not decrease, and go from 0 to the number of {name}, {flat.size}, got "
            f"{cuts[0]} to {cuts[-1]}"
        )
    return _bounds(cuts)


def _lines(tokens: Any, name: str) -> list[Array] | None:
    """A list of sequences of ints, each as an array; None if it is something else."""
    if not isinstance(tokens, list | tuple) or not tokens:
        return None
    nested = [isinstance(line, list | tuple) or getattr(line, "ndim", 0) > 0 for line in tokens]
    if not any(nested):
        return None
    lines = (
        [_as_ints(to_numpy(line, name), name, f" in row {r}") for r, line in enumerate(tokens)]
        if all(nested)
        else []
    )
    if len(lines) == len(tokens) and all(line.ndim == 1 for line in lines):
        return lines
    if lines and len({line.shape for line in lines}) == 1:
        return None  # an array of more dimensions
    raise ValueError(
        f"{name} must be one sequence of ints, or a list with one for each row, got lists of "
        "different depths or shapes"
    )


def _as_ints(given: Any, name: str, place: str = "") -> Array:
    """An array of ints; what is masked is padding, and is -1."""
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "iu":
        given = np.where(np.ma.getmaskarray(given), -1, given.data.astype(object))
    refuse_masked(given, name)
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(
            f"{name} must be one sequence of ints, or a list with one for each row, got lists of "
            "different depths or shapes"
        ) from None
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind in "iu":
        return array
    # Ints that no type of NumPy holds together: as objects they can at least be compared.
    each = np.array(given, dtype=object)
    if all(map(is_integer, each.flat)):
        return each
    raise TypeError(f"{name} must hold ints, got {array.dtype}{place}")


def _checked(flat: Array, bounds: Array, classes: int, name: str) -> Ragged:
    if flat.size and flat.max() >= classes:
        at = int(np.argmax(flat >= classes))
        row = int(np.searchsorted(bounds[:, 1], at, side="right"))
        place = f" in row {row}" if len(bounds) > 1 else ""
        raise ValueError(
            f"{name} must be below the number of classes, {classes}, got {flat[at]}{place}"
        )
    if flat.dtype != np.int64:
        flat = (
            np.maximum(flat, -1).astype(np.int64)
            if flat.dtype.kind != "u"
            else flat.astype(np.int64)
        )
    return Ragged(np.ascontiguousarray(flat), bounds)


# --- biases -----------------------------------------------------------------------------------


def as_biases(bias: Any, plan: RowPlan) -> tuple[Ragged, Array]:
    """{class: number} for all rows, or a list with one for each row."""
    each = bias_lines(bias, plan.row_shape, plan.classes, "bias")
    tokens = np.array([token for line in each for token in line], np.int64)
    numbers = np.array([float(n) for line in each for n in line.values()], np.float64)
    cuts = np.concatenate([[0], np.cumsum([len(line) for line in each])]).astype(np.int64)
    return Ragged(tokens, _bounds(cuts)), numbers


def bias_lines(given: Any, shape: tuple[int, ...], classes: int, name: str) -> list[dict[int, Any]]:
    """What to add to which class: one dict for all rows, or a list with one for each row."""
    tokens = given if isinstance(given, Mapping) else _listed(given, name)
    if not isinstance(tokens, list) or not any(_is_collection(one) for one in tokens):
        return [check_biases(tokens, classes, name)]
    if len(shape) != 1 or len(tokens) != shape[0]:
        raise ValueError(
            f"{name} must be a dict or a sequence of classes, or for logits of two dimensions a "
            f"list with one for each row; got {len(tokens)} for rows of shape {shape}"
        )
    for row, one in enumerate(tokens):
        if not _is_collection(one):
            raise ValueError(
                f"{name} must be a dict or a sequence of classes, or a list with one for each row, "
                f"got {one!r} in row {row}"
            )
    return [
        check_biases(
            one if isinstance(one, Mapping) else list(one), classes, name, f" in row {row}"
        )
        for row, one in enumerate(tokens)
    ]


def _is_collection(value: object) -> bool:
    """Is it what stands for one row, not a class?"""
    return (
        value is None
        or isinstance(value, Mapping | list | tuple | set)
        or (isinstance(value, np.ndarray) and value.ndim > 0)
    )


def _listed(tokens: Any, name: str) -> list[Any]:
    refuse_masked(tokens, name)
    try:
        return [{} if one is None else one for one in tokens]
    except TypeError:
        raise TypeError(
            f"{name} must be a dict of classes and numbers or a sequence of classes, got {tokens!r}"
        ) from None


def check_biases(
    tokens: Mapping[int, float] | list[int], classes: int, name: str, place: str = ""
) -> dict[int, Any]:
    """The number to add for each class, checked."""
    given = tokens.items() if isinstance(tokens, Mapping) else ((one, -np.inf) for one in tokens)
    checked: dict[int, Any] = {}
    for token, number in given:
        if not is_integer(token):
            raise TypeError(f"{name} must be ints, got {token!r}{place}")
        if not 0 <= token < classes:
            raise ValueError(f"{name} must be 0 to {classes - 1}, got {token}{place}")
        if not is_real(number):
            raise TypeError(f"{name} must map to numbers, got {number!r} for {token}{place}")
        try:
            value = number if isinstance(number, np.floating) else float(number)
        except OverflowError:
            raise ValueError(
                f"{name} must map to numbers that fit a float64, or inf, for {token}{place}"
            ) from None
        if value != value:
            raise ValueError(f"{name} must not map to nan, got it for {token}{place}")
        checked[int(token)] = value
    return checked
