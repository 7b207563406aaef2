"""Parquet by pyarrow, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels, listed
from hotmax._core.reading import first_line
from hotmax.io.found import Found, Wanted, row_place
from hotmax.io.tables import (
    NUMBERS,
    SAY_IT,
    TEXT,
    columns_of,
    is_other,
    label_of,
    refuse_ids,
)

BATCH = 1 << 21  # entries that are read together
LIST_NAMES = ("logits", "logit", "probabilities", "probs", "scores", "outputs")
OUT_OF_MEMORY = ("malloc of size", "out of memory", "bad_alloc", "failed to launch worker thread")
LONGEST_FOOTER = 1 << 26  # bytes of metadata: 400,000 columns, which pyarrow holds all in memory


def read_parquet(path: Path, wanted: Wanted) -> Found:
    with opened_parquet(path) as file:
        chosen = chosen_columns(file, path, wanted)
        logits, labels = fill(file, path, chosen)
        what = f"column {chosen.logits[0]!r}" if chosen.as_list else "the table"
        source = None if chosen.label is None else f"column {chosen.label!r}"
        if not chosen.as_list:
            refuse_ids(logits, chosen.class_names, path, wanted)
        taken = chosen.logit_source
        return Found(logits, what, labels, source, chosen.class_names, row_place, taken)


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """The file, mapped; what Arrow cannot read is a ValueError, and memory that ran out is not."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError('.parquet files need pyarrow: pip install "hotmax[files]"') from None
    check_footer(path)
    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            yield file
    except MemoryError:  # Arrow's own is one of its exceptions too
        raise
    except (pa.ArrowException, OSError) as error:
        if is_memory(error):
            raise MemoryError(first_line(error)) from None
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = first_line(error)
        raise ValueError(f"{path} is not a Parquet file, or is damaged: {reason}") from None


def is_memory(error: Exception) -> bool:
    """Did memory run out? Arrow says so in words, as when it cannot start a thread."""
    text = str(error).lower()
    return any(words in text for words in OUT_OF_MEMORY)


def check_footer(path: Path) -> None:
    """Compare the length of the metadata, at the end of the file, with what may be there."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        end = file.read(8)
    if size < 12 or end[4:] != b"PAR1":
        raise ValueError(f"{path} is not a Parquet file, or is damaged: it does not end as one")
    length = int.from_bytes(end[:4], "little")
    if length > min(size - 12, LONGEST_FOOTER):
        raise ValueError(
            f"{path} is not a Parquet file, or is damaged: its metadata has {length} bytes, in a "
            f"file of {size}; {LONGEST_FOOTER} are read at most"
        )


def is_list(kind: Any) -> bool:
    import pyarrow.types as types

    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(lists and is_numeric(kind.value_type))


def is_numeric(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def is_text(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def content_of(kind: Any) -> str:
    """What a column holds, in one word or by the name of its type."""
    if is_numeric(kind):
        return NUMBERS
    return TEXT if is_text(kind) else str(kind)[:80]


@dataclass(frozen=True)
class ChosenColumns:
    """The columns that hold logits and labels."""

    rows: int
    logits: tuple[str, ...]
    as_list: bool  # one column, whose cells are rows of logits
    label: str | None
    class_names: tuple[str, ...] | None
    logit_source: str

    @property
    def names(self) -> list[str]:
        return [*self.logits, *([] if self.label is None else [self.label])]


def chosen_columns(file: Any, path: Path, wanted: Wanted) -> ChosenColumns:
    schema = file.schema_arrow
    names, kinds = list(schema.names), list(schema.types)
    rows = file.metadata.num_rows
    if rows == 0:
        raise ValueError(f"{path} has no rows")
    groups = sum(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))
    if rows != groups:
        raise ValueError(f"{path} is damaged: {rows} rows are declared, and {groups} in its parts")
    lists = [name for name, kind in zip(names, kinds, strict=True) if is_list(kind)]
    holds = [content_of(kind) for kind in kinds]
    chosen = list_column(lists, names, holds, path, wanted)
    if chosen is not None:
        label = label_of(names, holds, path, wanted)
        columns, class_names = [chosen], None
        taken = f"column {chosen!r}"
    else:
        found = columns_of(names, holds, path, wanted)
        label, class_names, taken = found.label, found.class_names, found.logit_source
        columns = [names[i] for i in found.logits]
    label_name = None if label is None else names[label]
    if label is not None and holds[label] not in (NUMBERS, TEXT, "bool"):
        raise ValueError(
            f"{path}: column {label_name!r} holds {holds[label]}, and labels are integers or text"
        )
    as_list = chosen is not None
    return ChosenColumns(rows, tuple(columns), as_list, label_name, class_names, taken)


def list_column(
    lists: list[str], names: list[str], holds: list[str], path: Path, wanted: Wanted
) -> str | None:
    """The column whose every cell is a row of logits, if there is one."""
    if wanted.columns is not None:
        return wanted.columns[0] if wanted.columns[0] in lists else None
    usual = ("probabilities", "logits") if wanted.probabilities else ("logits",)
    for name in (wanted.logits,) if wanted.logits else usual:
        if name in lists:
            return name
    if not lists or wanted.logits:
        return None
    if len(lists) > 1:
        raise ValueError(
            f'{path} has the lists {listed(lists)}: say which by logits="..." (--logits)'
        )
    if lists[0].lower() in LIST_NAMES:
        return lists[0]
    label = label_of(names, holds, path, wanted)
    numeric = [
        name
        for i, name in enumerate(names)
        if holds[i] == NUMBERS and i != label and not is_other(name)
    ]
    if len(numeric) > 1:
        raise ValueError(
            f"{path}: the list {lists[0]!r}, or the columns {listed(numeric)}, may be logits: "
            f"{SAY_IT}"
        )
    return lists[0]


def fill(file: Any, path: Path, chosen: ChosenColumns) -> tuple[Array, Labels | None]:
    logits: Array | None = None
    labels: list[Labels] = []
    rows, start = chosen.rows, 0
    for part, cells in batches(file, path, chosen, None, 0):
        if logits is None:
            logits = np.empty((rows, part.shape[1]), part.dtype)
        if part.shape[1] != logits.shape[1]:
            raise ragged(path, chosen.logits[0], start, part.shape[1], logits.shape[1])
        if start + len(part) > rows:
            break
        logits[start : start + len(part)] = part
        if cells is not None:
            labels.append(cells)
        start += len(part)
    if logits is None or start != rows:
        raise ValueError(f"{path} is damaged: it has not the {rows} rows that it declares")
    if not labels:
        return logits, None
    if isinstance(labels[0], list):
        return logits, [name for part in labels for name in part]
    return logits, np.concatenate(labels)


def batches(
    file: Any, path: Path, chosen: ChosenColumns, groups: list[int] | None, start: int
) -> Iterator[tuple[Array, Labels | None]]:
    """(logits, labels) of consecutive rows, from all row groups or some; `start` counts rows."""
    size = batch_rows(file, list(chosen.logits), chosen.as_list)
    options = {"batch_size": size, "columns": chosen.names, "use_threads": groups is None}
    for batch in file.iter_batches(row_groups=groups, **options):
        if chosen.as_list:
            part = rows_of(batch.column(chosen.logits[0]), start, chosen.logits[0], path)
        else:
            cells = [numbers_of(batch.column(n), start, n, path) for n in chosen.logits]
            part = np.stack(cells, axis=1)
        label = chosen.label
        yield part, None if label is None else label_cells(batch.column(label), start, label, path)
        start += len(part)


def batch_rows(file: Any, columns: list[str], as_list: bool) -> int:
    """Few enough rows for BATCH entries, by what the first row group says."""
    if not as_list:
        return max(BATCH // len(columns), 1)
    group = file.metadata.row_group(0)
    for i in range(group.num_columns):
        if group.column(i).path_in_schema.split(".")[0] == columns[0]:
            classes = int(group.column(i).num_values) // max(int(group.num_rows), 1)
            return max(BATCH // max(classes, 1), 1)
    return 1024


def rows_of(column: Any, start: int, name: str, path: Path) -> Array:
    """A column of lists as (rows, classes)."""
    import pyarrow.compute as pc

    check_nulls(column, start, name, path)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    width = int(lengths[0])
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        raise ragged(path, name, start + row, int(lengths[row]), width)
    values = column.flatten()
    if values.null_count:
        place = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        row = place // max(width, 1)
        raise ValueError(f"{path}: nothing is there in column {name!r}, row {start + row}")
    numbers: Array = values.to_numpy(zero_copy_only=False)
    return numbers.reshape(len(column), width)


def ragged(path: Path, name: str, row: int, length: int, width: int) -> ValueError:
    return ValueError(
        f"{path}: row {row} of column {name!r} has {length} logits, and those before it {width}"
    )


def numbers_of(column: Any, start: int, name: str, path: Path) -> Array:
    check_nulls(column, start, name, path)
    numbers: Array = column.to_numpy(zero_copy_only=False)
    return numbers


def label_cells(column: Any, start: int, name: str, path: Path) -> Labels:
    check_nulls(column, start, name, path)
    if is_text(column.type):
        names: list[str] = column.to_pylist()
        return names
    cells: Array = column.to_numpy(zero_copy_only=False)
    return cells


def check_nulls(column: Any, start: int, name: str, path: Path) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"{path}: nothing is there in column {name!r}, row {start + row}")
