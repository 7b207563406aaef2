"""Reliability: how often predictions of a given confidence are right."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import (
    BINNINGS,
    CONFIDENCE,
    CORRECT,
    SQUARES,
    WEIGHT,
    bin_sums,
    check_bins,
    edges_of,
    mass_edges,
    means,
    width_edges,
)
from hotmax.calibration.estimate import NORMAL
from hotmax.calibration.metrics import binned, binned_error, cells_in_bins
from hotmax.calibration.ranks import Ranked, groups_aurc, groups_risk
from hotmax.calibration.request import MetricOptions, Request, request
from hotmax.calibration.row_sums import RowSums
from hotmax.calibration.smooth import smooth_curve, smooth_error

POINTS = 256  # of the smooth curve


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence and accuracy, bin by bin and as a smooth curve.

    Attributes:
        edges: Of the bins, closed on the right: bin b holds edges[b] < confidence <= edges[b + 1].
        counts: The weight in each bin: the number of its rows, if they have no weights.
        confidence: The mean confidence in each bin; nan in an empty one.
        accuracy: The share of right predictions in each bin; nan in an empty one.
        low, high: The 95 % Wilson interval of that share. Rows of unequal weight count as so many
            equal ones: (sum of weights)**2 / sum of squared weights.
        curve: (3, points): confidence, smoothed accuracy, density of confidence.
        ece: The expected calibration error of these bins.
        smooth_ece: The smooth one; also the bandwidth of the curve, but for 0.02 to 0.05.
    """

    edges: Array
    counts: Array
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    curve: Array
    ece: float
    smooth_ece: float

    def __str__(self) -> str:
        lines = [f"{'confidence':>15}  {'share':>6}  {'mean':>6}  {'right':>6}  {'95 %':>15}"]
        share = self.counts / self.counts.sum()
        for b in range(self.counts.size):
            if self.counts[b] == 0:
                continue
            bar = "#" * round(20 * float(self.accuracy[b]))
            lines.append(
                f"{self.edges[b]:6.4f} - {self.edges[b + 1]:6.4f}  {share[b]:6.1%}  "
                f"{self.confidence[b]:6.4f}  {self.accuracy[b]:6.4f}  "
                f"{self.low[b]:6.4f} - {self.high[b]:6.4f}  {bar}"
            )
        lines.append(f"ECE {self.ece:.4%}, smooth ECE {self.smooth_ece:.4%}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{name}</th>" for name in ("confidence", "share", "mean", "right", "95 %")
        )
        share = self.counts / self.counts.sum()
        body = "".join(
            f"<tr><td>{self.edges[b]:.4f} - {self.edges[b + 1]:.4f}</td><td>{share[b]:.1%}</td>"
            f"<td>{self.confidence[b]:.4f}</td><td>{self.accuracy[b]:.4f}</td>"
            f"<td>{self.low[b]:.4f} - {self.high[b]:.4f}</td></tr>"
            for b in range(self.counts.size)
            if self.counts[b]
        )
        last = html.escape(f"ECE {self.ece:.4%}, smooth ECE {self.smooth_ece:.4%}")
        return f"{self._picture()}<table><tr>{head}</tr>{body}</table><p>{last}</p>"

    def _picture(self) -> str:
        """The diagram as an element of a page; nothing without matplotlib."""
        try:
            from hotmax.plots import inline_picture

            return inline_picture(self.plot, "reliability diagram")
        except ImportError:
            return ""

    def plot(self, ax: Any = None) -> Any:
        """Draw the reliability diagram, as `hm.plots.plot_reliability`; returns the Axes."""
        from hotmax.plots import plot_reliability

        return plot_reliability(self, ax=ax)


def wilson(hits: Array, rows: Array) -> tuple[Array, Array]:
    """The 95 % Wilson interval of a share; it stays within 0..1 and works at 0 and 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / rows
        square = NORMAL**2 / rows
        middle = (share + square / 2) / (1 + square)
        width = NORMAL * np.sqrt(share * (1 - share) / rows + square / rows / 4) / (1 + square)
    return np.clip(middle - width, 0, 1), np.clip(middle + width, 0, 1)


def reliability_of(
    edges: Array, sums: Array, positions: Array, weights: Array, correct: Array
) -> Reliability:
    """From the sums of the bins; and for the curve from positions, weights and weighted hits."""
    _, confidence, accuracy = means(sums)
    total = weights.sum()
    error, width = smooth_error(positions, (correct - weights * positions) / total)
    shown = min(max(width, 0.02), 0.05)  # wider, it would blur the picture; narrower, shiver
    with np.errstate(invalid="ignore"):
        rows = sums[:, WEIGHT] ** 2 / sums[:, SQUARES]
    low, high = wilson(accuracy * rows, rows)
    return Reliability(
        edges=edges,
        counts=sums[:, WEIGHT],
        confidence=confidence,
        accuracy=accuracy,
        low=low,
        high=high,
        curve=np.array(smooth_curve(positions, weights, correct, shown, POINTS)),
        ece=binned_error(sums, "l1", False),
        smooth_ece=error,
    )


def reliability(
    logits: object,
    targets: object = None,
    *,
    bins: int = 15,
    binning: str = "width",
    **options: Unpack[MetricOptions],
) -> Reliability:
    """How often predictions of a given confidence are right: accuracy against confidence.

    Args:
        logits, targets, **options: As in `nll`, without interval and seed.
        bins, binning: As in `ece`.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> hm.calibration.reliability(p, [0, 1, 1], bins=2, input="probabilities").accuracy
        array([       nan, 0.66666667])

    Reference:
        Niculescu-Mizil and Caruana, Predicting good probabilities with supervised learning, 2005.
    """
    bins = check_bins(bins)
    asked = request(logits, targets, options)
    if asked.interval:
        raise ValueError("reliability has its intervals already: leave interval out")
    if asked.large:
        return large_reliability(asked, bins, binning)
    rows = asked.scores()
    edges = edges_of(rows.confidence, rows.weights, bins, binning, rows.dtype)
    weights = np.broadcast_to(rows.weights, rows.confidence.shape)
    sums = bin_sums(rows.confidence, rows.correct, rows.weights, edges)
    return reliability_of(edges, sums, rows.confidence, weights, weights * rows.correct)


def large_reliability(asked: Request, bins: int, binning: str) -> Reliability:
    """From cells of confidence; the edges of bins of equal weight are those of cells."""
    if binning not in BINNINGS:
        raise ValueError(f'binning must be "width" or "mass", got {binning!r}')
    sums = asked.sums(bins)
    cells = sums.cells.values()
    if binning == "width":
        return diagram_of(sums, cells)
    full = cells[cells[:, WEIGHT] > 0]
    positions = full[:, CONFIDENCE] / full[:, WEIGHT]
    edges = mass_edges(positions, full[:, WEIGHT], bins)
    inside = cells_in_bins(full, bins, edges)
    return reliability_of(edges, inside, positions, full[:, WEIGHT], full[:, CORRECT])


def diagram_of(sums: RowSums, cells: Array) -> Reliability:
    """The diagram of bins of equal width, which are unions of cells."""
    full = cells[cells[:, WEIGHT] > 0]
    positions = full[:, CONFIDENCE] / full[:, WEIGHT]
    edges = width_edges(sums.bins)
    bins = binned(sums, cells)
    return reliability_of(edges, bins, positions, full[:, WEIGHT], full[:, CORRECT])


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error among the most confident rows, for each share of them.

    Attributes:
        coverage: Shares of the rows, rising to 1.
        risk: The error among that share of rows.
        aurc: The area under the curve.
    """

    coverage: Array
    risk: Array
    aurc: float

    def __str__(self) -> str:
        lines = ["coverage    risk"]
        for aim in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0):
            at = min(int(np.searchsorted(self.coverage, aim)), self.risk.size - 1)
            lines.append(f"{self.coverage[at]:8.1%}  {self.risk[at]:6.2%}")
        lines.append(f"AURC {self.aurc:.6g}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_risk_coverage

        return plot_risk_coverage(self, ax=ax)


def risk_coverage(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> RiskCoverage:
    """The risk-coverage curve: the error among the most confident rows, for each share of them.

    Args:
        logits, targets, **options: As in `nll`, without interval and seed.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> hm.calibration.risk_coverage(p, [0, 1, 1], input="probabilities").risk.round(4)
        array([0.    , 0.5   , 0.3333])
    """
    asked = request(logits, targets, options)
    if asked.large:
        sums = asked.sums().cells.values()
        sums = sums[sums[:, WEIGHT] > 0]
    else:
        rows = asked.scores()
        sums = Ranked(rows).sums(rows.weights)
    return RiskCoverage(*groups_risk(sums), groups_aurc(sums))
