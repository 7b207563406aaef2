"""Two models, or two calibrators, on the same rows: paired differences with intervals."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import exact as kernels
from hotmax.calibration.binning import BINS, width_edges
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.exact_sums import CellSums, ExactSums
from hotmax.calibration.examples import Examples, no_rows, one_temperature, read
from hotmax.calibration.row_parts import ignored_number, names_of_labels
from hotmax.calibration.score_sums import fill_squares, normal_estimate
from hotmax.calibration.scores import Scores, score
from hotmax.calibration.source import Source

METRICS = ("nll", "brier", "accuracy")
JOINT = BINS * BINS * 4  # bins of both, and which of them is right


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: metrics of both, and b - a with 95 % intervals from paired rows.

    Attributes:
        rows: The number of rows.
        a, b: Metrics of each: a dict of nll, brier, accuracy and ece.
        nll, brier, accuracy, ece: The differences b - a.
        agreement: The share of rows in which both predict the same class.
    """

    rows: int
    a: dict[str, float]
    b: dict[str, float]
    nll: Estimate
    brier: Estimate
    accuracy: Estimate
    ece: Estimate
    agreement: float

    def __str__(self) -> str:
        lines = [f"{'':<9}{'a':>10}{'b':>10}{'b - a':>11}   95 %"]
        for name in ("nll", "brier", "accuracy", "ece"):
            change: Estimate = getattr(self, name)
            low, high = change.interval
            sure = "" if low <= 0.0 <= high else "  *"
            lines.append(
                f"{name:<9}{self.a[name]:>10.5f}{self.b[name]:>10.5f}{change.value:>+11.5f}   "
                f"{low:+.5f} to {high:+.5f}{sure}"
            )
        lines.append(
            f"{self.rows} rows; both predict the same class in {self.agreement:.1%}; * the "
            "interval excludes 0"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_comparison

        return plot_comparison(self, ax=ax)


class ComparisonState:
    """What `compare` has summed so far: feed it batches, merge it, ask for the result.

    Example:
        >>> import hotmax as hm
        >>> state = hm.calibration.ComparisonState()
        >>> state = state.update([[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]], [0, 0])
        >>> round(state.result().nll.value, 4)
        0.5
    """

    def __init__(self) -> None:
        self.rows = self.agreed = 0
        self.sums = ExactSums(2 * 3 * len(METRICS))
        self.counts = np.zeros(JOINT, np.int64)
        self.confidence = CellSums(JOINT, (1, 1))

    def update(
        self,
        a: object,
        b: object,
        labels: object,
        *,
        ignore_index: int | None = None,
        input: str = "logits",
        temperatures: tuple[object, object] = (1.0, 1.0),
        class_names: object = None,
    ) -> ComparisonState:
        """Add rows of both, and their labels. Returns the state."""
        options: dict[str, Any] = {"ignore_index": ignore_index, "input": input, "name": "labels"}
        options["class_names"] = class_names
        pair = [read(one, labels, whole=False, **options) for one in (a, b)]
        if pair[0].classes != pair[1].classes or pair[0].rows != pair[1].rows:
            raise ValueError(
                f"a and b must have the same shape, got {pair[0].x.shape} and {pair[1].x.shape}"
            )
        if not pair[0].labels.size:
            raise ValueError("labels must be integers, one for each row")
        self._add(pair, [one_temperature(one) for one in temperatures])
        return self

    def _add(self, pair: list[Examples], temperatures: list[float]) -> None:
        there = np.flatnonzero(pair[0].weight_of_rows() > 0)
        if not there.size:
            return
        first, second = (
            score(one.taking(there), t) for one, t in zip(pair, temperatures, strict=True)
        )
        self.rows += there.size
        self.agreed += int((first.predictions == second.predictions).sum())
        values = [
            value
            for mine, theirs in zip(measured(first), measured(second), strict=True)
            for value in (mine, theirs, theirs - mine)
        ]
        terms = np.empty((2 * len(values), there.size))
        fill_squares(terms, values)
        self.sums.add(terms)
        at = joint_cells(first, second)
        self.counts += np.bincount(at, minlength=JOINT)
        one = np.ones(1)
        self.confidence.prepare(one)
        units, digits = self.confidence.units(1), self.confidence.digits
        for field, part in enumerate((first, second)):
            kernels.add_labels(at, part.confidence, units, digits, field)

    def merge(self, other: ComparisonState) -> ComparisonState:
        """Add what another state has summed, in any order. Returns the state itself."""
        if not isinstance(other, ComparisonState):
            raise TypeError(f"other must be a ComparisonState, got {type(other).__name__}")
        self.rows += other.rows
        self.agreed += other.agreed
        self.sums.merge(other.sums)
        self.counts = self.counts + other.counts
        self.confidence.merge(other.confidence)
        return self

    def result(self) -> Comparison:
        """The comparison of all rows so far."""
        if not self.rows:
            raise no_rows()
        first_model, second_model, change = (
            {
                name: normal_estimate(self.sums, 2 * (3 * m + k), self.rows)
                for m, name in enumerate(METRICS)
            }
            for k in range(3)
        )
        error, first, second = self.ece_change()
        return Comparison(
            rows=self.rows,
            a={name: one.value for name, one in first_model.items()} | {"ece": first},
            b={name: one.value for name, one in second_model.items()} | {"ece": second},
            nll=change["nll"],
            brier=change["brier"],
            accuracy=change["accuracy"],
            ece=error,
            agreement=self.agreed / self.rows,
        )

    def ece_change(self) -> tuple[Estimate, float, float]:
        """The change of the ECE, with the standard error of its linear part, from joint cells."""
        full = np.flatnonzero(self.counts)
        count = self.counts[full].astype(np.float64)
        said = self.confidence.values()[full] / count[:, None]
        bins = np.stack([full // (4 * BINS), full // 4 % BINS], 1)
        right = np.stack([full // 2 % 2, full % 2], 1)
        excess = said - right
        errors, influence = [], np.zeros(full.size)
        for model, sign in ((0, -1.0), (1, 1.0)):
            total = np.bincount(bins[:, model], count * excess[:, model], BINS)
            errors.append(float(np.abs(total).sum() / self.rows))
            # A row moves the error by its own excess, in the direction of its bin's.
            influence += sign * np.sign(total)[bins[:, model]] * excess[:, model]
        change = errors[1] - errors[0]
        variance = float((count * (influence - change) ** 2).sum()) / self.rows
        width = float(NORMAL * np.sqrt(variance / self.rows))
        first, second = self._sign_noise(count, bins, excess)
        ends = change - width - second, change + width + first
        return Estimate(change, ends), errors[0], errors[1]

    def _sign_noise(self, count: Array, bins: Array, excess: Array) -> list[float]:
        """How far noise may have pushed the ECE of each up: bins whose gap may have either sign.

        The mean of abs(gap) exceeds the abs of the mean by sqrt(2 / pi) standard errors at most.
        """
        pushed = []
        for model in (0, 1):
            total = np.bincount(bins[:, model], count * excess[:, model], BINS)
            square = np.bincount(bins[:, model], count * excess[:, model] ** 2, BINS)
            error = np.sqrt(square)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.where(error > 0, np.abs(total) / error, 9.0)
            excesses = np.sqrt(2 / np.pi) * error * np.exp(-(ratio**2) / 2)
            pushed.append(float(excesses.sum() / self.rows))
        return pushed


def measured(rows: Scores) -> tuple[Array, Array, Array]:
    return rows.nll, rows.brier, rows.correct


def joint_cells(first: Scores, second: Scores) -> Array:
    """The cell of each row: the bins of both, and which of them is right."""
    at = np.zeros(first.confidence.size, np.int64)
    for part in (first, second):
        bins = np.searchsorted(width_edges(BINS, part.dtype)[1:-1], part.confidence, "left")
        at = at * BINS + bins
    for part in (first, second):
        at = at * 2 + (part.correct > 0.5)
    return at


# --- rows of both -----------------------------------------------------------------------------


def paired_blocks(a: Source, b: Source) -> Iterator[tuple[Array, Array, Array]]:
    """Rows of two sources side by side, however each is cut into blocks."""
    for source, name in ((a, "a"), (b, "b")):
        if not source.has_labels:
            raise ValueError(f"{name}: {source.name} has no labels")
    if (a.rows, a.classes) != (b.rows, b.classes):
        raise ValueError(
            f"a and b must hold the same rows and classes: {a.name} has {a.rows} x {a.classes}, "
            f"{b.name} {b.rows} x {b.classes}"
        )
    right, y, done = np.empty((0, b.classes)), np.empty(0, np.int64), 0
    others = b.blocks()
    for x, labels in a.blocks():
        while len(x):
            if not len(right):
                right, found = next(others)
                assert found is not None
                y = found
            count = min(len(x), len(right))
            assert labels is not None
            if not np.array_equal(labels[:count], y[:count]):
                row = done + int(np.argmax(labels[:count] != y[:count]))
                raise ValueError(
                    f"a and b are not the same rows: {a.name} and {b.name}: the labels of row "
                    f"{row} differ"
                )
            yield x[:count], right[:count], labels[:count]
            x, labels, right, y = x[count:], labels[count:], right[count:], y[count:]
            done += count


def compare(
    a: object,
    b: object,
    labels: object = None,
    *,
    temperatures: tuple[object, object] = (1.0, 1.0),
    ignore_index: int | None = None,
    input: str = "logits",
    class_names: object = None,
) -> Comparison:
    """Two models or calibrators on the same rows: b - a of nll, Brier score, accuracy and ECE.

    Differences are taken row by row, so that what both find hard cancels. Means have intervals of
    1.96 standard errors; so has the ECE, widened by how far noise may have pushed each of the two
    up.

    Args:
        a, b: Logits, or probabilities, of the same rows; or two Sources, read in blocks.
        labels: The class of each row; left out for Sources, which bring their own.
        temperatures: Of a and of b.
        ignore_index, input, class_names: As in `nll`.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3)) * 4
        >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        >>> result = hm.calibration.compare(logits, logits / 2, labels)
        >>> result.nll.interval[1] < 0.0, result.accuracy.value
        (True, 0.0)
    """
    state = ComparisonState()
    if isinstance(a, Source) and isinstance(b, Source):
        if labels is not None:
            raise TypeError("labels must be left out: a Source brings its own")
        if a.input != b.input:
            raise ValueError(f"a and b must both be logits or probabilities: {a.input}, {b.input}")
        names = names_of_labels(a, class_names)
        for x, other, y in paired_blocks(a, b):
            state.update(
                x,
                other,
                y,
                ignore_index=ignored_number(a, ignore_index),
                input=a.input,
                temperatures=temperatures,
                class_names=names,
            )
        return state.result()
    if labels is None:
        raise TypeError("labels must be given, unless a and b are Sources that have them")
    state.update(
        a,
        b,
        labels,
        ignore_index=ignore_index,
        input=input,
        temperatures=temperatures,
        class_names=class_names,
    )
    return state.result()
