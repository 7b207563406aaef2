"""One file: found, opened by the reader of its kind, and its logits checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._backends.protocol import values_of
from hotmax._core import threads
from hotmax._core.arrays import ACCEPTED, FLOATS, Array, is_other_library, refuse_masked
from hotmax._core.checks import as_real, check_probabilities
from hotmax._core.class_labels import (
    argument_origin,
    in_order,
    integer_names,
    names_for,
    numbers_of_argument,
    places_among,
)
from hotmax.calibration.examples import refuse_probabilities
from hotmax.io.arrays import read_npy, read_npz
from hotmax.io.found import Found, Wanted
from hotmax.io.json_lines import JSON_LINES, read_json_lines
from hotmax.io.labels import LABEL_FILES
from hotmax.io.one_logit import is_one_logit
from hotmax.io.parquet import read_parquet
from hotmax.io.places import is_remote, local, suffix_of
from hotmax.io.safetensors import read_safetensors
from hotmax.io.text_tables import read_csv

BLOCK = 1 << 20  # entries that are looked at together

READERS = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".csv.gz": read_csv,
    ".tsv.gz": read_csv,
    ".parquet": read_parquet,
    ".safetensors": read_safetensors,
    **dict.fromkeys(JSON_LINES, read_json_lines),
}
ARRAYS = (".npy", ".npz", ".safetensors")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".ckpt")


def reader_of(file: Path) -> Callable[[Path, Wanted], Found]:
    """The function that reads such a file; ValueError if there is none."""
    kind = suffix_of(file)
    if kind not in READERS:
        known = ", ".join(READERS)
        more = "; pickles are never read, so save the arrays with np.savez" * (kind in PICKLES)
        raise ValueError(f"{file}: the name must end in one of {known}, got {kind!r}{more}")
    return READERS[kind]


def existing(path: str | os.PathLike[str]) -> Path:
    """The path of a file that is there, holds something and may be read."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a path, got {type(path).__name__}")
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a directory, not a file")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {file}")
    if not file.is_file():
        raise ValueError(f"{file} is a device or a pipe, not a file that can be read")
    try:
        file.open("rb").close()
    except PermissionError:
        raise PermissionError(f"{file} may not be read: permission denied") from None
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty")
    return file


def is_array_of_labels(labels: object) -> bool:
    """Are these the labels themselves, and not the name of where they are?"""
    if labels is None or isinstance(labels, str | os.PathLike):
        return False
    if not isinstance(labels, list | tuple) and not hasattr(labels, "shape"):
        raise TypeError(
            "labels must be the name of an array or column, a file, or an array with a label for "
            f"each row, got {type(labels).__name__}"
        )
    return True


def raw_labels(labels: Any, classes: int, names: tuple[str, ...] | None) -> Array:
    """Labels that are an argument, as a file could hold them."""
    refuse_masked(labels, "labels")
    given = numbers_of_argument(labels, classes, names, "labels")
    return np.asarray(values_of(given, "labels") if is_other_library(given) else given)


def numbers_of_labels(labels: Any, classes: int, class_names: object, logits: object) -> Array:
    """Labels as numbers of classes; of those that may be ignored later, negative ones stay."""
    names = names_for(class_names, classes, logits)
    given = numbers_of_argument(labels, classes, names, "labels")
    y = np.asarray(values_of(given, "labels") if is_other_library(given) else given)
    known = integer_names(names)
    if known is None or y.dtype.kind not in "iub":
        return y
    y = y.astype(np.int64)
    stays = (y < 0) & ~np.isin(y, known)
    numbers = places_among(np.where(stays, known[0], y), known, argument_origin("labels"))
    return np.where(stays, y, numbers)


def label_file(labels: str | os.PathLike[str] | None) -> Path | None:
    """The file that `labels` names, if it looks like one: plain words are names in the file."""
    if labels is None:
        return None
    if is_remote(os.fspath(labels)):
        return existing(local(os.fspath(labels)))
    other = Path(labels)
    plain = isinstance(labels, str) and os.sep not in labels
    if plain and other.suffix.lower() not in LABEL_FILES:
        return None
    return existing(other)


def opened(file: Path, wanted: Wanted) -> Found:
    if wanted.columns is not None and suffix_of(file) in ARRAYS:
        raise ValueError(f"{file} has arrays, and no columns to choose: say logits (--logits)")
    found = reader_of(file)(file, wanted)
    if found.logits.ndim == 1:  # one logit for each row, of two classes
        return replace(found, logits=found.logits.reshape(-1, 1))
    if found.logits.ndim != 2:
        raise ValueError(
            f"{file}: {found.what} must have shape (rows, classes), or (rows,) for one logit of "
            f"two classes, got {found.logits.shape}"
        )
    return found


def checked_logits(found: Found, file: Path) -> Array:
    x = found.logits
    if x.dtype.kind not in "iub" and x.dtype.name not in FLOATS:
        raise ValueError(f"{file}: {found.what} must hold {ACCEPTED}, got {x.dtype}")
    if 0 in x.shape:
        what = "rows" if x.shape[0] == 0 else "classes"
        raise ValueError(f"{file}: {found.what} has no {what}: its shape is {x.shape}")
    return x


def names_of_file(
    given: Sequence[str] | None, found: Found, count: int, file: Path
) -> tuple[str, ...] | None:
    if given is None and (found.class_names is None or (count == 2 and is_one_logit(found.logits))):
        return None
    if given is not None and not in_order(given):
        raise TypeError(f"class_names must be a sequence of names, got {given!r}")
    names = found.class_names if given is None else tuple(str(name) for name in given)
    assert names is not None
    if len(names) != count:
        raise ValueError(f"{file}: {len(names)} names of classes for {count} classes")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{file}: two classes have the name {name!r}")
        try:
            name.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which could not be printed
            raise ValueError(f"{file}: the name {name!r} of a class is not text") from None
        seen.add(name)
    return names


def rows_at_once(x: Array) -> int:
    return max(BLOCK // int(x.shape[1]), 1)


def check_nan(x: Array, found: Found, file: Path) -> None:
    """Refuse nan, and say where the first one is."""
    if x.dtype.kind in "iub":
        return
    wrong: list[int] = []

    def look(start: int, stop: int) -> None:
        part = x[start:stop]
        if np.isnan(part.min()):  # which is nan if anything is
            wrong.append(start + int(np.argmax(np.isnan(part).any(axis=1))))

    threads.for_ranges(look, len(x), rows_at_once(x))
    if wrong:
        raise ValueError(f"{file}: {found.what} holds nan at {found.place(min(wrong))}")


def expect_logits(x: Array, file: Path) -> None:
    try:
        refuse_probabilities(x)
    except ValueError:
        raise ValueError(
            f"{file} holds probabilities, not logits: every row lies in 0..1 and sums to 1; say "
            'input="probabilities" (--input probabilities)'
        ) from None


def as_columns(columns: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """Names, patterns or places of columns."""
    if columns is None:
        return None
    if not isinstance(columns, str) and not hasattr(columns, "__iter__"):
        raise TypeError(f"columns must be a sequence of names, got {columns!r}")
    chosen = (columns,) if isinstance(columns, str) else tuple(str(name) for name in columns)
    if not chosen:
        raise ValueError("columns must name one column at least")
    return chosen


def as_clip(clip: object, input: str) -> float:
    """The least probability; 0 if there is none."""
    if clip is None:
        return 0.0
    least = as_real(clip, "clip")
    if not 0.0 < least < 1.0:
        raise ValueError(f"clip must lie above 0 and below 1, got {clip!r}")
    if input != "probabilities":
        raise ValueError('clip is for input="probabilities" (--input probabilities)')
    return least


def logarithms(x: Array, file: Path, clip: float = 0.0) -> Array:
    """log p, which softmax turns into p again; float32 for the half precisions.

    With `clip`, that of p or `clip`, whichever is larger.
    """
    try:
        check_probabilities(x, -1, "probabilities")
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    logs = np.empty(x.shape, np.float64 if x.dtype.itemsize > 4 else np.float32)
    step = rows_at_once(x)

    def work(start: int, stop: int) -> None:
        with np.errstate(divide="ignore"):
            part = x[start:stop]
            part = np.maximum(part.astype(logs.dtype), clip) if clip else part
            np.log(part, out=logs[start:stop], casting="same_kind")

    threads.for_ranges(work, len(x), step)
    return logs
