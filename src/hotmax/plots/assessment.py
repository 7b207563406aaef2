"""The pictures that only a report needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hotmax.calibration.assessment import Assessment, ClassScore
from hotmax.calibration.shape import Shape
from hotmax.plots.style import (
    BLUE,
    DASHES,
    GREEN,
    MUTED,
    SKY,
    VERMILION,
    axes_of,
    legend_above,
    percent_ticks,
    shortened,
    styled,
)


@styled
def plot_methods(result: Assessment, *, ax: Any = None) -> Any:
    """How much each calibrator changes the nll, with its 95 % interval."""
    ax = axes_of(ax)
    shown = [one for one in result.scores[1:] if np.isfinite(one.nll_change.value)]
    for place, one in enumerate(shown):
        advised = one.method == result.advised
        low, high = one.nll_change.interval
        whiskers = np.nan_to_num(
            [[one.nll_change.value - low], [high - one.nll_change.value]], posinf=0.0
        )
        ax.errorbar(
            one.nll_change.value,
            place,
            xerr=whiskers,
            fmt="D" if advised else "o",
            color=VERMILION if advised else BLUE,
            markersize=5,
        )
    ax.axvline(0.0, color=MUTED, linewidth=1, dashes=(4, 3))
    names = [one.method + (" (advised)" if one.method == result.advised else "") for one in shown]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(shown) - 0.5, -0.5)
    ax.set_xlabel("change of nll, nats a row: less is better")
    ax.grid(False, axis="y")
    return ax


@styled
def plot_classes(
    result: Sequence[ClassScore], *, class_names: Sequence[str] | None = None, ax: Any = None
) -> Any:
    """What is said and what is right, for rows in which a class is predicted."""
    ax = axes_of(ax, 4.4, 0.28 * len(result) + 1.0)
    for place, one in enumerate(result):
        right, (low, high) = one.accuracy.value, one.accuracy.interval
        ax.plot([right, one.confidence], [place, place], color=MUTED, linewidth=2.5, alpha=0.4)
        ax.plot([low, high], [place, place], color=BLUE, linewidth=1)
        ax.plot(right, place, "o", color=BLUE, markersize=5, label="is right" if not place else "")
        ax.plot(one.confidence, place, "D", color=VERMILION, label="says" if not place else "")
    labels = [shortened(class_names[one.number] if class_names else one.number) for one in result]
    ax.set_yticks(range(len(result)), labels)
    ax.set_ylim(len(result) - 0.5, -0.5)
    ax.set_xlim(None, 1.02)
    ax.set_xlabel("mean confidence, and share of right predictions (95 %)")
    ax.grid(False, axis="y")
    ax.set_title("The most overconfident classes")
    legend_above(ax)
    percent_ticks(ax.xaxis)
    return ax


@styled
def plot_shape(result: Shape, *, ax: Any = None) -> Any:
    """How confident predictions are: shares of rows by their largest probability."""
    ax = axes_of(ax)
    ax.stairs(result.confidence_shares, result.confidence_edges, color=BLUE, fill=False)
    ax.stairs(result.confidence_shares, result.confidence_edges, color=SKY, fill=True, alpha=0.45)
    label = f"mean {100 * result.confidence:.1f} %"
    ax.axvline(result.confidence, color=MUTED, linewidth=1.2, dashes=(4, 3), label=label)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.05 * float(result.confidence_shares.max()))
    ax.set_xlabel("confidence: the largest probability")
    ax.set_ylabel("share of rows")
    ax.set_title("How sure the predictions are")
    legend_above(ax)
    percent_ticks(ax.xaxis)
    percent_ticks(ax.yaxis)
    return ax


@styled
def plot_effective(result: Shape, *, ax: Any = None) -> Any:
    """How many classes share the probability: a histogram of exp(entropy)."""
    ax = axes_of(ax)
    ax.stairs(result.effective_shares, result.effective_edges, color=SKY, fill=True, alpha=0.45)
    ax.stairs(result.effective_shares, result.effective_edges, color=BLUE)
    middle = result.effective[2]
    ax.axvline(middle, color=MUTED, linewidth=1.2, dashes=(4, 3), label=f"median {middle:.3g}")
    ax.set_xscale("log")
    ax.minorticks_off()
    top = float(result.effective_edges[-1])
    ticks = [t * 10**e for e in range(6) for t in (1, 2, 5) if t * 10**e <= top * 1.001]
    ticks = ticks if len(ticks) <= 8 else [t for t in ticks if str(t)[0] == "1"]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_xlim(result.effective_edges[0], top)
    ax.set_xlabel("effective number of classes, exp(entropy)")
    ax.set_ylabel("share of rows")
    ax.set_title("How many classes share the probability")
    legend_above(ax)
    percent_ticks(ax.yaxis)
    return ax


@styled
def plot_sensitivity(result: Shape, *, ax: Any = None) -> Any:
    """Mean confidence and mean entropy over temperature."""
    ax = axes_of(ax)
    limit = max(float(result.saturation.entropy_limit), 1e-12)
    ax.plot(result.temperatures, result.confidence_at, color=BLUE, label="mean confidence")
    ax.plot(
        result.temperatures,
        result.entropy_at / limit,
        color=GREEN,
        linestyle=DASHES[1],
        label="mean entropy, of log n",
    )
    ax.axvline(1.0, color=MUTED, linewidth=1, dashes=(4, 3))
    ax.set_xscale("log")
    ax.minorticks_off()
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_xlim(result.temperatures[0], result.temperatures[-1])
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("temperature")
    ax.set_title("What a temperature would change")
    legend_above(ax)
    percent_ticks(ax.yaxis)
    return ax
