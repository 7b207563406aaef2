"""Labels as numbers of classes: from integers, from whole floats, from names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hotmax._boundary import Array
from hotmax.io.arrays import read_npy, read_npz
from hotmax.io.found import LABEL_NAMES, NONE, Wanted, listed, row_place

Place = Callable[[int], str]

LABEL_FILES = (".npy", ".npz", ".txt", ".csv")


def as_labels(
    raw: Array, rows: int, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """The labels of all rows as int64, or a ValueError that says where one is wrong."""
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise ValueError(f"{path}: labels must be one for each row, got shape {raw.shape}")
    if len(raw) != rows:
        raise ValueError(f"{path}: {len(raw)} labels for {rows} rows of logits")
    if raw.dtype.kind == "S":
        raw = np.char.decode(raw, "utf-8")
    if raw.dtype.kind == "U":
        return from_text(raw, classes, names, place, path)
    if raw.dtype.kind == "f":
        uneven = ~(np.floor(raw) == raw)  # nan too
        if uneven.any():
            row = int(np.argmax(uneven))
            raise ValueError(f"{path}: label {raw[row]:g} at {place(row)} is not a whole number")
        raw = raw.astype(np.int64)
    if raw.dtype.kind not in "iub":
        raise ValueError(f"{path}: labels must be integers or text, got {raw.dtype}")
    return from_integers(raw.astype(np.int64), classes, names, place, path)


def from_text(
    raw: Array, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """By name where every label is a name; else as integers."""
    values = [value.strip() for value in raw.tolist()]
    numbers = {name: number for number, name in enumerate(names or ())}
    found = np.fromiter((numbers.get(value, -1) for value in values), np.int64, len(values))
    if not (found < 0).any():
        return found
    row = int(np.argmax(found < 0))
    try:
        integers = np.array(values).astype(np.int64)
    except (ValueError, OverflowError):
        if names is None:
            row = next(i for i, value in enumerate(values) if not is_integer(value))
            raise ValueError(
                f"{path}: label {values[row]!r} at {place(row)} is text, and the classes have no "
                "names: give classes=[...] (--classes)"
            ) from None
        raise ValueError(
            f"{path}: label {values[row]!r} at {place(row)} is none of the classes {listed(names)}"
        ) from None
    return in_range(integers, classes, place, path)


def from_integers(
    raw: Array, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """As they are; but if the classes are named by integers, by these names where all fit."""
    if names is not None and all(map(is_integer, names)):
        numbers = {int(name): number for number, name in enumerate(names)}
        if all(int(value) in numbers for value in np.unique(raw)):
            order = np.array(sorted(numbers))
            places = np.array([numbers[value] for value in order.tolist()])
            found: Array = places[np.searchsorted(order, raw)]
            return found
    return in_range(raw, classes, place, path)


def in_range(labels: Array, classes: int, place: Place, path: Path) -> Array:
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{path}: label {labels[row]} at {place(row)} is out of range: {classes} classes are "
            f"0 to {classes - 1}"
        )
    return labels


def is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


# --- files of labels alone --------------------------------------------------------------------


def read_label_file(path: Path) -> tuple[Array, Place]:
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
    return np.array(lines[first:], str), lambda row: f"line {row + 1 + first}"


def text_lines(path: Path) -> list[str]:
    """The lines of a text file, without space around them and empty ones at the end."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: byte {error.start}") from None
    return [line.strip() for line in text.rstrip().splitlines()]
