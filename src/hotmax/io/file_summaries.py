"""What files hold, without their rows: how many, of which type, in which parts to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import reading
from hotmax.calibration.source import StoredPart
from hotmax.io.found import Found, Wanted
from hotmax.io.labels import is_soft
from hotmax.io.one_file import checked_logits, existing, names_of_file, reader_of
from hotmax.io.one_logit import is_one_logit, pair_of_names, said_of_pair
from hotmax.io.parquet import batches, chosen_columns, opened_parquet
from hotmax.io.parts import FileRows, RowGroup, opened_at, rows_in_block
from hotmax.io.places import is_zarr, naming, suffix_of
from hotmax.io.tables import refuse_ids


@dataclass(frozen=True)
class FileSummary:
    """What a file holds, without its rows."""

    name: str
    rows: int
    classes: int
    dtype: np.dtype[Any]
    class_names: tuple[str, ...] | None
    has_labels: bool
    parts: tuple[StoredPart, ...]  # from offset 0
    logit_source: str
    label_source: str | None
    one_logit: bool  # for each row, of two classes
    soft_labels: bool = False


def summary_of(name: str, wanted: Wanted, class_names: Sequence[str] | None) -> FileSummary:
    with naming(name) as path:
        if not is_zarr(name):
            existing(path)
            reader_of(path)
        if path.suffix.lower() == ".parquet":
            return parquet_summary(name, path, wanted, class_names)
        with reading(path):
            found = opened_at(name, path, wanted)
            x = checked_logits(found, path)
            classes, names = classes_of(found, class_names, path)
    rows = int(x.shape[0])
    if found.labels is not None and len_of(found.labels) != rows:
        raise ValueError(f"{name}: {len_of(found.labels)} labels for {rows} rows of logits")
    step = rows_in_block(classes) if is_mapped(x) else rows
    if is_zarr(name):
        step = whole_chunks(x, classes)
    part = FileRows(0, rows, name, 0, wanted, names, None, found.labels is not None)
    parts = tuple(
        replace(part, offset=start, rows=min(step, rows - start), first=start)
        for start in range(0, rows, step)
    )
    labelled, taken = found.labels is not None, found.logit_source or found.what
    taken += f" ({said_of_pair(names, wanted.probabilities)})" if is_one_logit(x) else ""
    return FileSummary(
        name, rows, classes, x.dtype, names, labelled, parts, taken, found.label_source,
        is_one_logit(x), is_soft(found.labels, classes),
    )  # fmt: skip


def classes_of(
    found: Found, class_names: Sequence[str] | None, path: Path
) -> tuple[int, tuple[str, ...] | None]:
    """(how many classes, their names): two of one logit, named in the labels of this file."""
    if not is_one_logit(found.logits):
        count = int(found.logits.shape[1])
        return count, names_of_file(class_names, found, count, path)
    labels = found.labels
    raw = labels if labels is None or isinstance(labels, list) else np.asarray(labels[:])
    return 2, names_of_file(pair_of_names(found, class_names, raw, path), found, 2, path)


def len_of(labels: Any) -> int:
    shape = getattr(labels, "shape", None)  # of a zarr too
    return len(labels) if shape is None else int(shape[0]) if shape else 0


def whole_chunks(x: Any, classes: int) -> int:
    """Rows of whole chunks that make up a block; an array without chunks is cut anywhere."""
    chunks = getattr(x, "chunks", None)
    step = int(chunks[0]) if chunks and isinstance(chunks[0], int) else rows_in_block(classes)
    return max(step, rows_in_block(classes) // step * step)


def is_mapped(x: Array) -> bool:
    base: Any = x
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def parquet_summary(
    name: str, path: Path, wanted: Wanted, class_names: Sequence[str] | None
) -> FileSummary:
    with reading(path), opened_parquet(path) as file:
        columns = chosen_columns(file, path, wanted)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        small = next(batches(file, path, columns, [counts.index(max(counts))], 0))[0]
        found = Found(small, "the table", None, None, columns.class_names, str)
        x = checked_logits(found, path)
        if not columns.as_list:
            refuse_ids(x, columns.class_names, path, wanted)
        classes, names = classes_of(found, class_names, path)
    starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    parts = tuple(
        RowGroup(starts[i], count, name, starts[i], columns, i, names, None, wanted.probabilities)
        for i, count in enumerate(counts)
        if count
    )
    labelled = columns.label is not None
    return FileSummary(
        name,
        columns.rows,
        classes,
        x.dtype,
        names,
        labelled,
        parts,
        columns.logit_source
        + (f" ({said_of_pair(names, wanted.probabilities)})" if is_one_logit(x) else ""),
        f"column {columns.label!r}" if labelled else None,
        is_one_logit(x),
    )


def kind_of_labels(file: FileSummary) -> str:
    return "none" if not file.has_labels else "soft" if file.soft_labels else "labels"


def names_of_labels(first: FileSummary, other: FileSummary) -> tuple[str | None, str | None]:
    """Where the labels of two files are; None if the files are of two kinds, with other names."""
    if suffix_of(first.name) != suffix_of(other.name):
        return None, None
    return first.label_source, other.label_source


def check_agreement(first: FileSummary, other: FileSummary) -> None:
    """Raise if two shards do not belong together, naming both."""
    for what, one, two in (
        ("classes", first.classes, other.classes),
        ("dtype", first.dtype, other.dtype),
        ("names of classes", first.class_names, other.class_names),
        ("labels", *(kind_of_labels(file) for file in (first, other))),
        ("names of labels", *names_of_labels(first, other)),
    ):
        if one != two:
            raise ValueError(
                f"{first.name} and {other.name} do not belong together: {what} {one} and {two}"
            )
