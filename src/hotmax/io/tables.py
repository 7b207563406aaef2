"""Tables: .csv and .tsv by NumPy, .parquet by pyarrow.

Which column is the label, if nobody says: the one that is called so ("label", "labels", "y",
"target", "targets", "y_true", "true_label" or "true_class", in any case); else the last, if it
holds text; else, in a file without a header, the last if it holds nothing but possible classes
(0, 1, ...) while the others do not.
"""

from __future__ import annotations

import contextlib
import csv
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels, listed
from hotmax._core.reading import CHUNK, shown
from hotmax.io.found import LABEL_NAMES, LAST, NONE, OTHER_NAMES, Found, Wanted
from hotmax.io.labels import BLANK_LINES

SEPARATORS = ",\t;"
LONGEST_LINE = 1 << 24  # bytes: 800,000 classes of 20 digits; a line is in memory as a whole


NUMBERS, TEXT = "numbers", "text"  # what columns hold; others by the names of their types


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Columns:
    """Which columns are logits, and which one is the label."""

    logits: list[int]
    class_names: tuple[str, ...] | None
    label: int | None
    label_source: str | None


def columns_of(names: Sequence[str], holds: Sequence[str], path: Path, wanted: Wanted) -> Columns:
    """The columns of a table with names; `holds`: what is in each of them, NUMBERS or not."""
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise ValueError(f"{path}: two columns have the name {name!r}")
        if not name and wanted.logits is None:
            raise ValueError(f"{path}: column {place + 1} has no name: an index, perhaps; drop it")
        seen.add(name)
    label = label_of(names, holds, path, wanted)
    prefix = wanted.logits or ""
    logits = [i for i, name in enumerate(names) if i != label and name.startswith(prefix)]
    if not logits:
        if prefix:
            raise ValueError(f"{path} has no columns {prefix!r}..., only {listed(names)}")
        raise ValueError(f"{path} has no column of logits, only {listed(names)}")
    for i in logits:
        if holds[i] != NUMBERS:
            raise ValueError(
                f"{path}: column {names[i]!r} holds {holds[i]}, and is not the label: drop it, or "
                'say what the columns of logits begin with by logits="..." (--logits)'
            )
    others = [] if prefix else [i for i in logits if names[i].strip().lower() in OTHER_NAMES]
    if others:
        rest = [names[i] for i in logits if i not in others]
        raise ValueError(
            f"{path}: column {listed([names[i] for i in others])} would be a class, and is no "
            f"logit by its name. Logits: {listed(rest)}; label: "
            f"{'none' if label is None else repr(names[label])}. Drop or rename it, or say what "
            'the columns of logits begin with by logits="..." (--logits)'
        )
    class_names = tuple(names[i].removeprefix(prefix) or names[i] for i in logits)
    source = None if label is None else f"column {names[label]!r}"
    return Columns(logits, class_names, label, source)


def label_of(names: Sequence[str], holds: Sequence[str], path: Path, wanted: Wanted) -> int | None:
    if wanted.labels is not None:
        if wanted.labels in names:
            return names.index(wanted.labels)
        if wanted.labels in (LAST, NONE):
            return len(names) - 1 if wanted.labels == LAST else None
        raise ValueError(
            f"{path} has no column {wanted.labels!r} for the labels, only {listed(names)}"
        )
    called = [i for i, name in enumerate(names) if name.lower() in LABEL_NAMES]
    if len(called) > 1:
        raise ValueError(
            f"{path}: columns {listed([names[i] for i in called])} may all be the label: "
            'name it by labels="..." (--labels), and drop the others'
        )
    if called:
        return called[0]
    return len(names) - 1 if holds[-1] == TEXT else None


# --- .csv -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A file of cells between separators: its first rows, and whether they begin with a header."""

    path: Path
    separator: str
    header: list[str] | None
    first: list[str]  # the first row of numbers

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, cells) of each row that is not empty, header and all."""
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=self.separator)
            rows = blank = 0
            try:
                for cells in reader:
                    if any(cell.strip() for cell in cells):
                        rows += 1
                        yield reader.line_num, [cell.strip() for cell in cells]
                        continue
                    blank += 1
                    if blank > rows + BLANK_LINES:
                        raise ValueError(f"{self.path}: {blank} of the first lines are blank")
            except csv.Error as error:
                raise ValueError(f"{self.path}: line {reader.line_num}: {error}") from None
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path} is not UTF-8 text, somewhere after line {reader.line_num}: "
                    f"{error.reason}"
                ) from None

    def data(self) -> Iterator[tuple[int, list[str]]]:
        rows = self.rows()
        if self.header is not None:
            next(rows)
        return rows

    def place(self, row: int) -> str:
        for number, (line, _) in enumerate(self.data()):
            if number == row:
                return f"line {line}"
        return f"row {row}"

    def load(self, columns: Sequence[int], kind: type) -> Array:
        skipped = 0 if self.header is None else next(self.rows())[0]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Input line .* contained no data")
            table: Array = np.loadtxt(
                os.path.abspath(self.path),  # which is no address on a network
                dtype=kind,
                comments=None,
                delimiter=self.separator,
                skiprows=skipped,
                usecols=columns,
                ndmin=2,
                encoding="utf-8-sig",
                quotechar='"',
            )
        self.check_widths(len(table))
        return table

    def check_widths(self, rows: int) -> None:
        """Refuse a row with more cells than the first, which NumPy lets pass if told `usecols`.

        Counting separators suffices, unless some are quoted.
        """
        width, separator = len(self.first), self.separator.encode()
        with self.path.open("rb") as file:
            count = sum(part.count(separator) for part in iter(lambda: file.read(CHUNK), b""))
        if count != (rows + (self.header is not None)) * (width - 1):
            for line, cells in self.data():
                if len(cells) != width:
                    raise self.ragged(line, cells)

    def ragged(self, line: int, cells: list[str]) -> ValueError:
        return ValueError(
            f"{self.path}: line {line} has {len(cells)} columns, and the first has "
            f"{len(self.first)}"
        )

    def complain(self, logits: Sequence[int], error: Exception) -> ValueError:
        """What is wrong with the first row that NumPy could not read."""
        for line, cells in self.data():
            if len(cells) != len(self.first):
                return self.ragged(line, cells)
            for i in logits:
                if not is_number(cells[i]):
                    name = repr(self.header[i]) if self.header else str(i + 1)
                    what = f"{shown(cells[i])} is not a number" if cells[i] else "nothing is there"
                    return ValueError(f"{self.path}: line {line}, column {name}: {what}")
        return ValueError(f"{self.path}: {str(error).splitlines()[0]}")


def check_lines(path: Path) -> None:
    """Refuse a line so long that its cells would fill the memory, before it is read."""
    length = 0
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= LONGEST_LINE:
            return
        for part in iter(lambda: file.read(CHUNK), b""):
            end = part.rfind(b"\n")
            end = part.rfind(b"\r") if end < 0 else end
            length = len(part) - 1 - end if end >= 0 else length + len(part)
            if length > LONGEST_LINE:
                raise ValueError(f"{path}: a line is longer than {LONGEST_LINE} bytes")


def open_text(path: Path) -> Text:
    """The first row is a header if it has text before its last cell, or a label's name in it."""
    check_lines(path)
    start = Text(path, "\t" if path.suffix.lower() == ".tsv" else ",", None, [])
    first = next((cells for _, cells in start.rows()), None)
    if first is None:
        raise ValueError(f"{path} has no rows")
    if len(first) == 1:
        other = next((s for s in SEPARATORS if s in first[0]), start.separator)
        start = Text(path, other, None, [])
        first = next(start.rows())[1]
    named = not all(map(is_number, first[:-1])) or first[-1].lower() in LABEL_NAMES
    if not named:
        return Text(path, start.separator, None, first)
    rows = iter(start.rows())
    next(rows)
    second = next(rows, None)
    if second is None:
        raise ValueError(f"{path} has a header and no rows")
    return Text(path, start.separator, first, second[1])


def read_csv(path: Path, wanted: Wanted) -> Found:
    text = open_text(path)
    width = len(text.first)
    holds = [NUMBERS if is_number(cell) else TEXT for cell in text.first]
    if text.header is not None:
        if len(text.header) != width:
            raise ValueError(
                f"{path}: the header has {len(text.header)} columns, and the first row {width}"
            )
        columns = columns_of(text.header, holds, path, wanted)
    else:
        columns = unnamed(text, holds, wanted)
    logits, labels = load_text(text, columns)
    source = columns.label_source
    guess = text.header is None and labels is None and wanted.labels is None
    if guess and ends_in_labels(logits):
        labels, source = logits[:, -1].copy(), "the last column"
        logits = np.ascontiguousarray(logits[:, :-1])
    return Found(logits, "the table", labels, source, columns.class_names, text.place)


def unnamed(text: Text, holds: Sequence[str], wanted: Wanted) -> Columns:
    width = len(holds)
    if wanted.logits is not None:
        raise ValueError(f"{text.path} has no header: its columns cannot be chosen by name")
    if wanted.labels not in (None, LAST, NONE):
        raise ValueError(
            f"{text.path} has no header, so no column {wanted.labels!r} for the labels: "
            '"last" and "none" are understood'
        )
    last = wanted.labels == LAST or (wanted.labels is None and holds[-1] == TEXT)
    if last and width == 1:
        raise ValueError(f"{text.path} has only one column, and it is the label")
    logits = list(range(width - 1 if last else width))
    return Columns(logits, None, width - 1 if last else None, "the last column" if last else None)


def load_text(text: Text, columns: Columns) -> tuple[Array, Labels | None]:
    """Logits and labels: in one go where both are numbers.

    Text comes as objects: an array of text is as wide everywhere as its longest entry.
    """
    try:
        if columns.label is None:
            return text.load(columns.logits, float), None
        if is_number(text.first[columns.label]):
            with contextlib.suppress(ValueError):  # labels that go on as text, or a fault
                table = text.load([*columns.logits, columns.label], float)
                return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()
        return text.load(columns.logits, float), text.load([columns.label], object)[:, 0].tolist()
    except ValueError as error:
        raise text.complain(columns.logits, error) from None


def ends_in_labels(table: Array) -> bool:
    """Does the last column hold nothing but classes, and do the others hold fractions?"""
    if table.shape[1] < 3:
        return False
    last, others = table[:, -1], table[:, :-1]
    classes = (last >= 0) & (last < others.shape[1]) & (last == np.floor(last))
    return bool(classes.all()) and bool((others != np.floor(others)).any())
