"""What a file has for each row beside logits and labels: groups and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array

WEIGHT_NAMES = ("sample_weight", "weight", "weights")
NO_WEIGHTS = "none"


def groups_of(by: str, files: tuple[str, ...]) -> Any:
    """The group of each row: an array of each .npz, or another file."""
    if not files:
        raise ValueError("--by needs a FILE: the demo has no groups")
    return row_values(by, files, "--by", "groups.txt")


def row_values(name: str, files: tuple[str, ...], option: str, example: str) -> Array:
    """The values of an array or column in all files, or of a file that is named."""
    from hotmax.io.labels import text_lines
    from hotmax.io.one_file import existing
    from hotmax.io.places import files_in

    if Path(name).suffix.lower() in (".npy", ".txt"):
        other = existing(name)
        if other.suffix.lower() == ".npy":
            values: Array = np.load(other, allow_pickle=False)
            return values
        return np.array(text_lines(other))
    return np.concatenate(
        [column_of(name, file, option, example) for file in files_in(list(files))]
    )


def column_of(column: str, name: str, option: str, example: str) -> Array:
    """An array of an .npz, or a column of a table."""
    columns = columns_in(name)
    if columns is None:
        raise ValueError(
            f"{option} {column}: {name} has no columns; give a file, such as {option} {example}"
        )
    if column not in columns:
        raise ValueError(f"{name} has no column {column!r}, only {', '.join(columns)}")
    return columns[column]()


def columns_in(name: str) -> dict[str, Callable[[], Array]] | None:
    """What reads each array of an .npz or column of a table; None of another kind of file."""
    from hotmax.io.one_file import existing
    from hotmax.io.parquet import opened_parquet
    from hotmax.io.places import suffix_of
    from hotmax.io.text_tables import open_text

    file = existing(name)
    kind = suffix_of(file)
    if kind == ".npz":

        def array_of(key: str) -> Array:
            with np.load(file, allow_pickle=False) as arrays:
                array: Array = arrays[key]
                return array

        with np.load(file, allow_pickle=False) as arrays:
            return {key: lambda key=key: array_of(key) for key in arrays.files}  # type: ignore[misc]
    if kind in (".csv", ".tsv", ".csv.gz", ".tsv.gz"):
        text = open_text(file)
        decimal = text.decimal

        def cells_of(at: int) -> Array:
            cells = np.array([cells[at] for _, cells in text.data()])
            return cells if decimal == "." else np.char.replace(cells, decimal, ".")

        return {key: lambda at=at: cells_of(at) for at, key in enumerate(text.header or [])}  # type: ignore[misc]
    if kind == ".parquet":

        def values_of(key: str) -> Array:
            with opened_parquet(file) as table:
                values: Array = table.read([key]).column(0).to_numpy()
                return values

        with opened_parquet(file) as table:
            names = table.schema_arrow.names
        return {key: lambda key=key: values_of(key) for key in names}  # type: ignore[misc]
    return None


@dataclass(frozen=True)
class FileWeights:
    """The weight of each row, and where they come from."""

    values: Array
    source: str


def row_weights(given: str | None, files: tuple[str, ...]) -> FileWeights | None:
    """The weights that are asked for, or that the first file has under a usual name; or None."""
    from hotmax.io.places import files_in, is_remote, is_zarr

    if given == NO_WEIGHTS or (given is None and not files):
        return None
    if not files:
        raise ValueError("--sample-weight needs a FILE: the demo has no weights")
    name, source = given, given
    if name is None:
        first = files_in(list(files))[0]
        if is_remote(first) or is_zarr(first):
            return None
        columns = columns_in(first) or {}
        name = next((one for one in WEIGHT_NAMES if one in columns), None)
        if name is None:
            return None
        shape = columns[name]().shape
        if len(shape) != 1 and shape[1:] != (1,):  # weights of something else
            return None
        if shape[1:]:
            raise ValueError(
                f"{first}: {name!r} must hold a weight for each row, got shape {shape}; "
                "--sample-weight none leaves it out"
            )
    if Path(name).suffix.lower() not in (".npy", ".txt"):
        kind = "array" if Path(files_in(list(files))[0]).suffix.lower() == ".npz" else "column"
        source = f"{kind} {name!r} (--sample-weight none leaves them out)"
    values = row_values(name, files, "--sample-weight", "weights.txt")
    try:
        return FileWeights(values.astype(np.float64), source or name)
    except ValueError:
        bad = next(row for row, value in enumerate(values.tolist()) if not reads_as_number(value))
        raise ValueError(
            f"--sample-weight {name}: row {bad} must be a number, got {str(values[bad])!r}"
        ) from None


def reads_as_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def weights_of_test(
    given: str | None, weights: FileWeights | None, name: str, test: str
) -> tuple[Array, ...]:
    """The weights of the rows of a test set, which has some if the other rows have."""
    own = None
    if given is None or Path(given).suffix.lower() not in (".npy", ".txt"):
        own = row_weights(given, (test,))
    if (own is None) != (weights is None):
        one, other = (name, test) if own is None else (test, name)
        raise ValueError(
            f"{one} has weights, and {other} has none under that name: give both an array or "
            "column sample_weight, or say --sample-weight none"
        )
    return () if own is None else (own.values,)
