"""The families of calibration maps: one table of how each is fitted and applied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import softmax
from hotmax.calibration.binning import bin_sums, mass_edges, width_edges
from hotmax.calibration.cross_validation import SMALLEST_POSITIVE as SMALLEST_POSITIVE
from hotmax.calibration.designs import (
    CLASS_TEMPERATURE,
    DIRICHLET,
    MATRIX,
    QUADRATIC,
    SOFTPLUS,
    SPLINE,
    VECTOR,
    Design,
)
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.family import Family as Family, Parameters as Parameters
from hotmax.calibration.mixture import (
    fit_mixture,
    logits_of,
    mixture_parts,
    steady_temperature,
    used,
)
from hotmax.calibration.scores import row_probabilities
from hotmax.calibration.stacking import STACKED, StackedFit, apply_stacked
from hotmax.calibration.structured import StructuredFit, apply_structured, folds_of
from hotmax.calibration.temperature import fit_examples
from hotmax.calibration.temperature_fit import is_limit
from hotmax.calibration.two_classes import apply_beta, apply_platt, fit_beta, fit_platt
from hotmax.calibration.venn_abers import apply_venn_abers, fit_venn_abers

PRIOR = (
    30.0  # rows of a histogram's bin: 1 does harm up to 400 rows of five classes, 30 hardly at 20
)


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


# --- a mixture --------------------------------------------------------------------------------


def fit_ensemble(examples: Examples, penalty: float, bins: int) -> Parameters:
    examples = used(examples)
    temperature = fit_examples(examples).temperature
    if is_limit(temperature):  # of few rows, on which T = 0 would be sure and sometimes wrong
        temperature = steady_temperature(examples)
    temperature, shares = fit_mixture(examples, temperature, penalty, True)
    return {"temperature": temperature, "shares": shares}


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


# --- a guard against harm ---------------------------------------------------------------------


def mixed_with_temperature(
    fit: Callable[[Examples, float, int], Parameters], apply: Callable[[Array, Parameters], Array]
) -> Callable[[Examples, float, int], Parameters]:
    """A fit whose map is mixed with a temperature, in shares that rows outside each fold choose.

    Steps of one class against the rest are far worse than nothing where classes are many and
    rows of each few: their share is then small.
    """

    def fit_both(examples: Examples, penalty: float, bins: int) -> Parameters:
        examples = used(examples)
        temperature = steady_temperature(examples)
        x, q = logits_of(examples), label_matrix(examples)
        plain = softmax(x, temperature=temperature)
        fold = folds_of(x, 2)
        p = plain.copy()
        for number in range(2):
            held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            if held.size and rest.size:
                p[held] = apply(x[held], fit(examples.taking(rest), penalty, bins))
        weight = q * examples.weight_of_rows()[:, None]
        own, other, weight = p[q > 0], plain[q > 0], weight[q > 0]
        share = 0.5
        for _ in range(500):  # expectation-maximisation, with one row in favour of the temperature
            ratio = share * own / np.maximum(share * own + (1 - share) * other, SMALLEST_POSITIVE)
            new = float(weight @ ratio) / (float(weight.sum()) + 1.0)
            if abs(new - share) < 1e-9:
                break
            share = new
        found = fit(examples, penalty, bins)
        return {**found, "temperature": temperature, "shares": np.array([share, 1.0 - share])}

    return fit_both


def apply_guarded(
    apply: Callable[[Array, Parameters], Array],
) -> Callable[[Array, Parameters], Array]:
    def apply_both(x: Array, parameters: Parameters) -> Array:
        p = apply(x, parameters)
        if "shares" not in parameters:  # from a file of version 1
            return p
        share, rest = parameters["shares"]
        mixed: Array = share * p + rest * softmax(x, temperature=parameters["temperature"])
        return mixed

    return apply_both


def structured(design: Design, size: Callable[[int], int]) -> Family:
    return Family(StructuredFit(design), apply_structured(design), lambda k, bins: size(k))


PARTS = {
    "identity": Family(fit_identity, apply_identity, lambda k, bins: 0),
    "temperature": Family(fit_one_temperature, apply_temperature, lambda k, bins: 1),
    "platt": Family(fit_platt, apply_platt, lambda k, bins: 2, two_classes=True),
    "beta": Family(fit_beta, apply_beta, lambda k, bins: 3, two_classes=True),
    "ensemble": Family(fit_ensemble, apply_ensemble, lambda k, bins: 3),
    "class_temperature": structured(CLASS_TEMPERATURE, lambda k: k + 2),
    "softplus": structured(SOFTPLUS, lambda k: k + 4),
    "spline": structured(SPLINE, lambda k: k + 7),
    "vector": structured(VECTOR, lambda k: 2 * k + 2),
    "quadratic": structured(QUADRATIC, lambda k: 3 * k + 2),
    "histogram": Family(
        mixed_with_temperature(fit_histogram, apply_histogram),
        apply_guarded(apply_histogram),
        lambda k, bins: k * bins,
    ),
    "matrix": structured(MATRIX, lambda k: k * k + k + 2),
    "dirichlet": structured(DIRICHLET, lambda k: k * k + k + 2),
    # As many steps as the data ask for: the least simple of all.
    "venn_abers": Family(fit_venn_abers, apply_venn_abers, lambda k, bins: 10**9, two_classes=True),
    "isotonic": Family(
        mixed_with_temperature(fit_isotonic, apply_isotonic),
        apply_guarded(apply_isotonic),
        lambda k, bins: 10**9,
    ),
}
# Mixed of all others, after which it comes in every order.
FAMILIES = {
    **PARTS,
    STACKED: Family(StackedFit(PARTS), apply_stacked(PARTS), lambda k, bins: 10**10),
}
