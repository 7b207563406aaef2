"""Labels as numbers of classes: from integers, from whole floats, from text, from categories.

The one place that decides what a label means, for arguments and for files, by a rule that does not
look at the labels. Where all names of the classes are whole numbers, and not 0, 1, ... in order, a
label is one of these names. Otherwise integers are the numbers of classes, which begin at 0, and
text is looked up among the names.
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
    """Each by its name; one that is no name and an integer, as the number of a class."""
    values = [value.strip() for value in raw]
    known = integer_names(names)
    if known is not None:
        return places_among(integers_of_text(values, names, origin), known, origin)
    numbers = {name: number for number, name in enumerate(names or ())}
    found = np.fromiter((numbers.get(value, -1) for value in raw), np.int64, len(values))
    for row in np.flatnonzero(found < 0).tolist():
        found[row] = numbers.get(values[row], -1)
    for row in np.flatnonzero(found < 0).tolist():
        integer = integer_of(values[row])
        if integer is not None:
            if not 0 <= integer < classes:
                all_of_them = [integer_of(value) for value in values]
                complete = [0 if one is None else one for one in all_of_them]
                in_range(np.array(complete, np.int64), classes, origin)
            found[row] = integer
        elif names is None:
            raise ValueError(
                f"{origin.name}: label {shown(values[row])} at {origin.place(row)} is text, and "
                f"the classes have no names: give {origin.names_by}"
            )
        else:
            raise no_class(values[row], row, names, origin)
    return found


def integers_of_text(
    values: Sequence[str], names: Sequence[str] | None, origin: LabelOrigin
) -> Array:
    """Text that must be integers, since these name the classes."""
    integers = [integer_of(value.strip()) for value in values]
    if None in integers:
        row = integers.index(None)
        raise no_class(values[row], row, names or (), origin)
    return np.array(integers, np.int64)


def no_class(label: object, row: int, names: Sequence[str], origin: LabelOrigin) -> ValueError:
    return ValueError(
        f"{origin.name}: label {shown(str(label))} at {origin.place(row)} is none of the classes "
        f"{listed(names)}"
    )


def numbers_of_numbers(
    raw: Array, classes: int, names: Sequence[str] | None, origin: LabelOrigin
) -> Array:
    """Whole numbers: as they are; but where integers name the classes, these."""
    labels = whole_numbers(raw, origin)
    known = integer_names(names)
    return (
        in_range(labels, classes, origin) if known is None else places_among(labels, known, origin)
    )


def whole_numbers(raw: Array, origin: LabelOrigin) -> Array:
    """Labels as int64; a ValueError names the first that is not a whole number."""
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
    return raw.astype(np.int64)


def integer_names(names: Sequence[str] | None) -> Array | None:
    """The names of the classes, where all are whole numbers, and not those of their places."""
    integers = [integer_of(name.strip()) for name in names or ()]
    if not integers or None in integers or integers == list(range(len(integers))):
        return None
    if len(set(integers)) != len(integers):
        raise ValueError(f"class_names must be different numbers, got {listed(names)}")
    return np.array(integers, np.int64)


def places_among(labels: Array, known: Array, origin: LabelOrigin) -> Array:
    """Integers that name classes as numbers of classes."""
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)
    numbers: Array = order[at]
    wrong = known[numbers] != labels
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{origin.name}: label {labels[row]} at {origin.place(row)} is none of the classes "
            f"{listed(known.tolist())}, whose names are whole numbers, so that labels are these "
            f"names; where labels are numbers of classes, from 0 to {len(known) - 1}, give "
            f"other names: {origin.names_by}"
        )
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
    if not in_order(class_names):
        raise TypeError(
            f"class_names must be a list of names or None, got {type(class_names).__name__}"
        )
    names = tuple(str(name) for name in class_names)  # type: ignore[attr-defined]
    if len(names) != classes:
        raise ValueError(
            f"class_names must have {classes} names, one for each class, got {len(names)}"
        )
    return names


def in_order(class_names: object) -> bool:
    """Is this a list of names, or something else that has an order?"""
    unordered = isinstance(class_names, str | bytes | set | frozenset | dict)
    return not unordered and hasattr(class_names, "__len__")


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


def refuse_other_columns(fitted: tuple[str, ...] | None, logits: object, name: str) -> None:
    """Raise if a data frame has other columns than that of a fit, or another order of them."""
    columns = names_of_columns(logits)
    if fitted is None or columns is None or columns == fitted:
        return
    if sorted(columns) == sorted(fitted):
        at = next(i for i, (one, two) in enumerate(zip(fitted, columns, strict=True)) if one != two)
        raise ValueError(
            f"{name} must have the columns of the fit in the same order: column {at} is "
            f"{columns[at]!r}, and was {fitted[at]!r}"
        )
    raise ValueError(
        f"{name} must have the columns of the fit, {listed(list(fitted))}, got "
        f"{listed(list(columns))}"
    )


def refuse_other_order(logits: object, labels: object, name: str) -> None:
    """Raise if two data frames have the same columns in another order."""
    columns, others = names_of_columns(logits), names_of_columns(labels)
    if columns is None or others is None or columns == others:
        return
    if sorted(columns) == sorted(others):
        raise ValueError(
            f"{name} must have its columns in the order of logits, {listed(list(columns))}, got "
            f"{listed(list(others))}"
        )


def names_for(class_names: object, classes: int, logits: object) -> tuple[str, ...] | None:
    """Names from `class_names`, or from the columns of logits that are a data frame."""
    names = checked_names(class_names, classes)
    if names is None:
        columns = names_of_columns(logits)
        names = columns if columns is not None and len(set(columns)) == classes else None
    return names


def argument_origin(name: str) -> LabelOrigin:
    return LabelOrigin(name, lambda row: f"row {row}", "class_names=[...]")


def numbers_of_argument(
    targets: Any, classes: int, names: tuple[str, ...] | None, name: str
) -> Any:
    """Text and categories as integers, in their shape; anything else as it is.

    The integers are numbers of classes; but where integers name the classes, they are these names,
    as other integers are: `places_among` is next, when those to be ignored are gone.
    """
    origin = argument_origin(name)
    categories = getattr(getattr(targets, "dtype", None), "categories", None)
    coded = getattr(targets, "cat", targets)
    known = integer_names(names)
    if categories is not None and hasattr(coded, "codes"):  # of pandas
        check_unique(names)
        codes, values = np.asarray(coded.codes), np.asarray(categories)
        return numbers_of_codes(codes, values, classes, names, origin)
    text = text_of(targets, origin)
    if text is None:
        return targets
    check_unique(names)
    flat = text.reshape(-1).tolist()
    if known is not None:
        return integers_of_text(flat, names, origin).reshape(text.shape)
    return numbers_of_text(flat, classes, names, origin).reshape(text.shape)


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
    numeric = categories.dtype.kind in "biuf"
    if integer_names(names) is not None:
        if numeric:
            return whole_numbers(categories[codes], origin)
        text = [str(category) for category in categories.tolist()]
        return integers_of_text([text[code] for code in codes.tolist()], names, origin)
    if numeric:
        return numbers_of_numbers(categories[codes], classes, names, origin)
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
