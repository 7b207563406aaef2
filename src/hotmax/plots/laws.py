"""The laws of softmax as a table of marks: which hold for which implementation."""

from __future__ import annotations

from typing import Any

from hotmax.laws.scorecard import Comparison
from hotmax.plots.style import BLUE, MUTED, VERMILION, axes_of, styled

MARKS = {
    True: ("o", BLUE, "holds"),
    False: ("X", VERMILION, "fails"),
    None: ("_", MUTED, "not applicable"),
}


@styled
def plot_laws(result: Comparison, *, ax: Any = None) -> Any:
    """Laws by subjects, a mark for each: holds, fails, or does not apply."""
    laws = result.by_law()
    ax = axes_of(ax, 3.6 + 0.75 * len(result.cards), 1.2 + 0.25 * len(laws))
    for holds, (marker, colour, word) in MARKS.items():
        where = [
            (column, row)
            for row, results in enumerate(laws)
            for column, each in enumerate(results)
            if each.holds is holds
        ]
        if where:
            ax.plot(*zip(*where, strict=True), marker, color=colour, markersize=7, label=word)
    ax.set_xticks(range(len(result.cards)), list(result.cards), rotation=30, ha="left")
    ax.set_yticks(range(len(laws)), [f"{r[0].law.number}: {r[0].law.name}" for r in laws])
    ax.set_xlim(-0.5, len(result.cards) - 0.5)
    ax.set_ylim(len(laws) - 0.4, -0.6)
    ax.xaxis.tick_top()
    ax.set_title("Which laws hold for which softmax")
    ax.tick_params(length=0)
    ax.grid(False, axis="x")
    ax.spines[:].set_visible(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)
    return ax
