"""Where rows come from: an array, files, a lazy collection; read in blocks, as often as needed."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from hotmax._backends.lazy import row_blocks
from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.class_labels import names_of_columns


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Consecutive rows, as they were found."""

    logits: Array
    labels: Array | None
    weights: Array | None = None


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A piece of a source that can be read by itself, also in another process.

    Attributes:
        offset: The number of its first row in the source.
        rows: How many rows it has.
        place: Where it lies, for errors: a file, or a block. Empty for an array.
        first: The number of its first row in that place.
    """

    offset: int
    rows: int
    place: str = ""
    first: int = 0

    def blocks(self) -> Iterator[RowBlock]:
        """Its rows in order, some at a time."""
        raise NotImplementedError


class Source:
    """Rows of logits, and labels where there are any, that are read in blocks.

    Made by `hotmax.io.source` from arrays, files or Dask collections. All functions of
    `hotmax.calibration` and `hotmax.report` take it in the place of logits and labels, and read it
    block by block: memory does not grow with the number of rows.

    Attributes:
        name: What it is, for errors and titles.
        rows: The number of rows.
        classes: The number of classes.
        dtype: Of the logits.
        class_names: The names of the classes, or None.
        has_labels: Whether there are labels.
        input: "logits" or "probabilities": what `logits` of a block holds.
        soft_labels: Whether labels are probabilities of the classes.
        logit_source, label_source: What was taken for logits and for labels, such as
            "columns 'cat' and 'dog'"; or None.
    """

    def __init__(
        self,
        parts: Sequence[StoredPart],
        *,
        name: str,
        classes: int,
        dtype: Any,
        class_names: tuple[str, ...] | None = None,
        has_labels: bool = True,
        input: str = "logits",
        runner: Callable[..., Any] | None = None,
        soft_labels: bool = False,
    ) -> None:
        self.parts = tuple(parts)
        self.name = name
        self.rows = sum(part.rows for part in self.parts)
        self.classes = classes
        self.dtype = np.dtype(dtype)
        self.class_names = class_names
        self.has_labels = has_labels
        self.input = input
        self.soft_labels = soft_labels
        self.logit_source: str | None = None
        self.label_source: str | None = None
        self.runner = runner  # what computes the parts: `passes.Runner`; None: threads

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """(logits, labels or None) of consecutive rows, until all have been read."""
        for part in self.parts:
            for block in part.blocks():
                yield block.logits, block.labels

    def __repr__(self) -> str:
        labels = "labels" if self.has_labels else "no labels"
        return (
            f"Source({self.name}: {self.rows} rows, {self.classes} classes, {self.dtype}, {labels})"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


@dataclass(frozen=True, eq=False)
class LoadedBlock(StoredPart):
    """A part that is one block, in memory."""

    block: RowBlock | None = None

    def blocks(self) -> Iterator[RowBlock]:
        assert self.block is not None
        yield self.block


def loaded_block(part: LoadedBlock, logits: Any, labels: Any, weights: Any) -> LoadedBlock:
    for array, name in ((logits, "logits"), (labels, "labels"), (weights, "sample_weight")):
        refuse_masked(array, name)
    y, w = (None if x is None else np.asarray(x) for x in (labels, weights))
    return replace(part, block=RowBlock(np.asarray(logits), y, w))


@dataclass(frozen=True, eq=False)
class LazyPart(StoredPart):
    """A block of a collection whose arrays are not there yet."""

    arrays: tuple[Any, Any, Any] = (None, None, None)  # logits, labels, weights
    load: Callable[..., tuple[Any, ...]] = lambda *arrays: arrays

    def recipe(self) -> tuple[Callable[..., StoredPart], tuple[Any, ...]]:
        """What makes a part that can be read, and its arguments once they are computed."""
        empty = LoadedBlock(self.offset, self.rows, self.place, self.first)
        return partial(loaded_block, empty), self.arrays

    def blocks(self) -> Iterator[RowBlock]:
        make, arrays = self.recipe()
        return make(*self.load(*arrays)).blocks()


def lazy_source(
    logits: object, targets: object, sample_weight: object, *, name: str = "targets"
) -> Source:
    """A source of the blocks of a lazy collection, which its own scheduler computes."""
    found = row_blocks(logits, targets, sample_weight, name=name)
    names = names_of_columns(logits)
    starts = accumulate(found.lengths, initial=0)
    parts = [
        LazyPart(start, length, f"block {i}", 0, arrays, found.load)
        for i, (start, length, arrays) in enumerate(
            zip(starts, found.lengths, found.blocks, strict=False)
        )
    ]
    return Source(
        parts,
        name=found.name,
        classes=found.classes,
        dtype=found.dtype,
        class_names=names if names is not None and len(set(names)) == found.classes else None,
        has_labels=targets is not None,
        runner=found.runner,
        soft_labels=len(getattr(targets, "shape", ())) == 2,
    )
