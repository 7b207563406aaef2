"""Where rows come from: an array, files, a Dask collection; read in blocks, as often as needed."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows, as they were found."""

    logits: Array
    labels: Array | None
    weights: Array | None = None


@dataclass(frozen=True, eq=False)
class Part:
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

    def blocks(self) -> Iterator[Block]:
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
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        name: str,
        classes: int,
        dtype: Any,
        class_names: tuple[str, ...] | None = None,
        has_labels: bool = True,
        input: str = "logits",
        client: Any = None,
    ) -> None:
        self.parts = tuple(parts)
        self.name = name
        self.rows = sum(part.rows for part in self.parts)
        self.classes = classes
        self.dtype = np.dtype(dtype)
        self.class_names = class_names
        self.has_labels = has_labels
        self.input = input
        self.client = client  # of a cluster whose workers read the parts; None: this process

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


def is_dask(x: object) -> bool:
    """Is this an array or a frame of Dask? Without importing Dask."""
    return type(x).__module__.partition(".")[0] in ("dask", "dask_expr")
