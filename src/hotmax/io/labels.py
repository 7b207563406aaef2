"""Labels as numbers of classes: from integers, from whole floats, from names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import bounded, reading, shown
from hotmax.io.arrays import read_npy, read_npz
from hotmax.io.found import LABEL_NAMES, NONE, Labels, Wanted, listed, row_place

Place = Callable[[int], str]

LONGEST_TEXT = 1 << 26  # bytes: 16 million labels of three digits; more belong in an .npy
BLANK_LINES = 100_000  # among the rows of a text: each costs as much time as a row
MOST_EXACT = 2**53  # floats up to here are exact integers
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # what int64 holds

LABEL_FILES = (".npy", ".npz", ".txt", ".csv")


def as_labels(
    raw: Labels, rows: int, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """The labels of all rows as int64, or a ValueError that says where one is wrong."""
    if isinstance(raw, np.ndarray):
        if raw.ndim == 2 and raw.shape[1] == 1:
            raw = raw[:, 0]
        if raw.ndim != 1:
            raise ValueError(f"{path}: labels must be one for each row, got shape {raw.shape}")
    if len(raw) != rows:
        raise ValueError(f"{path}: {len(raw)} labels for {rows} rows of logits")
    if isinstance(raw, list):
        return from_text(raw, classes, names, place, path)
    if raw.dtype.kind == "S":
        raw = np.char.decode(raw, "utf-8")
    if raw.dtype.kind == "U":
        return from_text(raw.tolist(), classes, names, place, path)
    if raw.dtype.kind not in "fiub":
        raise ValueError(f"{path}: labels must be integers or text, got {raw.dtype}")
    return from_numbers(raw, classes, names, place, path)


def from_text(
    raw: list[str], classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """By name where every label is a name; else as integers."""
    values = [value.strip() for value in raw]
    numbers = {name: number for number, name in enumerate(names or ())}
    found = np.fromiter((numbers.get(value, -1) for value in values), np.int64, len(values))
    if not (found < 0).any():
        return found
    integers = [integer_of(value) for value in values]
    if None not in integers:
        return in_range(np.array(integers, np.int64), classes, place, path)
    if names is None:
        row = integers.index(None)
        raise ValueError(
            f"{path}: label {shown(values[row])} at {place(row)} is text, and the classes have no "
            "names: give class_names=[...] (--class-names)"
        )
    row = int(np.argmax(found < 0))
    raise ValueError(
        f"{path}: label {shown(values[row])} at {place(row)} is none of the classes {listed(names)}"
    )


def from_numbers(
    raw: Array, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """Whole numbers: as they are; but if integers name the classes, by these where all fit."""
    if raw.dtype.kind == "f":
        wrong = ~((np.floor(raw) == raw) & (np.abs(raw) <= MOST_EXACT))  # nan too
    elif raw.dtype.kind == "u":
        wrong = raw > np.uint64(np.iinfo(np.int64).max)
    else:
        wrong = np.zeros(1, bool)
    if wrong.any():
        row = int(np.argmax(wrong))
        fault = "is not a whole number" if raw.dtype.kind == "f" else "is out of range"
        raise ValueError(f"{path}: label {raw[row]:g} at {place(row)} {fault}")
    labels: Array = raw.astype(np.int64)
    integers = [integer_of(name) for name in names or ()]
    if integers and None not in integers and len(set(integers)) == len(integers):
        numbers = {value: number for number, value in enumerate(integers)}
        if all(value in numbers for value in np.unique(labels).tolist()):
            order = np.argsort(np.array(integers, np.int64))
            by_name: Array = order[np.searchsorted(np.array(integers), labels, sorter=order)]
            return by_name
    return in_range(labels, classes, place, path)


def in_range(labels: Array, classes: int, place: Place, path: Path) -> Array:
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        counted_from_1 = labels.min() == 1 and labels.max() == classes
        raise ValueError(
            f"{path}: label {labels[row]} at {place(row)} is out of range: {classes} classes are "
            f"0 to {classes - 1}"
            + (f"; these run from 1 to {classes}: subtract 1" if counted_from_1 else "")
        )
    return labels


def integer_of(text: str) -> int | None:
    """The integer that a text is, if int64 can hold it."""
    return int(text) if INTEGER.fullmatch(text) else None


# --- files of labels alone --------------------------------------------------------------------


def read_label_file(path: Path) -> tuple[Labels, Place]:
    """Labels from an .npy, from the array `labels` of an .npz, or from lines of text."""
    kind = path.suffix.lower()
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    if kind == ".npz":
        return read_npz(path, Wanted("labels", NONE, False)).logits, row_place
    if kind == ".npy":
        return read_npy(path, Wanted(None, None, False)).logits, row_place
    if kind not in LABEL_FILES:
        raise ValueError(f"{path}: labels are read from {', '.join(LABEL_FILES)}")
    lines = text_lines(path)
    first = int(lines[0].lower() in LABEL_NAMES) if lines else 0
    return lines[first:], lambda row: f"line {row + 1 + first}"


def text_lines(path: Path) -> list[str]:
    """The lines of a text file, without space around them and empty ones at the end."""
    with reading(path):
        data = bounded(path, LONGEST_TEXT, "a text file that is read whole")
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        ends = np.frombuffer(data.rstrip().translate(None, b" \t"), np.uint8) == ord("\n")
        if np.count_nonzero(ends[1:] & ends[:-1]) > BLANK_LINES:
            raise ValueError(f"{path} has more than {BLANK_LINES} blank lines")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: byte {error.start}") from None
        return [line.strip() for line in text.rstrip().split("\n")]
