"""Labels as numbers of classes: from integers, from whole floats, from names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import check_probabilities
from hotmax._core.class_labels import LabelOrigin, Labels, numbers_of_numbers, numbers_of_text
from hotmax._core.reading import bounded, reading
from hotmax.io.arrays import read_npy, read_npz
from hotmax.io.found import LABEL_NAMES, NONE, Wanted, row_place

Place = Callable[[int], str]

LONGEST_TEXT = 1 << 26  # bytes: 16 million labels of three digits; more belong in an .npy
BLANK_LINES = 100_000  # among the rows of a text: each costs as much time as a row
LABEL_FILES = (".npy", ".npz", ".txt", ".csv")


def as_labels(
    raw: Labels, rows: int, classes: int, names: tuple[str, ...] | None, place: Place, path: Path
) -> Array:
    """The labels of all rows as int64, or a ValueError that says where one is wrong.

    Soft labels, the probabilities of the classes in each row, as float64.
    """
    if isinstance(raw, np.ndarray):
        if is_soft(raw, classes):
            return as_soft_labels(raw, rows, path)
        if raw.ndim == 2 and raw.shape[1] == 1:
            raw = raw[:, 0]
        if raw.ndim != 1:
            more = ""
            if raw.ndim == 2 and len(raw) == rows:
                more = (
                    "; for several labels of each row, 0 or 1, say multilabel=True (--multilabel)"
                )
            raise ValueError(
                f"{path}: labels must be one for each row, got shape {raw.shape}{more}"
            )
    if len(raw) != rows:
        raise ValueError(f"{path}: {len(raw)} labels for {rows} rows of logits")
    origin = LabelOrigin(str(path), place, "class_names=[...] (--class-names)")
    if isinstance(raw, list):
        return numbers_of_text(raw, classes, names, origin)
    if raw.dtype.kind == "S":
        raw = np.char.decode(raw, "utf-8")
    if raw.dtype.kind == "U":
        return numbers_of_text(raw.tolist(), classes, names, origin)
    if raw.dtype.kind not in "fiub":
        raise ValueError(f"{path}: labels must be integers or text, got {raw.dtype}")
    return numbers_of_numbers(raw, classes, names, origin)


def is_soft(raw: object, classes: int) -> bool:
    """Are these probabilities of the classes, and not labels?"""
    shape: tuple[int, ...] = getattr(raw, "shape", ())
    kind = getattr(getattr(raw, "dtype", None), "kind", "")
    return len(shape) == 2 and shape[1] == classes and kind == "f"


def as_soft_labels(raw: Array, rows: int, path: Path) -> Array:
    if len(raw) != rows:
        raise ValueError(f"{path}: {len(raw)} labels for {rows} rows of logits")
    soft = np.ascontiguousarray(raw, np.float64)
    try:
        check_probabilities(soft, -1, "labels that are probabilities")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return soft


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
