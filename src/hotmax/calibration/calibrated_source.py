"""A source seen through a calibrator: the probabilities of its rows, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import softmax
from hotmax.calibration.source import LazyPart, RowBlock, Source, StoredPart


@dataclass(frozen=True)
class Calibrate:
    """Probabilities of rows, which are logits or probabilities, by a fitted calibrator.

    `least` is the smallest probability that a class is left with; rows are then normalised again.
    """

    calibrator: Any
    input: str
    least: float = 0.0

    def __call__(self, x: object) -> Array:
        rows: Any = x
        if getattr(self.calibrator, "input", self.input) != self.input:
            rows = np.asarray(x, np.float64)
            with np.errstate(divide="ignore"):
                rows = np.log(rows) if self.input == "probabilities" else softmax(rows)
        p = np.asarray(self.calibrator.predict_proba(rows))
        if not self.least:
            return p
        p = np.maximum(p, self.least)
        normalised: Array = p / p.sum(-1, keepdims=True)
        return normalised


@dataclass(frozen=True, eq=False)
class CalibratedPart(StoredPart):
    """A part whose blocks go through a calibrator."""

    part: StoredPart | None = None
    calibrate: Calibrate | None = None

    def blocks(self) -> Iterator[RowBlock]:
        assert self.part is not None
        assert self.calibrate is not None
        start = self.first
        for block in self.part.blocks():
            try:
                p = self.calibrate(block.logits)
            except ValueError as error:
                end = start + len(block.logits) - 1
                raise ValueError(f"{self.place}, rows {start} to {end}: {error}") from None
            yield replace(block, logits=p)
            start += len(block.logits)


def through(calibrate: Calibrate, part: StoredPart) -> CalibratedPart:
    return CalibratedPart(part.offset, part.rows, part.place, part.first, part, calibrate)


def made_through(calibrate: Calibrate, make: Callable[..., StoredPart], *arrays: Any) -> StoredPart:
    return through(calibrate, make(*arrays))


@dataclass(frozen=True, eq=False)
class CalibratedLazyPart(LazyPart):
    """The same for a part whose arrays are not there yet."""

    calibrate: Calibrate | None = None

    def recipe(self) -> tuple[Callable[..., StoredPart], tuple[Any, ...]]:
        assert self.calibrate is not None
        make, arrays = super().recipe()
        return partial(made_through, self.calibrate, make), arrays


def lazily_through(calibrate: Calibrate, part: LazyPart) -> CalibratedLazyPart:
    where = part.offset, part.rows, part.place, part.first
    return CalibratedLazyPart(*where, arrays=part.arrays, load=part.load, calibrate=calibrate)


def calibrated_source(source: Source, calibrator: Any, least: float = 0.0) -> Source:
    """The probabilities that a calibrator gives to the rows of a source, read in blocks."""
    classes = getattr(calibrator, "n_features_in_", source.classes)
    if classes != source.classes:
        raise ValueError(
            f"{source.name} has {source.classes} classes, and the calibrator was fitted to "
            f"{classes}"
        )
    calibrate = Calibrate(calibrator, source.input, least)
    parts = [
        lazily_through(calibrate, part) if isinstance(part, LazyPart) else through(calibrate, part)
        for part in source.parts
    ]
    return Source(
        parts,
        name=source.name,
        classes=source.classes,
        dtype=np.float64,
        class_names=source.class_names,
        has_labels=source.has_labels,
        input="probabilities",
        runner=source.runner,
        soft_labels=source.soft_labels,
    )
