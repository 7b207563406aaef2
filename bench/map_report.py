"""What the map prints and publishes: tables, the summary, docs/tables/map.* and the README."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import map_figure
import tables
from map_cells import CLASSES, FUNCTIONS, ROWS, Cell
from timing import duration

README = tables.PAGES.parent.parent / "README.md"

Table = tuple[list[str], list[list[str]]]  # header and rows


@dataclass
class Figure:
    """A line of the summary: a ratio or a share, and the least that it should be."""

    name: str
    value: float
    bar: float
    note: str = ""
    percent: bool = False

    def cells(self) -> list[str]:
        def text(value: float) -> str:
            return f"{100 * value:.0f} %" if self.percent else f"{value:.2f}"

        met = "met" if self.value >= self.bar else "missed"
        return [self.name, text(self.value), text(self.bar), met, self.note]


FIGURE_HEADER = ["PyTorch / hotmax", "figure", "at least", "", "where"]


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def listing(cells: Sequence[Cell]) -> Table:
    """Header and rows, one for each cell."""
    header = ["cell", "hotmax", "PyTorch", "PyTorch / hotmax", "SciPy / hotmax"]
    rows = []
    for cell in cells:
        ours, theirs = cell.times["hotmax"], cell.times["torch"]
        scipy = f"{cell.times['scipy'] / ours:.2f}" if "scipy" in cell.times else ""
        rows.append([cell.name, duration(ours), duration(theirs), f"{cell.ratio:.2f}", scipy])
    return header, rows


def matrix(cells: Sequence[Cell], function: str, dtype: str) -> Table:
    """The fixed cells of a function and type: a row for each number of classes."""
    found = {
        (cell.rows, cell.classes): f"{cell.ratio:.2f}"
        for cell in cells
        if not cell.drawn and (cell.function, cell.dtype) == (function, dtype)
    }
    header = [f"{function} {dtype}", "1 row", *(f"{rows:,} rows" for rows in ROWS[1:])]
    rows = [[f"{c:,} classes", *(found.get((r, c), "") for r in ROWS)] for c in CLASSES]
    return header, rows


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    def place(cell: Cell) -> tuple[int, str, int, int]:
        return FUNCTIONS.index(cell.function), cell.dtype, cell.classes, cell.rows

    return sorted(cells, key=place)


def grid_tables(cells: Sequence[Cell], quick: bool) -> list[Table]:
    """A matrix for each kind, and a list of the drawn cells; of a quick map only a list."""
    if quick:
        return [listing(in_order(cells))]
    kinds = dict.fromkeys((cell.function, cell.dtype) for cell in in_order(cells))
    drawn = in_order(cell for cell in cells if cell.drawn)
    return [*(matrix(cells, *kind) for kind in kinds), listing(drawn)]


def kind_table(cells: Sequence[Cell]) -> Table:
    """For each function and float type: the mean, the share ahead, the worst, and SciPy's mean."""
    header = ["function", "cells", "geometric mean", "ahead", "least", "SciPy / hotmax"]
    rows = []
    for function, dtype in dict.fromkeys((c.function, c.dtype) for c in in_order(cells)):
        kind = [cell for cell in cells if (cell.function, cell.dtype) == (function, dtype)]
        ratios = [cell.ratio for cell in kind]
        ahead = f"{100 * sum(r > 1 for r in ratios) / len(ratios):.0f} %"
        scipy = [c.times["scipy"] / c.times["hotmax"] for c in kind if "scipy" in c.times]
        mean = f"{geometric_mean(scipy):.2f}" if scipy else ""
        figures = [f"{geometric_mean(ratios):.2f}", ahead, f"{min(ratios):.2f}", mean]
        rows.append([f"{function} {dtype}", str(len(kind)), *figures])
    return header, rows


def save_csv(path: Path, cells: Sequence[Cell]) -> None:
    """A line for each cell: what it is, median times in seconds, processors that others used."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["function", "dtype", "rows", "classes", "drawn", "hotmax", "torch", "scipy", "others"]
        )
        for cell in in_order(cells):
            what = [cell.function, cell.dtype, cell.rows, cell.classes, int(cell.drawn)]
            times = [cell.times.get(name) for name in ("hotmax", "torch", "scipy")]
            shown = ["" if t is None else f"{t:.4g}" for t in times]
            writer.writerow([*what, *shown, f"{max(0, cell.others):.2f}"])


def section_table(cells: Sequence[Cell]) -> Table:
    """The cells of a section, without SciPy."""
    header, rows = listing(cells)
    return header[:-1], [row[:-1] for row in rows]


def quoted(cells: Sequence[Cell], figures: Sequence[Figure]) -> str:
    """The figures that the README has."""
    mean, ahead, *worst = figures[:4]
    lows = " and ".join(f"{w.value:.2f} in {w.name.split()[-1]}" for w in worst)
    return (
        f"The time of PyTorch over that of hotmax on [a map of {len(cells)} shapes]"
        "(docs/tables/map.md), two threads each:\n"
        f"{mean.value:.2f} in the geometric mean, above 1 on {100 * ahead.value:.0f} % of the "
        f"shapes, {lows} at worst.\n"
        "(softmax, log_softmax and logsumexp; 1 row to 16 million entries; 2 to 128,256 classes; a "
        "third of\nthe shapes drawn at random.)"
    )


def publish(
    cells: Sequence[Cell],
    figures: Sequence[Figure],
    grid: Sequence[Table],
    parts: Sequence[tuple[str, Table]],
    about: str,
) -> None:
    """Write docs/tables/map.md, its picture and its data, and the figures in the README."""
    map_figure.draw(cells, tables.PAGES / "map.svg")
    save_csv(tables.PAGES / "map.csv", cells)
    *matrices, drawn, kinds = (tables.markdown(*table) for table in grid)
    text = [
        tables.markdown(FIGURE_HEADER, [figure.cells() for figure in figures]),
        kinds,
        "![Heat maps over rows and classes, for each function and float type](map.svg)",
        "## The grid",
        *matrices,
        "## The drawn cells",
        drawn,
        "## Also on the map",
    ]
    for title, table in parts:
        text += [f"### {title}", tables.markdown(*table)]
    tables.publish("map", "\n\n".join([*text, about]))
    tables.publish("map", quoted(cells, figures), README)
