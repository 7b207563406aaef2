"""Tables: which column is what.

Which column is the label, if nobody says: the one that is called so ("label", "labels", "y",
"target", "targets", "y_true", "true_label" or "true_class", in any case); else the last, if it
holds text; else, in a file without a header, the last if it holds nothing but possible classes
(0, 1, ...) while the others do not. All others are logits, unless their name says that they are
something else: then the table is refused, until `columns` says which columns are logits.
"""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import integer_of, listed
from hotmax.io.found import LABEL_NAMES, LAST, NONE, OTHER_ENDS, OTHER_NAMES, Wanted

NUMBERS, TEXT = "numbers", "text"  # what columns hold; others by the names of their types
IN_BRACKETS = re.compile(r"p\[(.*)\]", re.DOTALL)  # how `write` calls the column of any class
TEXTS = ("object", "string", "str", "category")  # types of columns of a frame
ONE_SCORE = ("score", "scores")  # of class 1, where it is the only column beside the label
FIRST_ROWS = 1000  # by which a column of ids is known
FEWEST_IDS = 10  # rows: in fewer, logits may well be whole by chance
SAY_IT = (
    "say which columns are logits by columns=[...] (--columns), or by what they begin with, "
    'logits="..." (--logits)'
)


@dataclass(frozen=True)
class Columns:
    """Which columns are logits, and which one is the label."""

    logits: list[int]
    class_names: tuple[str, ...] | None
    label: int | None
    label_source: str | None
    logit_source: str  # which columns are logits, and which are left out


def columns_of(names: Sequence[str], holds: Sequence[str], path: Path, wanted: Wanted) -> Columns:
    """The columns of a table with names; `holds`: what is in each of them, NUMBERS or not."""
    outright = wanted.logits is not None or wanted.columns is not None
    if wanted.logits is not None and wanted.columns is not None:
        raise ValueError(f"{path}: columns and logits exclude each other: give one of them")
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise ValueError(f"{path}: two columns have the name {name!r}")
        if not name and not outright:
            raise ValueError(f"{path}: column {place + 1} has no name: an index, perhaps; {SAY_IT}")
        seen.add(name)
    chosen = None if wanted.columns is None else chosen_names(names, wanted.columns, path)
    label = label_of(names, holds, path, wanted, chosen or ())
    prefix = wanted.logits or ""
    logits = chosen
    if logits is None:
        logits = [i for i, name in enumerate(names) if i != label and name.startswith(prefix)]
    if not logits:
        if prefix:
            raise ValueError(f"{path} has no columns {prefix!r}..., only {listed(names)}")
        raise ValueError(f"{path} has no column of logits, only {listed(names)}")
    if label in logits:
        raise ValueError(f"{path}: column {names[label]!r} cannot be a class and the label")
    for i in logits:
        if holds[i] != NUMBERS:
            hint = "logits are numbers" if outright else f"and is not the label: {SAY_IT}"
            raise ValueError(f"{path}: column {names[i]!r} holds {holds[i]}, {hint}")
    others = [] if outright else [i for i in logits if is_other(names[i])]
    if len(logits) == 1 and names[logits[0]].lower() in ONE_SCORE:
        others = []
    if others:
        rest = [names[i] for i in logits if i not in others]
        raise ValueError(
            f"{path}: column {listed([names[i] for i in others])} would be a class, and is no "
            f"logit by its name: {SAY_IT}. Logits: {listed(rest)}; label: "
            f"{'none' if label is None else repr(names[label])}"
        )
    class_names = tuple(names[i].removeprefix(prefix) or names[i] for i in logits)
    inside = [class_in(names[i]) for i in logits]
    if None not in inside:
        class_names = tuple(str(name) for name in inside)
    source = None if label is None else f"column {names[label]!r}"
    left_out = [name for i, name in enumerate(names) if i not in logits and i != label]
    return Columns(
        logits, class_names, label, source, logit_source([names[i] for i in logits], left_out)
    )


def columns_of_frame(frame: Any, labels: Any, logits: str | None) -> tuple[Any, Any]:
    """The logits and labels of a lazy frame: its columns are told apart as those of a table."""
    if labels is not None and not isinstance(labels, str):
        named: str | None = NONE
    else:
        named = labels
    names = [str(name) for name in frame.columns]
    holds = [
        NUMBERS
        if getattr(kind, "kind", "O") in "iuf"
        else TEXT
        if str(kind) in TEXTS
        else str(kind)
        for kind in frame.dtypes
    ]
    wanted = Wanted(logits, named, False)
    found = columns_of(names, holds, Path("the Dask frame"), wanted)
    if named != NONE:
        labels = None if found.label is None else frame[frame.columns[found.label]]
    return frame[[frame.columns[i] for i in found.logits]], labels


def logit_source(names: Sequence[str], left_out: Sequence[str]) -> str:
    """Which columns were taken for logits, and which for nothing."""
    text = f"column{'s' * (len(names) > 1)} {listed(names)}"
    return f"{text} (left out: {listed(left_out)})" if left_out else text


def class_in(name: str) -> str | None:
    """The class whose column is called p[class]; None for any other name."""
    match = IN_BRACKETS.fullmatch(name)
    return None if match is None else match[1]


def is_other(name: str) -> bool:
    """Is this what people call something else than a logit? Another label counts too."""
    plain = name.strip().lower()
    return plain in OTHER_NAMES or plain in LABEL_NAMES or plain.endswith(OTHER_ENDS)


def chosen_names(names: Sequence[str], wanted: Sequence[str], path: Path) -> list[int]:
    """The columns that are named outright, in the order in which they are named."""
    chosen: list[int] = []
    for name in wanted:
        if name in names:
            found = [names.index(name)]
        elif glob.has_magic(name):
            found = [
                i
                for i, other in enumerate(names)
                if fnmatch.fnmatchcase(other, name) and i not in chosen
            ]
        else:
            found = []
        if not found:
            raise ValueError(f"{path} has no column {name!r} (--columns), only {listed(names)}")
        if found[0] in chosen:
            raise ValueError(f"{path}: column {name!r} is named twice (--columns)")
        chosen += found
    return chosen


def chosen_places(wanted: Sequence[str], width: int, path: Path) -> list[int]:
    """The columns that are chosen by place, counted from 1: "3", or "1-10"."""
    chosen: list[int] = []
    for text in wanted:
        first, _, last = text.partition("-")
        start, stop = integer_of(first.strip()), integer_of((last or first).strip())
        if start is None or stop is None:
            raise ValueError(
                f"{path} has no header: columns are chosen by place, as in 1-10 or 1,2,3, "
                f"got {text!r}"
            )
        if not 1 <= start <= stop <= width:
            raise ValueError(f"{path} has columns 1 to {width}, got {text!r} (--columns)")
        chosen += range(start - 1, stop)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"{path}: a column is named twice (--columns)")
    return chosen


def label_of(
    names: Sequence[str],
    holds: Sequence[str],
    path: Path,
    wanted: Wanted,
    chosen: Sequence[int] = (),
) -> int | None:
    if wanted.labels is not None:
        if wanted.labels in names:
            return names.index(wanted.labels)
        if wanted.labels in (LAST, NONE):
            return len(names) - 1 if wanted.labels == LAST else None
        raise ValueError(
            f"{path} has no column {wanted.labels!r} for the labels, only {listed(names)}"
        )
    called = [i for i, name in enumerate(names) if name.lower() in LABEL_NAMES and i not in chosen]
    if len(called) > 1:
        raise ValueError(
            f"{path}: columns {listed([names[i] for i in called])} may all be the label: "
            'name it by labels="..." (--labels), and the logits by columns=[...] (--columns)'
        )
    if called:
        return called[0]
    last = len(names) - 1
    return last if holds[-1] == TEXT and last not in chosen else None


def refuse_ids(x: Array, names: Sequence[str] | None, path: Path, wanted: Wanted) -> None:
    """Raise if a column that nobody chose looks like an index or an id under another name.

    It counts the rows; or it holds whole numbers, most of them different, beside fractions.
    """
    if wanted.columns is not None or wanted.logits is not None or len(x) < 3:
        return
    part = x[:FIRST_ROWS].astype(np.float64)
    counting = (part == part[:1] + np.arange(len(part))[:, None]).all(0)
    counting &= np.isin(part[0], (0.0, 1.0))
    if not counting.all() or len(counting) == 1:
        refuse_column(counting, "counts the rows", "an index", names, path)
    whole = (part == np.floor(part)).all(0)
    if len(part) >= FEWEST_IDS and not whole.all():
        with np.errstate(invalid="ignore"):  # inf - inf
            different = (np.diff(np.sort(part, axis=0), axis=0) > 0.0).mean(0) > 0.5
        what = "holds whole numbers, most of them different, beside fractions"
        refuse_column(whole & different, what, "an id", names, path)


def refuse_column(
    found: Array, what: str, kind: str, names: Sequence[str] | None, path: Path
) -> None:
    """Raise for the first column that was found."""
    if found.any():
        place = int(np.argmax(found))
        name = f"{place + 1}" if names is None else repr(names[place])
        raise ValueError(
            f"{path}: column {name} {what}, and would be a class: {kind}, perhaps; {SAY_IT}"
        )


def ends_in_labels(table: Array) -> bool:
    """Does the last column hold nothing but classes, and do the others hold fractions?

    After one column of logits, it must hold both classes: zeros may be the logits of another one.
    """
    if table.shape[1] < 2:
        return False
    last, others = table[:, -1], table[:, :-1]
    if others.shape[1] == 1 and np.unique(last).size < 2:
        return False
    classes = (last >= 0) & (last < max(others.shape[1], 2)) & (last == np.floor(last))
    return bool(classes.all()) and bool((others != np.floor(others)).any())
