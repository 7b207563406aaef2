"""Where rows of logits come from: the arguments, the standard input, or a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import shown
from hotmax.view.cli import STDIN
from hotmax.view.cli.options import Reading, parse_class_names


@dataclass(frozen=True)
class Rows:
    """Rows of logits, and the names of their classes where these have some."""

    rows: Sequence[Array] | Array
    class_names: Sequence[str] | None

    def name(self, number: int) -> str:
        return str(number) if self.class_names is None else self.class_names[number]

    def only(self, what: str) -> Array:
        """The one row that there must be."""
        if len(self.rows) != 1:
            raise ValueError(
                f"{what} takes one row of logits, got {len(self.rows)}: --row chooses one"
            )
        return self.rows[0]


def rows_of(tokens: Sequence[str], row: int | None, reading: Reading) -> Rows:
    found = gathered(tokens, reading)
    if row is not None:
        if not 0 <= row < len(found.rows):
            raise ValueError(f"--row must lie in 0..{len(found.rows) - 1}, got {row}")
        found = Rows(found.rows[row : row + 1], found.class_names)
    if found.class_names is not None:
        for number, logits in enumerate(found.rows):
            if len(found.class_names) != len(logits):
                raise ValueError(
                    f"{len(found.class_names)} names of classes for {len(logits)} logits in row "
                    f"{number}"
                )
    return found


def gathered(tokens: Sequence[str], reading: Reading) -> Rows:
    from hotmax.io.labels import LONGEST_TEXT, text_lines
    from hotmax.io.one_file import READERS, existing
    from hotmax.io.places import suffix_of

    names = parse_class_names(reading.class_names)
    if not tokens or list(tokens) == [STDIN]:
        if sys.stdin is None or sys.stdin.isatty():
            raise ValueError("logits must be given: numbers, a FILE, or rows on the standard input")
        try:
            text = sys.stdin.read(LONGEST_TEXT + 1)
        except UnicodeDecodeError:
            raise ValueError("the standard input is not text") from None
        if len(text) > LONGEST_TEXT:
            raise ValueError(f"the standard input has more than {LONGEST_TEXT} characters")
        lines = [line.strip() for line in text.splitlines()]
        return Rows(from_lines(lines, "the standard input"), names)
    if len(tokens) == 1 and not is_number(tokens[0]):
        path = Path(tokens[0])
        if suffix_of(path) in READERS:
            found = reading.read(path)
            return Rows(found.logits, found.class_names)
        return Rows(from_lines(text_lines(existing(path)), str(path)), names)
    for token in tokens:
        if not is_number(token):
            raise ValueError(f"logits must be numbers, or one FILE, got {token!r}")
    return Rows([np.array([float(token) for token in tokens])], names)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def from_lines(lines: Sequence[str], source: str) -> list[Array]:
    """A row on each line, between spaces or commas; or one row, a number on each line."""
    rows = []
    for number, line in enumerate(lines, 1):
        cells = line.partition("#")[0].replace(",", " ").split()
        for cell in cells:
            if not is_number(cell):
                raise ValueError(f"{source}: line {number}: {shown(cell)} is not a number")
        if cells:
            rows.append(np.array([float(cell) for cell in cells]))
    if not rows:
        raise ValueError(f"{source} holds no logits")
    if len(rows) > 1 and all(row.size == 1 for row in rows):
        return [np.concatenate(rows)]
    return rows
