"""Tables of text: .csv and .tsv, also compressed by gzip, in UTF-8 or UTF-16.

Numbers may have decimal commas where semicolons or tabs separate them.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import Labels, integer_of
from hotmax._core.reading import CHUNK, shown
from hotmax.io.found import LABEL_NAMES, LAST, NONE, Found, Wanted
from hotmax.io.labels import BLANK_LINES
from hotmax.io.tables import (
    NUMBERS,
    TEXT,
    Columns,
    chosen_places,
    columns_of,
    ends_in_labels,
    logit_source,
    refuse_ids,
)

SEPARATORS = ",\t;"
LONGEST_LINE = 1 << 24  # bytes: 800,000 classes of 20 digits; a line is in memory as a whole
UTF8, UTF16 = "utf-8-sig", "utf-16"
LOOKED_AT = 100  # rows that show whether decimals have commas


def is_number(text: str, decimal: str = ".") -> bool:
    try:
        float(text if decimal == "." else text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def encoding_of(path: Path) -> str:
    """By the mark at the beginning; text without a mark must be UTF-8."""
    with gzip.open(path) if is_compressed(path) else path.open("rb") as file:
        first = file.read(64)
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return UTF16
    if b"\0" in first:
        raise ValueError(
            f"{path} is no text in UTF-8: it has zero bytes, as UTF-16 has, and no byte order "
            "mark; save it as UTF-8"
        )
    return UTF8


@dataclass(frozen=True)
class Text:
    """A file of cells between separators: its first rows, and whether they begin with a header."""

    path: Path
    separator: str
    header: list[str] | None
    first: list[str]  # the first row of numbers
    encoding: str = UTF8
    decimal: str = "."

    def opened(self) -> IO[Any]:
        """The text, of which line ends are as they are."""
        if is_compressed(self.path):
            return gzip.open(self.path, "rt", encoding=self.encoding, newline="")
        return self.path.open(newline="", encoding=self.encoding)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, cells) of each row that is not empty, header and all."""
        with self.opened() as file:
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
                kind = "UTF-8" if self.encoding == UTF8 else "UTF-16"
                raise ValueError(
                    f"{self.path} is not {kind} text, somewhere after line {reader.line_num}: "
                    f"{error.reason}"
                ) from None
            except (EOFError, gzip.BadGzipFile) as error:
                raise ValueError(f"{self.path} is damaged: {error}") from None

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

    @property
    def is_plain(self) -> bool:
        """Can NumPy read the file by itself?"""
        return self.encoding == UTF8 and self.decimal == "." and not is_compressed(self.path)

    def load(self, columns: Sequence[int], kind: type) -> Array:
        skipped = 0 if self.header is None else next(self.rows())[0]
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Input line .* contained no data")
            lines: Any = os.path.abspath(self.path)  # which is no address on a network
            if not self.is_plain:
                lines = iter(stack.enter_context(self.opened()))
                if self.decimal != "." and kind is float:
                    lines = (line.replace(self.decimal, ".") for line in lines)
            table: Array = np.loadtxt(
                lines,
                dtype=kind,
                comments=None,
                delimiter=self.separator,
                skiprows=skipped,
                usecols=columns,
                ndmin=2,
                encoding=self.encoding,
                quotechar='"',
            )
        self.check_widths(len(table))
        return table

    def check_widths(self, rows: int) -> None:
        """Refuse a row with more cells than the first, which NumPy lets pass if told `usecols`.

        Counting separators suffices, unless some are quoted.
        """
        width, separator = len(self.first), self.separator
        if self.is_plain:
            with self.path.open("rb") as file:
                one = separator.encode()
                count = sum(part.count(one) for part in iter(lambda: file.read(CHUNK), b""))
        else:
            with self.opened() as text:
                count = sum(part.count(separator) for part in iter(lambda: text.read(CHUNK), ""))
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
                if not is_number(cells[i], self.decimal):
                    name = repr(self.header[i]) if self.header else str(i + 1)
                    what = f"{shown(cells[i])} is not a number" if cells[i] else "nothing is there"
                    if is_number(cells[i], ","):
                        what += ": decimal commas are read where ; or tabs separate the columns"
                    return ValueError(f"{self.path}: line {line}, column {name}: {what}")
        return ValueError(f"{self.path}: {str(error).splitlines()[0]}")


def check_lines(text: Text) -> None:
    """Refuse a line so long that its cells would fill the memory, before it is read."""
    plain = text.encoding == UTF8 and not is_compressed(text.path)
    if plain and text.path.stat().st_size <= LONGEST_LINE:
        return
    length = 0
    # Each byte is a character here: what is looked for, the ends of lines, is one in UTF-8.
    file = text.path.open(encoding="latin-1", newline="") if plain else text.opened()
    with file:
        for part in iter(lambda: file.read(CHUNK), ""):
            end = part.rfind("\n")
            end = part.rfind("\r") if end < 0 else end
            length = len(part) - 1 - end if end >= 0 else length + len(part)
            if length > LONGEST_LINE:
                raise ValueError(f"{text.path}: a line is longer than {LONGEST_LINE} bytes")


def separated(start: Text) -> Text:
    """The text with its separator: what the name says, or else what is there.

    Semicolons separate where the cells between commas are no numbers: 1,5;2,5 has two.
    """
    first = next((cells for _, cells in start.rows()), None)
    if first is None:
        raise ValueError(f"{start.path} has no rows")
    if len(first) == 1:
        other = next((s for s in SEPARATORS if s in first[0]), start.separator)
        return replace(start, separator=other)
    for other in SEPARATORS:
        if other != start.separator and any(other in cell for cell in first):
            text = replace(start, separator=other)
            cells = next(text.rows())[1]
            if all(is_number(cell, ",") for cell in cells[:-1]):
                return text
    return start


def open_text(path: Path) -> Text:
    """The first row is a header if it has text before its last cell, or a label's name in it."""
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv")
    start = Text(path, "\t" if tabs else ",", None, [], encoding_of(path))
    check_lines(start)
    start = separated(start)
    first = next(start.rows())[1]
    commas = start.separator != ","
    as_numbers = [is_number(cell) or (commas and is_number(cell, ",")) for cell in first[:-1]]
    named = not all(as_numbers) or first[-1].lower() in LABEL_NAMES or counts_columns(start, first)
    if named:
        second = next(islice(start.rows(), 1, None), None)
        if second is None:
            raise ValueError(f"{path} has a header and no rows")
        start = replace(start, header=first, first=second[1])
    else:
        start = replace(start, first=first)
    if commas and has_decimal_commas(start):
        start = replace(start, decimal=",")
    return start


def counts_columns(text: Text, first: Sequence[str]) -> bool:
    """Is the first row 0, 1, ... or 1, 2, ..., above fractions? These are names of columns then."""
    if len(first) < 2 or list(first) not in counted(len(first)):
        return False
    commas = text.separator != ","
    cells = (cell for _, row in islice(text.rows(), 1, LOOKED_AT) for cell in row)
    numbers = (cell.replace(",", ".") if commas else cell for cell in cells)
    return any(is_number(cell) and not float(cell).is_integer() for cell in numbers)


def counted(width: int) -> list[list[str]]:
    """0, 1, ... and 1, 2, ... as cells."""
    return [[str(start + i) for i in range(width)] for start in (0, 1)]


def has_decimal_commas(text: Text) -> bool:
    """Whether numbers have commas: points beside them are refused, since 1.234 could be either."""
    rows = islice(text.data(), LOOKED_AT)
    cells = [(line, cell) for line, row in rows for cell in row if set(",.") & set(cell)]
    commas = [one for one in cells if not is_number(one[1]) and is_number(one[1], ",")]
    points = [one for one in cells if is_number(one[1])]
    if commas and points:
        (line, cell), (other, number) = commas[0], points[0]
        raise ValueError(
            f"{text.path}: {shown(cell)} in line {line} has a decimal comma, and {shown(number)} "
            f"in line {other} a decimal point: save the table with one of them"
        )
    return bool(commas)


def read_csv(path: Path, wanted: Wanted) -> Found:
    text = open_text(path)
    width = len(text.first)
    for cell in text.first if text.separator == "," else ():
        if "," in cell and is_number(cell, ","):
            raise ValueError(
                f"{path}: {shown(cell)} has a decimal comma between commas: save the table with ; "
                "or tabs between columns, or with decimal points"
            )
    holds = [NUMBERS if is_number(cell, text.decimal) else TEXT for cell in text.first]
    if text.header is not None:
        if len(text.header) != width:
            raise ValueError(
                f"{path}: the header has {len(text.header)} columns, and the first row {width}"
            )
        columns = columns_of(text.header, holds, path, wanted)
    else:
        columns = unnamed(text, holds, wanted)
    logits, labels = load_text(text, columns)
    source, taken = columns.label_source, columns.logit_source
    guess = text.header is None and labels is None and wanted.labels is None
    if guess and wanted.columns is None and ends_in_labels(logits):
        labels, source = logits[:, -1].copy(), "the last column"
        logits, taken = np.ascontiguousarray(logits[:, :-1]), "all other columns"
    refuse_ids(logits, columns.class_names, path, wanted)
    if text.decimal != ".":
        taken += ", with decimal commas"
    return Found(logits, "the table", labels, source, columns.class_names, text.place, taken)


def unnamed(text: Text, holds: Sequence[str], wanted: Wanted) -> Columns:
    width = len(holds)
    if wanted.logits is not None:
        raise ValueError(f"{text.path} has no header: its columns cannot be chosen by name")
    if wanted.labels not in (None, LAST, NONE):
        raise ValueError(
            f"{text.path} has no header, so no column {wanted.labels!r} for the labels: "
            '"last" and "none" are understood'
        )
    if wanted.columns is not None:
        logits = chosen_places(wanted.columns, width, text.path)
        last = wanted.labels == LAST or (wanted.labels is None and holds[-1] == TEXT)
        if last and width - 1 in logits:
            raise ValueError(f"{text.path}: column {width} cannot be a class and the label")
    else:
        last = wanted.labels == LAST or (wanted.labels is None and holds[-1] == TEXT)
        if last and width == 1:
            raise ValueError(f"{text.path} has only one column, and it is the label")
        logits = list(range(width - 1 if last else width))
    left_out = [str(i + 1) for i in range(width - last) if i not in logits]
    taken = logit_source([str(i + 1) for i in logits], left_out)
    source = "the last column" if last else None
    return Columns(logits, None, width - 1 if last else None, source, taken)


def has_numbers_among(names: Sequence[str] | None) -> bool:
    """Are some names numbers, and others not whole ones? Labels are text then: 1 may be a name."""
    numbers = any(is_number(name) for name in names or ())
    return numbers and any(integer_of(name) is None for name in names or ())


def load_text(text: Text, columns: Columns) -> tuple[Array, Labels | None]:
    """Logits and labels: in one go where both are numbers.

    Text comes as objects: an array of text is as wide everywhere as its longest entry.
    """
    try:
        if columns.label is None:
            return text.load(columns.logits, float), None
        if not has_numbers_among(columns.class_names) and is_number(
            text.first[columns.label], text.decimal
        ):
            with contextlib.suppress(ValueError):  # labels that go on as text, or a fault
                table = text.load([*columns.logits, columns.label], float)
                return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()
        return text.load(columns.logits, float), text.load([columns.label], object)[:, 0].tolist()
    except ValueError as error:
        raise text.complain(columns.logits, error) from None
