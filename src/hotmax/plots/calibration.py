"""Pictures of calibration results: confidence against accuracy, the fitted temperature, sets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hotmax.calibration.acceptance import Abstention
from hotmax.calibration.by_group import GroupCalibration
from hotmax.calibration.by_label import MultilabelCalibration
from hotmax.calibration.comparison import Comparison
from hotmax.calibration.decomposition import Decomposition
from hotmax.calibration.reliability import Reliability, RiskCoverage
from hotmax.calibration.set_coverage import ConformalEvaluation
from hotmax.calibration.temperature_fit import TemperatureFit
from hotmax.plots.style import (
    BLUE,
    GREEN,
    MUTED,
    SKY,
    VERMILION,
    axes_of,
    figure_of,
    legend_above,
    percent_ticks,
    styled,
)

if TYPE_CHECKING:  # which imports scikit-learn
    from hotmax.calibration.selection import Selection


@styled
def plot_reliability(result: Reliability, *, ax: Any = None) -> Any:
    """The reliability diagram: accuracy against confidence.

    Bars are the share of right predictions in each bin, hatched as far as they miss the mean
    confidence; whiskers are its 95 % interval; below, the share of rows in each bin.
    """
    ax = axes_of(ax, 4.4, 4.0)
    there = result.counts > 0
    left, width = result.edges[:-1][there], np.diff(result.edges)[there]
    middle = left + width / 2
    x, y = result.confidence[there], result.accuracy[there]
    ax.bar(left, y, width, align="edge", color=SKY, alpha=0.45, linewidth=0, label="right")
    ax.bar(
        left,
        x - y,
        width,
        bottom=y,
        align="edge",
        facecolor="none",
        edgecolor=VERMILION,
        hatch="////",
        linewidth=0.6,
        label="gap to confidence",
    )
    whiskers = np.clip([y - result.low[there], result.high[there] - y], 0, None)
    ax.errorbar(
        middle, y, whiskers, fmt="o", color=BLUE, markersize=3, linewidth=1, label="95 % interval"
    )
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, dashes=(4, 3), label="calibrated")
    t, curve, density = result.curve
    seen = density > 0.02 * density.max()  # a curve through next to no rows means nothing
    ax.plot(t, np.where(seen, curve, np.nan), color=GREEN, label="smoothed")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share of right predictions")
    ax.set_title(
        f"Reliability: ECE {100 * result.ece:.2f} %, smooth ECE {100 * result.smooth_ece:.2f} %"
    )
    legend_above(ax)
    percent_ticks(ax.yaxis)
    ax.tick_params(labelbottom=False)
    below = ax.inset_axes((0.0, -0.24, 1.0, 0.18), sharex=ax)
    share = result.counts / result.counts.sum()
    below.bar(result.edges[:-1], share, np.diff(result.edges), align="edge", color=SKY)
    below.set_ylabel("rows")
    below.set_xlabel("confidence")
    percent_ticks(below.xaxis)
    below.set_yticks([0.0, float(share.max())], ["0", f"{100 * share.max():.0f} %"])
    return ax


@styled
def plot_calibration(result: tuple[Reliability, Reliability], *, figure: Any = None) -> Any:
    """Reliability before and after calibration, side by side."""
    figure = figure_of(figure, 8.4, 4.2)
    panels = figure.subplots(1, 2)
    for panel, one, name in zip(panels, result, ("before", "after"), strict=True):
        plot_reliability(one, ax=panel)
        panel.set_title(f"Reliability {name}: ECE {100 * one.ece:.2f} %")
        legend_above(panel)
    return figure


@styled
def plot_confidence(
    result: Reliability, *, after: Reliability | None = None, ax: Any = None
) -> Any:
    """How confident the predictions are, and how many of them are right: shares of rows by bin.

    `after` adds the outline of the same after calibration.
    """
    ax = axes_of(ax)
    share = result.counts / result.counts.sum()
    right = share * np.where(result.counts > 0, result.accuracy, 0.0)
    left, width = result.edges[:-1], np.diff(result.edges)
    ax.bar(left, right, width, align="edge", color=SKY, linewidth=0, label="right")
    ax.bar(
        left, share - right, width, bottom=right, align="edge", facecolor="none",
        edgecolor=VERMILION, hatch="////", linewidth=0, label="wrong",
    )  # fmt: skip
    ax.stairs(share, result.edges, color=BLUE, linewidth=1.2, label="before" if after else None)
    if after is not None:
        later = after.counts / after.counts.sum()
        ax.stairs(later, after.edges, color=VERMILION, linewidth=1.4, linestyle=(0, (4, 2)),
                  label="after calibration")  # fmt: skip
    mean = float((share * np.where(result.counts > 0, result.confidence, 0.0)).sum())
    accuracy = float(right.sum())
    for x, dashes, name in ((accuracy, (1, 1.5), "accuracy"), (mean, (4, 3), "mean confidence")):
        ax.axvline(x, color=MUTED, linewidth=1.2, dashes=dashes, label=f"{name} {100 * x:.1f} %")
    ax.set_xlim(0, 1)
    ax.set_xlabel("confidence")
    ax.set_ylabel("share of rows")
    ax.set_title("How sure the predictions are")
    legend_above(ax)
    percent_ticks(ax.xaxis)
    percent_ticks(ax.yaxis)
    return ax


@styled
def plot_risk_coverage(result: RiskCoverage, *, ax: Any = None) -> Any:
    """The error among the most confident rows, for each share of them."""
    ax = axes_of(ax)
    points = np.linspace(0, result.coverage.size - 1, min(result.coverage.size, 400)).astype(int)
    ax.plot(result.coverage[points], result.risk[points], color=BLUE, label="by confidence")
    ax.axhline(
        result.risk[-1], color=MUTED, linewidth=1, dashes=(4, 3), label="all rows, or at random"
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(1.3 * float(result.risk.max()), 1e-3))
    ax.set_xlabel("coverage: rows kept, the most confident first")
    ax.set_ylabel("risk: error among them")
    ax.set_title(f"Error among the surest rows: AURC {result.aurc:.4g}")
    ax.legend(loc="upper left")
    percent_ticks(ax.xaxis)
    percent_ticks(ax.yaxis)
    return ax


@styled
def plot_temperature(result: TemperatureFit, *, ax: Any = None) -> Any:
    """The nll over temperature with its minimum and interval; the fit has `curve=True`."""
    if not result.curve:
        raise ValueError("plot needs a fit with fit_temperature(..., curve=True)")
    from matplotlib.ticker import LogLocator, NullLocator

    ax = axes_of(ax)
    t, nll = np.array(result.curve).T
    ax.plot(t, nll, color=BLUE)
    low, high = (min(max(edge, t[0]), t[-1]) for edge in result.interval)
    ax.axvspan(low, high, color=VERMILION, alpha=0.18, linewidth=0, label="95 % interval")
    if 0.0 < result.temperature < math.inf:
        label = f"best, T = {result.temperature:.4g}"
        ax.plot(result.temperature, result.nll, "D", color=VERMILION, markersize=5, label=label)
    if t[0] <= 1.0 <= t[-1]:
        ax.axvline(1.0, color=MUTED, linewidth=1, dashes=(4, 3))
        ax.plot(1.0, result.nll_before, "o", color=BLUE, label="as given, T = 1")
    ax.set_xscale("log")
    ax.set_xlim(t[0], t[-1])
    ratio = t[-1] / t[0]
    ticks = (1.0, 1.5, 2.0, 3.0, 5.0) if ratio < 12 else (1.0, 2.0, 5.0) if ratio < 500 else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=ticks))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("temperature")
    ax.set_ylabel("nll, nats a row")
    ax.set_title("How likely the labels are at each temperature")
    legend_above(ax, 1)
    top, bottom = float(np.max(nll)), float(np.min(nll))
    if top > bottom:
        ax.set_ylim(bottom - 0.06 * (top - bottom), top + 0.3 * (top - bottom))
    return ax


@styled
def plot_decomposition(result: Decomposition, *, ax: Any = None) -> Any:
    """A proper score as one bar of two parts, refinement and calibration."""
    ax = axes_of(ax, 4.4, 1.8)
    ax.barh([0], [result.refinement], color=BLUE, label="refinement")
    ax.barh(
        [0], [result.calibration], left=[result.refinement], color=VERMILION, hatch="///",
        edgecolor="white", label=f"calibration: what T = {result.temperature:.3g} gains",
    )  # fmt: skip
    ax.set_yticks([])
    ax.set_ylim(-0.6, 0.6)
    ax.set_xlabel(f"{result.score}, mean of the rows")
    ax.grid(False, axis="y")
    ax.set_title(f"What the {result.score} consists of")
    legend_above(ax)
    return ax


@styled
def plot_selection(result: Selection, *, ax: Any = None) -> Any:
    """Each candidate's nll above the best, with its standard error."""
    ax = axes_of(ax)
    for place, one in enumerate(result.candidates):
        chosen = one.method == result.chosen
        ax.errorbar(
            one.excess,
            place,
            xerr=one.excess_error,
            fmt="D" if chosen else "o",
            color=VERMILION if chosen else BLUE,
        )
    ax.set_yticks(range(len(result.candidates)), [c.method for c in result.candidates])
    ax.invert_yaxis()
    ax.axvline(0, color=MUTED, linewidth=1, zorder=0)
    ax.set_xlabel("nll above the best, with its standard error")
    ax.set_title(f"Cross-validation chooses {result.chosen}")
    return ax


@styled
def plot_conformal(result: ConformalEvaluation, *, ax: Any = None) -> Any:
    """How many rows have prediction sets of which size."""
    ax = axes_of(ax)
    largest = int(np.flatnonzero(result.sizes).max(initial=1))
    ax.bar(np.arange(largest + 1), result.sizes[: largest + 1] / result.rows, color=BLUE)
    ax.axvline(
        result.mean_size, color=VERMILION, linestyle="--", label=f"mean {result.mean_size:.3g}"
    )
    percent_ticks(ax.yaxis)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel("classes in a set")
    ax.set_ylabel("share of rows")
    ax.set_title(f"{result.coverage:.1%} of the sets hold the label")
    ax.grid(False, axis="x")
    legend_above(ax)
    return ax


@styled
def plot_abstention(result: Abstention, *, ax: Any = None) -> Any:
    """The share handed to a person against the error among accepted predictions."""
    ax = axes_of(ax)
    ax.plot(result.errors, result.handed, "o-", color=BLUE, markersize=4, label="on these rows")
    sure = f"with a guarantee of {1 - result.level:.0%}"
    ax.plot(result.errors, result.guaranteed, "D--", color=VERMILION, markersize=4, label=sure)
    if result.error_of_all > 0.0:
        said = f"all accepted: {100 * result.error_of_all:.3g} %"
        ax.axvline(result.error_of_all, color=MUTED, linewidth=1, dashes=(4, 3), label=said)
    ax.set_xscale("log")
    ax.minorticks_off()
    shown = [t for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3) if t >= 0.9 * result.errors.min()]
    ax.set_xticks(shown, [f"{100 * t:g} %" for t in shown])
    ax.set_ylim(-0.02, 1.05)
    percent_ticks(ax.yaxis)
    ax.set_xlabel("error among accepted predictions")
    ax.set_ylabel("share handed to a person")
    ax.set_title("What is handed to a person")
    legend_above(ax)
    return ax


@styled
def plot_groups(result: GroupCalibration, *, ax: Any = None) -> Any:
    """What is said and what is right in each group; filled marks are not calibrated."""
    groups = result.groups
    ax = axes_of(ax, 4.4, 0.28 * len(groups) + 1.0)
    for place, one in enumerate(groups):
        right, (low, high) = one.accuracy.value, one.accuracy.interval
        said = one.confidence
        wrong = one.adjusted <= result.level
        ax.plot([right, said], [place, place], color=MUTED, linewidth=2.5, alpha=0.4)
        ax.plot([low, high], [place, place], color=BLUE, linewidth=1)
        ax.plot(right, place, "o", color=BLUE, markersize=5, label="" if place else "is right")
        fill = VERMILION if wrong else "none"
        ax.plot(
            said, place, "D", color=VERMILION, markerfacecolor=fill, label="" if place else "says"
        )
    ax.set_yticks(range(len(groups)), [one.name for one in groups])
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.set_xlabel("confidence (filled: not calibrated), share right (95 %)")
    ax.grid(False, axis="y")
    ax.set_title("Calibration by group")
    legend_above(ax)
    percent_ticks(ax.xaxis)
    return ax


@styled
def plot_labels(result: MultilabelCalibration, *, ax: Any = None) -> Any:
    """The reliability of all labels together: how often "yes" is right at each probability."""
    ax = plot_reliability(result.reliability, ax=ax)
    ax.set_ylabel('share of "yes"')
    ax.child_axes[0].set_xlabel('probability of "yes"')
    ax.set_title(
        f"{len(result.labels)} labels together: ECE {100 * result.reliability.ece:.2f} %, "
        f"{len(result.found)} not calibrated"
    )
    legend_above(ax)
    return ax


@styled
def plot_comparison(result: Comparison, *, ax: Any = None) -> Any:
    """The paired differences b - a, with their 95 % intervals."""
    names = ("nll", "brier", "accuracy", "ece")
    ax = axes_of(ax, 4.4, 2.2)
    for place, name in enumerate(names):
        change = getattr(result, name)
        low, high = change.interval
        sure = not low <= 0.0 <= high
        ax.errorbar(
            change.value, place, xerr=[[change.value - low], [high - change.value]],
            fmt="D" if sure else "o", color=VERMILION if sure else BLUE, markersize=5,
        )  # fmt: skip
    ax.axvline(0.0, color=MUTED, linewidth=1, dashes=(4, 3))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("b - a (95 %): lower is better but for accuracy")
    ax.set_title("Two models on the same rows")
    ax.grid(False, axis="y")
    return ax
