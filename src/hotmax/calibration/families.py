"""The family of calibration maps: one table, one optimiser.

A map takes logits to probabilities. Those that are affine in the logits,

    softmax(W z + b),  W = I + diag(v) + M,  z = log softmax(x / T), centred in each row,

differ in which of v, M and b are free, and in what each costs. The optimum is that of a convex
problem, by L-BFGS; the penalties shrink towards plain temperature scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import log_softmax, softmax
from hotmax.calibration.binning import bin_sums, mass_edges, width_edges
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.scores import row_probabilities
from hotmax.calibration.temperature import fit_examples

Parameters = dict[str, Any]
PRIOR = (
    30.0  # rows of a histogram's bin: 1 does harm up to 400 rows of five classes, 30 hardly at 20
)
SMALLEST_POSITIVE = 5e-324  # of float64: a probability that has underflowed counts as this
LOWEST = -1e300  # for the logarithm of a probability that has underflowed


@dataclass(frozen=True)
class Family:
    """How a map is fitted and applied. `size` is how many numbers it has, to rank simplicity."""

    fit: Callable[[Examples, float, int], Parameters]  # examples, penalty, bins
    apply: Callable[[Array, Parameters], Array]  # logits (float64), parameters -> probabilities
    size: Callable[[int, int], int]  # classes, bins
    two_classes: bool = False


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


# --- temperature, and nothing at all ----------------------------------------------------------


def fit_identity(examples: Examples, penalty: float, bins: int) -> Parameters:
    return {}


def apply_identity(x: Array, parameters: Parameters) -> Array:
    p: Array = softmax(x)
    return p


def fit_one_temperature(examples: Examples, penalty: float, bins: int) -> Parameters:
    return {"temperature": fit_examples(examples).temperature}


def apply_temperature(x: Array, parameters: Parameters) -> Array:
    p: Array = softmax(x, temperature=parameters["temperature"])
    return p


# --- affine in the logits ---------------------------------------------------------------------


def centred(x: Array, temperature: float) -> tuple[Array, Array]:
    """(z, present): log-probabilities less their mean over the classes that are there; else 0."""
    present = x > -np.inf
    logs = log_softmax(x, temperature=temperature)
    z = np.where(present, np.maximum(logs, LOWEST), 0.0)
    z -= z.sum(1, keepdims=True) / present.sum(1, keepdims=True)
    return np.where(present, z, 0.0), present


def positive(temperature: float) -> float:
    """A temperature to start from, where the fitted one is a limit."""
    return temperature if 0.0 < temperature < np.inf else 1.0


def affine(
    diagonal: float | None, off_diagonal: float | None, bias: float | None, tempered: bool
) -> Callable[[Examples, float, int], Parameters]:
    """A fit of the parts that have a price: the price of a square, times the number of its kind.

    The prices of Berta et al., Structured matrix scaling, 2026: k for diagonal and bias, k (k - 1)
    for the rest, over the number of rows. `tempered`: the logits are
    first divided by the fitted temperature.
    """

    def fit(examples: Examples, penalty: float, bins: int) -> Parameters:
        examples = used(examples)
        k = examples.classes
        x = logits_of(examples)
        temperature = positive(fit_examples(examples).temperature) if tempered else 1.0
        z, present = centred(x, temperature)
        q = label_matrix(examples)
        w = examples.weight_of_rows() / examples.weight_of_rows().sum()
        total = float(examples.weight_of_rows().sum())
        prices = {"diagonal": diagonal, "off_diagonal": off_diagonal, "bias": bias}
        shapes = {"diagonal": k, "off_diagonal": k * k, "bias": k}
        kinds = {"diagonal": k, "off_diagonal": k * (k - 1), "bias": k}
        free = [name for name in prices if prices[name] is not None]
        cost = np.concatenate(
            [np.full(shapes[n], (prices[n] or 0.0) * penalty * kinds[n] / total) for n in free]
        )

        def parts(theta: Array) -> Parameters:
            found: Parameters = {"temperature": temperature}
            at = 0
            for name in free:
                value = theta[at : at + shapes[name]]
                found[name] = value.reshape(k, k) if name == "off_diagonal" else value
                at += shapes[name]
            return found

        def objective(theta: Array) -> tuple[float, Array]:
            now = parts(theta)
            scores = affine_scores(z, present, now)
            logs = log_softmax(scores)
            value = -float(np.einsum("n,nk,nk", w, q, np.where(q > 0, logs, 0.0)))
            slope = (np.exp(logs) - q) * w[:, None]
            slopes = []
            if diagonal is not None:
                slopes.append((slope * z).sum(0))
            if off_diagonal is not None:
                full = slope.T @ z
                np.fill_diagonal(full, 0.0)
                slopes.append(full.reshape(-1))
            if bias is not None:
                slopes.append(slope.sum(0))
            value += float(cost @ theta**2)
            return value, np.concatenate(slopes) + 2.0 * cost * theta

        done = scipy_minimize(
            objective,
            np.zeros(cost.size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-13, "gtol": 1e-7, "maxcor": 20},
        )
        return parts(done.x)

    return fit


def affine_scores(z: Array, present: Array, parameters: Parameters) -> Array:
    scores = z * (1.0 + parameters.get("diagonal", 0.0)) + parameters.get("bias", 0.0)
    if "off_diagonal" in parameters:
        scores = scores + z @ np.asarray(parameters["off_diagonal"]).T
    return np.where(present, scores, -np.inf)


def apply_affine(x: Array, parameters: Parameters) -> Array:
    z, present = centred(x, parameters["temperature"])
    p: Array = softmax(affine_scores(z, present, parameters))
    return p


# --- a mixture --------------------------------------------------------------------------------


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


def fit_ensemble(examples: Examples, penalty: float, bins: int) -> Parameters:
    """The weights by expectation-maximisation: each step makes the labels likelier."""
    examples = used(examples)
    temperature = fit_examples(examples).temperature
    q, w = label_matrix(examples), examples.weight_of_rows()
    rows, labels = np.nonzero(q)
    weight = (q * w[:, None])[rows, labels]
    parts = mixture_parts(logits_of(examples), temperature)[:, rows, labels]
    share = np.array([0.9, 0.05, 0.05])
    for _ in range(2000):
        # `penalty` rows in favour of the temperature.
        counts = share * (parts @ (weight / (share @ parts))) + [penalty, 0.0, 0.0]
        new = counts / counts.sum()
        if np.abs(new - share).max() < 1e-10:
            break
        share = new
    return {"temperature": temperature, "shares": share}


def apply_ensemble(x: Array, parameters: Parameters) -> Array:
    parts = mixture_parts(x, parameters["temperature"])
    p: Array = np.tensordot(np.asarray(parameters["shares"]), parts, 1)
    return p


# --- one class against the rest ---------------------------------------------------------------


def normalised(p: Array, present: Array) -> Array:
    p = np.where(present, p, 0.0)
    total = p.sum(1, keepdims=True)
    even = present / present.sum(1, keepdims=True)
    return np.where(total > 0, p / np.where(total > 0, total, 1.0), even)


def fit_isotonic(examples: Examples, penalty: float, bins: int) -> Parameters:
    """A rising step for each class, kept off 0 and 1 by the rule of succession."""
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError:
        raise ImportError(
            'isotonic calibration needs scikit-learn: pip install "hotmax[calibration]"'
        ) from None
    examples = used(examples)
    p, q = row_probabilities(examples, 1.0, 0, examples.rows), label_matrix(examples)
    w = examples.weight_of_rows()
    least = penalty / (w.sum() + 2 * penalty)
    knots, values = [], []
    for c in range(examples.classes):
        steps = IsotonicRegression(out_of_bounds="clip").fit(p[:, c], q[:, c], sample_weight=w)
        knots.append(steps.X_thresholds_)
        values.append(np.clip(steps.y_thresholds_, least, 1 - least))
    return {"knots": knots, "values": values}


def apply_isotonic(x: Array, parameters: Parameters) -> Array:
    p, present = softmax(x), x > -np.inf
    pairs = zip(parameters["knots"], parameters["values"], strict=True)
    columns = [np.interp(p[:, c], *pair) for c, pair in enumerate(pairs)]
    return normalised(np.stack(columns, axis=1), present)


def between(values: Array, w: Array, bins: int) -> Array:
    """Edges of equal weight, moved midway to the next value, so that rounding moves no row."""
    edges, ordered = mass_edges(values, w, bins), np.unique(values)
    above = ordered[np.minimum(np.searchsorted(ordered, edges, side="right"), ordered.size - 1)]
    return np.where((edges > 0) & (edges < 1), (edges + np.maximum(above, edges)) / 2, edges)


def fit_histogram(examples: Examples, penalty: float, bins: int) -> Parameters:
    """The frequency in bins; `penalty` times 30 rows of a bin's own mean probability go into each.

    Bins of equal weight tell apart the many small probabilities, and bins of equal width the few
    large ones, which decide: their edges are used together.
    """
    examples = used(examples)
    p, q = row_probabilities(examples, 1.0, 0, examples.rows), label_matrix(examples)
    w = np.ascontiguousarray(examples.weight_of_rows())
    edges, values = [], []
    for c in range(examples.classes):
        column, hits = np.ascontiguousarray(p[:, c]), np.ascontiguousarray(q[:, c])
        edge = np.unique(np.concatenate([width_edges(bins), between(column, w, bins)]))
        sums = bin_sums(column, hits, w, edge)
        weight = sums[:, 0]
        own = np.where(weight > 0, sums[:, 1], (edge[1:] + edge[:-1]) / 2)
        own /= np.where(weight > 0, weight, 1.0)
        more = max(PRIOR * penalty, 1e-9)
        edges.append(edge)
        values.append((sums[:, 2] + more * own) / (weight + more))
    return {"edges": edges, "values": values}


def apply_histogram(x: Array, parameters: Parameters) -> Array:
    p, present = softmax(x), x > -np.inf
    pairs = zip(parameters["edges"], parameters["values"], strict=True)
    columns = [
        np.asarray(values)[np.searchsorted(np.asarray(edges)[1:-1], p[:, c], side="left")]
        for c, (edges, values) in enumerate(pairs)
    ]
    return normalised(np.stack(columns, axis=1), present)


# --- two classes ------------------------------------------------------------------------------


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


FAMILIES = {
    "identity": Family(fit_identity, apply_identity, lambda k, bins: 0),
    "temperature": Family(fit_one_temperature, apply_temperature, lambda k, bins: 1),
    "platt": Family(fit_platt, apply_platt, lambda k, bins: 2, two_classes=True),
    "beta": Family(fit_beta, apply_beta, lambda k, bins: 3, two_classes=True),
    "ensemble": Family(fit_ensemble, apply_ensemble, lambda k, bins: 3),
    "vector": Family(affine(1.0, None, 1.0, True), apply_affine, lambda k, bins: 2 * k),
    "histogram": Family(fit_histogram, apply_histogram, lambda k, bins: k * bins),
    "matrix": Family(affine(1.0, 1.0, 1.0, True), apply_affine, lambda k, bins: k * k + k),
    "dirichlet": Family(affine(1.0, 1.0, 1.0, False), apply_affine, lambda k, bins: k * k + k),
    # As many steps as the data ask for: the least simple of all.
    "isotonic": Family(fit_isotonic, apply_isotonic, lambda k, bins: 10**9),
}
