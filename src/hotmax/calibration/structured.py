"""Structured scaling: softmax of scores linear in free numbers, with prices on their squares.

The scores of a row begin as

    z = log((1 - u) softmax(x / T) + u / k),

where T and the share u of the uniform distribution are fitted first: a probability of nearly 0,
which a text classifier gives to most classes, is then no outlier that decides the fit. What a
method adds to z is linear in its numbers, so that the penalised likelihood is convex: L-BFGS with
the curvature's diagonal as preconditioner finds its minimum. The prices are those of Berta et al.,
Structured matrix scaling, 2026: k for a number of each class, k (k - 1) for those of pairs of
classes. A factor for all prices is chosen by cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._softmax.functions import log_softmax, softmax
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.mixture import fit_mixture, logits_of, positive, scipy_minimize, used
from hotmax.calibration.search import fit_examples

Parameters = dict[str, Any]
LOWEST = -1e300  # for the logarithm of a probability that has underflowed
FACTORS = (10.0, 1.0, 0.1)  # of the prices, from the strongest on
FOLDS = 3  # of the cross-validation that chooses among them
LEAST_ROWS = 100  # below which nothing is chosen, and the factor is 1
ROUNDING = 1e-5  # of logits in the hash that makes the folds
# Change, gradient and number of steps at which a fit ends: of a small problem, of a large one, of a
# fold.
EXACT, TIGHT, LOOSE = (1e-13, 1e-8, 5000), (1e-9, 1e-5, 40), (1e-6, 1e-3, 15)
SMALL = 20_000  # entries of logits up to which a fit is exact
MOST_NUMBERS = 1000  # of a method, up to which the factor of its prices is cross-validated


def log_mixture(x: Array, temperature: float, uniform: float) -> tuple[Array, Array]:
    """(z, present): z is 0 where a class is not there."""
    present = x > -np.inf
    z = log_softmax(x, temperature=temperature)
    z = np.logaddexp(z + np.log1p(-uniform), np.log(uniform / present.sum(1, keepdims=True)))
    return np.where(present, z, 0.0), present


def centred(x: Array, temperature: float) -> tuple[Array, Array]:
    """(z, present): log-probabilities less their mean over the classes that are there; else 0."""
    present = x > -np.inf
    logs = log_softmax(x, temperature=temperature)
    z = np.where(present, np.maximum(logs, LOWEST), 0.0)
    z -= z.sum(1, keepdims=True) / present.sum(1, keepdims=True)
    return np.where(present, z, 0.0), present


# --- what a method may add to the scores ------------------------------------------------------


@dataclass(frozen=True)
class ByClass:
    """A number for each class times a function of its score."""

    feature: Array  # (rows, classes), or 1

    def add(self, scores: Array, theta: Array) -> None:
        scores += self.feature * theta

    def slope(self, g: Array) -> Array:
        found: Array = (g * self.feature).sum(0)
        return found

    def bend(self, v: Array) -> Array:
        found: Array = (v * self.feature**2).sum(0)
        return found


@dataclass(frozen=True)
class Pairs:
    """A number for each pair of different classes: scores of one add to those of the other."""

    z: Array

    def add(self, scores: Array, theta: Array) -> None:
        scores += self.z @ theta.reshape(scores.shape[1], -1).T

    def slope(self, g: Array) -> Array:
        full = g.T @ self.z
        np.fill_diagonal(full, 0.0)
        return full.reshape(-1)

    def bend(self, v: Array) -> Array:
        found: Array = v.T @ self.z**2
        return found.reshape(-1)


@dataclass(frozen=True)
class Shared:
    """A number for each of several functions of a score, the same for all classes."""

    features: Array  # (functions, rows, classes)

    def add(self, scores: Array, theta: Array) -> None:
        scores += np.tensordot(theta, self.features, 1)

    def slope(self, g: Array) -> Array:
        return np.array([np.vdot(each, g) for each in self.features])

    def bend(self, v: Array) -> Array:
        return np.array([np.vdot(each**2, v) for each in self.features])


@dataclass(frozen=True)
class ByGroup:
    """A factor of all scores of a row, for each group of rows."""

    z: Array
    group: Array  # of each row
    groups: int

    def add(self, scores: Array, theta: Array) -> None:
        scores += self.z * theta[self.group][:, None]

    def slope(self, g: Array) -> Array:
        return np.bincount(self.group, (g * self.z).sum(1), self.groups)

    def bend(self, v: Array) -> Array:
        return np.bincount(self.group, (v * self.z**2).sum(1), self.groups)


Part = ByClass | Pairs | Shared | ByGroup
# z, present -> parts by name, in the order of their numbers.
Design = Callable[[Array, Array], dict[str, Part]]


def scores_of(z: Array, present: Array, parts: dict[str, Part], parameters: Parameters) -> Array:
    scores = z.copy()
    for name, part in parts.items():
        part.add(scores, np.asarray(parameters[name]).reshape(-1))
    return np.where(present, scores, -np.inf)


def size_of(part: Part, k: int) -> int:
    if isinstance(part, Shared):
        return len(part.features)
    return k * k if isinstance(part, Pairs) else k


def kinds(name: str, k: int) -> int:
    """The number of its kind, by which the price of a number is multiplied."""
    return {"off_diagonal": k * (k - 1), "curve": 1}.get(name, k)


# --- the fit ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """The penalised likelihood of some rows: mean nll and `cost` of the squares."""

    z: Array
    present: Array | None  # None: all classes are there in all rows
    q: Array
    w: Array  # weights that sum to 1
    parts: Sequence[Part]
    sizes: Sequence[int]
    cost: Array

    def scores(self, theta: Array) -> Array:
        scores = self.z.copy()
        at = 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            part.add(scores, theta[at : at + size])
            at += size
        if self.present is not None:
            scores[~self.present] = -np.inf
        return scores

    def loss(self, theta: Array) -> float:
        logs = log_softmax(self.scores(theta))
        return -float(self.w @ (self.q * np.where(self.q > 0, logs, 0.0)).sum(1))

    def objective(self, theta: Array) -> tuple[float, Array]:
        logs = log_softmax(self.scores(theta))
        value = -float(self.w @ np.einsum("nk,nk->n", self.q, np.maximum(logs, LOWEST)))
        g = np.exp(logs)
        g -= self.q
        g *= self.w[:, None]
        slope = np.concatenate([part.slope(g) for part in self.parts])
        return value + float(self.cost @ theta**2), slope + 2.0 * self.cost * theta

    def fit(self, theta: Array, tolerance: tuple[float, float, int]) -> Array:
        """The minimum, from a start: in units in which the diagonal of the curvature is 1."""
        change, gradient, steps = tolerance
        p = softmax(self.scores(theta))
        v = p * (1.0 - p) * self.w[:, None]
        bend = np.concatenate([part.bend(v) for part in self.parts])
        scale = 1.0 / np.sqrt(bend + 2.0 * self.cost + 1e-12)

        def scaled(phi: Array) -> tuple[float, Array]:
            value, slope = self.objective(phi * scale)
            return value, slope * scale

        done = scipy_minimize(
            scaled,
            theta / scale,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "ftol": change, "gtol": gradient, "maxcor": 10},
        )
        found: Array = done.x * scale
        return found


def folds_of(x: Array, folds: int) -> Array:
    """The fold of each row, from a hash of its logits: equal rows are in one fold, in any order.

    So rows with weights give the same folds as rows that are repeated, and a row that came twice
    never tests a fit that has seen it.
    """
    z = centred(x, 1.0)[0]
    digits = np.rint(np.clip(z, -50.0, 50.0) / ROUNDING).astype(np.int64).view(np.uint64)
    odd = np.random.default_rng(0).integers(1, 1 << 62, x.shape[1], dtype=np.uint64) * 2 + 1
    key = (digits * odd).sum(1, dtype=np.uint64)
    key ^= key >> np.uint64(31)
    key *= np.uint64(0x9E3779B97F4A7C15)
    fold: Array = ((key >> np.uint64(32)) % np.uint64(folds)).astype(np.int64)
    return fold


def fit_structured(
    design: Design, tempered: bool = True
) -> Callable[[Examples, float, int], Parameters]:
    """A fit of the parts of a design. `tempered`: T and u are fitted, and not 1 and one row's."""

    def fit(examples: Examples, penalty: float, bins: int) -> Parameters:
        examples = used(examples)
        x, q = logits_of(examples), label_matrix(examples)
        weights = examples.weight_of_rows().astype(np.float64)
        total = float(weights.sum())
        temperature, shares = fit_mixture(
            examples, positive(fit_examples(examples).temperature), 1.0, False
        )
        temperature = temperature if tempered else 1.0
        uniform = float(np.clip(shares[2], 0.1 / (total + 1.0), 0.5))
        settings: Parameters = {"temperature": temperature, "uniform": uniform}
        z, present = log_mixture(x, temperature, uniform)
        k = examples.classes

        def problem(index: Array | slice, factor: float) -> Problem:
            parts = design(z[index], present[index])
            sizes = {name: size_of(part, k) for name, part in parts.items()}
            w = weights[index]
            cost = [np.full(sizes[n], penalty * factor * kinds(n, k) / w.sum()) for n in parts]
            return Problem(
                z[index],
                None if present[index].all() else present[index],
                q[index],
                w / w.sum(),
                tuple(parts.values()),
                tuple(sizes.values()),
                np.concatenate(cost),
            )

        whole = problem(slice(None), 1.0)
        start = np.zeros(whole.cost.size)
        # Functions that all classes share have next to no price, and many numbers no time.
        curved = any(isinstance(part, Shared) for part in whole.parts)
        if not curved and start.size <= MOST_NUMBERS:
            factor, start = chosen_factor(problem, x, weights, start)
            whole = problem(slice(None), factor)
        theta = whole.fit(start, EXACT if z.size <= SMALL else TIGHT)
        found = dict(settings)
        at = 0
        for name, kind in design(z[:1], present[:1]).items():
            size = size_of(kind, k)
            part = theta[at : at + size]
            found[name] = part.reshape(k, k) if name == "off_diagonal" else part
            at += size
        return found

    return fit


def chosen_factor(
    problem: Callable[[Array | slice, float], Problem], x: Array, weights: Array, start: Array
) -> tuple[float, Array]:
    """The factor of the prices with the least cross-validated nll, and numbers to start from."""
    fold = folds_of(x, FOLDS)
    held = [np.flatnonzero(fold == number) for number in range(FOLDS)]
    if len(x) < LEAST_ROWS or min(map(len, held)) < LEAST_ROWS / FOLDS / 4:
        return 1.0, start
    thetas = [start] * FOLDS
    best, least = 1.0, np.inf
    for factor in FACTORS:
        loss = 0.0
        for number in range(FOLDS):
            train = problem(np.flatnonzero(fold != number), factor)
            thetas[number] = train.fit(thetas[number], LOOSE)
            test = problem(held[number], factor)
            loss += float(weights[held[number]].sum()) * test.loss(thetas[number])
        if loss >= least:  # along a path from strong to weak, the loss falls and rises again
            break
        best, least, start = factor, loss, np.mean(thetas, axis=0)
    return best, start


def apply_structured(design: Design) -> Callable[[Array, Parameters], Array]:
    def apply(x: Array, parameters: Parameters) -> Array:
        if "uniform" in parameters:
            z, present = log_mixture(x, parameters["temperature"], parameters["uniform"])
        else:  # from a file of version 1
            z, present = centred(x, parameters["temperature"])
        p: Array = softmax(scores_of(z, present, design(z, present), parameters))
        return p

    return apply
