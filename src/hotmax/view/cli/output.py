"""What is printed: tables with bars, JSON, progress. Colour and frames are for terminals only."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TextIO

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

BAR = 32  # cells of a bar of length 1
SHORTEST_BAR = 6
PATIENCE = 30.0  # s between lines of progress where there is no terminal
EIGHTHS = " ▏▎▍▌▋▊▉"
STEPS = "▁▂▃▄▅▆▇█"
PLAIN_STEPS = "_.,:-=+#"  # where the terminal has no others

Progress = Callable[[str, float], None]


def speaks_unicode() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


@lru_cache(maxsize=1)
def screen(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, markup=False)


def screen_width() -> int | None:
    """The columns of the terminal; None where there is none, and lines may be long."""
    console = screen(sys.stdout)
    return console.width if console.is_terminal else None


def say(*lines: str | Text) -> None:
    """Print lines; on a terminal in colour, and prose wrapped between words. A Text is as it is."""
    console = screen(sys.stdout)
    if not console.is_terminal:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return
    with console.capture() as caught:
        for line in lines:
            console.print(line, soft_wrap=isinstance(line, Text))
    sys.stdout.write(caught.get())


def say_cut(text: str) -> None:
    """Print a text whose lines end at the edge of the terminal."""
    width = screen_width()
    say(*(Text(line if width is None else cut(line, width)) for line in text.splitlines()))


def cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    end = "…" if speaks_unicode() else "."
    return set_cell_size(text, max(width - 1, 0)) + end


def say_json(data: Any) -> None:
    sys.stdout.write(json.dumps(plain(data), indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """As JSON has it; inf and nan, for which it has no word, as text."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def printable(name: str) -> str:
    """A name without what would move the cursor."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)


def bar(length: float, cells: int) -> str:
    """A bar of eighths of a cell, or of # where the terminal has no others."""
    if not length > 0.0:
        return ""
    if not speaks_unicode():
        return "#" * round(min(length, 1.0) * cells)
    whole, eighths = divmod(round(min(length, 1.0) * cells * 8), 8)
    return "█" * whole + EIGHTHS[eighths].strip()


def sparkline(values: Sequence[float]) -> str:
    """Numbers from 0 to 1 as a line of blocks."""
    steps = STEPS if speaks_unicode() else PLAIN_STEPS
    return "".join(
        " " if math.isnan(v) else steps[min(int(v * len(steps)), len(steps) - 1)] for v in values
    )


@dataclass(frozen=True)
class Table:
    """Columns side by side, numbers to the right; and at the end a bar for each row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1  # columns of text, which come first
    bars: Sequence[float] | None = None

    def lines(self) -> list[Text]:
        width = screen_width()
        cells = [[printable(cell) for cell in row] for row in (self.head, *self.rows)]
        sizes = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        total = sum(sizes) + 2 * (len(sizes) - 1)
        if width is not None and total > width and self.left < len(sizes):  # the names give way
            sizes[0] = max(sizes[0] - (total - width), 4)
            total = sum(sizes) + 2 * (len(sizes) - 1)
        bar_width = BAR if width is None else min(BAR, width - total - 2)
        bars = self.bars if bar_width >= SHORTEST_BAR else None
        if width is not None and self.left == len(sizes):
            return self.wrapped(cells, sizes, width)
        lines = [self.line(cells[0], sizes, "bold")]
        for number, row in enumerate(cells[1:]):
            line = self.line(row, sizes, "")
            if bars is not None:
                line.append("  " + bar(bars[number], bar_width), "cyan")
            line.rstrip()
            lines.append(line)
        return lines

    def wrapped(self, cells: list[list[str]], sizes: list[int], width: int) -> list[Text]:
        """Nothing but text: the last column goes on below itself."""
        start = sum(sizes[:-1]) + 2 * (len(sizes) - 1)
        lines = []
        for number, row in enumerate(cells):
            for place, part in enumerate(textwrap.wrap(row[-1], max(width - start, 16)) or [""]):
                before = row[:-1] if place == 0 else [""] * (len(row) - 1)
                lines.append(self.line([*before, part], sizes, "" if number else "bold"))
        return lines

    def line(self, cells: Sequence[str], sizes: Sequence[int], style: str) -> Text:
        parts = []
        for number, (cell, size) in enumerate(zip(cells, sizes, strict=True)):
            space = " " * (size - cell_len(cell))
            if number == 0:
                cell = cut(cell, size)
            parts.append(cell + space if number < self.left else space + cell)
        return Text("  ".join(parts).rstrip() if self.bars is None else "  ".join(parts), style)


class PlainProgress:
    """A line on the standard error every PATIENCE seconds: stage, share, time left."""

    def __init__(self) -> None:
        self.start = self.told = time.monotonic()

    def update(self, stage: str, done: float) -> None:
        now = time.monotonic()
        if now - self.told < PATIENCE:
            return
        self.told = now
        left = ""
        if 0.0 < done <= 1.0:
            left = f", {done:.0%}, about {(now - self.start) * (1.0 - done) / done:.0f} s left"
        print(f"hotmax: {stage}{left}", file=sys.stderr, flush=True)


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A bar on the standard error while a person watches; else a line every 30 seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainProgress().update
        return
    from rich.progress import (
        BarColumn,
        Progress as Bar,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as shown:
        task = shown.add_task(what, total=None)

        def update(stage: str, done: float) -> None:
            known = done > 0.0  # until then it only shows that something moves
            shown.update(task, description=stage, completed=done, total=1.0 if known else None)

        yield update
