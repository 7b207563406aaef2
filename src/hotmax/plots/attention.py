"""Why attention is scaled: the weights, and what gets through them, with the scale and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.pictures import axes_of, panels, picture
from hotmax._softmax.saturation import Saturation


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


@picture
def plot_attention_scaling(result: AttentionScaling, *, ax: Any = None) -> Any:
    """Four histograms: weights and derivatives, above without the scale, below with it."""
    ax = axes_of(ax, 6.4, 4.6)
    found = panels(ax, (1.0, 1.0), 2, gap=0.35)
    for row, one, name in (
        (found[:2], result.unscaled, "without a scale"),
        (found[2:], result.scaled, f"scaled by 1 / sqrt({result.features})"),
    ):
        one.plot(row)
        row[0].set_title(f"p {name}")
        row[1].set_title(f"p (1 - p) {name}", loc="left")
    for panel in found[:2]:
        panel.set_xlabel("")
    for panel in found[1::2]:
        panel.set_ylabel("")
    return ax


@picture
def plot_saturation(result: Saturation, *, ax: Any = None) -> Any:
    """Histograms of p and of p (1 - p): entries that pass no gradient pile up at the left."""
    ax = axes_of(ax, 4.6, 3.6)
    found = panels(ax, (1.0, 1.0), gap=0.5)
    result.plot(found)
    return ax
