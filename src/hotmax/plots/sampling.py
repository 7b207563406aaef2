"""Pictures of sampling results: frequencies of draws, sequences of a beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._sampling.beam import Beams
from hotmax._sampling.frequencies import Frequencies
from hotmax.plots.style import BLUE, SKY, axes_of, figure_of, percent_ticks, styled

PANEL_COLUMNS = 2  # panels beside each other


@styled
def plot_frequencies(result: Frequencies, *, figure: Any = None) -> Any:
    """How often each class was drawn, beside its probability: a panel for each temperature."""
    count = result.temperatures.size
    columns = min(count, PANEL_COLUMNS)
    rows = -(-count // columns)
    figure = figure_of(figure, 2.2 * columns + 0.4, 2.4 * rows)
    grid = np.ravel(figure.subplots(rows, columns, sharey=True, squeeze=False))
    panels = grid[:count]
    for spare in grid[count:]:
        spare.remove()
    classes = np.arange(result.logits.size)
    for number, (panel, t) in enumerate(zip(panels, result.temperatures, strict=True)):
        panel.bar(classes, result.frequencies[number], color=SKY, label="drawn")
        panel.errorbar(
            classes,
            result.probabilities[number],
            2.0 * result.standard_errors[number],
            fmt="o",
            color=BLUE,
            markersize=3,
            linewidth=1,
            label="p \N{PLUS-MINUS SIGN} 2 standard errors",
        )
        if classes.size <= 6:
            tops = np.maximum(result.frequencies, result.probabilities + 2 * result.standard_errors)
            for c in classes:
                text = f"{100 * result.frequencies[number, c]:.0f} %"
                panel.annotate(
                    text,
                    (c, tops[number, c]),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
        panel.set_title(f"T = {t:g}")
        panel.set_xlabel("class")
        panel.grid(False, axis="x")
        if classes.size <= 12:
            panel.set_xticks(classes)
        panel.set_ylim(0.0, 1.25)
        panel.set_yticks(np.linspace(0, 1, 5))
        percent_ticks(panel.yaxis)
    figure.suptitle("How often each class is drawn, beside its probability p")
    panels[0].set_ylabel(f"share of {result.draws} draws")
    panels[-1].legend(loc="upper right", handlelength=1.2, fontsize=7)
    return figure


@styled
def plot_beams(result: Beams, *, ax: Any = None) -> Any:
    """The probabilities of the sequences that a beam search has found, as bars."""
    ax = axes_of(ax, 5.0, 0.35 * len(result.sequences) + 0.9)
    names = [" ".join(map(str, tokens[-12:])) for tokens in result.sequences]
    positions = range(len(names))
    ax.barh(positions, np.exp(result.log_probabilities), color=SKY)
    ax.set_yticks(positions, names)
    ax.set_title("The sequences that the beam search found")
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.set_xlabel("probability of the sequence")
    return ax
