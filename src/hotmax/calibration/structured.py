"""Structured scaling: softmax of scores that are linear in free numbers, with a price on each.

The scores of a row begin as

    z = log((1 - u) softmax(x / T) + u / k),

where T and the share u of the uniform distribution are fitted first: a probability of nearly 0,
which a text classifier gives to most classes, is then no outlier that decides the fit. What a
method adds to z is linear in its numbers, so that the penalised likelihood is convex: `newton`
finds its minimum. The prices of squares are those of Berta et al., Structured matrix scaling,
2026: k for a number of each class, k (k - 1) for those of pairs of classes, over the number of
rows. Factors of these prices are chosen by cross-validation. The strongest leaves z nearly as it
is, so that rows that say nothing about a method's numbers change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.blas_threads import one_thread_each
from hotmax._softmax.functions import log_softmax
from hotmax.calibration.designs import ByClass, ByGroup, Design, Pairs, vector_parts
from hotmax.calibration.examples import Examples, label_matrix
from hotmax.calibration.mixture import fit_mixture, logits_of, steady_temperature, used
from hotmax.calibration.newton import (
    EXACT,
    FEW_LOGITS,
    LOOSE,
    LOWEST,
    NEARLY_EXACT,
    Precision,
    Problem,
    minimum,
)
from hotmax.calibration.one_standard_error import mean_and_error

Parameters = dict[str, Any]
PRICE_FACTORS = (100.0, 10.0, 1.0, 0.1, 0.01)  # of the prices, from the strongest on
PUBLISHED = 2  # the place of factor 1 among them
WEAKER, STRONGER = 1.0, 0.5  # standard errors by which such a factor must be better
FOLDS, FEWER_FOLDS = 5, 3  # of the cross-validation that chooses among them; on many logits
MANY_LOGITS = 200_000
LEAST_FOLD_ROWS = 10  # of a fold, below which nothing is chosen, and the factor is the strongest
LARGEST_UNIFORM = 0.5
HASH_ROUNDING = 1e-5  # of logits in the hash that makes the folds


def log_mixture(x: Array, temperature: float, uniform: float) -> tuple[Array, Array]:
    """(z, present): log-probabilities of the mixture, 0 where a class is not there."""
    present = x > -np.inf
    z = np.maximum(log_softmax(x, temperature=temperature), LOWEST)
    if uniform > 0.0:
        p = np.exp(z)
        p *= 1.0 - uniform
        p += uniform / present.sum(1, keepdims=True)
        z = np.log(p)
    return (z if present.all() else np.where(present, z, 0.0)), present


def row_centred(z: Array, present: Array) -> Array:
    """z less its mean over the classes that are there."""
    mean = z.sum(1, keepdims=True) / present.sum(1, keepdims=True)
    return z - mean if present.all() else np.where(present, z - mean, 0.0)


def folds_of(x: Array, folds: int) -> Array:
    """The fold of each row, from a hash of its logits: equal rows are in one fold, in any order.

    So rows with weights give the same folds as rows that are repeated, and a row that came twice
    never tests a fit that has seen it.
    """
    z = row_centred(*log_mixture(x, 1.0, 0.0))
    digits = np.rint(np.clip(z, -50.0, 50.0) / HASH_ROUNDING).astype(np.int64).view(np.uint64)
    odd = np.random.default_rng(0).integers(1, 1 << 62, x.shape[1], dtype=np.uint64) * 2 + 1
    key = (digits * odd).sum(1, dtype=np.uint64)
    key ^= key >> np.uint64(31)
    key *= np.uint64(0x9E3779B97F4A7C15)
    fold: Array = ((key >> np.uint64(32)) % np.uint64(folds)).astype(np.int64)
    return fold


# --- the fit ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """What cross-validation has chosen: the share of the uniform to start from, and a factor."""

    likeliest: bool
    factor: float


class StructuredFit:
    """The fit of a design; `choose` and `fit_chosen` are its two steps.

    `select` chooses once, and fits each fold by the same choice.
    """

    def __init__(self, design: Design) -> None:
        self.design = design

    @one_thread_each()
    def __call__(self, examples: Examples, penalty: float, bins: int) -> Parameters:
        fitted = self.started(examples, penalty, robust_starts(examples))
        best, factor, theta = chosen_fit(fitted)
        return best.fit(factor, theta)

    def started(
        self, examples: Examples, penalty: float, starts: list[tuple[float, float]]
    ) -> list[StartedFit]:
        examples = used(examples)
        x, q = logits_of(examples), label_matrix(examples)
        weights = examples.weight_of_rows().astype(np.float64)
        price = penalty / float(weights.sum())
        w = weights / weights.sum()
        return [StartedFit(self.design, x, q, w, price, start) for start in starts]

    @one_thread_each()
    def choose(self, examples: Examples, penalty: float) -> Choice:
        fitted = self.started(examples, penalty, robust_starts(examples))
        best, factor, _ = chosen_fit(fitted)
        return Choice(best is fitted[-1], factor)

    @one_thread_each()
    def fit_chosen(
        self, examples: Examples, penalty: float, choice: Choice, precision: Precision = LOOSE
    ) -> Parameters:
        starts = robust_starts(examples, choice.likeliest)
        return self.started(examples, penalty, starts)[0].fit(choice.factor, None, precision)


def chosen_fit(starts: list[StartedFit]) -> tuple[StartedFit, float, Array | None]:
    """(The better start, the factor of the prices, numbers to start from), by cross-validation."""
    best = starts[0]
    fold = folds_of(best.x, FOLDS if best.x.size <= MANY_LOGITS else FEWER_FOLDS)
    if len(starts) > 1:
        losses = [start.cross_validation(fold, False).losses(1.0)[0] for start in starts]
        best = starts[int(np.argmin([loss @ best.w for loss in losses]))]
    return best, *best.cross_validation(fold).choose()


def robust_starts(examples: Examples, likeliest: bool | None = None) -> list[tuple[float, float]]:
    """(T, u) with the share of one row for the uniform distribution, and with the likeliest.

    Only one of them if it is told which.
    """
    examples = used(examples)
    plain = steady_temperature(examples)
    least = 1.0 / (float(examples.weight_of_rows().sum()) + 1.0)
    found = []
    if likeliest is not True:
        found.append((fit_mixture(examples, plain, 1.0, False, least)[0], least))
    if likeliest is not False:
        joint, shares = fit_mixture(examples, plain, 1.0, False)
        uniform = float(min(shares[2], LARGEST_UNIFORM))
        if uniform > 2.0 * least or likeliest:
            found.append((joint, max(uniform, least)))
    return found


class StartedFit:
    """Rows and a design, with the temperature and the share of the uniform that it starts from."""

    def __init__(
        self,
        design: Design,
        x: Array,
        q: Array,
        w: Array,
        price: float,
        start: tuple[float, float],
    ) -> None:
        self.design, self.x, self.price = design, x, price
        self.start = start
        self.q, self.w = q, w
        self.z, self.present = log_mixture(x, *start)
        self.centre = np.zeros(x.shape[1])
        if design.centre == "rows":
            self.z = row_centred(self.z, self.present)
        elif design.centre == "columns":
            self.centre = w @ self.z

    def problem(self, z: Array, present: Array, q: Array, w: Array, pairs: bool) -> Problem:
        scores = z
        if self.design.centre == "columns":
            scores = np.where(present, z - np.asarray(self.centre, z.dtype), z.dtype.type(0.0))
        design = self.design if pairs else replace(self.design, parts=vector_parts)
        return Problem(z, None if present.all() else present, q, w, design.parts(scores, present))

    def fit(self, factor: float, theta: Array | None, precision: Precision = EXACT) -> Parameters:
        """At a factor of the prices, from numbers or from 0."""
        problem = self.problem(self.z, self.present, self.q, self.w, True)
        if precision is EXACT and self.x.size > FEW_LOGITS:
            precision = NEARLY_EXACT
        theta = minimum(problem, factor * self.price * problem.prices, theta, precision)
        return self.parameters(problem, theta)

    def cross_validation(self, fold: Array, pairs: bool = True) -> CrossValidation:
        """In float32: a factor of the prices is a rough number."""
        arrays = [each.astype(np.float32) for each in (self.z, self.q, self.w)]

        def part(rows: Array) -> Problem:
            z, q, w = (each[rows] for each in arrays)
            return self.problem(z, self.present[rows], q, w / w.sum(), pairs)

        held = [np.flatnonzero(fold == number) for number in range(int(fold.max()) + 1)]
        heaviest = max(float(self.w[rows].sum()) for rows in held)
        if len(held) < 2 or min(map(len, held)) < LEAST_FOLD_ROWS or heaviest >= 1.0:
            held = []  # equal logits are in one fold, which may hold all rows or all weight
        trains = [part(np.setdiff1d(np.arange(len(fold)), rows)) for rows in held]
        return CrossValidation(self.price, self.w, held, trains, [part(rows) for rows in held])

    def parameters(self, problem: Problem, theta: Array) -> Parameters:
        found: Parameters = {"temperature": self.start[0], "uniform": self.start[1]}
        if self.design.centre == "columns":
            found["centre"] = self.centre
        pieces = problem.split(theta)
        for (name, part), piece in zip(problem.parts.items(), pieces, strict=True):
            value = part.values(piece)
            if isinstance(part, Pairs):
                found["diagonal"] = np.diagonal(value).copy()
                np.fill_diagonal(value, 0.0)
                name = "off_diagonal"
            found[name] = value
        return found


class CrossValidation:
    """The losses of rows by fits to the other folds, at factors of the prices."""

    def __init__(
        self,
        price: float,
        w: Array,
        held: list[Array],
        trains: list[Problem],
        tests: list[Problem],
    ) -> None:
        self.price, self.w = price, w
        self.held, self.trains, self.tests = held, trains, tests
        self.start: list[Array | None] = [None] * len(trains)

    def losses(self, factor: float) -> tuple[Array, list[Array]]:
        """(Losses of rows, the numbers of each fold), beginning with those of the call before."""
        losses = np.zeros(len(self.w))
        found = []
        folds = zip(self.held, self.trains, self.tests, self.start, strict=True)
        for rows, train, test, start in folds:
            share = 1.0 - float(self.w[rows].sum())
            cost = factor * self.price / share * train.prices
            theta = minimum(train, cost, start, LOOSE)
            found.append(theta)
            losses[rows] = test.evaluated(theta)[0]
        self.start = list(found)
        return losses, found

    def choose(self) -> tuple[float, Array | None]:
        """(The factor, numbers to start from).

        1, the published prices, unless a factor ten times weaker or stronger, and so on, is better
        by WEAKER or STRONGER standard errors of the mean difference over rows; then the vertex of
        the parabola through the losses at the best factor and its neighbours.
        """
        if not self.held:
            return PRICE_FACTORS[0], None
        place = PUBLISHED
        least, best = self.losses(1.0)
        means = {place: float(self.w @ least)}
        for direction, evidence in ((1, WEAKER), (-1, STRONGER)):
            self.start = list(best)
            while 0 <= place + direction < len(PRICE_FACTORS):
                losses, found = self.losses(PRICE_FACTORS[place + direction])
                means[place + direction] = float(self.w @ losses)
                gain, error = mean_and_error(least - losses, self.w)
                if gain <= evidence * error:
                    break
                place, least, best = place + direction, losses, found
            if place != PUBLISHED:
                break
        shift = 0.0
        if place != PUBLISHED and place - 1 in means and place + 1 in means:
            before, here, after = (means[place + step] for step in (-1, 0, 1))
            bend = before + after - 2.0 * here
            shift = float(np.clip((before - after) / (2.0 * bend), -0.5, 0.5)) if bend > 0 else 0.0
        factor: float = PRICE_FACTORS[place] * 10.0**-shift
        start: Array = np.mean(best, axis=0)
        return factor, start


def apply_structured(design: Design) -> Callable[[Array, Parameters], Array]:
    def apply(x: Array, parameters: Parameters) -> Array:
        z, present = log_mixture(x, parameters["temperature"], parameters["uniform"])
        # Maps in files of version 1 took scores centred in each row.
        if design.centre == "rows" or parameters["uniform"] == 0.0:
            z = row_centred(z, present)
        scores = np.where(present, z - parameters.get("centre", 0.0), 0.0)
        total = z
        for name, part in design.parts(scores, present).items():
            if isinstance(part, Pairs):
                weights = parameters["off_diagonal"] + np.diag(parameters["diagonal"])
                total = total + scores @ weights.T
            elif isinstance(part, ByGroup):
                total = total + scores * parameters[name][part.group][:, None]
            elif isinstance(part, ByClass):
                total = total + part.feature * parameters[name]
            else:
                total = total + part.scores(np.asarray(parameters[name]))
        p: Array = np.exp(log_softmax(np.where(present, total, -np.inf)))
        return p

    return apply
