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
WIDEST_END = 0.3  # the same of an end of the interval, which is found to some 1e-3 of its width
APART = 1e-5  # least relative distance of points: nearer ones spoil divided differences
NEAREST = 4  # points that are interpolated between
MOST_PASSES = (
    40  # three as a rule, six at most in 3000 hard sets; each divides a step by DIVISIONS at least
)


class Ladder:
    """`at` and `flat` of a likelihood, from the nearest of the points where it is known.

    The first point is at 1 / T = 0, and the last where it stands for infinity. No ratio leads from
    the one or to the other, and no interpolant: the steps at both ends are the tails of a limit.
    """

    def __init__(self, evaluate: Callable[[tuple[float, ...]], tuple[list[Point], int]]) -> None:
        self.evaluate = evaluate  # points and misses at several 1 / T, in a pass over all rows
        self.points: list[Point] = []  # in the order of 1 / T: 0 first, the last at infinity
        self.misses = 0

    def look(self, inverses: Iterable[float]) -> bool:
        """Evaluate the likelihood in one pass, where it is not known yet; False if it is.

        The first of values that nearly coincide counts.
        """
        known = [point.inverse for point in self.points]
        new: list[float] = []
        for inverse in inverses:
            near = (abs(inverse - other) <= APART * inverse for other in [*known, *new])
            if 0.0 <= inverse < math.inf and not any(near):
                new.append(inverse)
        if not new:
            return False
        found, self.misses = self.evaluate(tuple(sorted(new)))
        self.points = sorted([*self.points, *found], key=lambda point: point.inverse)
        return True

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
            curvature = inverse * inverse * flat.curvature
            return self.bounded(Point(inverse, flat.weight, nll, slope, curvature), place)
        if place >= len(self.points) - 1:  # beyond the last but one: as at infinity
            return replace(self.points[-1], inverse=inverse)
        curve = self.curve(place)
        return self.bounded(curve.at((inverse / curve.centre - 1.0) / curve.width), place)

    def bounded(self, point: Point, place: int) -> Point:
        """Between the chord and the tangents of a step, so that a search goes the right way."""
        low, high = self.points[place - 1], self.points[place]
        up, down = point.inverse - low.inverse, high.inverse - point.inverse
        first = low.gradient / low.inverse if low.inverse > 0.0 else low.gradient
        last = high.gradient / high.inverse
        least = max(low.nll + first * up, high.nll - last * down)
        most = low.nll + (high.nll - low.nll) * (up / (up + down))
        slope = min(max(point.gradient / point.inverse, first), last)
        nll = min(max(point.nll, least), most)
        return replace(point, nll=nll, gradient=slope * point.inverse)

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

    def ratio(self, place: int) -> float:
        """By which the points before `place` and there are apart."""
        low, high = self.points[place - 1].inverse, self.points[place].inverse
        if place in (1, len(self.points) - 1):
            return math.inf
        return high / low - 1.0

    def wide_steps(self, fit: TemperatureFit) -> set[int]:
        """Places of the points above the minimum and the ends of its interval, where too wide.

        Signs tell in which steps they are: that of the slope, and those of the nll at the points
        less the nll at the ends.
        """
        least = fit.nll * self.flat().weight
        inside = [2.0 * (point.nll - least) < QUANTILE for point in self.points]
        minimum = self.place()
        wide = {
            place
            for place in range(1, len(inside))
            if inside[place - 1] != inside[place] and self.ratio(place) > WIDEST_END
        }
        return wide | {minimum} if self.ratio(minimum) > CLOSE else wide

    def divided(self, place: int) -> list[float]:
        """1 / T that divide the step to the point at `place`."""
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
    """The fit, in three passes as a rule, seldom up to six; or in two from a guess.

    The first looks at all sizes of 1 / T, in units of the logits' own; others between the points
    that the minimum lies between, around it and around the ends of its interval.
    """
    always = (0.0, before, unit * INFINITE)
    if guess is None:
        ladder.look([*always, *(unit * factor for factor in WIDE)])
    fit = ladder.fit() if guess is None else guess
    wide = ladder.wide_steps(fit) if ladder.points else set()
    for number in range(MOST_PASSES):
        if fit.diagnosis is not None and fit.interval == (0.0, math.inf):
            break
        marks = [1.0 / t for t in (fit.temperature, *fit.interval) if 0.0 < t < math.inf]
        around = [mark * factor for mark in marks for factor in (FINE if number else MIDDLE)]
        inside = [inverse for place in sorted(wide) for inverse in ladder.divided(place)]
        if not ladder.look([*always, *around, *inside]):
            break
        fit = ladder.fit()
        wide = ladder.wide_steps(fit)
        if not wide:
            return fit
    return replace(fit, converged=fit.diagnosis is not None)
