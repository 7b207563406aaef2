"""Intervals of a temperature that was fitted to rows with weights or soft labels.

The likelihood takes a row of weight 2 for two rows, and a soft label for one that was drawn: its
curvature is not the certainty of the fit. The variance of the gradient, from the rows themselves,
is. The log-likelihood is multiplied by the ratio of both, so that its curvature is right, and the
profile interval is that of the adjusted likelihood.

Reference: Pace, Salvan and Sartori, Adjusting composite likelihood ratio statistics, 2011.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration.estimate import NORMAL
from hotmax.calibration.examples import Examples
from hotmax.calibration.label_noise import rows_of_equal_weight
from hotmax.calibration.search import fit_examples
from hotmax.calibration.temperature_fit import TemperatureFit


def effective_rows(weights: np.ndarray) -> float:
    return rows_of_equal_weight(float(weights.sum()), float((weights * weights).sum()))


def robust_intervals(fit: TemperatureFit, sample: Examples, rows: float) -> TemperatureFit:
    """The fit with intervals that hold for weights and soft labels.

    `sample` holds the fitting rows, or some of them; all of them are as certain as `rows` rows.
    """
    weights = np.ascontiguousarray(sample.weight_of_rows(), np.float64)
    share = rows / effective_rows(weights)  # above 1 if the sample is not all
    scale = float(weights.sum()) / float((weights * weights).sum())
    error = math.inf
    if 0.0 < fit.temperature < math.inf and fit.diagnosis is None:
        gradient, curvature = squares_at(sample, weights, 1.0 / fit.temperature)
        if gradient > 0.0 and curvature > 0.0:
            scale = curvature / gradient
            error = math.sqrt(gradient / share) / curvature
    factor = math.exp(min(NORMAL * error, 700.0))
    by_information = (fit.temperature / factor, fit.temperature * factor)
    if share > 1.0 + 1e-9 and math.isfinite(error):
        return replace(fit, interval=by_information, interval_by_information=by_information)
    again = fit_examples(replace(sample, weights=weights * scale))
    if not math.isfinite(error):
        by_information = again.interval_by_information
    return replace(fit, interval=again.interval, interval_by_information=by_information)


def squares_at(sample: Examples, weights: np.ndarray, inverse: float) -> tuple[float, float]:
    """(sum of squared gradients of rows, sum of curvatures), by log (1 / T)."""
    labels, soft, _ = sample.labels_of(0, sample.rows)
    block = sample.block(0, sample.rows)
    gaps, terms = np.empty(sample.rows), np.empty((kernels.MOMENTS, sample.rows))
    kernels.survey(block, labels, soft, weights, gaps)
    kernels.moments(block, gaps, weights, inverse, terms)
    gradient = float((terms[kernels.GRADIENT] ** 2).sum()) * sample.rows / max(sample.rows - 1, 1)
    return gradient, float(terms[kernels.CURVATURE].sum())


def scaled_weights(sample: Examples) -> Examples:
    """Weights that are whole numbers as they are, so many rows each; others with a mean of 1.

    Penalties are set against the sum of weights, which is then the number of rows.
    """
    weights = sample.weight_of_rows()
    if (weights == np.rint(weights)).all():
        return sample
    return replace(sample, weights=weights / weights.mean())
