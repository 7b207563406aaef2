"""Guarantees of acceptance, false finds among groups, coverage of differences and of sets."""

from __future__ import annotations

from functools import cache

import numpy as np

import hotmax as hm
from hotmax.calibration import conformal

POPULATION = 200_000
METRICS = ("nll", "brier", "accuracy", "ece")


def draw(rows: int, rng: np.random.Generator, temperature: float = 1.5, classes: int = 4):
    z = 3 * rng.normal(size=(rows, classes))
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


def broken_share(rows: int, error: float, sets: int, seed: int) -> float:
    """How often the error of what is accepted exceeds the target, in the population."""
    z, y = draw(POPULATION, np.random.default_rng(99))
    confidence = hm.softmax(z).max(1)
    order = np.argsort(-confidence)
    risk = np.cumsum((z.argmax(1) != y)[order]) / np.arange(1, POPULATION + 1)
    rng, broken = np.random.default_rng(seed), 0
    for _ in range(sets):
        rule = hm.calibration.acceptance(*draw(rows, rng), error=error)
        kept = int((confidence > rule.threshold).sum())
        broken += kept > 0 and risk[kept - 1] > error
    return broken / sets


def found_share(groups: int, rows: int, sets: int, seed: int) -> float:
    """How often one of some calibrated groups is found not to be."""
    rng, found = np.random.default_rng(seed), 0
    for number in range(sets):
        z, y = draw(groups * rows, rng, 1.0)
        names = np.arange(groups * rows) % groups
        found += bool(hm.calibration.by_group(z, y, names, seed=number).found)
    return found / sets


def pair(kind: str, rows: int, rng: np.random.Generator):
    z, y = draw(rows, rng)
    if kind == "noise":
        return z, z + rng.normal(size=z.shape), y
    return z, z / (1.5 if kind == "temperature" else 1.05), y


@cache
def true_change(kind: str):
    return hm.calibration.compare(*pair(kind, POPULATION, np.random.default_rng(99)))


def compared_share(kind: str, rows: int, sets: int, seed: int) -> dict[str, float]:
    """How often intervals of paired differences hold the difference of the population."""
    true, rng = true_change(kind), np.random.default_rng(seed)
    held = dict.fromkeys(METRICS, 0)
    for _ in range(sets):
        result = hm.calibration.compare(*pair(kind, rows, rng))
        for name in METRICS:
            low, high = getattr(result, name).interval
            held[name] += low <= getattr(true, name).value <= high
    return {name: count / sets for name, count in held.items()}


def set_share(sets: int, seed: int, **options: object) -> tuple[float, float, float]:
    """(mean coverage over resamples, its standard error, mean size): 500 rows fit, 500 judge."""
    z, y = draw(20_000, np.random.default_rng(98))
    rng, held, sizes = np.random.default_rng(seed), [], []
    for _ in range(sets):
        at = rng.permutation(20_000)[:1000]
        fitted = conformal.fit(z[at[:500]], y[at[:500]], **options)
        result = fitted.evaluate(z[at[500:]], y[at[500:]])
        held.append(result.coverage)
        sizes.append(result.mean_size)
    return float(np.mean(held)), float(np.std(held) / sets**0.5), float(np.mean(sizes))
