"""Labelled rows: what comes in with every call of calibration, checked once.

Logits are read some rows at a time, so that a mask, a half-precision type or a memory-mapped file
costs no second copy of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._backends.protocol import values_of
from hotmax._core import threads
from hotmax._core.arrays import (
    Array,
    as_mask,
    as_temperature,
    compute_type,
    is_other_library,
    refuse_masked,
    split_mask,
)
from hotmax._core.checks import SUM_TOLERANCE, as_ignored, check_probabilities
from hotmax._core.class_labels import (
    argument_origin,
    from_one,
    integer_names,
    names_for,
    numbers_of_argument,
    places_among,
)
from hotmax._kernels.calibration import rows as kernels
from hotmax._kernels.softmax.lanes import LANES
from hotmax._softmax.functions import log_softmax

BLOCK_ENTRIES = 1 << 19  # entries that are computed together
INPUTS = ("logits", "probabilities")
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-150, 1e150  # of a row, where it is the largest

WRONG = {
    kernels.HAS_NAN: "holds nan",
    kernels.HAS_INF: "holds +inf, which no temperature changes",
    kernels.IS_EMPTY: "holds nothing but -inf: no class is there",
    kernels.LABEL_IS_ABSENT: "has its label on a class that is not there (-inf, or masked)",
}


@dataclass(frozen=True)
class Examples:
    """(rows, classes) of logits or probabilities, with labels and weights."""

    x: Array
    where: Array | None
    labels: Array  # int64 for each row, or empty
    soft: Array  # the probabilities of the classes, where labels are soft
    weights: Array  # for each row, or one for all; 0 for a row that is ignored
    probabilities: bool
    offset: int = 0  # the number of the first row, which splits and errors go by
    place: str = ""  # the file or block that the rows come from, for errors
    shift: int = 0  # from the number of a row to its number in that place

    @property
    def rows(self) -> int:
        return int(self.x.shape[0])

    @property
    def classes(self) -> int:
        return int(self.x.shape[1])

    def block(self, start: int, stop: int, absent: float = -np.inf) -> Array:
        """Rows start..stop as contiguous logits of float32 or float64, `absent` where masked."""
        part = self.x[start:stop]
        if self.probabilities:
            with np.errstate(divide="ignore"):
                part = np.log(part.astype(np.float64))
        kind = compute_type(part.dtype)
        ready = np.require(part, kind, ["C", "A"])
        if self.where is not None:
            ready = np.where(self.where[start:stop], ready, kind.type(absent))
        return ready

    def tempered(self, start: int, stop: int, temperature: float) -> tuple[Array, float]:
        """(logits, 1 / T) for rows start..stop: at the limits of temperature, already applied."""
        part = self.block(start, stop, absent_at(temperature))
        if 0.0 < temperature < np.inf and 0.0 < 1.0 / temperature < np.inf:
            return part, 1.0 / temperature
        return log_softmax(part, temperature=temperature), 1.0

    def labels_of(self, start: int, stop: int) -> tuple[Array, Array, Array]:
        """labels, soft labels and weights of rows start..stop."""
        return (
            self.labels[start:stop],
            self.soft[start:stop] if self.labels.size == 0 else self.soft,
            self.weights[start:stop] if self.weights.size > 1 else self.weights,
        )

    def weight_of_rows(self) -> Array:
        return np.broadcast_to(self.weights, (self.rows,))

    def taking(self, index: Array | slice) -> Examples:
        """Some of the rows."""
        return Examples(
            self.x[index],
            None if self.where is None else self.where[index],
            self.labels[index] if self.labels.size else self.labels,
            self.soft[index] if self.soft.size else self.soft,
            self.weights[index] if self.weights.size > 1 else self.weights,
            self.probabilities,
            self.offset + (index.start or 0) if isinstance(index, slice) else 0,
            self.place,
            self.shift,
        )

    def logits(self) -> Array:
        """All rows as float64 logits; an error names the first that no softmax can be taken of."""
        x = self.block(0, self.rows).astype(np.float64)
        top = x.max(1)
        wrong = ~np.isfinite(top)
        if wrong.any():
            row = int(np.argmax(wrong))
            kind = kernels.HAS_INF if top[row] > 0 else kernels.IS_EMPTY
            self.complain(kernels.HAS_NAN if np.isnan(top[row]) else kind, row)
        return x

    def check(self) -> None:
        """Raise if a row that has weight holds nan, +inf or nothing but -inf."""
        top = self.block(0, self.rows).max(1)
        wrong = ~np.isfinite(top) & (self.weight_of_rows() > 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            kind = kernels.HAS_INF if top[row] > 0 else kernels.IS_EMPTY
            self.complain(kernels.HAS_NAN if np.isnan(top[row]) else kind, row)

    def complain(self, kind: int, row: int) -> None:
        """Raise what is wrong with a row, if anything is."""
        if kind == kernels.FINE:
            return
        what = WRONG[kind]
        if kind == kernels.LABEL_IS_ABSENT and self.probabilities:
            what = (
                "gives its label probability 0, which no temperature mends: "
                "clip, as in np.maximum(probabilities, 1e-12), or a file's by clip=1e-12 "
                "(--clip 1e-12)"
            )
        raise ValueError(f"{self.place or self.name}: row {self.offset + self.shift + row} {what}")

    @property
    def name(self) -> str:
        return "probabilities" if self.probabilities else "logits"


def absent_at(temperature: float) -> float:
    """The logit that has no mass: below temperature 0, where -inf would take all of it, +inf."""
    return float(np.copysign(np.inf, -temperature))


def step_of(classes: int) -> int:
    """Rows in a block: the same for every thread count, so that sums have one order."""
    return -(-max(BLOCK_ENTRIES // max(classes, 1), 1) // LANES) * LANES


def over_blocks(rows: int, classes: int, work: Callable[[int, int, int], None]) -> None:
    """work(block number, start, stop) for all blocks, over threads."""
    step = step_of(classes)
    threads.for_ranges(lambda start, stop: work(start // step, start, stop), rows, step)


def blocks_of(rows: int, classes: int) -> int:
    return -(-rows // step_of(classes))


def read(
    logits: object,
    targets: object,
    *,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    any_weight: bool = False,
    name: str = "targets",
    whole: bool = True,
    class_names: object = None,
) -> Examples:
    """Check everything that can be checked without reading all the logits.

    `any_weight`: the caller takes no squares of sums, and so weights of any size.
    `name`: of the argument `targets`, for errors: "labels" where only labels are taken.
    `whole`: these are all rows, and not a block of them, which may be ignored as a whole.
    `class_names`: of labels that are text.
    """
    x, mask = read_rows(logits, where=where, input=input, suspicious=whole)
    shape = shape_of(logits)[:-1]
    names = names_for(class_names, x.shape[1], logits)
    targets = numbers_of_argument(targets, x.shape[1], names, name)
    known = integer_names(names)
    hard, soft, weights = read_targets(targets, shape, x.shape[1], ignore_index, name, known)
    if sample_weight is not None:
        given, counted = numbers_and_mask(sample_weight, "sample_weight")
        if counted is not None:  # what is masked is left out
            given = np.where(counted, given, 0)
        if given.shape != shape:
            raise ValueError(f"sample_weight must have shape {shape}, got {given.shape}")
        given = given.astype(np.float64).reshape(-1)
        if not (np.isfinite(given) & (given >= 0)).all():
            raise ValueError("sample_weight must be finite and not negative")
        largest = float(given.max(initial=0.0))
        usual = SMALLEST_WEIGHT <= largest <= LARGEST_WEIGHT
        if largest and not (usual or any_weight):
            raise ValueError(
                f"the largest sample_weight must lie in {SMALLEST_WEIGHT:g}..{LARGEST_WEIGHT:g}, "
                f"where squares of sums are finite, got {largest:g}"
            )
        weights = given if weights is None else weights * given
    if x.shape[0] == 0:
        raise ValueError(f"logits must have at least one row, got shape {shape_of(logits)}")
    if whole and weights is not None and not weights.any():
        raise no_rows()
    weights = np.ones(1) if weights is None else weights
    return Examples(x, mask, hard, soft, weights, input == "probabilities")


def no_rows() -> ValueError:
    return ValueError("no row is left: all are ignored, or have weight 0")


def read_rows(
    logits: object, *, where: object = None, input: str = "logits", suspicious: bool = True
) -> tuple[Array, Array | None]:
    """Logits or probabilities as (rows, classes), and their mask.

    `suspicious`: refuse probabilities that come as logits. Not where rows may come one by one, and
    one of them look like that by chance.
    """
    if input not in INPUTS:
        raise ValueError(f'input must be "logits" or "probabilities", got {input!r}')
    x, present = numbers_and_mask(logits, "logits")
    if x.ndim < 2:
        raise ValueError(
            f"logits must have shape (rows, classes), got {x.shape}; for two classes with one "
            "score, np.stack([0 * score, score], axis=-1)"
        )
    if x.shape[-1] == 0:
        raise ValueError(f"logits must have at least one class, got shape {x.shape}")
    mask = None
    if where is not None:
        mask = as_mask(where)
        try:
            mask = np.broadcast_to(mask, x.shape)
        except ValueError:
            raise ValueError(
                f"where must broadcast to the shape of logits, {x.shape}, got {mask.shape}"
            ) from None
    if present is not None:
        mask = present if mask is None else present & mask
    if mask is not None and input == "probabilities":
        raise ValueError("where is for logits: probabilities are normalised already")
    x = x.reshape(-1, x.shape[-1])
    mask = None if mask is None else mask.reshape(x.shape)
    if input == "probabilities":
        check_probabilities(x, -1, "probabilities", '; logits are input="logits"')
    elif mask is None and suspicious:
        refuse_probabilities(x)
    return x, mask


def refuse_probabilities(x: Array) -> None:
    """Raise if what came as logits is probabilities: each row in 0..1, summing to 1, not all 0, 1.

    Where these are logits, the first rows suffice to tell.
    """
    if x.dtype.kind in "iub" or len(x) < 2:
        return
    tolerance = 1e-5 if x.dtype.itemsize >= 4 else SUM_TOLERANCE
    graded = False
    start, step = 0, 8
    while start < len(x):
        part = x[start : start + step].astype(np.float64)
        if not ((part >= 0) & (part <= 1)).all():
            return
        if not (np.abs(part.sum(1) - 1) <= tolerance).all():
            return
        graded = graded or bool(((part > 0) & (part < 1)).any())
        start, step = start + step, step_of(x.shape[1])
    if graded:
        raise ValueError(
            "logits look like probabilities: every row lies in 0..1 and sums to 1; say "
            'input="probabilities", or, if they are logits, pass logits - 1, which is the same '
            "to softmax"
        )


def shape_of(x: object) -> tuple[int, ...]:
    shape = x.shape if hasattr(x, "shape") else np.asarray(x).shape
    return tuple(int(n) for n in shape)


def numbers_and_mask(x: Any, name: str) -> tuple[Array, Array | None]:
    """(x as a NumPy array, which entries are not masked; None if all are there).

    Calibration ends in numbers, so that other libraries' arrays end here.

    A tensor on the CPU shares its memory; one on a GPU, or a lazy array, is brought here.
    """
    return split_mask(values_of(x, name) if is_other_library(x) else x, name)


def read_targets(
    targets: object,
    shape: tuple[int, ...],
    classes: int,
    ignore_index: int | None,
    name: str,
    known: Array | None = None,
) -> tuple[Array, Array, Array | None]:
    """(labels, probabilities, weights): one of the first two is empty; weights 0 where ignored.

    `known`: the integers that name the classes, which labels then are.
    """
    ignore_index = None if ignore_index is None else as_ignored(ignore_index)
    given, counted = numbers_and_mask(targets, name)
    none = np.empty((1, 0))
    if given.shape == shape:
        if given.dtype.kind not in "iub":
            raise TypeError(
                f"{name} must be integers or text of shape {shape}, or probabilities of shape "
                f"{(*shape, classes)}, got {given.dtype} of shape {given.shape}"
            )
        hard = np.ascontiguousarray(given.reshape(-1))
        weights = None
        if ignore_index is not None or counted is not None:
            ignored = np.zeros(hard.shape, np.bool_) if counted is None else ~counted.reshape(-1)
            if ignore_index is not None:
                ignored = ignored | (hard == ignore_index)
            if ignored.any():
                weights = np.where(ignored, 0.0, 1.0)
                anything = 0 if known is None else known[0]
                hard = np.where(ignored, hard.dtype.type(anything), hard)
        if known is not None:
            hard = places_among(hard.astype(np.int64), known, argument_origin(name))
        if hard.size and not (int(hard.min()) >= 0 and int(hard.max()) < classes):
            row = int(np.argmax((hard < 0) | (hard >= classes)))
            raise ValueError(
                f"{name} must lie in 0..{classes - 1}, got {hard[row]} in row {row}"
                + from_one(hard, classes)
                + ("" if ignore_index is not None else "; ignore_index=... leaves rows out")
            )
        return hard.astype(np.int64, copy=False), none, weights
    if given.shape != (*shape, classes):
        raise ValueError(
            f"{name} must have shape {shape}, or {(*shape, classes)} if they are probabilities, "
            f"got {given.shape}"
        )
    if ignore_index is not None:
        raise ValueError("ignore_index is for integer labels: give probabilities sample_weight=0")
    refuse_masked(targets, name)
    soft = np.ascontiguousarray(given.reshape(-1, classes), np.float64)
    check_probabilities(soft, -1, f"{name} that are probabilities")
    return np.empty(0, np.int64), soft / soft.sum(1, keepdims=True), None


def label_matrix(examples: Examples) -> Array:
    if examples.labels.size == 0:
        return examples.soft
    q = np.zeros((examples.rows, examples.classes))
    q[np.arange(examples.rows), examples.labels] = 1.0
    return q


def one_temperature(temperature: object) -> float:
    """A single temperature; 0, inf and below 0 as everywhere."""
    array = as_temperature(temperature)
    if array.size != 1:
        raise ValueError(f"temperature must be one number, got shape {array.shape}")
    return float(array.reshape(-1)[0])


def raise_first(trouble: Any, examples: Examples) -> None:
    """Raise the first of the (kind, row) that blocks have found."""
    for kind, row in trouble:
        examples.complain(int(kind), int(row))
