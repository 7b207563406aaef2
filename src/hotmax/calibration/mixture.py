"""A temperature fitted together with the shares of a mixture."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import softmax
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.likelihood import Likelihood
from hotmax.calibration.temperature_prior import fit_with_prior

LOG_T_DEVIATION = 0.5  # the standard deviation of log T: as much as some 12 rows say


def scipy_minimize(*arguments: Any, **options: Any) -> Any:
    try:
        from scipy.optimize import minimize
    except ImportError:
        raise ImportError(
            'this calibrator needs SciPy: pip install "hotmax[calibration]"'
        ) from None
    return minimize(*arguments, **options)


def logits_of(examples: Examples) -> Array:
    return examples.block(0, examples.rows).astype(np.float64)


def used(examples: Examples) -> Examples:
    """Only the rows that have weight."""
    weights = examples.weight_of_rows()
    return examples if (weights > 0).all() else examples.taking(np.flatnonzero(weights > 0))


def steady_temperature(examples: Examples) -> float:
    """A temperature to start from: that with a prior, which few rows do not lead far from 1."""
    return fit_with_prior(Likelihood(examples), LOG_T_DEVIATION).temperature


def mixture_parts(x: Array, temperature: float) -> Array:
    """(3, rows, classes): softmax at the temperature, softmax at 1, uniform."""
    present = x > -np.inf
    return np.stack(
        [
            softmax(x, temperature=temperature),
            softmax(x),
            present / present.sum(1, keepdims=True),
        ]
    )


def fit_mixture(
    examples: Examples,
    temperature: float,
    prior: float,
    identity: bool,
    uniform: float | None = None,
) -> tuple[float, Array]:
    """(T, shares) of softmax(x / T), softmax(x) and the uniform, all fitted together.

    `prior` rows favour the first part, and log T has the prior of `steady_temperature`: few rows
    could otherwise be explained by T = 0 and a share of the uniform.
    `identity`: whether softmax(x) takes part. `uniform`: the share of the uniform, if it is given.
    """
    x, q = logits_of(examples), label_matrix(examples)
    rows, labels = np.nonzero(q)
    weight = (q * examples.weight_of_rows()[:, None])[rows, labels]
    weight, total = weight / weight.sum(), float(weight.sum())
    prior = prior / total
    plain, even = mixture_parts(x, 1.0)[1:, rows, labels]
    # log p and its derivative in 1 / T need differences from the largest logit only.
    x = x - x.max(1, keepdims=True)
    finite = np.where(x > -np.inf, x, 0.0)
    free = [0, 1, 2] if identity else [0, 2]
    free = free if uniform is None else [0]

    def shares_of(theta: Array) -> Array:
        share = np.zeros(3)
        if uniform is not None:
            share[[0, 2]] = 1.0 - uniform, uniform
            return share
        share[free] = softmax(np.append(0.0, theta[1:]))
        return share

    def objective(theta: Array) -> tuple[float, Array]:
        inverse = np.exp(theta[0]) / temperature
        share = shares_of(theta)
        p = softmax(x * inverse)
        own = p[rows, labels]
        mean = (p * finite).sum(1)
        parts = np.stack([own, plain, even])
        mixed = np.maximum(share @ parts, 1e-300)
        each = weight / mixed
        value = -float(weight @ np.log(mixed))
        slope = -float(each @ (share[0] * own * (finite[rows, labels] - mean[rows]))) * inverse
        pull = parts @ each  # of the shares, before they must sum to 1
        by_share = -share * (pull - float(share @ pull))
        # the prior
        away = (theta[0] - np.log(temperature)) / LOG_T_DEVIATION**2
        value += prior * (0.5 * away**2 * LOG_T_DEVIATION**2 - np.log(share[0]))
        slope += prior * away
        by_share = by_share + prior * (share - np.eye(3)[0])
        return value, np.append(slope, by_share[free[1:]])

    count = len(free) - 1
    # T from all rows by itself, or 1, where outliers raise it; with a large or a small share.
    starts = [
        np.append(start, np.full(count, share))
        for start in (0.0, np.log(temperature))
        for share in (-3.0, -8.0)
    ]
    best = scipy_minimize(
        objective,
        min(starts, key=lambda start: objective(start)[0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-6.0, 6.0)] + [(-25.0, 10.0)] * count,
        options={"maxiter": 200, "ftol": 1e-12, "gtol": 1e-7},
    )
    return float(temperature / np.exp(best.x[0])), shares_of(best.x)
