"""Pieces of files and arrays that are read by themselves, in this process or on a worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels
from hotmax._core.reading import reading
from hotmax.calibration.source import RowBlock, StoredPart
from hotmax.io.found import Found, Wanted
from hotmax.io.labels import as_labels
from hotmax.io.one_file import opened
from hotmax.io.one_logit import is_one_logit, two_columns
from hotmax.io.parquet import ChosenColumns, batches, opened_parquet
from hotmax.io.places import is_zarr, naming
from hotmax.io.zarr_arrays import opened_zarr

BLOCK = 1 << 22  # entries that are read together
EVERYTHING = Wanted(None, None, False)


def rows_in_block(classes: int) -> int:
    return max(BLOCK // max(classes, 1), 1)


def opened_at(name: str, path: Path, wanted: Wanted) -> Found:
    """What the file at `path`, or the zarr of this name, holds."""
    return opened_zarr(name, wanted) if is_zarr(name) else opened(path, wanted)


@dataclass(frozen=True, eq=False)
class ArraySlice(StoredPart):
    """Rows of arrays from `first` on: in memory, in a memory map, or in a zarr store."""

    x: Any = None
    y: Any = None

    def blocks(self) -> Iterator[RowBlock]:
        step = rows_in_block(int(self.x.shape[1]))
        for start in range(self.first, self.first + self.rows, step):
            stop = min(start + step, self.first + self.rows)
            labels = None if self.y is None else np.asarray(self.y[start:stop])
            yield RowBlock(np.asarray(self.x[start:stop]), labels)


@dataclass(frozen=True, eq=False)
class FileRows(StoredPart):
    """Rows of a file of arrays or text, or of a zarr: those from `first` on."""

    wanted: Wanted = EVERYTHING
    class_names: tuple[str, ...] | None = None
    labels: Labels | None = None  # where they come from another file
    has_labels: bool = True

    def blocks(self) -> Iterator[RowBlock]:
        with naming(self.place) as path:
            with reading(path):
                found = opened_at(self.place, path, self.wanted)
            step = rows_in_block(int(found.logits.shape[1]))
            for start in range(self.first, self.first + self.rows, step):
                stop = min(start + step, self.first + self.rows)
                with reading(path):
                    x = found.logits[start:stop]
                    if is_one_logit(found.logits):
                        x = two_columns(x, self.wanted.probabilities)
                    raw = found.labels[start:stop] if found.labels is not None else None
                if self.labels is not None:
                    raw = self.labels[start - self.first : stop - self.first]
                labels = None
                if self.has_labels:
                    labels = block_labels(raw, x, start, stop, self.class_names, path)
                yield RowBlock(x, labels)


@dataclass(frozen=True, eq=False)
class RowGroup(StoredPart):
    """A row group of a Parquet file."""

    columns: ChosenColumns | None = None
    group: int = 0
    class_names: tuple[str, ...] | None = None
    labels: Labels | None = None
    probabilities: bool = False  # whether a single column holds those

    def blocks(self) -> Iterator[RowBlock]:
        assert self.columns is not None
        start = self.first
        with naming(self.place) as path, reading(path), opened_parquet(path) as file:
            for x, cells in batches(file, path, self.columns, [self.group], start):
                if is_one_logit(x):
                    x = two_columns(x, self.probabilities)
                stop = start + len(x)
                raw = cells
                if self.labels is not None:
                    raw = self.labels[start - self.first : stop - self.first]
                labels = None
                if raw is not None:
                    labels = block_labels(raw, x, start, stop, self.class_names, path)
                yield RowBlock(x, labels)
                start = stop


@dataclass(frozen=True, eq=False)
class ClippedPart(StoredPart):
    """A part whose probabilities are at least `clip`, and add up to 1 again."""

    inner: StoredPart | None = None
    clip: float = 0.0

    def blocks(self) -> Iterator[RowBlock]:
        assert self.inner is not None
        for block in self.inner.blocks():
            kind = np.float64 if block.logits.dtype.itemsize > 4 else np.float32
            p = np.maximum(block.logits.astype(kind), kind(self.clip))
            yield replace(block, logits=p / p.sum(1, keepdims=True))


def block_labels(
    raw: Labels | None, x: Array, start: int, stop: int, names: tuple[str, ...] | None, path: Path
) -> Array:
    """The labels of rows start..stop of a file as numbers of classes."""
    assert raw is not None

    def place(row: int) -> str:
        return f"row {start + row}"

    with reading(path):
        return as_labels(raw, stop - start, int(x.shape[1]), names, place, path)
