"""The one binning: bins closed on the right, 0 in the first, 1 in the last.

A value lies in bin b if edges[b] < value <= edges[b + 1].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._core.arrays import Array, check_size
from hotmax._core.checks import as_integer
from hotmax._kernels.calibration import exact as kernels
from hotmax.calibration.exact_sums import CellSums
from hotmax.calibration.examples import blocks_of, over_blocks

WEIGHT, CONFIDENCE, CORRECT, ROWS, SQUARES = range(5)  # what is summed in each bin
CELL_POWERS = (1, 1, 1, 0, 2)  # of the weight, in the terms of each of them
BINNINGS = ("width", "mass")
BINS = 15  # where nothing else is asked for
FINE_BINS = 480  # for noise that is drawn cell by cell: a multiple of BINS


def check_bins(bins: object) -> int:
    count = as_integer(bins, "bins", 1)
    check_size((count + 1,), "bins", count)
    return count


def width_edges(bins: int, dtype: Any = np.float64) -> Array:
    """Edges b / bins, as numbers of `dtype`, so that a float32 of 0.2 lies on the edge 0.2."""
    return (np.arange(bins + 1) / bins).astype(dtype).astype(np.float64)


def mass_edges(values: Array, weights: Array, bins: int) -> Array:
    """Edges at quantiles of the values: the same weight in each bin, as far as ties allow."""
    there = np.broadcast_to(weights, values.shape) > 0
    order = np.argsort(values[there], kind="stable")
    ordered = values[there][order]
    cumulative = np.cumsum(np.broadcast_to(weights, values.shape)[there][order])
    aims = np.arange(1, bins) / bins * cumulative[-1]
    # A sum that misses its aim by rounding has reached it.
    at = np.searchsorted(cumulative, aims * (1 - 1e-12))
    inner = np.unique(ordered[at])
    return np.concatenate([[0.0], inner[(inner > 0.0) & (inner < 1.0)], [1.0]])


def edges_of(values: Array, weights: Array, bins: int, binning: str, dtype: Any) -> Array:
    if binning not in BINNINGS:
        raise ValueError(f'binning must be "width" or "mass", got {binning!r}')
    if binning == "width":
        return width_edges(bins, dtype)
    return mass_edges(values, weights, bins)


def add_to_cells(
    cells: CellSums, confidence: Array, correct: Array, weights: Array, edges: Array
) -> None:
    """Add rows to the sums of cells: a weight for each row, or one for all."""
    cells.prepare(weights)
    inner, units = edges[1:-1], cells.units(1)
    if weights.size == 1 and weights[0] == 1.0 and units[0, 0] == 1.0:
        kernels.add_unweighted_cells(confidence, correct, inner, units, cells.digits)
    else:
        kernels.add_cells(confidence, correct, weights, inner, units, cells.units(2), cells.digits)


def bin_sums(confidence: Array, correct: Array, weights: Array, edges: Array) -> Array:
    """(bins, 5): weight, confidence, correctness, rows and squared weight summed in each bin."""
    rows = confidence.size
    sums = [CellSums(edges.size - 1, CELL_POWERS) for _ in range(max(blocks_of(rows, 1), 1))]

    def work(number: int, start: int, stop: int) -> None:
        part = weights[start:stop] if weights.size > 1 else weights
        add_to_cells(sums[number], confidence[start:stop], correct[start:stop], part, edges)

    over_blocks(rows, 1, work)
    return merged_values(sums)


def merged_values(sums: list[CellSums]) -> Array:
    total = sums[0]
    for part in sums[1:]:
        total.merge(part)
    return total.values()


def means(sums: Array) -> tuple[Array, Array, Array]:
    """(share, confidence, accuracy) of each bin; nan for the means of an empty one."""
    weight = sums[..., WEIGHT]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (
            weight / weight.sum(-1, keepdims=True),
            sums[..., CONFIDENCE] / weight,
            sums[..., CORRECT] / weight,
        )
