"""What all metrics are made of: sums over rows, in one pass, that merge to the last bit.

Confidence, correctness and weight are summed in cells of confidence, so narrow that KS, AURC and
smooth ECE, which want every row by itself, come out to some four digits if rows are spread over
them. Bins are unions of cells, and exact. Losses are summed for means and standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels
from hotmax.calibration.binning import CELL_POWERS, SQUARES, WEIGHT, add_to_cells, width_edges
from hotmax.calibration.exact_sums import CellSums, ExactSums, as_float
from hotmax.calibration.examples import Examples
from hotmax.calibration.row_parts import Split
from hotmax.calibration.scores import row_probabilities, score

CELLS = 4096  # of equal width in 0..1
OCTAVE = 8  # further cells for each halving of 1 - confidence, down to the last float64 below 1

# Sums of losses l of rows of weight w: w l, w**2 l, (w l)**2.
NLL, BRIER, LOSSES = 0, 3, 6
LABELS, PREDICTIONS = 0, 1  # fields of the sums of classes


def cell_edges(bins: int) -> Array:
    """Those of the bins, of CELLS equal cells, and of ever narrower ones towards 1."""
    finest = 1.0 - 2.0 ** -(np.arange(1, 41 * OCTAVE + 1) / OCTAVE + math.log2(CELLS))
    return np.unique(np.concatenate([width_edges(bins), width_edges(CELLS), finest]))


class RowSums:
    """The sums of some rows."""

    def __init__(self, bins: int, classes: int, classwise: bool) -> None:
        self.bins = bins
        self.edges = cell_edges(bins)
        self.cells = CellSums(self.edges.size - 1, CELL_POWERS)
        self.losses = ExactSums(LOSSES)
        self.classes = CellSums(classes, (1, 1))
        self.class_bins = CellSums(classes * bins, (1, 1, 1)) if classwise else None

    def merge(self, other: RowSums) -> RowSums:
        self.cells.merge(other.cells)
        self.losses.merge(other.losses)
        self.classes.merge(other.classes)
        if self.class_bins is not None and other.class_bins is not None:
            self.class_bins.merge(other.class_bins)
        return self

    def add(self, examples: Examples, temperature: float) -> RowSums:
        """Add rows at a temperature."""
        rows = score(examples, temperature)
        weights = examples.weight_of_rows()
        # Cells end on the numbers of the confidences' own type, and so do the bins made of them.
        edges = self.edges.astype(rows.dtype).astype(np.float64)
        add_to_cells(self.cells, rows.confidence, rows.correct, rows.weights, edges)
        terms = np.zeros((LOSSES, examples.rows))
        there = weights > 0
        for first, losses in ((NLL, rows.nll), (BRIER, rows.brier)):
            with np.errstate(over="ignore", invalid="ignore"):
                weighted = np.where(there, weights * losses, 0.0)
                terms[first], terms[first + 1] = weighted, weights * weighted
                terms[first + 2] = weighted * weighted
        self.losses.add(terms)
        self._add_classes(examples, rows.predictions)
        if self.class_bins is not None:
            inner = width_edges(self.bins, rows.dtype)[1:-1]
            add_class_sums(self.class_bins, examples, temperature, examples.weights, inner)
        return self

    def _add_classes(self, examples: Examples, predictions: Array) -> None:
        sums, weights = self.classes, np.ascontiguousarray(examples.weight_of_rows())
        sums.prepare(weights)
        units = sums.units(1)
        if examples.labels.size:
            kernels.add_labels(examples.labels, weights, units, sums.digits, LABELS)
        else:
            numbers = np.tile(np.arange(examples.classes), examples.rows)
            amounts = (weights[:, None] * examples.soft).reshape(-1)
            kernels.add_labels(numbers, amounts, units, sums.digits, LABELS)
        kernels.add_labels(predictions, weights, units, sums.digits, PREDICTIONS)

    @property
    def weight(self) -> float:
        return float(self.cells.values()[:, WEIGHT].sum())

    def class_sums(self) -> Array:
        """(classes, bins, 3): weight, probability and label of each class."""
        assert self.class_bins is not None
        return self.class_bins.values().reshape(-1, self.bins, 3)

    def mean_loss(self, first: int) -> tuple[float, float]:
        """The mean of a loss, and its standard error: of rows as they came, whatever their weight.

        The error is the root of the sum of (w (l - mean))**2, multiplied out in exact arithmetic.
        """
        cells = self.cells.values()
        sums = [self.losses.fraction(first + k) for k in range(3)]
        if sums[0] is None:
            return self.losses.value(first), math.nan
        weight = Fraction(float(cells[:, WEIGHT].sum()))
        mean = sums[0] / weight
        if sums[1] is None or sums[2] is None:
            return as_float(mean), math.inf
        squares = Fraction(float(cells[:, SQUARES].sum()))
        variance = sums[2] - 2 * mean * sums[1] + mean * mean * squares
        return as_float(mean), math.sqrt(max(as_float(variance / weight / weight), 0.0))


def add_class_sums(
    sums: CellSums, examples: Examples, temperature: float, weights: Array, inner: Array
) -> None:
    """Add the rows to the sums of bins of each class's probability; threads take classes."""
    p = row_probabilities(examples, temperature, 0, examples.rows)
    labels, soft, _ = examples.labels_of(0, examples.rows)
    sums.prepare(weights)
    units = sums.units(1)

    def work(start: int, stop: int) -> None:
        kernels.add_class_cells(p, labels, soft, weights, inner, units, sums.digits, start, stop)

    threads.for_ranges(work, examples.classes, -(-examples.classes // 4))


@dataclass(frozen=True)
class RowSumsAt:
    """The job that sums all rows, or those of a split, at a temperature."""

    temperature: float
    bins: int
    classwise: bool
    split: Split | None = None

    def __call__(self, examples: Examples) -> RowSums:
        return self.add(RowSums(self.bins, examples.classes, self.classwise), examples)

    def add(self, sums: RowSums, examples: Examples) -> RowSums:
        part = examples if self.split is None else self.split.of(examples)
        return sums.add(part, self.temperature)
