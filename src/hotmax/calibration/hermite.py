"""The minimum of a function from two derivatives at a few points: Hermite interpolation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial

from hotmax.calibration.likelihood import Point


@dataclass(frozen=True, eq=False)
class Interpolant:
    """The derivative of the nll by t, where 1 / T = centre (1 + width t); exact at the points."""

    centre: float
    width: float
    slope: Polynomial
    points: tuple[Point, ...]

    def inverse(self, t: float) -> float:
        return self.centre * (1.0 + self.width * t)

    def root(self) -> float | None:
        """The t at which the slope changes its sign between two points; None if it does not."""
        ordered = sorted(self.points, key=lambda point: point.inverse)
        for low, high in itertools.pairwise(ordered):
            if low.gradient <= 0.0 <= high.gradient:
                return self.between(self.place(low), self.place(high))
        return None

    def place(self, point: Point) -> float:
        return (point.inverse / self.centre - 1.0) / self.width

    def between(self, low: float, high: float) -> float:
        """Newton's iteration within a bracket that bisection narrows."""
        rise = self.slope.deriv()
        t = (low + high) / 2
        for _ in range(200):
            value = float(self.slope(t))
            if value < 0.0:
                low = t
            else:
                high = t
            step = value / float(rise(t)) if rise(t) > 0.0 else np.inf
            there = t - step
            if not low <= there <= high:
                there = (low + high) / 2
            if there == t or high - low <= 1e-17 * abs(high):
                break
            t = float(there)
        return t

    def at(self, t: float) -> Point:
        """The likelihood at t."""
        near = min(self.points, key=lambda point: abs(self.place(point) - t))
        total = self.slope.integ()
        inverse = self.inverse(t)
        scale = inverse / (self.centre * self.width)  # from derivatives by t to relative ones
        return Point(
            inverse,
            near.weight,
            near.nll + float(total(t) - total(self.place(near))),
            float(self.slope(t)) * scale,
            float(self.slope.deriv()(t)) * scale * scale,
        )

    def bend(self, t: float) -> float:
        """Half the third over the second derivative of the nll by 1 / T, times 1 / T."""
        first, second = self.slope.deriv(), self.slope.deriv(2)
        return float(second(t) / first(t)) * self.inverse(t) / (self.centre * self.width) / 2


def interpolant(points: Sequence[Point], centre: float, width: float) -> Interpolant:
    """Through the slopes and curvatures of points, by divided differences on doubled nodes."""
    nodes, slopes, rises = [], [], []
    for point in points:
        ratio = centre * width / point.inverse  # d (relative 1 / T) / dt
        nodes.append((point.inverse / centre - 1.0) / width)
        slopes.append(point.gradient * ratio)
        rises.append(point.curvature * ratio * ratio)
    doubled = np.repeat(nodes, 2)
    column = np.repeat(slopes, 2)
    coefficients = [column[0]]
    for order in range(1, doubled.size):
        gaps = doubled[order:] - doubled[:-order]
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.diff(column) / gaps
        if order == 1:
            new[::2] = rises
        column = new
        coefficients.append(column[0])
    slope = Polynomial([coefficients[-1]])
    for coefficient, node in zip(coefficients[-2::-1], doubled[-2::-1], strict=True):
        slope = slope * Polynomial([-node, 1.0]) + coefficient
    return Interpolant(centre, width, slope, tuple(points))
