"""The heat map: classes by rows, a panel for each function and float type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from map_cells import CLASSES, DTYPES, ENTRIES, FUNCTIONS, ROWS, Cell

from hotmax.plots.style import INK, MUTED, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap

LEAST, MOST = 1 / 8, 8  # the ends of the colours: ratios beyond have the last one
TICKS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)


def colours() -> Colormap:
    """Orange below 1 and purple above, which differ for every kind of colour vision.

    The palest tenth on either side is left out: a ratio of 0.95 does not look like 1.05.
    """
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    part = np.linspace(0, 0.4, 128)
    both = matplotlib.colormaps["PuOr"](np.concatenate([part, 1 - part[::-1]]))
    return LinearSegmentedColormap.from_list("orange and purple", both)


def edges(values: Sequence[int]) -> np.ndarray:
    """The borders of the cells: halfway between the values on a logarithmic scale."""
    logs = np.log(values)
    middles = (logs[1:] + logs[:-1]) / 2
    outer = [2 * logs[0] - middles[0], 2 * logs[-1] - middles[-1]]
    return np.exp([outer[0], *middles, outer[1]])


def percent(ratios: Sequence[float]) -> str:
    """How many are above 1."""
    return f"{100 * np.mean(np.asarray(ratios) > 1):.0f} %"


def panel(ax: Axes, cells: Sequence[Cell], title: str) -> QuadMesh:
    from matplotlib.colors import LogNorm

    norm, cmap = LogNorm(LEAST, MOST), colours()
    ratios = np.full((len(CLASSES), len(ROWS)), np.nan)
    for cell in cells:
        if not cell.drawn and cell.classes in CLASSES and cell.rows in ROWS:
            ratios[CLASSES.index(cell.classes), ROWS.index(cell.rows)] = cell.ratio
    mesh = ax.pcolormesh(edges(ROWS), edges(CLASSES), ratios, norm=norm, cmap=cmap)
    others = [c for c in cells if c.drawn or c.classes not in CLASSES or c.rows not in ROWS]
    ax.scatter(
        [cell.rows for cell in others],
        [cell.classes for cell in others],
        c=[cell.ratio for cell in others],
        norm=norm,
        cmap=cmap,
        s=26,
        edgecolors=INK,
        linewidths=0.6,
        clip_on=False,
        zorder=3,
    )
    ax.plot([ENTRIES / 2, ENTRIES / CLASSES[-1]], [2, CLASSES[-1]], color=MUTED, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlim=(0.35, 1.3e7), ylim=(1, 4e5))
    ax.set_yticks(CLASSES, [f"{c:,}" for c in CLASSES])
    ax.set_xticks([1, 64, 4096, 262_144], ["1", "64", "4,096", "262,144"])
    ax.minorticks_off()
    ax.grid(False)
    ax.set_title(title, fontweight="normal")
    return mesh


@styled
def draw(cells: Sequence[Cell], path: Path) -> None:
    """Squares are the fixed cells, circles the drawn ones, and colours the time of PyTorch over
    that of hotmax. The format is that of the ending: .png, .svg."""
    import matplotlib
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(DTYPES), len(FUNCTIONS), figsize=(10.5, 7), sharex=True, sharey=True, squeeze=False
    )
    for row, dtype in zip(axes, DTYPES, strict=True):
        for ax, function in zip(row, FUNCTIONS, strict=True):
            kind = [c for c in cells if (c.function, c.dtype) == (function, dtype)]
            ratios = [cell.ratio for cell in kind]
            title = f"{function}, {dtype}"
            if ratios:
                mean = np.exp(np.mean(np.log(ratios)))
                title += f"\ngeometric mean {mean:.2f}, ahead in {percent(ratios)}"
            mesh = panel(ax, kind, title)
    for ax in axes[-1]:
        ax.set_xlabel("rows")
    for ax in axes[:, 0]:
        ax.set_ylabel("classes")
    bar = figure.colorbar(mesh, ax=axes, extend="both", shrink=0.7, aspect=30)
    bar.set_ticks(TICKS, labels=[f"{t:g}" if t >= 1 else f"1/{1 / t:g}" for t in TICKS])
    bar.minorticks_off()
    bar.set_label("time of PyTorch / time of hotmax")
    ahead = percent([cell.ratio for cell in cells])
    figure.suptitle(
        f"Purple: hotmax is faster than PyTorch ({ahead} of {len(cells)} cells). "
        "Orange: it is slower.\nSquares: the grid. Circles: shapes drawn by a fresh seed. "
        "Dotted: 16 million entries.",
        x=0.01,
        ha="left",
        fontsize=11,
    )
    with matplotlib.rc_context({"svg.hashsalt": "map"}):  # the same numbers give the same file
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
