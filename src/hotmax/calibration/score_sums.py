"""What several calibrators give on the same rows, summed in one pass over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels, rows as row_kernels
from hotmax.calibration.binning import CELL_POWERS, FINE_BINS, add_to_cells
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.exact_sums import CellSums, ExactSums, mean_and_deviation
from hotmax.calibration.examples import Examples
from hotmax.calibration.families import FAMILIES, SMALLEST_POSITIVE, Parameters
from hotmax.calibration.mixture import logits_of
from hotmax.calibration.one_standard_error import LossComparison, differences
from hotmax.calibration.row_parts import Split
from hotmax.calibration.row_sums import cell_edges
from hotmax.calibration.scores import Scores, score, score_probabilities
from hotmax.calibration.temperature_fit import is_limit

TOGETHER = 8192  # rows that are scored together: a hundred sums of terms are 7 MB

# For each method, sums over rows of these and of their squares.
NLL, BRIER, VALUES = 0, 1, 2
# For each class: rows that are predicted to be it, their confidence, and how many are right; before
# calibration, and at the temperature.
ROWS, SURE, HITS, CLASS_FIELDS = 0, 1, 2, 3


@dataclass(frozen=True)
class Method:
    """A calibrator to score: a temperature, or the parameters of a family."""

    name: str
    temperature: float | None
    parameters: Parameters | None = None

    @property
    def at_limit(self) -> bool:
        """Whether its temperature is 0 or inf."""
        own = self.temperature
        return is_limit((self.parameters or {}).get("temperature") if own is None else own)

    def scores(self, examples: Examples) -> Scores:
        """What each row scores, all of weight 1."""
        if self.temperature is not None:
            return score(examples, self.temperature)
        assert self.parameters is not None
        family = FAMILIES[self.name]
        p = np.maximum(family.apply(logits_of(examples), self.parameters), SMALLEST_POSITIVE)
        scores = np.empty((row_kernels.SCORED, examples.rows))
        predictions = np.empty(examples.rows, np.int64)
        score_probabilities(p, examples.labels, examples.soft, predictions, scores)
        return Scores(
            scores[row_kernels.CONFIDENCE],
            scores[row_kernels.CORRECT],
            scores[row_kernels.LOSS],
            scores[row_kernels.BRIER],
            predictions,
            np.ones(1),
            np.float64,
        )


class ScoreSums:
    """The sums of all methods over some rows."""

    def __init__(self, methods: int, classes: int) -> None:
        self.rows = 0
        self.edges = cell_edges(FINE_BINS)
        self.cells = [CellSums(self.edges.size - 1, CELL_POWERS) for _ in range(methods)]
        self.values = ExactSums(2 * VALUES * methods)
        self.pairs = list(combinations(range(methods), 2))
        self.excess = ExactSums(2 * len(self.pairs))
        self.classes = CellSums(classes, (1,) * (2 * CLASS_FIELDS))

    def merge(self, other: ScoreSums) -> ScoreSums:
        self.rows += other.rows
        for mine, theirs in zip(self.cells, other.cells, strict=True):
            mine.merge(theirs)
        self.values.merge(other.values)
        self.excess.merge(other.excess)
        self.classes.merge(other.classes)
        return self

    def add(self, scores: list[Scores]) -> None:
        one = np.ones(1)
        rows = scores[0].confidence.size
        self.rows += rows
        terms = np.empty((2 * VALUES * len(scores), rows))
        for number, part in enumerate(scores):
            edges = self.edges.astype(part.dtype).astype(np.float64)
            add_to_cells(self.cells[number], part.confidence, part.correct, one, edges)
            values = (part.nll, part.brier)
            fill_squares(terms[2 * VALUES * number : 2 * VALUES * (number + 1)], values)
        self.values.add(terms)
        if self.pairs:
            terms = np.empty((2 * len(self.pairs), rows))
            with np.errstate(invalid="ignore"):
                gaps = [differences(scores[i].nll, scores[j].nll) for i, j in self.pairs]
            fill_squares(terms, gaps)
            self.excess.add(terms)
        self.classes.prepare(one)
        units, digits = self.classes.units(1), self.classes.digits
        for place, part in enumerate(scores[:2]):
            amounts = (one, part.confidence, part.correct)
            for field, amount in enumerate(amounts):
                at = place * CLASS_FIELDS + field
                kernels.add_labels(part.predictions, amount, units, digits, at)

    # --- results ---

    def estimate(self, method: int, value: int) -> Estimate:
        """The mean of a value over rows, with 1.96 standard errors."""
        first = 2 * (VALUES * method + value)
        return normal_estimate(self.values, first, self.rows)

    def excess_over(self, method: int, other: int) -> tuple[Fraction | None, Fraction | None]:
        """Sums over rows of the nll of a method less that of another, and of its square."""
        if method == other:
            return Fraction(0), Fraction(0)
        low, high = sorted((method, other))
        at = 2 * self.pairs.index((low, high))
        first, second = self.excess.fraction(at), self.excess.fraction(at + 1)
        return (first if first is None or method < other else -first), second

    def change(self, method: int) -> Estimate:
        """The mean change of nll from the first method, with 1.96 standard errors."""
        first, second = self.excess_over(method, 0)
        if first is None or second is None:
            mean = self.estimate(method, NLL).value - self.estimate(0, NLL).value
            return Estimate(mean, (mean, mean))
        return with_normal_interval(first, second, self.rows)

    def compared(self, names: Sequence[str], numbers: Sequence[int]) -> LossComparison:
        """The one-standard-error rule on some methods, which come from the simplest on."""
        best = min(numbers, key=lambda method: self.estimate(method, NLL).value)
        excess: dict[str, tuple[float, float]] = {}
        for method, name in zip(numbers, names, strict=True):
            first, second = self.excess_over(method, best)
            if first is None or second is None:
                excess[name] = math.inf, math.nan
                continue
            mean, deviation = mean_and_deviation(first, second, self.rows)
            scale = math.sqrt(max(self.rows - 1, 1)) / self.rows
            excess[name] = mean, deviation * scale
        chosen = next(name for name, (mean, error) in excess.items() if mean <= error)
        return LossComparison(chosen, names[list(numbers).index(best)], excess)


def fill_squares(terms: Array, values: object) -> None:
    """Each value, and below it its square."""
    for number, value in enumerate(values):  # type: ignore[arg-type, var-annotated]
        terms[2 * number] = value
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(value, value, out=terms[2 * number + 1])


def normal_estimate(sums: ExactSums, first: int, rows: int) -> Estimate:
    total, squares = sums.fraction(first), sums.fraction(first + 1)
    if total is None:
        mean = sums.value(first)
        return Estimate(mean, (mean, mean))
    if squares is None:
        return Estimate(float(total / rows), (-math.inf, math.inf))
    return with_normal_interval(total, squares, rows)


def with_normal_interval(total: Fraction, squares: Fraction, rows: int) -> Estimate:
    mean, deviation = mean_and_deviation(total, squares, rows)
    if rows < 2:
        return Estimate(mean, (-math.inf, math.inf))
    width = NORMAL * deviation / math.sqrt(rows)
    return Estimate(mean, (mean - width, mean + width))


@dataclass(frozen=True)
class ScoreMethods:
    """The job that scores methods on the rows of a split; None: on all rows.

    `sums`: ScoreSums counts each row once; WeightedSums takes weights and soft labels in.
    """

    methods: tuple[Method, ...]
    split: Split | None
    sums: type[ScoreSums] = ScoreSums

    def __call__(self, examples: Examples) -> ScoreSums:
        return self.add(self.sums(len(self.methods), examples.classes), examples)

    def add(self, sums: ScoreSums, examples: Examples) -> ScoreSums:
        part = examples if self.split is None else self.split.of(examples)
        there = part.weight_of_rows() > 0
        if not there.all():
            part.check()  # before rows are taken out, and lose their numbers
            part = part.taking(np.flatnonzero(there))
        if part.rows:
            if part.weights.size > 1 and self.sums is ScoreSums:
                part = Examples(
                    part.x, part.where, part.labels, part.soft, np.ones(1), part.probabilities
                )
            for start in range(0, part.rows, TOGETHER):
                some = part.taking(slice(start, start + TOGETHER))
                sums.add([method.scores(some) for method in self.methods])
        return sums
