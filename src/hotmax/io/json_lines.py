"""JSON lines: an object for each row, whose keys are columns; or one of them a list of logits."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels
from hotmax._core.reading import shown, strict_json
from hotmax.io.found import Found, Wanted
from hotmax.io.parquet import list_column
from hotmax.io.tables import NUMBERS, SAY_IT, TEXT, columns_of, label_of, refuse_ids
from hotmax.io.text_tables import LONGEST_LINE, is_compressed

JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
RESPONSES = ("choices", "response", "body", "output", "logprobs")  # keys of a model's API
LISTS = "lists"
BLANK = 1000  # lines without an object


def is_table_of_json(path: Path) -> bool:
    """Are these rows of logits, and not responses of a language model's API?"""
    _, first = next(objects(path))
    return bool(first) and not any(key in first for key in RESPONSES)


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank."""
    number = blank = 0
    with gzip.open(path) if is_compressed(path) else path.open("rb") as file:
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise ValueError(f"{path}: line {number} is longer than {LONGEST_LINE} bytes")
            if not line.strip():
                blank += 1
                if blank > number // 2 + BLANK:
                    raise ValueError(f"{path}: {blank} of the first lines are blank")
                continue
            try:
                found = strict_json(line.removeprefix(b"\xef\xbb\xbf"))
            except UnicodeDecodeError:
                raise ValueError(f"{path}: line {number} is not UTF-8 text") from None
            except ValueError as error:
                raise ValueError(f"{path}: line {number} is not JSON: {error}") from None
            if not isinstance(found, dict):
                raise ValueError(f"{path}: line {number} must be an object, got {kind_of(found)}")
            yield number, found
    if blank == number:
        raise ValueError(f"{path} has no rows")


def kind_of(value: Any) -> str:
    """What a cell holds."""
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return NUMBERS
    if isinstance(value, list):
        numeric = all(kind_of(one) == NUMBERS for one in value)
        return LISTS if numeric and value else "a list that is not one of numbers"
    return TEXT if isinstance(value, str) else "an object"


def read_json_lines(path: Path, wanted: Wanted) -> Found:
    rows = objects(path)
    line, first = next(rows)
    names = list(first)
    if not names:
        raise ValueError(f"{path}: line {line} has no keys")
    holds = [kind_of(first[name]) for name in names]
    lists = [name for name, kind in zip(names, holds, strict=True) if kind == LISTS]
    chosen = list_column(lists, names, holds, path, wanted)
    if chosen is not None:
        label = label_of(names, holds, path, wanted)
        keys, class_names, taken = [chosen], None, f"key {chosen!r}"
    else:
        columns = columns_of(names, holds, path, wanted)
        label, class_names, taken = columns.label, columns.class_names, columns.logit_source
        keys = [names[i] for i in columns.logits]
    label_key = None if label is None else names[label]
    if label is not None and holds[label] not in (NUMBERS, TEXT):
        raise ValueError(f"{path}: labels are integers or text, got {holds[label]}")
    lines, cells, labels = [line], [row_of(first, keys, path, line)], [first.get(label_key or "")]
    for line, found in rows:
        row = row_of(found, keys, path, line)
        if len(row) != len(cells[0]):
            raise ValueError(
                f"{path}: line {line} has {len(row)} logits, and the first has {len(cells[0])}"
            )
        if label_key is not None and label_key not in found:
            raise ValueError(f"{path}: line {line} has no key {label_key!r}")
        strange = next((key for key in found if key not in first), None)
        if strange is not None and wanted.columns is None and wanted.logits is None:
            raise ValueError(
                f"{path}: line {line} has the key {strange!r}, and the first has not: {SAY_IT}"
            )
        lines.append(line)
        cells.append(row)
        labels.append(found.get(label_key or ""))
    logits = np.array(cells, np.float64)
    if chosen is None:
        refuse_ids(logits, class_names, path, wanted)

    def place(row: int) -> str:
        return f"line {lines[row]}"

    raw = None if label_key is None else label_values(labels, path, lines)
    source = None if label_key is None else f"key {label_key!r}"
    return Found(logits, "the table", raw, source, class_names, place, taken)


def row_of(found: dict[str, Any], keys: list[str], path: Path, line: int) -> list[float]:
    """The logits of an object."""
    for key in keys:
        if key not in found:
            raise ValueError(f"{path}: line {line} has no key {key!r}")
        kind = kind_of(found[key])
        if kind == LISTS and len(keys) == 1:
            return [float(number) for number in found[key]]
        if kind != NUMBERS:
            what = f"{shown(found[key])} is text" if kind == TEXT else f"{kind} is there"
            raise ValueError(f"{path}: line {line}, key {key!r}: {what}, and no number")
    return [float(found[key]) for key in keys]


def label_values(labels: list[Any], path: Path, lines: list[int]) -> Labels:
    """Labels as text, if the first is text, or as numbers."""
    kind = kind_of(labels[0])
    for line, label in zip(lines, labels, strict=True):
        if kind_of(label) != kind:
            raise ValueError(f"{path}: line {line}: the label is {kind_of(label)}, not {kind}")
    if kind == TEXT:
        return labels
    numbers: Array = np.array(labels, None if all(type(x) is int for x in labels) else np.float64)
    return numbers
