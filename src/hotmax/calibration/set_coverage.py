"""Coverage of prediction sets: of all rows, and by confidence, by size and by class."""

from __future__ import annotations

import html
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.reliability import wilson

CONFIDENCES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)  # ends of ranges
SIZES = (0, 1, 2, 3, 6, 11, 21, 51, 101, 501)  # the first of each range
MOST_SHOWN = 10  # classes


@dataclass(frozen=True)
class CoverageGroup:
    """Some rows: how many, and the share whose set holds the label, with its Wilson interval."""

    name: str
    rows: int
    coverage: Estimate


class SetCounts:
    """How many sets there are, and hold the label: by size, by range of confidence, by class."""

    def __init__(self, classes: int) -> None:
        self.sizes = np.zeros((2, classes + 1), np.int64)  # rows, and those that hold the label
        self.confidences = np.zeros((2, len(CONFIDENCES) - 1), np.int64)
        self.classes = np.zeros((2, classes), np.int64)

    @property
    def rows(self) -> int:
        return int(self.sizes[0].sum())

    def add(self, inside: Array, labels: Array, confidence: Array) -> None:
        held = inside[np.arange(labels.size), labels]
        ranges = np.clip(np.searchsorted(CONFIDENCES, confidence, "right") - 1, 0, None)
        ranges = np.minimum(ranges, len(CONFIDENCES) - 2)
        for counts, groups in (
            (self.sizes, inside.sum(1)), (self.confidences, ranges), (self.classes, labels),
        ):  # fmt: skip
            counts[0] += np.bincount(groups, minlength=counts.shape[1])
            counts[1] += np.bincount(groups[held], minlength=counts.shape[1])

    def merge(self, other: SetCounts) -> SetCounts:
        self.sizes += other.sizes
        self.confidences += other.confidences
        self.classes += other.classes
        return self


@dataclass(frozen=True, eq=False)
class ConformalEvaluation:
    """Coverage and size of prediction sets on rows that were not used for the fit.

    Attributes:
        promised: The coverage asked for.
        coverage: The share of rows whose set holds the label.
        mean_size: The mean number of classes in a set.
        sizes: sizes[k] rows have a set of k classes.
        rows: The number of rows.
        by_confidence, by_size, by_class: The coverage of groups of rows, with 95 % intervals. A
            class is that of the label.
    """

    promised: float
    coverage: float
    mean_size: float
    sizes: Array
    rows: int
    by_confidence: tuple[CoverageGroup, ...] = ()
    by_size: tuple[CoverageGroup, ...] = ()
    by_class: tuple[CoverageGroup, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the coverage."""
        low, high = wilson(np.array([self.coverage * self.rows]), np.array([self.rows]))
        return float(low[0]), float(high[0])

    def __str__(self) -> str:
        return (
            f"coverage {self.coverage:.2%} of {self.rows} rows (promised {self.promised:.2%}), "
            f"{self.mean_size:.3g} classes on average"
        )

    def table(self) -> str:
        """The coverage by confidence, by size and by class: of many, the least covered ones."""
        worst = sorted(self.by_class, key=lambda group: group.coverage.interval[1])[:MOST_SHOWN]
        lines = [f"{'':<24}{'rows':>9}  {'covered':>8}  95 %"]
        for title, groups in (
            ("confidence", self.by_confidence), ("size", self.by_size), ("class", worst),
        ):  # fmt: skip
            for one in groups:
                low, high = one.coverage.interval
                lines.append(
                    f"{title + ' ' + one.name:<24}{one.rows:>9}  {one.coverage.value:>8.2%}  "
                    f"{low:.2%} to {high:.2%}"
                )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}\n{html.escape(self.table())}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw how many rows have sets of which size on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_conformal

        return plot_conformal(self, ax=ax)


def evaluation_of(counts: SetCounts, promised: float) -> ConformalEvaluation:
    sizes, rows = counts.sizes, counts.rows
    starts = [start for start in SIZES if start < sizes.shape[1]]
    ends = [*(start - 1 for start in starts[1:]), sizes.shape[1] - 1]
    ranges = [
        f"{low}" if low == high else f"{low} to {high}"
        for low, high in zip(starts, ends, strict=True)
    ]
    sides = itertools.pairwise(CONFIDENCES)
    between = [f"{100 * low:g} to {100 * high:g} %" for low, high in sides]
    return ConformalEvaluation(
        promised=promised,
        coverage=float(sizes[1].sum()) / rows,
        mean_size=float(sizes[0] @ np.arange(sizes.shape[1])) / rows,
        sizes=sizes[0],
        rows=rows,
        by_confidence=groups_of(between, counts.confidences),
        by_size=groups_of(ranges, np.add.reduceat(sizes, starts, axis=1)),
        by_class=groups_of(list(map(str, range(counts.classes.shape[1]))), counts.classes),
    )


def groups_of(names: list[str], counts: Array) -> tuple[CoverageGroup, ...]:
    """Those of the groups that have rows."""
    with np.errstate(invalid="ignore"):
        share = counts[1] / counts[0]
    low, high = wilson(counts[1].astype(float), counts[0].astype(float))
    return tuple(
        CoverageGroup(
            names[k], int(counts[0, k]), Estimate(float(share[k]), (float(low[k]), float(high[k])))
        )
        for k in np.flatnonzero(counts[0])
    )
