"""Maps for two classes: a line through the log-odds, and beta calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import log_softmax, softmax
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.mixture import logits_of, scipy_minimize, used

Parameters = dict[str, Any]


def logistic(
    features: Array, target: Array, w: Array, start: Array, price: Array, bounds: Any = None
) -> Array:
    """Logistic regression with a price on the square of the way from `start`."""

    def objective(theta: Array) -> tuple[float, Array]:
        score = features @ theta
        value = float(w @ (np.logaddexp(0.0, score) - target * score))
        value += float(price @ (theta - start) ** 2)
        p = 0.5 * (1.0 + np.tanh(0.5 * score))
        return value, features.T @ (w * (p - target)) + 2.0 * price * (theta - start)

    done = scipy_minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-8},
    )
    result: Array = done.x
    return result


def two_class(x: Array) -> tuple[Array, Array]:
    """(log p, log (1 - p)) of the second class."""
    logs = np.maximum(log_softmax(x), -700.0)
    return logs[:, 1], logs[:, 0]


def two_sided(examples: Examples) -> tuple[Array, Array, Array, Array]:
    """log p, log (1 - p), label and weight of the rows in which both classes are there."""
    examples = used(examples)
    x = logits_of(examples)
    both = (x > -np.inf).all(1)
    return *two_class(x[both]), label_matrix(examples)[both, 1], examples.weight_of_rows()[both]


def two_probabilities(x: Array, odds: Array) -> Array:
    """From the log-odds of the second class; a class that is not there stays away."""
    scores = np.stack([np.zeros_like(odds), odds], axis=1)
    p: Array = softmax(np.where(x > -np.inf, scores, -np.inf))
    return p


def fit_platt(examples: Examples, penalty: float, bins: int) -> Parameters:
    """A slope and an intercept for log-odds, with Platt's targets, a little off 0 and 1."""
    yes, no, q, w = two_sided(examples)
    many, few = w @ q, w @ (1 - q)
    if penalty == 0.0 and not (many > 0 and few > 0):
        raise ValueError("platt with penalty=0 needs labels of both classes in rows that have both")
    high, low = (many + penalty) / (many + 2 * penalty), penalty / (few + 2 * penalty)
    target = low + (high - low) * q
    features = np.stack([yes - no, np.ones_like(yes)], axis=1)
    return {"line": logistic(features, target, w, np.array([1.0, 0.0]), np.zeros(2))}


def apply_platt(x: Array, parameters: Parameters) -> Array:
    yes, no = two_class(x)
    slope, intercept = parameters["line"]
    return two_probabilities(x, slope * (yes - no) + intercept)


def fit_beta(examples: Examples, penalty: float, bins: int) -> Parameters:
    """log-odds = a log p - b log (1 - p) + c, with a and b not negative."""
    yes, no, q, w = two_sided(examples)
    features = np.stack([yes, -no, np.ones_like(yes)], axis=1)
    start = np.array([1.0, 1.0, 0.0])
    bounds = [(0.0, None), (0.0, None), (None, None)]
    return {"line": logistic(features, q, w, start, np.full(3, penalty), bounds)}


def apply_beta(x: Array, parameters: Parameters) -> Array:
    yes, no = two_class(x)
    a, b, c = parameters["line"]
    return two_probabilities(x, a * yes - b * no + c)
