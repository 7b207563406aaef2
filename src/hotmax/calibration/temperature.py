"""fit_temperature: the one temperature that makes the labels most likely, exactly.

Rows that fit into memory are searched by Newton's iteration (`search`). For others a subsample
gives a first guess, one pass evaluates the likelihood at points around it, and the minimum is that
of the Hermite interpolant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hotmax._core.checks import as_bool
from hotmax.calibration.examples import Examples, no_rows
from hotmax.calibration.hermite import interpolant
from hotmax.calibration.ladder import Ladder, fit_by_ladder
from hotmax.calibration.likelihood import Likelihood, MomentsAt, PassLikelihood, Point
from hotmax.calibration.passes import Tell
from hotmax.calibration.row_parts import RowParts, Split, row_parts
from hotmax.calibration.search import (
    LEAST_ROWS,
    QUANTILE,
    SUBSAMPLE_ENTRIES,
    fit_examples as fit_examples,
    mean_nll,
    profile,
    rescaled,
    result_at,
    scale_of,
)
from hotmax.calibration.temperature_fit import TemperatureFit
from hotmax.calibration.temperature_prior import as_prior, fit_with_prior

CURVE = 31  # points of the curve
MOST_IN_MEMORY = 1 << 22  # entries up to which rows are brought into memory
RUNS = 16  # ranges of rows, evenly spaced, that the subsample of larger data is made of
NODES = (-1.0, -0.6, 0.0, 0.6, 1.0)  # where a pass evaluates the likelihood, in widths
PASSES = 3  # that look for the minimum by interpolation around the guess
NEAR, FAR = 0.05, 0.5  # relative errors of a guess: for interpolation around it; to be of use
WIDE = 0.2  # relative width of intervals up to which a further pass would not pay
AGREEMENT = 2e-11  # of minima with and without one of the nodes: the better is then right to 1e-12


def fit_temperature(
    logits: object,
    targets: object = None,
    *,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    curve: bool = False,
    prior: float | None = None,
    class_names: object = None,
) -> TemperatureFit:
    """The temperature that makes the labels likeliest: argmin over T of mean -log softmax(x / T).

    Args:
        logits: (rows, classes), or any shape with the classes last. -inf is a class that is not
            there. A memory-mapped array, a Dask array or a Source (`hotmax.io.source`) is read in
            blocks of rows, and never held as a whole.
        targets: Labels, the class of each row, as numbers, text or categories; or the probabilities
            of its classes. A Source brings its own.
        sample_weight: The weight of each row: 2 counts as two rows.
        class_names: Names of the classes, for labels that are text; where `logits` is a data frame,
            its columns. Categories of pandas need none if there are as many as classes.
        ignore_index: A label whose rows are left out, whatever their logits hold.
        where: Bools that broadcast against logits; classes at False are not there.
        input: "probabilities" if `logits` holds those; their logarithms are then the logits.
        curve: Also evaluate the likelihood over a range of temperatures, for the fit's `plot`: a
            further pass over the logits.
        prior: The standard deviation of log T under a normal prior around T = 1, for few rows: its
            penalty (log T)**2 / (2 prior**2) keeps T from 0 and inf. 1 is weak. None: no prior.
            The intervals are then those of the posterior's curvature.

    Returns:
        A TemperatureFit: the temperature, its 95 % interval, the likelihood before and after.

    Raises:
        ValueError: If a row holds nan or +inf, or has its label on a class that is not there.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> fit = hm.calibration.fit_temperature(logits, [0, 0, 1, 1])
        >>> round(fit.temperature, 6)      # three of four right: 4 / log 3
        3.640957
        >>> print(hm.calibration.fit_temperature(logits, [0, 0, 0, 1]))
        temperature 0 (95 %: 0 to 8.26601)
        nll 0.0181499 at temperature 1, 0 now
        4 rows, 0 iterations
        separable: every label has the largest logit of its row: the lower T, the likelier

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017.
    """
    rows = row_parts(
        logits,
        targets,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        where=where,
        input=input,
        any_weight=True,
        class_names=class_names,
    )
    curve = as_bool(curve, "curve")
    fit = fit_rows(rows, prior=as_prior(prior))
    return replace(fit, curve=curve_of(rows, fit)) if curve else fit


def curve_of(rows: RowParts, fit: TemperatureFit) -> tuple[tuple[float, float], ...]:
    """(temperature, mean nll) from well below to well above what matters: 1, T, its interval."""
    marks = [t for t in (fit.temperature, *fit.interval) if 0.0 < t < math.inf]
    if not marks or (max(marks) < 1e3 and min(marks) > 1e-3):
        marks.append(1.0)
    grid = np.geomspace(min(marks) / 1.8, max(marks) * 1.8, CURVE)
    points = np.unique([*grid, *(t for t in marks if t in (1.0, fit.temperature))])
    found = rows.run(MomentsAt(tuple(1.0 / t for t in points.tolist()))).points()
    return tuple((float(t), at.nll / at.weight) for t, at in zip(points, found, strict=True))


def fit_rows(
    rows: RowParts,
    split: Split | None = None,
    tell: Callable[[int], Tell] | None = None,
    prior: float | None = None,
) -> TemperatureFit:
    """The fit to rows of any number, or to those of a split.

    Rows that fit into memory are brought there. Others take one pass as a rule: a subsample gives
    a first guess and its standard error, the pass evaluates the likelihood at points around it, and
    the minimum is that of the Hermite interpolant. `tell(number of the pass)` shows its progress.
    """
    if rows.rows * rows.classes <= MOST_IN_MEMORY:
        examples = rows.all_rows()
        examples = examples if split is None else split.of(examples)
        if not examples.weight_of_rows().any():
            raise no_rows()
        if prior is not None:
            return fit_with_prior(Likelihood(examples), prior)
        return fit_examples(examples)
    if prior is not None:
        return fit_with_prior(PassLikelihood(rows, split), prior)
    return PassFit(rows, split, tell).run()


class PassFit:
    """The fit to more rows than memory holds."""

    def __init__(
        self, rows: RowParts, split: Split | None, tell: Callable[[int], Tell] | None
    ) -> None:
        self.rows, self.split, self.tell = rows, split, tell
        self.passes = 0
        self.companion: Any = None  # a job that the first pass does too
        self.likelihood: PassLikelihood | None = None

    def run(self) -> TemperatureFit:
        sample = self.sample()
        exponent = scale_of(sample)
        likelihood = PassLikelihood(self.rows, self.split, exponent)
        likelihood.companion = self.companion
        self.likelihood = likelihood
        if exponent:
            sample = replace(sample, x=np.ldexp(sample.x.astype(np.float64), -exponent))
        before = math.ldexp(1.0, exponent) if exponent < 1024 else math.inf
        guess = fit_examples(sample) if sample.weight_of_rows().any() else None
        error = math.inf
        if guess is not None and guess.diagnosis is None and guess.converged:
            low, high = guess.interval_by_information
            error = math.log(high / low) / (2 * math.sqrt(QUANTILE))
        if guess is not None and error < NEAR and before < math.inf:
            fit = self.by_interpolation(likelihood, before, 1.0 / guess.temperature, error)
        else:
            fit = None
        if fit is None:
            fit = self.by_ladder(likelihood, sample, before, guess if error < FAR else None)
        return rescaled(fit, exponent, fit.nll_before) if exponent else fit

    def by_interpolation(
        self, likelihood: PassLikelihood, before: float, centre: float, error: float
    ) -> TemperatureFit | None:
        """From a guess of 1 / T and its relative error; None if the minimum is not found there."""
        width = min(max(4.0 * error, 2e-3), 0.1)
        while self.passes < PASSES:
            points = self.evaluated(
                likelihood, (before, *(centre * (1 + width * t) for t in NODES))
            )
            first, nodes = points[0], points[1:]
            if likelihood.misses == 0:
                break
            curve = interpolant(nodes, centre, width)
            root = curve.root()
            if root is None:  # look further, where the nearest point leads
                near = nodes[0] if nodes[0].gradient > 0.0 else nodes[-1]
                step = near.step
                if not abs(step) < 0.5:
                    break
                centre, width = near.inverse * (1.0 + step), min(max(4 * width, abs(step)), 0.1)
                continue
            far = max(nodes, key=lambda point: abs(curve.place(point) - root))
            fewer = interpolant([p for p in nodes if p is not far], centre, width).root()
            apart = math.inf if fewer is None else abs(fewer - root) * width
            if apart <= AGREEMENT:
                best = curve.at(root)
                interval = profile(likelihood, best, curve.bend(root), WIDE)
                return result_at(best, interval, first.nll / first.weight, self.passes, True)
            centre, width = curve.inverse(root), max(min(width / 8, 100 * apart), 1e-3)
        return None

    def by_ladder(
        self,
        likelihood: PassLikelihood,
        sample: Examples,
        before: float,
        guess: TemperatureFit | None,
    ) -> TemperatureFit:
        """Where a guess is not near enough, or there is none."""

        def evaluate(inverses: tuple[float, ...]) -> tuple[list[Point], int]:
            return self.evaluated(likelihood, inverses), likelihood.misses

        ladder = Ladder(evaluate)
        fit = fit_by_ladder(ladder, unit_of(sample), before, guess)
        if before < math.inf:
            first = ladder.at(before)
            mean = first.nll / first.weight
        else:
            mean = mean_nll(PassLikelihood(self.rows, self.split), 1.0)
        fit = replace(fit, nll_before=mean)
        return replace(fit, iterations=self.passes if fit.diagnosis is None else 0)

    def evaluated(self, likelihood: PassLikelihood, inverses: tuple[float, ...]) -> list[Point]:
        self.passes += 1
        return likelihood.points(inverses, self.tell(self.passes) if self.tell else None)

    def sample(self) -> Examples:
        """Rows from everywhere, few enough to cost little: the same for every division in parts."""
        length = max(max(SUBSAMPLE_ENTRIES // self.rows.classes, LEAST_ROWS) // RUNS, 1)
        starts = [number * self.rows.rows // RUNS for number in range(RUNS)]
        return self.rows.in_ranges(starts, length, self.split)


def unit_of(sample: Examples) -> float:
    """1 over the size of the logits of a sample."""
    if not sample.weight_of_rows().any():
        return 1.0
    flat = Likelihood(sample).flat()
    return math.sqrt(flat.weight / flat.curvature) if flat.curvature > 0.0 else 1.0
