"""Sums over rows whose bits do not depend on blocks, threads, merges or retries.

`ExactSums` holds a few sums of terms of any size, `CellSums` many sums of terms no larger than the
largest weight. Both are integers inside, so that merging is associative and commutative to the last
bit, and rounding happens once, when a sum is read.
"""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels

DIGIT = 30  # bits of a digit of CellSums: 2**33 rows before one could overflow
UNIT = 1 << 1074  # whose reciprocal is the unit of ExactSums, the smallest float64
LOWEST_TOP, HIGHEST_TOP = -31, 33  # of the first unit, in digits: all units are normal numbers


class ExactSums:
    """Sums of float64 terms of any size: exact, and rounded once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.digits = np.zeros((count, kernels.FIELDS), np.int64)

    def add(self, terms: Array) -> None:
        """Sum i goes up by all of terms[i]."""
        kernels.add_terms(terms, self.digits)
        kernels.carry(self.digits)

    def merge(self, other: ExactSums) -> ExactSums:
        self.digits += other.digits
        kernels.carry(self.digits)
        return self

    def integer(self, number: int) -> int | None:
        """The sum in units of 2**-1074; None if a term was inf or nan."""
        digits = self.digits[number]
        if digits[kernels.INFINITE] or digits[kernels.UNDEFINED]:
            return None
        last = kernels.DIGITS - 1  # the only digit that may be negative
        low = int.from_bytes(digits[:last].astype("<u4").tobytes(), "little")
        return low + (int(digits[last]) << (32 * last))

    def fraction(self, number: int) -> Fraction | None:
        """The sum as it is; None if a term was inf or nan."""
        total = self.integer(number)
        return None if total is None else Fraction(total, UNIT)

    def ratio(self, number: int, other: int) -> float | None:
        """The quotient of two sums, rounded once; None if a term of them was inf or nan."""
        top, bottom = self.integer(number), self.integer(other)
        return None if top is None or not bottom else quotient(top, bottom)

    def value(self, number: int) -> float:
        total = self.integer(number)
        if total is not None:
            return quotient(total, UNIT)
        return math.nan if self.digits[number, kernels.UNDEFINED] else math.inf

    def values(self) -> list[float]:
        return [self.value(number) for number in range(len(self.digits))]


def quotient(top: int, bottom: int) -> float:
    """The float64 nearest to a quotient, inf where there is none."""
    try:
        return top / bottom
    except OverflowError:
        return math.inf if (top > 0) == (bottom > 0) else -math.inf


def as_float(exact: Fraction) -> float:
    return quotient(exact.numerator, exact.denominator)


def mean_and_deviation(first: Fraction, second: Fraction, rows: int) -> tuple[float, float]:
    """The mean and the standard deviation, over rows - 1, from sums of values and of squares."""
    variance = (second - first * first / rows) / max(rows - 1, 1)
    return as_float(first / rows), math.sqrt(max(as_float(variance), 0.0))


class CellSums:
    """(cells, fields) sums of terms of at most the largest weight: three digits of 30 bits each.

    The units are powers of 2**30. A larger weight moves them up; digits below the last unit are
    dropped, as they would have been had the weight come first. So the result is the same for every
    order, and each term is right to 2**-60 of the largest weight.

    Args:
        cells: How many.
        powers: For each field, the power of the weight that bounds its terms: 0 for counts.
    """

    def __init__(self, cells: int, powers: tuple[int, ...]) -> None:
        self.digits = np.zeros((cells, len(powers), kernels.CELL_DIGITS), np.int64)
        self.powers = powers
        self.tops: tuple[int, ...] = (
            0,
            LOWEST_TOP,
            LOWEST_TOP,
        )  # for each power, the exponent of its first unit

    def raise_to(self, tops: tuple[int, ...]) -> None:
        """Move the units up, so that larger weights fit."""
        lifts = [max(new - old, 0) for new, old in zip(tops, self.tops, strict=True)]
        for field, power in enumerate(self.powers):
            lift = min(lifts[power], kernels.CELL_DIGITS)
            if lift:
                digits = self.digits[:, field]
                digits[:, lift:] = digits[:, : kernels.CELL_DIGITS - lift].copy()
                digits[:, :lift] = 0
        self.tops = tuple(old + lift for old, lift in zip(self.tops, lifts, strict=True))

    def prepare(self, weights: Array) -> None:
        """Make room for rows of these weights, before they are added."""
        largest = float(weights.max(initial=0.0))
        if largest > 0.0:
            self.raise_to((0, top_of(largest), top_of(largest * largest)))

    def units(self, power: int) -> Array:
        """The units of a field, and their reciprocals in the second row."""
        exponents = DIGIT * (self.tops[power] - np.arange(kernels.CELL_DIGITS))
        units: Array = np.ldexp(1.0, np.array([exponents, -exponents]))
        return units

    def merge(self, other: CellSums) -> CellSums:
        theirs = copy.copy(other)
        if theirs.tops != self.tops:
            self.raise_to(theirs.tops)
            theirs.digits = theirs.digits.copy()
            theirs.raise_to(self.tops)
        self.digits += theirs.digits
        return self

    def values(self) -> Array:
        """(cells, fields) as float64."""
        digits = self.digits.copy()
        for k in range(kernels.CELL_DIGITS - 1, 0, -1):
            over = digits[..., k] >> DIGIT
            digits[..., k] -= over << DIGIT
            digits[..., k - 1] += over
        sums = digits * np.stack([self.units(power)[0] for power in self.powers])
        total: Array = sums[..., 0] + (sums[..., 1] + sums[..., 2])
        return total


def top_of(largest: float) -> int:
    """The exponent, in digits, of the first unit for terms of this size."""
    exponent = math.frexp(largest)[1] - 1 if largest < math.inf else 1023
    return min(max(exponent // DIGIT, LOWEST_TOP), HIGHEST_TOP)
