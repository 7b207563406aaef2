"""Confidence against truth. Each result draws itself; here its picture has a name, or company."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._core.pictures import BLUE, MUTED, SKY, VERMILION, axes_of, panels, percent, picture
from hotmax.calibration.reliability import Reliability, RiskCoverage
from hotmax.calibration.temperature_fit import TemperatureFit


def plot_reliability(result: Reliability, *, ax: Any = None) -> Any:
    """The reliability diagram: bars with gaps and whiskers, the smooth curve, rows in each bin."""
    return result.plot(ax)


def plot_temperature(result: TemperatureFit, *, ax: Any = None) -> Any:
    """The nll over temperature with its minimum and interval; the fit has `curve=True`."""
    return result.plot(ax)


def plot_risk_coverage(result: RiskCoverage, *, ax: Any = None) -> Any:
    """The error among the most confident rows, for each share of them."""
    return result.plot(ax)


@picture
def plot_calibration(result: tuple[Reliability, Reliability], *, ax: Any = None) -> Any:
    """Reliability before and after calibration, side by side."""
    ax = axes_of(ax, 8.0, 4.0)
    for panel, one, name in zip(
        panels(ax, (1.0,), 2, gap=0.22), result, ("before", "after"), strict=True
    ):
        one.plot(panel)
        panel.set_title(f"{name}: ECE {100 * one.ece:.2f} %")
    return ax


@picture
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
    ax.legend(loc="upper left")
    percent(ax.xaxis)
    percent(ax.yaxis)
    return ax
