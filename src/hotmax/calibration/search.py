"""The minimum of a likelihood by Newton's iteration, its interval, and its limits.

The negative log-likelihood is convex in 1 / T. A safeguarded Newton iteration finds its minimum: on
a subsample first, then on all rows, with the third derivative from the difference of curvatures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hotmax.calibration.examples import Examples
from hotmax.calibration.likelihood import Evaluated, Likelihood, Point
from hotmax.calibration.temperature_fit import (
    ANTI_CORRELATED,
    NO_INFORMATION,
    SEPARABLE,
    TemperatureFit,
)

SUBSAMPLE_ENTRIES = 1 << 19  # entries of the subsample that the search starts from, at most
LEAST_ROWS = 2048  # of it
SMALL_STEP = 1e-6  # a relative step after which the error is of the size of its square, or less
LIMIT = 500  # evaluations; doubling crosses the whole range of float64 in fewer
QUANTILE = 3.841458820694124  # of chi-squared with one degree of freedom: 95 %
NARROW = 0.02  # relative width up to which the likelihood is a cubic to all digits that matter


@dataclass
class NewtonSearch:
    """Newton's iteration for the minimum, within a bracket that every evaluation narrows."""

    bend: float = 0.0
    low: float = 0.0
    high: float = math.inf
    last: Point | None = None
    evaluations: int = 0
    converged: bool = False

    def step(self, point: Point) -> float:
        """The relative step from a point, with the third derivative taken in."""
        if self.last is not None:
            self.bend = point.bend(self.last) or self.bend
        step = point.step
        damped = 1.0 + self.bend * step
        return step / damped if 0.5 < damped < 2.0 else step

    def next(self, inverse: float, step: float) -> float:
        there = inverse * min(max(1.0 + step, 1 / 8), 8.0)
        if self.low < there < self.high:
            return there
        if self.low > 0.0 and self.high < math.inf:
            return self.low * math.sqrt(self.high / self.low)
        return inverse / 8 if there <= self.low else inverse * 8

    def run(
        self,
        likelihood: Evaluated,
        inverse: float,
        stop: Callable[[NewtonSearch, Point, float], bool],
    ) -> Point:
        """The minimum, from a first guess; or the point at which `stop` says so."""
        while True:
            point = likelihood.at(inverse)
            self.evaluations += 1
            if point.gradient < 0.0:
                self.low = inverse
            else:
                self.high = inverse
            step = self.step(point)
            self.last = point
            size = abs(step)
            if size <= SMALL_STEP:
                return self.after(point, step)
            if self.evaluations >= LIMIT or stop(self, point, step):
                return point
            inverse = self.next(inverse, step)
            if not 0.0 < inverse < math.inf:
                return point

    def after(self, point: Point, step: float) -> Point:
        """The point a small step further, by Taylor's series: right to the cube of the step."""
        self.converged = True
        third = self.bend * point.curvature
        return Point(
            point.inverse * (1.0 + step),
            point.weight,
            point.nll + step * (point.gradient + step * point.curvature / 2),
            point.gradient + step * (point.curvature + step * third),
            point.curvature * (1.0 + 2.0 * step) + 2.0 * step * third,
        )


def fit_examples(examples: Examples) -> TemperatureFit:
    exponent = scale_of(examples)
    if exponent:
        scaled = np.ldexp(examples.x.astype(np.float64), -exponent)
        fit = fit_examples(replace(examples, x=scaled))
        before = mean_nll(Likelihood(examples), 1.0)
        return rescaled(fit, exponent, before)
    likelihood = Likelihood(examples)
    if likelihood.misses == 0:
        return at_limit(likelihood, SEPARABLE)
    search = NewtonSearch()
    return searched(likelihood, search, first_guess(likelihood, search))


def searched(likelihood: Evaluated, search: NewtonSearch, inverse: float) -> TemperatureFit:
    """The fit by Newton's iteration from a first guess, each step an evaluation on all rows."""
    flat: list[Point] = []

    def hopeless(search: NewtonSearch, point: Point, step: float) -> bool:
        """Is the slope at 1 / T = 0 upward already? Asked once, if the search goes down."""
        if search.low == 0.0 and (step < -0.5 or search.evaluations > 4) and not flat:
            flat.append(likelihood.flat())
            return flat[0].upward
        return False

    point = search.run(likelihood, inverse, hopeless)
    if flat and flat[0].upward:
        return at_limit(likelihood, ANTI_CORRELATED if flat[0].curvature > 0.0 else NO_INFORMATION)
    before = mean_nll(likelihood, 1.0)
    interval = profile(likelihood, point, search.bend)
    return result_at(point, interval, before, search.evaluations, search.converged)


def result_at(
    point: Point, interval: tuple[float, float], before: float, evaluations: int, converged: bool
) -> TemperatureFit:
    width = math.sqrt(QUANTILE / point.curvature) if point.curvature > 0.0 else math.inf
    factor = math.exp(min(width, 700.0))
    temperature = 1.0 / point.inverse
    return TemperatureFit(
        temperature=temperature,
        interval=interval,
        interval_by_information=(temperature / factor, temperature * factor),
        nll=point.nll / point.weight,
        nll_before=before,
        gradient=-point.gradient / point.weight,
        iterations=evaluations,
        converged=converged,
        diagnosis=None,
        rows=point.weight,
    )


def mean_nll(likelihood: Evaluated, inverse: float) -> float:
    point = likelihood.at(inverse)
    return point.nll / point.weight


def subsample(examples: Examples) -> Examples:
    """Every n-th row: few enough to cost little, from everywhere."""
    rows = max(SUBSAMPLE_ENTRIES // examples.classes, LEAST_ROWS)
    sample = examples.taking(slice(None, None, -(-examples.rows // rows)))
    x, labels = np.ascontiguousarray(sample.x), np.ascontiguousarray(sample.labels)
    return replace(sample, x=x, labels=labels)


def first_guess(likelihood: Likelihood, search: NewtonSearch) -> float:
    """1 / T from a subsample; on few rows, from the factor of the logits."""
    sample = subsample(likelihood.examples)
    if 2 * sample.rows > likelihood.examples.rows:
        return guess(likelihood)
    if not sample.weight_of_rows().any():
        return guess(likelihood)
    part = Likelihood(sample)
    if part.misses == 0:
        return guess(likelihood)
    trial = NewtonSearch()
    point = trial.run(part, guess(part), lambda s, p, step: abs(step) < 1e-4 or s.evaluations > 20)
    search.bend = trial.bend
    there = point.inverse * (1.0 + point.step)
    return there if trial.low > 0.0 and 0.0 < there < math.inf else point.inverse


def guess(likelihood: Likelihood) -> float:
    return newton_start(likelihood.flat())


def newton_start(flat: Point) -> float:
    """One Newton step from 1 / T = 0, or, where that leads astray, one over the logits' factor."""
    if not flat.curvature > 0.0:
        return 1.0
    unit = math.sqrt(flat.weight / flat.curvature)
    step = -flat.gradient / flat.curvature
    return min(max(step, 0.1 * unit), 10.0 * unit)


def at_limit(likelihood: Evaluated, diagnosis: str) -> TemperatureFit:
    """The result where the optimum is no positive number."""
    flat = likelihood.flat()
    if not flat.curvature > 0.0:
        diagnosis = NO_INFORMATION
    if diagnosis == NO_INFORMATION:
        temperature, best, interval = 1.0, flat.nll, (0.0, math.inf)
    else:
        upward = diagnosis == ANTI_CORRELATED
        temperature = math.inf if upward else 0.0
        unit = math.sqrt(flat.weight / flat.curvature)
        # At T = 0 the ties of each row share its mass: at a huge 1 / T they do too.
        best = flat.nll if upward else likelihood.at(unit * 2.0**400).nll
        edge = crossing(likelihood, best, flat, unit, 0.0, math.inf, upward)
        interval = (edge, math.inf) if upward else (0.0, edge)
    return TemperatureFit(
        temperature=temperature,
        interval=interval,
        interval_by_information=interval,
        nll=best / flat.weight,
        nll_before=mean_nll(likelihood, 1.0),
        gradient=0.0,
        iterations=0,
        converged=True,
        diagnosis=diagnosis,
        rows=flat.weight,
    )


# --- intervals --------------------------------------------------------------------------------


def profile(
    likelihood: Evaluated, best: Point, bend: float, narrow: float = NARROW
) -> tuple[float, float]:
    """Temperatures at which twice the log-likelihood has fallen by QUANTILE.

    Up to a relative width of `narrow` from the cubic at the minimum, else from evaluations.
    """
    if not best.curvature > 0.0:
        return 0.0, math.inf
    width = math.sqrt(QUANTILE / best.curvature)
    down, up = -width, width
    for _ in range(20):
        down = -width / math.sqrt(max(1.0 + bend * down * 2 / 3, 0.1))
        up = width / math.sqrt(max(1.0 + bend * up * 2 / 3, 0.1))
    least, most = best.inverse * max(1.0 + down, 0.05), best.inverse * (1.0 + up)
    if width < narrow:
        return 1.0 / most, 1.0 / least
    flat = likelihood.flat()
    return (
        crossing(likelihood, best.nll, flat, most, best.inverse, math.inf, True),
        crossing(likelihood, best.nll, flat, least, 0.0, best.inverse, False),
    )


def crossing(
    likelihood: Evaluated,
    best: float,
    flat: Point,
    inverse: float,
    low: float,
    high: float,
    upward: bool,
) -> float:
    """The T at which the nll exceeds `best` by QUANTILE / 2, with 1 / T between low and high.

    Newton's iteration on the square root of the excess, which is nearly a straight line.
    """
    if not upward and flat.nll - best <= QUANTILE / 2:
        return math.inf
    aim = math.sqrt(QUANTILE)
    for _ in range(LIMIT):
        point = likelihood.at(inverse)
        root = math.sqrt(max(2.0 * (point.nll - best), 0.0))
        if (root < aim) == upward:
            low = inverse
        else:
            high = inverse
        step = (aim - root) * root / point.gradient if point.gradient and root else math.inf
        if abs(step) <= 1e-10:
            break
        there = inverse * min(max(1.0 + step, 1 / 8), 8.0)
        if not low < there < high:
            if low > 0.0 and high < math.inf:
                there = low * math.sqrt(high / low)
            else:
                there = inverse * 8 if high == math.inf else inverse / 8
        if there == inverse:
            break
        inverse = there
    return 1.0 / inverse


# --- logits at the ends of the range of float64 -----------------------------------------------


def scale_of(examples: Examples) -> int:
    """The exponent to take out of logits whose squares would not be numbers."""
    if examples.x.dtype != np.float64 or examples.probabilities:
        return 0
    part = subsample(examples).x
    sizes = np.abs(part[np.isfinite(part)])
    exponent = math.frexp(float(sizes.max()))[1] if sizes.size else 0
    return exponent if abs(exponent) > 400 else 0


def rescaled(fit: TemperatureFit, exponent: int, before: float) -> TemperatureFit:
    def scale(temperature: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(temperature, exponent))

    def both(interval: tuple[float, float]) -> tuple[float, float]:
        return scale(interval[0]), scale(interval[1])

    unscaled = fit.diagnosis == NO_INFORMATION
    return replace(
        fit,
        temperature=fit.temperature if unscaled else scale(fit.temperature),
        interval=both(fit.interval),
        interval_by_information=both(fit.interval_by_information),
        nll_before=before,
    )
