"""Metrics of labelled predictions: calibration errors, proper scores, selective prediction.

Each takes logits (or probabilities, if `input` says so) and targets, or a Source of both, and
gives a float; with `interval=True` an Estimate, with an interval. Up to 1,048,576 rows are looked
at one by one; of more, sums over cells of confidence are kept, as `evaluate` does: smooth ECE is
right to some four digits, and so are KS and AURC unless confidences crowd into few cells of 1/4096.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import (
    BINNINGS,
    CONFIDENCE,
    CORRECT,
    FINE_BINS,
    WEIGHT,
    bin_sums,
    check_bins,
    edges_of,
    mass_edges,
    means,
    width_edges,
)
from hotmax.calibration.error_interval import binned_interval, smooth_interval
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.exact_sums import CellSums
from hotmax.calibration.examples import label_matrix
from hotmax.calibration.ranks import Ranked, groups_aurc, groups_ks
from hotmax.calibration.request import MetricOptions, Request, average, request
from hotmax.calibration.row_sums import BRIER, NLL, RowSums, add_class_sums
from hotmax.calibration.scores import edge_type, row_probabilities, score
from hotmax.calibration.smooth import smooth_error

NORMS = ("l1", "l2", "max")


# --- proper scores ----------------------------------------------------------------------------


def nll(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The mean negative log-likelihood, in nats: mean of -log softmax(x / T)[label].

    Args:
        logits: (rows, classes), or any shape with the classes last; a Dask array or frame; or a
            Source (`hotmax.io.source`).
        targets: Labels, the class of each row, as numbers, text or categories; or the probabilities
            of its classes. A Source brings its own.
        **options: sample_weight, class_names, ignore_index, where, input, temperature, interval,
            seed: see `MetricOptions`.

    Returns:
        A float, or an Estimate with `interval=True`. inf if a label has probability 0.

    Example:
        >>> import hotmax as hm
        >>> round(hm.calibration.nll([[2.0, 0.0], [0.0, 1.0]], [0, 0]), 6)
        0.720095
    """
    asked = request(logits, targets, options)
    if asked.large:
        return asked.mean(NLL)
    rows = asked.scores()
    return asked.answer(lambda weights: average(rows.nll, weights), rows.weights)


def brier(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The Brier score: mean over rows of the sum over classes of (p - y)**2, from 0 to 2.

    Args:
        logits, targets, **options: As in `nll`.

    Example:
        >>> import hotmax as hm
        >>> hm.calibration.brier([[0.5, 0.5], [1.0, 0.0]], [0, 0], input="probabilities")
        0.25
    """
    asked = request(logits, targets, options)
    if asked.large:
        return asked.mean(BRIER, 2.0)
    rows = asked.scores()
    return asked.answer(lambda weights: average(rows.brier, weights), rows.weights, 0.0, 2.0)


def accuracy(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The share of rows whose largest probability, the first of several, is the label's.

    Args:
        logits, targets, **options: As in `nll`. With probabilities, that of this class.

    Example:
        >>> import hotmax as hm
        >>> hm.calibration.accuracy([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        0.5
    """
    asked = request(logits, targets, options)
    if asked.large:
        return asked.from_cells(share_right, 1.0)
    rows = asked.scores()
    return asked.answer(lambda weights: average(rows.correct, weights), rows.weights, 0.0, 1.0)


def share_right(sums: Array) -> float:
    return float(sums[:, CORRECT].sum() / sums[:, WEIGHT].sum())


# --- calibration errors -----------------------------------------------------------------------


def binned_error(sums: Array, norm: str, debiased: bool) -> float:
    """The calibration error from the sums of bins; the mean over classes if they have them."""
    share, confidence, hits = means(sums)
    gap = np.where(share > 0, np.abs(confidence - hits), 0.0)
    if norm == "max":
        return float(gap.max())
    if norm == "l1":
        return float((share * gap).sum(-1).mean())
    squares = gap**2
    if debiased:  # what the noise of the accuracy in each bin adds, on average
        rows = sums[..., WEIGHT]
        with np.errstate(divide="ignore", invalid="ignore"):
            noise = np.where(rows > 1, hits * (1 - hits) / (rows - 1), 0.0)
        squares = np.where(share > 0, squares - noise, 0.0)
    return math.sqrt(max(float((share * squares).sum(-1).mean()), 0.0))


def ece(
    logits: object,
    targets: object = None,
    *,
    bins: int = 15,
    binning: str = "width",
    norm: str = "l1",
    classwise: bool = False,
    debiased: bool = False,
    **options: Unpack[MetricOptions],
) -> float | Estimate:
    """The expected calibration error: sum over bins of share * |accuracy - confidence|.

    Bins are closed on the right, with 0 in the first and 1 in the last.

    Args:
        logits, targets, **options: As in `nll`.
        bins: The number of bins.
        binning: "width" for bins of equal width, "mass" for bins of equal weight.
        norm: "l1"; "l2", the root of the mean square; or "max", the largest over bins.
        classwise: The mean over classes of the error of each class's probability, instead of the
            error of the largest one.
        debiased: Take off the squares what noise adds to them on average; for norm="l2". A weight
            of 2 counts as two rows there.

    Returns:
        A float from 0 to 1, or an Estimate with `interval=True`: the interval contains the estimate
        and, in 95 of 100 samples at least, the true error; it begins at 0 where that may be the
        true error. That of the class-wise error is by the bootstrap.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(hm.calibration.ece(p, [0, 1, 1], bins=2, input="probabilities"), 6)
        0.133333

    Reference:
        Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian
        binning, 2015. Kumar, Liang and Ma, Verified uncertainty calibration, 2019.
    """
    bins = check_bins(bins)
    if norm not in NORMS:
        raise ValueError(f'norm must be "l1", "l2" or "max", got {norm!r}')
    if debiased and norm != "l2":
        raise ValueError(f'debiased is for norm="l2", whose bias is known, got norm={norm!r}')
    asked = request(logits, targets, options)
    if classwise:
        return classwise_ece(asked, bins, binning, norm, debiased)
    if asked.large:
        if binning not in BINNINGS:
            raise ValueError(f'binning must be "width" or "mass", got {binning!r}')
        edges = width_edges(bins) if binning == "width" else None
        cells = asked.sums().cells.values()
        sums = cells_in_bins(cells[cells[:, WEIGHT] > 0], bins, edges)
    else:
        rows = asked.scores()
        edges = edges_of(rows.confidence, rows.weights, bins, binning, rows.dtype)
        sums = bin_sums(rows.confidence, rows.correct, rows.weights, edges)
    value = binned_error(sums, norm, debiased)
    if not asked.interval:
        return value
    return binned_interval(sums, value, norm, np.random.default_rng(asked.seed))


def cells_in_bins(cells: Array, bins: int, edges: Array | None) -> Array:
    """The sums of bins from those of cells: by edges, or where these are None of equal weight."""
    position = cells[:, CONFIDENCE] / cells[:, WEIGHT]
    edges = mass_edges(position, cells[:, WEIGHT], bins) if edges is None else edges
    number = np.searchsorted(edges[1:-1], position, side="left")
    sums = np.zeros((edges.size - 1, cells.shape[1]))
    np.add.at(sums, number, cells)
    return sums


def binned(sums: RowSums, cells: Array) -> Array:
    """The sums of the bins of equal width, which are unions of cells."""
    starts = np.searchsorted(sums.edges, width_edges(sums.bins)[:-1])
    bins: Array = np.add.reduceat(cells, starts, axis=0)
    return bins


def classwise_ece(
    asked: Request, bins: int, binning: str, norm: str, debiased: bool
) -> float | Estimate:
    if binning == "width" and not asked.interval:
        return binned_error(asked.sums(bins, classwise=True).class_sums(), norm, debiased)
    edges_of(np.zeros(1), np.ones(1), bins, binning, np.float64)  # is `binning` one?
    examples = asked.in_memory("a class-wise error with an interval, or with bins of equal mass,")
    score(examples, asked.temperature)  # which finds rows that hold nan
    if binning == "width":
        inner = width_edges(bins, edge_type(examples, asked.temperature))[1:-1]

        def statistic(weights: Array) -> float:
            sums = CellSums(examples.classes * bins, (1, 1, 1))
            add_class_sums(sums, examples, asked.temperature, weights, inner)
            return binned_error(sums.values().reshape(-1, bins, 3), norm, debiased)

        return asked.answer(statistic, examples.weights, 0.0, 1.0)
    p = row_probabilities(examples, asked.temperature, 0, examples.rows)
    q = label_matrix(examples)
    columns = [np.ascontiguousarray(p[:, c]) for c in range(examples.classes)]
    hits = [np.ascontiguousarray(q[:, c]) for c in range(examples.classes)]
    edges = [mass_edges(column, examples.weights, bins) for column in columns]

    def by_mass(weights: Array) -> float:
        errors = [
            binned_error(bin_sums(column, hit, weights, edge), norm, debiased)
            for column, hit, edge in zip(columns, hits, edges, strict=True)
        ]
        if norm == "max":
            return max(errors)
        power = 2 if norm == "l2" else 1
        return float(np.mean(np.power(errors, power)) ** (1 / power))

    return asked.answer(by_mass, examples.weights, 0.0, 1.0)


def smooth_ece(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The smooth calibration error: without bins, by a Gaussian kernel reflected at 0 and 1.

    Integral over 0..1 of |sum of share * K(t, confidence) * (correct - confidence)|, with the
    bandwidth of K equal to the error itself.

    Args:
        logits, targets, **options: As in `nll`.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(hm.calibration.smooth_ece(p, [0, 1, 1], input="probabilities"), 4)
        0.142

    Reference:
        Blasiok and Nakkiran, Smooth ECE: principled reliability diagrams via kernel smoothing,
        2023.
    """
    asked = request(logits, targets, options)
    if asked.large:
        cells = asked.sums().cells.values()
        cells = cells[cells[:, WEIGHT] > 0]
        position = cells[:, CONFIDENCE] / cells[:, WEIGHT]
        residual = (cells[:, CORRECT] - cells[:, CONFIDENCE]) / cells[:, WEIGHT].sum()
    else:
        rows = asked.scores()
        cells = bin_sums(rows.confidence, rows.correct, rows.weights, width_edges(FINE_BINS))
        position = rows.confidence
        weight = np.broadcast_to(rows.weights, position.shape)
        residual = np.where(weight > 0, weight * (rows.correct - position), 0.0) / weight.sum()
    value, width = smooth_error(position, residual)
    if not asked.interval:
        return value
    if asked.large:
        cells = cells_in_bins(cells, FINE_BINS, width_edges(FINE_BINS))
    return smooth_interval(cells, value, width, np.random.default_rng(asked.seed))


def ks(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The Kolmogorov-Smirnov error: max over t of |mean of (correct - confidence) [conf <= t]|.

    Without bins: the largest gap between the cumulative sums of confidence and of correctness.

    Args:
        logits, targets, **options: As in `nll`.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(hm.calibration.ks(p, [0, 1, 1], input="probabilities"), 6)
        0.166667

    Reference:
        Gupta et al., Calibration of neural networks using splines, 2021.
    """
    asked = request(logits, targets, options)
    if asked.large:
        return asked.from_cells(groups_ks, 1.0)
    rows = asked.scores()
    return asked.answer(Ranked(rows).ks, rows.weights, 0.0, 1.0)


# --- by rank of confidence --------------------------------------------------------------------


def aurc(
    logits: object, targets: object = None, **options: Unpack[MetricOptions]
) -> float | Estimate:
    """The area under the risk-coverage curve: the mean, over coverages, of the error among the most
    confident rows.

    Rows of one confidence stand in any order: the mean over all orders is taken.

    Args:
        logits, targets, **options: As in `nll`.

    Example:
        >>> import hotmax as hm
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(hm.calibration.aurc(p, [0, 1, 1], input="probabilities"), 6)
        0.277778

    Reference:
        Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation, 2019.
    """
    asked = request(logits, targets, options)
    if asked.large:
        return asked.from_cells(groups_aurc, 1.0)
    rows = asked.scores()
    return asked.answer(Ranked(rows).aurc, rows.weights, 0.0, 1.0)
