"""Pictures of saturation, and of what the scale of attention does about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._softmax.saturation import EDGES, Saturation
from hotmax.plots.style import BLUE, VERMILION, figure_of, styled


@dataclass(frozen=True)
class AttentionScaling:
    """The same queries and keys with and without the scale 1 / sqrt(features)."""

    features: int
    unscaled: Saturation
    scaled: Saturation


def attention_scaling(
    *, queries: int = 1, keys: int = 128, features: int = 512, seed: int = 0
) -> AttentionScaling:
    """Normal queries and keys, by default one query: how saturated their attention is.

    Example:
        >>> from hotmax import plots
        >>> found = plots.attention_scaling()
        >>> round(found.unscaled.entropy, 2), round(found.scaled.entropy, 2)
        (0.01, 4.22)
    """
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((queries, features)), rng.standard_normal((keys, features))
    return AttentionScaling(
        features, hm.attention_saturation(q, k, scale=1.0), hm.attention_saturation(q, k)
    )


@styled
def plot_attention_scaling(result: AttentionScaling, *, figure: Any = None) -> Any:
    """Four histograms: weights and derivatives, above without the scale, below with it."""
    figure = figure_of(figure, 6.4, 4.6)
    panels = figure.subplots(2, 2)
    for row, one, name in (
        (panels[0], result.unscaled, "without a scale"),
        (panels[1], result.scaled, f"scaled by 1 / sqrt({result.features})"),
    ):
        draw_saturation(one, row)
        row[0].set_title(f"weights p {name}")
        row[1].set_title(f"p (1 - p) {name}")
        row[1].set_ylabel("")
    for panel in panels[0]:
        panel.set_xlabel("")
    return figure


@styled
def plot_saturation(result: Saturation, *, figure: Any = None) -> Any:
    """Histograms of p and of p (1 - p): entries that pass no gradient pile up at the left."""
    figure = figure_of(figure, 4.6, 3.6)
    draw_saturation(result, figure.subplots(2, 1))
    figure.suptitle("How many probabilities pass no gradient")
    return figure


def draw_saturation(result: Saturation, panels: Any) -> None:
    """Draw the two histograms on two Axes."""
    kinds = (
        (result.histogram, "p", {"color": BLUE}),
        (result.slope_histogram, "p (1 - p)", {"color": VERMILION, "hatch": "///"}),
    )
    for ax, (counts, name, look) in zip(panels, kinds, strict=True):
        ax.bar(EDGES[:-1], counts, np.diff(EDGES), align="edge", edgecolor="white", **look)
        ax.set_yscale("log")  # one entry that has it all is to be seen beside a thousand
        ax.set_ylim(0.5, 2.0 * max(counts.max(initial=1), 1))
        ax.set_xticks([-12, -8, -4, 0], ["$\\leq 10^{-12}$", "$10^{-8}$", "$10^{-4}$", "1"])
        ax.set_xlim(EDGES[0], EDGES[-1])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")  # which labels an axis of few entries as 2 x 10^0
        ax.set_xlabel(name)
        ax.set_ylabel("number of entries")
        ax.grid(False, axis="x")
