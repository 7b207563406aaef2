"""Losses of rows by calibrators that were fitted to the other folds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.blas_threads import one_thread_each
from hotmax.calibration.binning import BINS
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.family import Family
from hotmax.calibration.mixture import logits_of
from hotmax.calibration.structured import Choice, StructuredFit

SMALLEST_POSITIVE = 5e-324  # of float64: a probability that has underflowed counts as this

# Up to how many classes a method is compared by default.
MOST_COMPARED_CLASSES = {
    "matrix": 100,
    "dirichlet": 100,
    "histogram": 30,
    "isotonic": 30,
    "spline": 200,
}


def suitable(families: Mapping[str, Family], classes: int) -> list[str]:
    """All methods, but for those that the classes are too few or too many for."""
    return [
        method
        for method, family in families.items()
        if (classes == 2 or not family.two_classes)
        and (classes <= MOST_COMPARED_CLASSES.get(method, classes))
    ]


def folds_at_random(rows: int, folds: int, seed: int) -> Array:
    fold: Array = np.random.default_rng(seed).permutation(np.arange(rows) % folds)
    return fold


def chosen_penalties(
    families: Mapping[str, Family], examples: Examples, penalty: float
) -> dict[str, Choice]:
    """The penalties of structured scaling, chosen on all rows: each fold is fitted with them."""
    return {
        method: family.fit.choose(examples, penalty)
        for method, family in families.items()
        if isinstance(family.fit, StructuredFit)
    }


def row_losses(
    family: Family, train: Examples, test: Examples, choice: Choice | None, penalty: float
) -> Array:
    """The losses of the rows of `test` by a fit to `train`, with penalties chosen beforehand."""
    if choice is not None and isinstance(family.fit, StructuredFit):
        parameters = family.fit.fit_chosen(train, penalty, choice)
    else:
        parameters = family.fit(train, penalty, BINS)
    p = family.apply(logits_of(test), parameters)
    losses: Array = -(label_matrix(test) * np.log(np.maximum(p, SMALLEST_POSITIVE))).sum(1)
    return losses


@one_thread_each()
def cross_validated(
    families: Mapping[str, Family],
    examples: Examples,
    fold: Array,
    choices: Mapping[str, Choice],
    penalty: float = 1.0,
) -> dict[str, Array]:
    """For each method, the losses of all rows, each by a fit to the other folds."""
    losses = {method: np.empty(examples.rows) for method in families}
    for number in range(int(fold.max()) + 1):
        held = np.flatnonzero(fold == number)
        train, test = examples.taking(np.flatnonzero(fold != number)), examples.taking(held)
        for method, family in families.items():
            losses[method][held] = row_losses(family, train, test, choices.get(method), penalty)
    return losses
