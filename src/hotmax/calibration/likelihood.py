"""The likelihood of labels as a function of 1 / T, with two derivatives, in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration.exact_sums import ExactSums
from hotmax.calibration.examples import Examples, blocks_of, no_rows, over_blocks, raise_first
from hotmax.calibration.passes import Tell, Together
from hotmax.calibration.row_parts import RowParts, Split


@dataclass(frozen=True)
class Point:
    """The likelihood at one 1 / T: sums over rows, with the derivatives of `moments`."""

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


class Evaluated(Protocol):
    """A likelihood that can be asked at any 1 / T."""

    @property
    def misses(self) -> int: ...

    def at(self, inverse: float) -> Point: ...

    def flat(self) -> Point: ...


class Likelihood:
    """The likelihood of the labels of rows in memory, as a function of 1 / T."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.gaps = np.empty(examples.rows)
        count = blocks_of(examples.rows, examples.classes)
        trouble, misses = np.zeros((count, 2), np.int64), np.zeros(count, np.int64)

        def work(number: int, start: int, stop: int) -> None:
            labels, soft, weights = examples.labels_of(start, stop)
            block = examples.block(start, stop)
            kind, row, missed = kernels.survey(block, labels, soft, weights, self.gaps[start:stop])
            trouble[number], misses[number] = (kind, start + row), missed

        over_blocks(examples.rows, examples.classes, work)
        raise_first(trouble, examples)
        self.misses = int(misses.sum())

    def _total(self, terms_of: Callable[..., None], *arguments: float) -> Point:
        examples = self.examples
        sums = [ExactSums(kernels.MOMENTS) for _ in range(blocks_of(*examples.x.shape))]

        def work(number: int, start: int, stop: int) -> None:
            _, _, weights = examples.labels_of(start, stop)
            terms = np.empty((kernels.MOMENTS, stop - start))
            block = examples.block(start, stop)
            terms_of(block, self.gaps[start:stop], weights, *arguments, terms)
            sums[number].add(terms)

        over_blocks(examples.rows, examples.classes, work)
        total = sums[0]
        for part in sums[1:]:
            total.merge(part)
        return Point(*(arguments or (0.0,)), *total.values())

    def at(self, inverse: float) -> Point:
        return self._total(kernels.moments, inverse)

    def flat(self) -> Point:
        """At 1 / T = 0, with derivatives by 1 / T itself."""
        return self._total(kernels.flat_moments)


# --- rows of any number -----------------------------------------------------------------------


class Moments:
    """Sums over rows of the likelihood and its derivatives, at several 1 / T."""

    def __init__(self, inverses: tuple[float, ...], misses: int, sums: ExactSums) -> None:
        self.inverses, self.misses, self.sums = inverses, misses, sums

    def merge(self, other: Moments) -> Moments:
        self.misses += other.misses
        self.sums.merge(other.sums)
        return self

    def points(self) -> list[Point]:
        values = np.reshape(self.sums.values(), (-1, kernels.MOMENTS))
        pairs = zip(self.inverses, values.tolist(), strict=True)
        return [Point(inverse, *sums) for inverse, sums in pairs]


@dataclass(frozen=True)
class MomentsAt:
    """The job that evaluates the likelihood at several 1 / T; 0 is the limit of `flat`.

    `exponent` is taken out of logits whose squares would not be numbers.
    """

    inverses: tuple[float, ...]
    split: Split | None = None
    exponent: int = 0

    def __call__(self, examples: Examples) -> Moments:
        part = examples if self.split is None else self.split.of(examples)
        labels, soft, weights = part.labels_of(0, part.rows)
        block = part.block(0, part.rows)
        if self.exponent:
            block = np.ldexp(block.astype(np.float64), -self.exponent)
        gaps = np.empty(part.rows)
        kind, row, misses = kernels.survey(block, labels, soft, weights, gaps)
        part.complain(kind, row)
        sums = ExactSums(kernels.MOMENTS * len(self.inverses))
        terms = np.empty((sums.count, part.rows))
        for number, inverse in enumerate(self.inverses):
            own = terms[number * kernels.MOMENTS : (number + 1) * kernels.MOMENTS]
            if inverse == 0.0:
                kernels.flat_moments(block, gaps, weights, own)
            else:
                kernels.moments(block, gaps, weights, inverse, own)
        sums.add(terms)
        return Moments(self.inverses, misses, sums)


class PassLikelihood:
    """`Likelihood` for rows of any number: each evaluation is a pass over them."""

    def __init__(self, rows: RowParts, split: Split | None, exponent: int = 0) -> None:
        self.rows, self.split, self.exponent = rows, split, exponent
        self.misses = -1  # not known before the first pass
        self.companion: Any = None  # a job that the next pass does too
        self.companion_state: Any = None

    def points(self, inverses: tuple[float, ...], tell: Tell | None = None) -> list[Point]:
        job = MomentsAt(inverses, self.split, self.exponent)
        if self.companion is None:
            found = self.rows.run(job, tell)
        else:
            both = self.rows.run(Together((job, self.companion)), tell)
            found, self.companion_state = both.states
            self.companion = None
        if found is None or found.points()[0].weight == 0.0:
            raise no_rows()
        self.misses = found.misses
        points: list[Point] = found.points()
        return points

    def at(self, inverse: float) -> Point:
        return self.points((inverse,))[0]

    def flat(self) -> Point:
        return self.points((0.0,))[0]
