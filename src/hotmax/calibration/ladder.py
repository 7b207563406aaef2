"""The likelihood of many rows, from points at which few passes have evaluated it.

For where a subsample gives no guess that is near enough: nearly separable labels, logits that
hardly tell a temperature, limits. The nll is convex in 1 / T, so that the signs of its slope at the
points say between which of them the minimum is, however bad the interpolation between them.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from hotmax.calibration.hermite import Interpolant, interpolant
from hotmax.calibration.likelihood import Point
from hotmax.calibration.search import QUANTILE, at_limit, profile, result_at
from hotmax.calibration.temperature_fit import (
    ANTI_CORRELATED,
    NO_INFORMATION,
    SEPARABLE,
    TemperatureFit,
)

WIDE = tuple(8.0**k for k in range(-4, 11))  # around the size of the logits
INFINITE = 2.0**400  # 1 / T, in the same unit, at which only ties share the mass of a row
DIVISIONS = 12  # of a step between two points
BEYOND = tuple(8.0**k for k in range(1, DIVISIONS + 1))  # for a minimum outside of WIDE
MIDDLE = tuple(1.25**k for k in range(-3, 4))  # around a minimum or an end of its interval
FINE = tuple(1.0 + 1e-3 * t for t in (-1.0, -0.3, 0.3, 1.0))
CLOSE = 0.0021  # relative distance of two points between which a minimum is found to 1e-12
NEAREST = 4  # points that are interpolated between
MOST_PASSES = 40  # three as a rule; each divides a step by DIVISIONS at least


class Ladder:
    """`at` and `flat` of a likelihood, from the nearest of the points where it is known."""

    def __init__(self, evaluate: Callable[[tuple[float, ...]], tuple[list[Point], int]]) -> None:
        self.evaluate = evaluate  # points and misses at several 1 / T, in a pass over all rows
        self.points: list[Point] = []  # in the order of 1 / T: 0 first, the last at infinity
        self.misses = 0

    def look(self, inverses: Iterable[float]) -> None:
        """Evaluate the likelihood in one pass, where it is not known yet."""
        known = {point.inverse for point in self.points}
        new = {i for i in inverses if 0.0 <= i < math.inf} - known
        found, self.misses = self.evaluate(tuple(sorted(new)))
        self.points = sorted([*self.points, *found], key=lambda point: point.inverse)

    def flat(self) -> Point:
        return self.points[0]

    def at(self, inverse: float) -> Point:
        place = bisect.bisect_left(self.points, inverse, key=lambda point: point.inverse)
        if place < len(self.points) and self.points[place].inverse == inverse:
            return self.points[place]
        if place == 1:  # below all others: a parabola
            flat = self.flat()
            slope = inverse * (flat.gradient + inverse * flat.curvature)
            nll = flat.nll + inverse * (flat.gradient + inverse * flat.curvature / 2)
            return Point(inverse, flat.weight, nll, slope, inverse * inverse * flat.curvature)
        if place >= len(self.points) - 1:  # beyond the last but one: as at infinity
            return replace(self.points[-1], inverse=inverse)
        curve = self.curve(place)
        return curve.at((inverse / curve.centre - 1.0) / curve.width)

    def curve(self, place: int) -> Interpolant:
        """Between the points before `place` and there; through more if they are near."""
        first = min(max(place - NEAREST // 2, 1), max(len(self.points) - 1 - NEAREST, 1))
        near = self.points[first : min(first + NEAREST, len(self.points) - 1)]
        if near[-1].inverse > 2.0 * near[0].inverse:
            near = self.points[place - 1 : place + 1]
        low, high = near[0].inverse, near[-1].inverse
        return interpolant(near, low, (high - low) / low)

    def below(self) -> list[bool]:
        """Of each point: does the minimum, or the end of a limit's interval, lie above it?"""
        flat, *others = self.points
        if self.misses == 0:
            last = others[-1].nll
            return [True, *(2.0 * (point.nll - last) > QUANTILE for point in others)]
        if flat.upward:
            return [True, *(2.0 * (point.nll - flat.nll) < QUANTILE for point in others)]
        return [True, *(point.gradient < 0.0 for point in others[:-1]), False]

    def place(self) -> int:
        below = self.below()
        return below.index(False) if False in below else len(below) - 1

    def step(self) -> float:
        """The relative distance of the points between which it is."""
        place = self.place()
        low, high = self.points[place - 1].inverse, self.points[place].inverse
        return high / low - 1.0 if low > 0.0 else math.inf

    def divided(self) -> list[float]:
        """1 / T that divide this step."""
        place = self.place()
        low, high = self.points[place - 1].inverse, self.points[place].inverse
        if place == 1:
            return [high / factor for factor in BEYOND]
        if place == len(self.points) - 1:
            return [low * factor for factor in BEYOND]
        return [low * (high / low) ** (k / DIVISIONS) for k in range(1, DIVISIONS)]

    def fit(self) -> TemperatureFit:
        """The minimum or the limit, as far as it is known."""
        flat = self.flat()
        if self.misses == 0:
            return at_limit(self, SEPARABLE)
        if flat.upward:
            return at_limit(self, ANTI_CORRELATED if flat.curvature > 0.0 else NO_INFORMATION)
        place, bend = self.place(), 0.0
        if place == 1:
            high = self.points[1].inverse
            best = self.at(min(-flat.gradient / flat.curvature, high * (1.0 - 1e-9)))
        elif place == len(self.points) - 1:
            best = self.points[place - 1]
        else:
            curve = self.curve(place)
            ends = (curve.place(point) for point in self.points[place - 1 : place + 1])
            root = curve.between(*ends)
            best, bend = curve.at(root), curve.bend(root)
        before = self.at(1.0)
        return result_at(best, profile(self, best, bend), before.nll / before.weight, 0, True)


def fit_by_ladder(
    ladder: Ladder, unit: float, before: float, guess: TemperatureFit | None
) -> TemperatureFit:
    """The fit, in three passes as a rule, or in two from a guess.

    The first looks at all sizes of 1 / T, in units of the logits' own; others between the points
    that the minimum lies between, around it and around the ends of its interval.
    """
    always = (0.0, before, unit * INFINITE)
    if guess is None:
        ladder.look([*always, *(unit * factor for factor in WIDE)])
    fit = ladder.fit() if guess is None else guess
    for number in range(MOST_PASSES):
        if fit.diagnosis == NO_INFORMATION:
            break
        marks = [1.0 / t for t in (fit.temperature, *fit.interval) if 0.0 < t < math.inf]
        factors = FINE if number else MIDDLE
        inside = ladder.divided() if ladder.points else []
        ladder.look([*always, *inside, *(mark * factor for mark in marks for factor in factors)])
        fit = ladder.fit()
        if ladder.step() <= CLOSE:
            return fit
    return replace(fit, converged=fit.diagnosis is not None)
