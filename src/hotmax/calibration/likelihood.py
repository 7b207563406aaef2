"""The likelihood of labels as a function of 1 / T, with two derivatives, in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration.examples import Examples, blocks_of, over_blocks, raise_first


@dataclass(frozen=True)
class Point:
    """The likelihood at one 1 / T: sums over rows, with the derivatives of `add_moments`."""

    inverse: float
    weight: float
    nll: float
    gradient: float
    curvature: float

    @property
    def step(self) -> float:
        """Newton's, relative to 1 / T."""
        if self.curvature > 0.0:
            return -self.gradient / self.curvature
        return math.copysign(math.inf, -self.gradient)

    @property
    def upward(self) -> bool:
        """At 1 / T = 0: does the nll rise from here? A slope that may be rounding is none.

        A slope as small as that would gain less than 1e-24 nats a row.
        """
        return self.gradient >= -1e-12 * math.sqrt(self.weight * self.curvature)

    def bend(self, other: Point) -> float | None:
        """Half the third over the second derivative, times 1 / T, from two points."""
        apart = self.inverse / other.inverse - 1.0
        if not 1e-5 < abs(apart) < 0.5 or not self.curvature > 0.0:
            return None
        ratio = other.curvature / self.curvature * (self.inverse / other.inverse) ** 2
        middle = (1.0 - ratio) * (1.0 + apart) / apart / 2.0
        return middle if abs(middle) < 10.0 else None


class Likelihood:
    """The likelihood of the labels of some rows, as a function of 1 / T."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.gaps = np.empty(examples.rows)
        count = blocks_of(examples.rows, examples.classes)
        sums, trouble = np.zeros((count, kernels.SURVEYED)), np.zeros((count, 2), np.int64)

        def work(number: int, start: int, stop: int) -> None:
            labels, soft, weights = examples.labels_of(start, stop)
            kind, row = kernels.survey(
                examples.block(start, stop),
                labels,
                soft,
                weights,
                self.gaps[start:stop],
                sums[number],
            )
            trouble[number] = kind, start + row

        over_blocks(examples.rows, examples.classes, work)
        raise_first(trouble, examples)
        self.weight, self.misses = (float(total) for total in sums.sum(0))

    def _total(self, add: Callable[..., None], *arguments: float) -> Array:
        examples = self.examples
        sums = np.zeros((blocks_of(examples.rows, examples.classes), kernels.MOMENTS))

        def work(number: int, start: int, stop: int) -> None:
            _, _, weights = examples.labels_of(start, stop)
            block = examples.block(start, stop)
            add(block, self.gaps[start:stop], weights, *arguments, sums[number])

        over_blocks(examples.rows, examples.classes, work)
        total: Array = sums.sum(0)
        return total

    def at(self, inverse: float) -> Point:
        return Point(inverse, *map(float, self._total(kernels.add_moments, inverse)))

    def flat(self) -> Point:
        """At 1 / T = 0, with derivatives by 1 / T itself."""
        return Point(0.0, *map(float, self._total(kernels.add_flat_moments)))
