"""The map of shapes: hotmax beside PyTorch, 1 row to 16 million entries, 2 to 128,256 classes.

    make map                the whole map, some 5 minutes; PUBLISH=1 also writes it into the docs
    python bench/map.py --quick                60 cells in under a minute, for development
    python bench/map.py --quick --cells softmax float32      only cells with all of these words
    python bench/map.py --cells none --sections where calls  only these sections
    python bench/map.py --seed 7               the cells that were drawn in an earlier run
    python bench/map.py --csv run.csv --figure map.png       also all times, and the heat map

softmax, log_softmax and logsumexp in float32 and float64, 393 cells: 264 on a grid, 129 drawn by a
fresh seed, which is printed. Both libraries have two threads, the same memory as input and a fresh
output; PyTorch is in inference mode. In each round both take a turn: wait until no thread of the
process spins (PyTorch's do for some 5 ms after their work), 8 ms of calls that are not timed, 5 ms
that are. A time is the median over a cell's rounds, a ratio the time of PyTorch over that of
hotmax: above 1, hotmax is faster. A cell is measured again if other programs used the processors
meanwhile, and left out if they always did. The ten worst cells of each float type are measured
five times more; the worst cell is that with the least median of these five. SciPy is timed in fewer
rounds, up to a million entries.
"""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import map_cells
import map_figure
import map_report
import tables
import torch
from map_cells import DTYPES, Cell
from map_report import FIGURE_HEADER, Figure, Table, geometric_mean
from map_sections import Section, sections, single_figures
from timing import THREADS, duration

import hotmax as hm

ROUNDS, SECONDS = 9, 0.3  # of a cell, at most
SCIPY_ROUNDS = 3
LONG_ROUNDS, LONG_SECONDS = 25, 1.0  # of a single figure
WORST, REPEATS = 10, 5  # of each float type, and how often again
QUICK_WORST = 3
BUSY = 0.3  # of the cells disturbed: the machine is in use, and its figures say little
MOST_LEFT_OUT = 0.02  # of the cells, in what is published


def measure(cells: Sequence[Cell], what: str) -> list[Cell]:
    """The cells that others did not disturb; all, if the machine is busy all the time.

    A disturbed cell is measured again at the end, twice at most.
    """
    for cell in tables.progress(cells, what):
        cell.times = cell.measure(ROUNDS, SECONDS, SCIPY_ROUNDS)
    for _ in range(2):
        again = [cell for cell in cells if cell.disturbed]
        if len(again) > BUSY * len(cells):
            break
        for cell in tables.progress(again, f"{what}, disturbed cells"):
            cell.times = cell.measure(ROUNDS, SECONDS, SCIPY_ROUNDS)
    calm = [cell for cell in cells if not cell.disturbed]
    return calm if len(calm) >= (1 - BUSY) * len(cells) else list(cells)


def repeated_ratio(cell: Cell) -> float:
    """The median ratio of REPEATS measurements more: the first was selected for being low."""
    ratios, again = [], dataclasses.replace(cell)
    for _ in range(REPEATS):
        taken = again.measure(ROUNDS, SECONDS)
        ratios.append(taken["torch"] / taken["hotmax"])
    return statistics.median(ratios)


def grid_figures(cells: Sequence[Cell], worst: int) -> list[Figure]:
    """The figures over all cells; the worst cells of each float type are measured again."""
    ratios = [cell.ratio for cell in cells]
    figures = [
        Figure("geometric mean", geometric_mean(ratios), 1.5, f"{len(cells)} cells"),
        Figure("cells ahead", sum(r > 1 for r in ratios) / len(ratios), 0.85, percent=True),
    ]
    for dtype, bar in zip(DTYPES, (0.8, 0.7), strict=True):
        low = sorted((cell for cell in cells if cell.dtype == dtype), key=lambda cell: cell.ratio)
        low = low[:worst]
        if not low:
            continue
        progress = tables.progress(low, f"the worst in {dtype}")
        ratio, name = min((repeated_ratio(cell), cell.name) for cell in progress)
        figures.append(Figure(f"worst cell, {dtype}", ratio, bar, name))
    return figures


def call_figures(calls: dict[str, Cell]) -> list[Figure]:
    figures = []
    for (name, cell), bar in zip(calls.items(), (1.3, 0.6, 0.5, 1.0), strict=True):
        taken = cell.measure(LONG_ROUNDS, LONG_SECONDS)
        note = f"{duration(taken['hotmax'])}, PyTorch {duration(taken['torch'])}"
        figures.append(Figure(name, taken["torch"] / taken["hotmax"], bar, note))
    return figures


def chosen_sections(names: Sequence[str] | None, short: bool) -> list[Section]:
    """All without names, but in a short run none."""
    every = sections()
    if names is None:
        return [] if short else every
    known = [*(section.key for section in every), "calls", "none"]
    for name in names:
        if name not in known:
            raise SystemExit(f"--sections: {name} is not one of {', '.join(known)}")
    return [section for section in every if section.key in names]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="60 cells, no sections: under a minute")
    add("--cells", nargs="+", metavar="WORD", help="cells whose name has all of these words; none")
    add("--sections", nargs="+", metavar="NAME", help="sections; calls: single calls; none")
    add("--seed", type=int, help="the seed of the drawn cells; without it a fresh one")
    add("--csv", type=Path, help="write the times of all cells into this file")
    add("--figure", type=Path, help="write the heat map into this file (.png, .svg)")
    add("--publish", action="store_true", help="write docs/tables/map.* and the README's figures")
    given = parser.parse_args()
    if given.publish and (given.quick or given.cells or given.sections):
        parser.error("--publish is for the whole map: without --quick, --cells and --sections")
    return given


def main() -> None:
    given = arguments()
    start = time.perf_counter()
    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    words = set(given.cells or ())
    cells = [cell for cell in map_cells.grid(seed, given.quick) if words <= set(cell.name.split())]
    if given.cells and not cells and given.cells != ["none"]:
        raise SystemExit(f"--cells: no cell's name has all of {', '.join(given.cells)}")
    chosen = chosen_sections(given.sections, given.quick or bool(words))
    wanted = "calls" in given.sections if given.sections else not words
    calls = single_figures() if wanted else {}
    about = (
        f"{tables.processor()}, {THREADS} threads (SciPy 1). Seed {seed}. "
        f"hotmax {hm.__version__}, {tables.versions('numpy', 'numba', 'scipy', 'torch')}."
    )
    print(about)
    print("Ratios are the time of PyTorch over that of hotmax: above 1, hotmax is faster.\n")

    figures: list[Figure] = []
    grid: list[Table] = []
    of_sections = [cell for section in chosen for cell in section.cells]
    planned = [*cells, *of_sections, *calls.values()]
    if cells:
        cells = measure(cells, "map")
        grid = [*map_report.grid_tables(cells, given.quick), map_report.kind_table(cells)]
        for table in grid:
            print(tables.plain(*table) + "\n", flush=True)
        figures = grid_figures(cells, QUICK_WORST if given.quick else WORST)
    parts = []
    for section in chosen:
        kept = measure(section.cells, section.key)
        mean = geometric_mean(cell.ratio for cell in kept)
        title = f"{section.title}: {mean:.2f} in the geometric mean"
        parts.append((title, map_report.section_table(kept)))
        print(f"{title}\n\n{tables.plain(*parts[-1][1])}\n", flush=True)
    if calls:
        figures += call_figures(calls)
    if figures:
        print(tables.plain(FIGURE_HEADER, [figure.cells() for figure in figures]))
    disturbed = sum(cell.disturbed for cell in planned)
    if disturbed:
        print(f"\nOther programs disturbed {disturbed} of {len(planned)} cells. Close them.")
    if given.csv:
        map_report.save_csv(given.csv, cells)
    if given.figure and cells:
        map_figure.draw(cells, given.figure)
    if given.publish:
        if disturbed > MOST_LEFT_OUT * len(planned):
            raise SystemExit("Not published: the figures are those of a busy machine.")
        map_report.publish(cells, figures, grid, parts, about)
        print("\nwritten into docs/tables and README.md")
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
