"""How often the verdict finds fault with calibrated models whose rows have weights or soft labels.

The targets of a row have its probabilities p as their mean: a label that is drawn, the shares of
three annotators, a draw from the Dirichlet distribution around p, or p itself. Weights are random
and independent of the targets, but for "by class", which come with targets of another mean: the
weighted labels have the probabilities p.
"""

from __future__ import annotations

import numpy as np

from hotmax.calibration.binning import BINS, FINE_BINS
from hotmax.calibration.chance import calibration_test
from hotmax.calibration.examples import read
from hotmax.calibration.method_score import MethodScore, method_score, union_of_cells
from hotmax.calibration.robust_fit import effective_rows, robust_intervals
from hotmax.calibration.score_sums import Method, ScoreMethods
from hotmax.calibration.search import fit_examples
from hotmax.calibration.temperature_fit import TemperatureFit
from hotmax.calibration.verdict import NOT_FOUND, verdict_of
from hotmax.calibration.weighted_sums import WeightedSums, Weighting
from simulation.models import logits_of, probabilities_of

CLASSES, ROWS = (2, 10), (100, 1000)
CASES = {  # name: weights, targets
    "weights 1": ("1", "labels"),
    "weights exponential": ("exponential", "labels"),
    "weights 0 or 1": ("0 or 1", "labels"),
    "weights lognormal": ("lognormal", "labels"),
    "weights of classes": ("by class", "labels"),
    "Dirichlet around p": (None, "dirichlet"),
    "shares of 3 annotators": (None, "annotators"),
    "1 to 9 annotators": (None, "1 to 9"),
    "p itself": (None, "p"),
    "3 annotators, weights exponential": ("exponential", "annotators"),
}
CONCENTRATION = 8.0  # of the Dirichlet distribution
# Where few rows are wrong, and weights depend on labels, the variance is hardly known: no bar.
ONLY_ORDINARY = ("weights of classes",)
KINDS = ("ordinary", "one logit + 9")
POPULATION = 100_000  # rows
COVERED = ("accuracy", "nll", "brier", "ece", "temperature")


def drawn_shares(p: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The shares of labels that so many annotators draw from p."""
    return rng.multinomial(counts, p) / counts[:, None]


def targets_of(kind: str, z: np.ndarray, p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if kind == "labels":
        return (np.log(p) + rng.gumbel(size=p.shape)).argmax(1)
    if kind == "annotators":
        return drawn_shares(p, np.full(len(p), 3), rng)
    if kind == "1 to 9":
        return drawn_shares(p, rng.integers(1, 10, len(p)), rng)
    if kind == "dirichlet":
        g = rng.standard_gamma(np.maximum(CONCENTRATION * p, 1e-3))
        return g / g.sum(1, keepdims=True)
    return p


def rows_of(
    case: str, kind: str, classes: int, rows: int, rng: np.random.Generator, temperature: float
):
    """(logits, targets, weights) of a model whose right temperature this is."""
    weights, targets = CASES[case]
    z = logits_of(kind, rows, classes, rng)
    p = probabilities_of(z, temperature)
    if weights == "by class":
        # Labels are drawn with the odds p / w, so that weighted by w they have p.
        w = np.where(np.arange(classes) == 0, 1.0, 4.0)
        p = p / w
        labels = targets_of("labels", z, p / p.sum(1, keepdims=True), rng)
        return z, labels, w[labels]
    w = None
    if weights == "1":
        w = np.ones(rows)
    elif weights == "exponential":
        w = rng.exponential(size=rows)
    elif weights == "lognormal":
        w = np.exp(1.5 * rng.normal(size=rows))
    elif weights == "0 or 1":
        w = (rng.random(rows) < 0.5).astype(float)
    return z, targets_of(targets, z, p, rng), w


def verdict_share(
    case: str, kind: str, classes: int, rows: int, sets: int, seed: int, temperature: float = 1.0
) -> float:
    """The share of sets in which fault is found, by the functions that the report calls."""
    rng = np.random.default_rng(seed)
    job = ScoreMethods((Method("none", 1.0),), None, WeightedSums)
    found = 0
    for number in range(sets):
        z, targets, w = rows_of(case, kind, classes, rows, rng, temperature)
        sums = job(read(z, targets, sample_weight=w))
        cells = sums.cells[0].values()
        dispersion = sums.residuals[0].dispersion(
            union_of_cells(cells, sums.edges, BINS), soft=targets.ndim == 2, weighted=w is not None
        )
        fine = union_of_cells(cells, sums.edges, FINE_BINS)
        test = calibration_test(fine, np.random.default_rng(number), dispersion=dispersion)
        found += verdict_of(test) != NOT_FOUND
    return found / sets


def coverage_share(case: str, rows: int, sets: int, seed: int) -> dict[str, float]:
    """How often intervals hold what a large population has: of an overconfident model."""
    truth = scores_in(case, POPULATION, np.random.default_rng(99))
    rng, held = np.random.default_rng(seed), dict.fromkeys(COVERED, 0)
    temperature = fit_in(case, POPULATION, np.random.default_rng(98)).temperature
    for _ in range(sets):
        found = scores_in(case, rows, rng)
        fit = fit_in(case, rows, rng)
        for name in ("accuracy", "nll", "brier", "ece"):
            low, high = getattr(found, name).interval
            held[name] += low <= getattr(truth, name).value <= high
        low, high = fit.interval
        held["temperature"] += low <= temperature <= high
    return {name: count / sets for name, count in held.items()}


def scores_in(case: str, rows: int, rng: np.random.Generator) -> MethodScore:
    z, targets, w = rows_of(case, "ordinary", 5, rows, rng, 1.5)
    sums = ScoreMethods((Method("none", 1.0),), None, WeightedSums)(
        read(z, targets, sample_weight=w)
    )
    weighting = Weighting(w is not None, targets.ndim == 2)
    return method_score("none", 0, sums, 0, np.random.default_rng(rows), weighting)


def fit_in(case: str, rows: int, rng: np.random.Generator) -> TemperatureFit:
    z, targets, w = rows_of(case, "ordinary", 5, rows, rng, 1.5)
    examples = read(z, targets, sample_weight=w)
    effective = effective_rows(examples.weight_of_rows())
    return robust_intervals(fit_examples(examples), examples, effective)
