"""Labels as numbers of classes: from integers, from whole floats, from text, from categories.

The one place that decides what a label means, for arguments and for files. Where the classes have
names, a label is looked up among them: text always, integers if the names are integers and all
labels are among them. Otherwise labels are the numbers of classes, which begin at 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, is_other_library
from hotmax._core.reading import shown

Labels = Array | list[str]

MOST_EXACT = 2**53  # floats up to here are exact integers
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # what int64 holds


@dataclass(frozen=True)
class LabelOrigin:
    """Where labels come from, for errors."""

    name: str  # an argument or a file
    place: Callable[[int], str]  # of a row
    names_by: str  # how names of classes are given


def listed(names: object) -> str:
    """'a', 'b' and 'c'; of many, the first few."""
    quoted = [shown(str(name)) for name in names]  # type: ignore[attr-defined]
    if len(quoted) > 8:
        return ", ".join(quoted[:8]) + f" and {len(quoted) - 8} more"
    return " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))


def integer_of(text: str) -> int | None:
    """The integer that a text is, if int64 can hold it."""
    return int(text) if INTEGER.fullmatch(text) else None


def numbers_of_text(
    raw: Sequence[str], classes: int, names: Sequence[str] | None, origin: LabelOrigin
) -> Array:
    """By name where every label is a name; else as integers."""
    values = [value.strip() for value in raw]
    numbers = {name: number for number, name in enumerate(names or ())}
    found = np.fromiter((numbers.get(value, -1) for value in values), np.int64, len(values))
    if not (found < 0).any():
        return found
    integers = [integer_of(value) for value in values]
    if None not in integers:
        return in_range(np.array(integers, np.int64), classes, origin)
    if names is None:
        row = integers.index(None)
        raise ValueError(
            f"{origin.name}: label {shown(values[row])} at {origin.place(row)} is text, and the "
            f"classes have no names: give {origin.names_by}"
        )
    row = int(np.argmax(found < 0))
    raise ValueError(
        f"{origin.name}: label {shown(values[row])} at {origin.place(row)} is none of the classes "
        f"{listed(names)}"
    )


def numbers_of_numbers(
    raw: Array, classes: int, names: Sequence[str] | None, origin: LabelOrigin
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
        raise ValueError(f"{origin.name}: label {raw[row]:g} at {origin.place(row)} {fault}")
    labels: Array = raw.astype(np.int64)
    named = by_integer_name(labels, names)
    return in_range(labels, classes, origin) if named is None else named


def by_integer_name(labels: Array, names: Sequence[str] | None) -> Array | None:
    """Integers looked up among names that are all integers; None if one is not among them."""
    integers = [integer_of(name) for name in names or ()]
    if not integers or None in integers or len(set(integers)) != len(integers):
        return None
    known = np.array(integers, np.int64)
    if not np.isin(np.unique(labels), known).all():
        return None
    order = np.argsort(known)
    numbers: Array = order[np.searchsorted(known, labels, sorter=order)]
    return numbers


def in_range(labels: Array, classes: int, origin: LabelOrigin) -> Array:
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{origin.name}: label {labels[row]} at {origin.place(row)} is out of range: {classes} "
            f"classes are 0 to {classes - 1}{from_one(labels, classes)}"
        )
    return labels


def from_one(labels: Array, classes: int) -> str:
    """What to add to an error if labels are numbered from 1."""
    if labels.size and labels.min() >= 1 and labels.max() == classes:
        return f"; these run from {labels.min()} to {classes}, so they count from 1: subtract 1"
    return ""


# --- arguments --------------------------------------------------------------------------------


def checked_names(class_names: object, classes: int) -> tuple[str, ...] | None:
    """Names of classes as an argument gives them: one for each."""
    if class_names is None:
        return None
    if isinstance(class_names, str | bytes) or not hasattr(class_names, "__len__"):
        raise TypeError(
            f"class_names must be a list of names or None, got {type(class_names).__name__}"
        )
    names = tuple(str(name) for name in class_names)  # type: ignore[attr-defined]
    if len(names) != classes:
        raise ValueError(
            f"class_names must have {classes} names, one for each class, got {len(names)}"
        )
    return names


def check_unique(names: Sequence[str] | None) -> None:
    """Raise if a label could mean two classes."""
    seen: set[str] = set()
    for name in names or ():
        if name in seen:
            raise ValueError(f"class_names must be different, got {name!r} twice")
        seen.add(name)


def names_of_columns(logits: Any) -> tuple[str, ...] | None:
    """The names of the columns, if the logits are a data frame."""
    columns = getattr(logits, "columns", None)
    if columns is None or callable(columns):
        return None
    return tuple(str(name) for name in columns)


def numbers_of_argument(
    targets: Any, classes: int, class_names: object, logits: object, name: str
) -> Any:
    """Text and categories as numbers of classes, in their shape; anything else as it is.

    Names come from `class_names`, or from the columns of logits that are a data frame.
    """
    names = checked_names(class_names, classes)
    if names is None:
        columns = names_of_columns(logits)
        names = columns if columns is not None and len(set(columns)) == classes else None
    origin = LabelOrigin(name, lambda row: f"row {row}", "class_names=[...]")
    categories = getattr(getattr(targets, "dtype", None), "categories", None)
    coded = getattr(targets, "cat", targets)
    if categories is not None and hasattr(coded, "codes"):  # of pandas
        check_unique(names)
        codes, known = np.asarray(coded.codes), np.asarray(categories)
        return numbers_of_codes(codes, known, classes, names, origin)
    text = text_of(targets, origin)
    if text is not None:
        check_unique(names)
        return numbers_of_text(text.reshape(-1).tolist(), classes, names, origin).reshape(
            text.shape
        )
    plain = not is_other_library(targets) and not isinstance(targets, np.ma.MaskedArray)
    if names is not None and plain:
        array = np.asarray(targets)
        if array.dtype.kind in "iu":
            named = by_integer_name(array.reshape(-1).astype(np.int64), names)
            return targets if named is None else named.reshape(array.shape)
    return targets


def text_of(targets: Any, origin: LabelOrigin) -> Array | None:
    """Labels that are text as an array of it; None for others."""
    if is_other_library(targets) or isinstance(targets, np.ma.MaskedArray):
        return None
    if isinstance(targets, list | tuple):
        first: Any = targets
        while isinstance(first, list | tuple) and len(first):
            first = first[0]
        if first is not None and not isinstance(first, str | bytes):
            return None
    elif getattr(getattr(targets, "dtype", None), "kind", "O") in "biufVcmM":
        return None
    array = np.asarray(targets)
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8")
    if array.dtype.kind not in "OUT":
        return None
    flat = array.reshape(-1).tolist()
    if not any(isinstance(label, str) for label in flat):
        return None
    for row, label in enumerate(flat):
        if not isinstance(label, str):
            raise ValueError(f"{origin.name}: label {label!r} at {origin.place(row)} is no text")
    return np.array(flat, str).reshape(array.shape)


def numbers_of_codes(
    codes: Array, categories: Array, classes: int, names: Sequence[str] | None, origin: LabelOrigin
) -> Array:
    """Categories by their names; without names of classes, by their order if there are as many."""
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise ValueError(f"{origin.name}: the label at {origin.place(row)} is missing")
    if categories.dtype.kind in "biuf":
        values = categories[codes]
        return numbers_of_numbers(values, classes, names, origin)
    text = [str(category) for category in categories.tolist()]
    if names is None:
        if len(text) != classes:
            raise ValueError(
                f"{origin.name}: {len(text)} categories, {listed(text)}, for {classes} classes: "
                f"give {origin.names_by}"
            )
        return codes.astype(np.int64)
    used = np.unique(codes)
    of_category = np.zeros(len(text), np.int64)
    for code in used.tolist():
        if text[code] not in names:
            row = int(np.argmax(codes == code))
            raise ValueError(
                f"{origin.name}: label {shown(text[code])} at {origin.place(row)} is none of the "
                f"classes {listed(names)}"
            )
        of_category[code] = list(names).index(text[code])
    return of_category[codes]
