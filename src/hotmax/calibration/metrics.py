"""Metrics of labelled predictions: calibration errors, proper scores, selective prediction.

Each takes logits (or probabilities, if `input` says so) and targets, and gives a float; with
`interval=True` an Estimate, with a bootstrap interval.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax._kernels.calibration.binning import add_class_bins
from hotmax.calibration.binning import (
    WEIGHT,
    bin_sums,
    check_bins,
    edges_of,
    mass_edges,
    means,
    width_edges,
)
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.examples import Examples, label_matrix, step_of
from hotmax.calibration.ranks import Ranked
from hotmax.calibration.request import MetricOptions, Request, average, request
from hotmax.calibration.scores import edge_type, row_probabilities, score_bins
from hotmax.calibration.smooth import smooth_error

NORMS = ("l1", "l2", "max")


# --- proper scores ----------------------------------------------------------------------------


def nll(logits: object, targets: object, **options: Unpack[MetricOptions]) -> float | Estimate:
    """The mean negative log-likelihood, in nats: mean of -log softmax(x / T)[label].

    Args:
        logits: (rows, classes), or any shape with the classes last.
        targets: Labels, the class of each row; or the probabilities of its classes.
        **options: sample_weight, ignore_index, where, input, temperature, interval, seed: see
            `MetricOptions`.

    Returns:
        A float, or an Estimate with `interval=True`. inf if a label has probability 0.

    Example:
        >>> import hotmax as hm
        >>> round(hm.calibration.nll([[2.0, 0.0], [0.0, 1.0]], [0, 0]), 6)
        0.720095
    """
    asked = request(logits, targets, options)
    losses = asked.scores().nll
    return asked.answer(lambda weights: average(losses, weights))


def brier(logits: object, targets: object, **options: Unpack[MetricOptions]) -> float | Estimate:
    """The Brier score: mean over rows of the sum over classes of (p - y)**2, from 0 to 2.

    Args:
        logits, targets, **options: As in `nll`.

    Example:
        >>> import hotmax as hm
        >>> hm.calibration.brier([[0.5, 0.5], [1.0, 0.0]], [0, 0], input="probabilities")
        0.25
    """
    asked = request(logits, targets, options)
    losses = asked.scores().brier
    return asked.answer(lambda weights: average(losses, weights), 0.0, 2.0)


def accuracy(logits: object, targets: object, **options: Unpack[MetricOptions]) -> float | Estimate:
    """The share of rows whose largest probability, the first of several, is the label's.

    Args:
        logits, targets, **options: As in `nll`. With probabilities, that of this class.

    Example:
        >>> import hotmax as hm
        >>> hm.calibration.accuracy([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        0.5
    """
    asked = request(logits, targets, options)
    correct = asked.scores().correct
    return asked.answer(lambda weights: average(correct, weights), 0.0, 1.0)


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
    targets: object,
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
        A float from 0 to 1, or an Estimate with `interval=True`.

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
    if binning == "width" and not asked.interval:
        edges = width_edges(bins, edge_type(asked.examples, asked.temperature))
        return binned_error(score_bins(asked.examples, asked.temperature, edges), norm, debiased)
    rows = asked.scores()
    edges = edges_of(rows.confidence, rows.weights, bins, binning, rows.dtype)

    def statistic(weights: Array) -> float:
        return binned_error(bin_sums(rows.confidence, rows.correct, weights, edges), norm, debiased)

    return asked.answer(statistic, 0.0, 1.0)


def classwise_ece(
    asked: Request, bins: int, binning: str, norm: str, debiased: bool
) -> float | Estimate:
    examples = asked.examples
    asked.scores()  # which finds rows that hold nan
    if binning == "width":
        inner = width_edges(bins, edge_type(examples, asked.temperature))[1:-1]

        def statistic(weights: Array) -> float:
            sums = class_sums(examples, asked.temperature, weights, inner)
            return binned_error(sums, norm, debiased)

        return asked.answer(statistic, 0.0, 1.0)

    edges_of(np.zeros(1), np.ones(1), bins, binning, np.float64)  # is `binning` one?
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

    return asked.answer(by_mass, 0.0, 1.0)


def class_sums(examples: Examples, temperature: float, weights: Array, inner: Array) -> Array:
    """(classes, bins, 4): the sums of bins of each class's probability.

    Rows come in order, and threads take classes: each sum has one order.
    """
    sums = np.zeros((examples.classes, inner.size + 1, 4))
    step = 8 * step_of(examples.classes)
    for first in range(0, examples.rows, step):
        last = min(first + step, examples.rows)
        p = row_probabilities(examples, temperature, first, last)
        labels, soft, _ = examples.labels_of(first, last)
        part = weights[first:last] if weights.size > 1 else weights

        def work(
            start: int,
            stop: int,
            p: Array = p,
            labels: Array = labels,
            soft: Array = soft,
            part: Array = part,
        ) -> None:
            add_class_bins(p, labels, soft, part, inner, sums, start, stop)

        threads.for_ranges(work, examples.classes, -(-examples.classes // 4))
    return sums


def smooth_ece(
    logits: object, targets: object, **options: Unpack[MetricOptions]
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
    rows = asked.scores()

    def statistic(weights: Array) -> float:
        weight = np.broadcast_to(weights, rows.confidence.shape)
        residual = np.where(weight > 0, weight * (rows.correct - rows.confidence), 0.0)
        return smooth_error(rows.confidence, residual / weight.sum())[0]

    return asked.answer(statistic, 0.0, 1.0)


def ks(logits: object, targets: object, **options: Unpack[MetricOptions]) -> float | Estimate:
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
    ranked = Ranked(asked.scores())
    return asked.answer(ranked.ks, 0.0, 1.0)


# --- by rank of confidence --------------------------------------------------------------------


def aurc(logits: object, targets: object, **options: Unpack[MetricOptions]) -> float | Estimate:
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
    ranked = Ranked(asked.scores())
    return asked.answer(ranked.aurc, 0.0, 1.0)
