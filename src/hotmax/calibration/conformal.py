"""Conformal prediction: sets of classes that hold the true one as often as promised.

Whatever the model, if the rows to come are exchangeable with those of the fit.
"""

from __future__ import annotations

import html
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_integer, as_real, as_seed
from hotmax.calibration.examples import Examples, no_rows, one_temperature, read_rows, shape_of
from hotmax.calibration.reservoir import rows_to_fit
from hotmax.calibration.row_parts import row_parts
from hotmax.calibration.scores import row_probabilities

METHODS = ("lac", "aps", "raps")


@dataclass(frozen=True)
class Conformal:
    """The result of `fit`: a threshold on the score of a class, and `sets` that apply it.

    Attributes:
        method: "lac", "aps" or "raps".
        coverage: The share of rows whose set holds the label, at least.
        threshold: Classes whose score is at most this are in the set; inf takes them all.
        num_classes: The number of classes.
        temperature: Of the logits.
        penalty, free: For "raps": what each class beyond the `free` likeliest ones adds.
        rows: The rows of the fit.
        all_rows: The rows that they were drawn from.
    """

    method: str
    coverage: float
    threshold: float
    num_classes: int
    temperature: float
    penalty: float
    free: int
    rows: int
    all_rows: int = 0

    def __str__(self) -> str:
        drawn = f"{self.rows} of {self.all_rows}" if self.rows < self.all_rows else f"{self.rows}"
        return (
            f"{self.method}: sets that hold the label in at least {self.coverage:g} of all rows; "
            f"threshold {self.threshold:.6g} from {drawn} rows"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def sets(self, logits: object, *, where: object = None, input: str = "logits") -> Array:
        """Which classes are in the set of each row: bools of shape (rows, classes).

        A class that is not there (-inf, or False in `where`) is in no set.
        """
        x, mask = read_rows(logits, where=where, input=input, suspicious=False)
        if x.shape[1] != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {x.shape[1]}")
        examples = unlabelled(x, mask, input)
        p = row_probabilities(examples, self.temperature, 0, examples.rows)
        if np.isnan(p).any():
            row = int(np.argmax(np.isnan(p).any(1)))
            raise ValueError(f"logits: row {row} holds nan, or nothing but -inf")
        inside = scores_of(p, self.method, self.penalty, self.free) <= self.threshold
        there = np.isfinite(examples.block(0, examples.rows)) | (p > 0)
        shape = (*shape_of(logits)[:-1], self.num_classes)
        result: Array = (inside & there).reshape(shape)
        return result

    def evaluate(
        self,
        logits: object,
        labels: object = None,
        *,
        ignore_index: int | None = None,
        where: object = None,
        input: str = "logits",
    ) -> ConformalEvaluation:
        """How often the sets hold the labels of other rows, and how large they are."""
        rows = row_parts(
            logits, labels, ignore_index=ignore_index, where=where, input=input, name="labels"
        )
        if rows.classes != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {rows.classes}")
        found: SetCounts = rows.run(SetCountsOf(self))
        counted = int(found.sizes.sum())
        if not counted:
            raise no_rows()
        return ConformalEvaluation(
            promised=self.coverage,
            coverage=found.hits / counted,
            mean_size=float(found.sizes @ np.arange(self.num_classes + 1)) / counted,
            sizes=found.sizes,
            rows=counted,
        )


class SetCounts:
    """How many sets hold the label, and how many have each size."""

    def __init__(self, hits: int, sizes: Array) -> None:
        self.hits, self.sizes = hits, sizes

    def merge(self, other: SetCounts) -> SetCounts:
        self.hits += other.hits
        self.sizes = self.sizes + other.sizes
        return self


@dataclass(frozen=True)
class SetCountsOf:
    """The job that applies a fit to labelled rows."""

    fitted: Conformal

    def __call__(self, examples: Examples) -> SetCounts:
        hard, x = labels_of(examples), examples.x
        counted = np.flatnonzero(examples.weight_of_rows() > 0)
        part = examples.taking(counted)
        if not counted.size:
            return SetCounts(0, np.zeros(self.fitted.num_classes + 1, np.int64))
        kind = "probabilities" if examples.probabilities else "logits"
        inside = self.fitted.sets(x[counted], where=part.where, input=kind)
        sizes = np.bincount(inside.sum(1), minlength=self.fitted.num_classes + 1)
        return SetCounts(int(inside[np.arange(counted.size), hard[counted]].sum()), sizes)


@dataclass(frozen=True, eq=False)
class ConformalEvaluation:
    """Coverage and size of prediction sets on rows that were not used for the fit.

    Attributes:
        promised: The coverage asked for.
        coverage: The share of rows whose set holds the label.
        mean_size: The mean number of classes in a set.
        sizes: sizes[k] rows have a set of k classes.
        rows: The number of rows.
    """

    promised: float
    coverage: float
    mean_size: float
    sizes: Array
    rows: int

    def __str__(self) -> str:
        return (
            f"coverage {self.coverage:.2%} of {self.rows} rows (promised {self.promised:.2%}), "
            f"{self.mean_size:.3g} classes on average"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw how many rows have sets of which size on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_conformal

        return plot_conformal(self, ax=ax)


def unlabelled(x: Array, mask: Array | None, input: str) -> Examples:
    nothing = np.empty(0, np.int64)
    return Examples(x, mask, nothing, np.empty((1, 0)), np.ones(1), input == "probabilities")


def labels_of(examples: Examples) -> Array:
    if examples.labels.size == 0:
        raise ValueError("labels must be integers: a set holds a class or does not")
    return examples.labels


def scores_of(p: Array, method: str, penalty: float, free: int) -> Array:
    """How strange each class is, given the probabilities of its row; the likeliest is least so.

    lac   1 - p of the class
    aps   the sum of p over the class and all likelier ones; of equal ones the first is likelier
    raps  the same, and `penalty` for each rank beyond `free`
    """
    if method == "lac":
        result: Array = 1.0 - p
        return result
    order = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, order, 1)
    total = np.cumsum(ordered, axis=1)
    if method == "raps":
        total += penalty * np.maximum(np.arange(1, p.shape[1] + 1) - free, 0)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, total, 1)
    return scores


def fit(
    logits: object,
    labels: object = None,
    *,
    coverage: float = 0.9,
    method: str = "lac",
    temperature: object = 1.0,
    penalty: float = 0.01,
    free: int = 5,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    max_rows: int | None = None,
    seed: int = 0,
) -> Conformal:
    """Prediction sets that hold the label with a chance of at least `coverage`.

    The threshold is the ceil((n + 1) coverage)-th smallest of the scores of n labels: the first at
    which the weight of the scores up to it is (sum of weights + 1) coverage.

    Args:
        logits: (rows, classes), of rows that the model was not trained on.
        labels: The class of each row.
        coverage: Above 0 and below 1.
        method: "lac", the smallest sets on average; "aps", sets that grow where the model is
            unsure; "raps", the same with a penalty on large ones.
        temperature: Of the logits.
        penalty, free: For "raps": each class beyond the `free` likeliest ones costs `penalty`.
        sample_weight: The weight of each row: 2 counts as two rows.
        ignore_index, where, input: As in `nll`.
        max_rows: The most rows that the threshold is taken from, drawn at random: 20,000 (and
            16,777,216 logits) unless told.
        seed: Of that draw.

    Returns:
        A Conformal, with `sets(logits)` and `evaluate(logits, labels)`.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(9000, 5)) * 2
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        >>> fitted = hm.calibration.conformal.fit(logits[:4500], labels[:4500], coverage=0.9)
        >>> print(fitted.evaluate(logits[4500:], labels[4500:]))
        coverage 90.16% of 4500 rows (promised 90.00%), 2.11 classes on average

    Reference:
        Sadinle, Lei and Wasserman, Least ambiguous set-valued classifiers with bounded error
        levels, 2019. Romano, Sesia and Candes, Classification with valid and adaptive coverage,
        2020. Angelopoulos et al., Uncertainty sets for image classifiers, 2021.
    """
    if method not in METHODS:
        raise ValueError(f'method must be "lac", "aps" or "raps", got {method!r}')
    for name, value in (("coverage", coverage), ("penalty", penalty)):
        as_real(value, name)
    free = as_integer(free, "free", 0)
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie above 0 and below 1, got {coverage}")
    if not penalty >= 0.0:
        raise ValueError(f"penalty must not be negative, got {penalty}")
    rows = row_parts(
        logits,
        labels,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        where=where,
        input=input,
        name="labels",
    )
    examples = rows_to_fit(rows, max_rows, as_seed(seed))
    hard = labels_of(examples)
    counted = np.flatnonzero(examples.weight_of_rows() > 0)
    temperature = one_temperature(temperature)
    free = min(int(free), sys.maxsize)  # more classes than there can be
    p = row_probabilities(examples, temperature, 0, examples.rows)[counted]
    if np.isnan(p).any():
        row = int(counted[np.argmax(np.isnan(p).any(1))])
        raise ValueError(f"logits: row {row} holds nan, or nothing but -inf")
    scores = scores_of(p, method, penalty, free)[np.arange(counted.size), hard[counted]]
    order = np.argsort(scores)
    weight = np.cumsum(examples.weight_of_rows()[counted][order])
    at = int(np.searchsorted(weight, (weight[-1] + 1) * float(coverage) - 1e-9))
    return Conformal(
        method=method,
        coverage=float(coverage),
        threshold=math.inf if at == counted.size else float(scores[order[at]]),
        num_classes=examples.classes,
        temperature=temperature,
        penalty=float(penalty),
        free=int(free),
        rows=int(counted.size),
        all_rows=rows.rows if examples.rows < rows.rows else int(counted.size),
    )
