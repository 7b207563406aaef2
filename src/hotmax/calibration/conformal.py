"""Conformal prediction: sets of classes that hold the true one as often as promised.

Whatever the model, if the rows to come are exchangeable with those of the fit. The score of a class
is a fixed function of its row: the random numbers of "aps" and "raps" are a hash of the row's
logits and the seed. The promise therefore holds exactly, and a row has the same set in any batch.
"""

from __future__ import annotations

import html
import math
import os
import sys
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_bool, as_integer, as_real, as_seed
from hotmax.calibration.examples import Examples, no_rows, one_temperature, read_rows, shape_of
from hotmax.calibration.reservoir import rows_to_fit
from hotmax.calibration.row_hash import content_hashes
from hotmax.calibration.row_parts import RowOptions, row_parts
from hotmax.calibration.rule_files import Field, read_rule, write_rule
from hotmax.calibration.scores import row_probabilities
from hotmax.calibration.set_coverage import ConformalEvaluation, SetCounts, evaluation_of

CONFORMAL_FORMAT = "hotmax prediction sets"
METHODS = ("lac", "aps", "raps")


@dataclass(frozen=True)
class Conformal:
    """The result of `fit`: a threshold on the score of a class, and `sets` that apply it.

    Attributes:
        method: "lac", "aps" or "raps".
        coverage: The share of rows whose set holds the label, at least.
        threshold: Classes whose score is at most this are in the set; inf takes them all. The
            largest one, if each class has its own.
        num_classes: The number of classes.
        temperature: Of the logits.
        penalty, free: For "raps": what each class beyond the `free` likeliest ones adds.
        rows: The rows of the fit.
        all_rows: The rows that they were drawn from.
        randomize: Whether "aps" and "raps" take a share of the last class at random.
        allow_empty: Whether a set may be empty; else it holds the likeliest class.
        thresholds: One for each class if coverage holds in each class; else empty.
        seed: Of the random numbers.
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
    randomize: bool = True
    allow_empty: bool = False
    thresholds: tuple[float, ...] = ()
    seed: int = 0

    @property
    def class_conditional(self) -> bool:
        """Whether the coverage is promised for the rows of each class, and not only of all."""
        return bool(self.thresholds)

    def __str__(self) -> str:
        drawn = f"{self.rows} of {self.all_rows}" if self.rows < self.all_rows else f"{self.rows}"
        whole = f"thresholds up to {self.threshold:.6g}" if self.thresholds else ""
        of = "the rows of each class" if self.thresholds else "all rows"
        return (
            f"{self.method}: sets that hold the label in at least {self.coverage:g} of {of}; "
            f"{whole or f'threshold {self.threshold:.6g}'} from {drawn} rows"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def sets(self, logits: object, *, where: object = None, input: str = "logits") -> Array:
        """Which classes are in the set of each row: bools of shape (rows, classes).

        A class that is not there (-inf, or False in `where`) is in no set. A row's set depends on
        its logits alone: not on the rows around it.
        """
        x, mask = read_rows(logits, where=where, input=input, suspicious=False)
        if x.shape[1] != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {x.shape[1]}")
        examples = unlabelled(x, mask, input)
        p = row_probabilities(examples, self.temperature, 0, examples.rows)
        if np.isnan(p).any():
            row = int(np.argmax(np.isnan(p).any(1)))
            raise ValueError(f"logits: row {row} holds nan, or nothing but -inf")
        limit = np.array(self.thresholds) if self.thresholds else self.threshold
        inside = self._scores(examples, p) <= limit
        there = np.isfinite(examples.block(0, examples.rows)) | (p > 0)
        shape = (*shape_of(logits)[:-1], self.num_classes)
        result: Array = (inside & there).reshape(shape)
        return result

    def _scores(self, examples: Examples, p: Array) -> Array:
        share = None
        if self.randomize and self.method != "lac":
            share = random_shares(examples, self.seed)
        return scores_of(p, self.method, self.penalty, self.free, share, self.allow_empty)

    def evaluate(
        self,
        logits: object,
        labels: object = None,
        **options: Unpack[RowOptions],
    ) -> ConformalEvaluation:
        """How often the sets hold the labels of other rows, and how large they are.

        The coverage is also given by confidence, by size and by class.
        """
        rows = row_parts(logits, labels, name="labels", **options)
        if rows.classes != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {rows.classes}")
        found: SetCounts = rows.run(SetCountsOf(self))
        if not found.rows:
            raise no_rows()
        return evaluation_of(found, self.coverage)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the thresholds as JSON, for `load`; an existing file only with `force`."""
        values = {name: getattr(self, name) for name in CONFORMAL_FIELDS}
        write_rule(path, CONFORMAL_FORMAT, {**values, "thresholds": list(self.thresholds)}, force)


CONFORMAL_FIELDS = {
    "method": Field(str, METHODS),
    "coverage": Field(float, (0.0, 1.0)),
    "threshold": Field(float, (-math.inf, math.inf)),
    "num_classes": Field(int, (1, 1 << 22)),
    "temperature": Field(float, (-math.inf, math.inf)),
    "penalty": Field(float, (0.0, math.inf)),
    "free": Field(int, (0, sys.maxsize)),
    "rows": Field(int, (1, sys.maxsize)),
    "all_rows": Field(int, (0, sys.maxsize)),
    "randomize": Field(bool),
    "allow_empty": Field(bool),
    "thresholds": Field(list, (-math.inf, math.inf)),
    "seed": Field(int, (0, 2**64 - 1)),
}


def load(path: str | os.PathLike[str]) -> Conformal:
    """Read prediction sets that `Conformal.save` has written; types and ranges are checked.

    Raises:
        ValueError: If the file holds something else or is damaged; it names the file.
        OSError: If it is not there or may not be read.
    """
    values = read_rule(path, CONFORMAL_FORMAT, CONFORMAL_FIELDS)
    thresholds = tuple(values["thresholds"])
    if thresholds and len(thresholds) != values["num_classes"]:
        raise ValueError(
            f"{path} is damaged: {len(thresholds)} thresholds for {values['num_classes']} classes"
        )
    return Conformal(**{**values, "thresholds": thresholds})


@dataclass(frozen=True)
class SetCountsOf:
    """The job that applies a fit to labelled rows."""

    fitted: Conformal

    def __call__(self, examples: Examples) -> SetCounts:
        hard, x = labels_of(examples), examples.x
        counted = np.flatnonzero(examples.weight_of_rows() > 0)
        part = examples.taking(counted)
        counts = SetCounts(self.fitted.num_classes)
        if not counted.size:
            return counts
        kind = "probabilities" if examples.probabilities else "logits"
        inside = self.fitted.sets(x[counted], where=part.where, input=kind)
        p = row_probabilities(part, self.fitted.temperature, 0, part.rows)
        counts.add(inside, hard[counted], p.max(1))
        return counts


def unlabelled(x: Array, mask: Array | None, input: str) -> Examples:
    nothing = np.empty(0, np.int64)
    return Examples(x, mask, nothing, np.empty((1, 0)), np.ones(1), input == "probabilities")


def labels_of(examples: Examples) -> Array:
    if examples.labels.size == 0:
        raise ValueError("labels must be integers: a set holds a class or does not")
    return examples.labels


def random_shares(examples: Examples, seed: int) -> Array:
    """A number in 0..1 for each row: a hash of its logits, as float64, and of the seed."""
    x = examples.block(0, examples.rows).astype(np.float64)
    shares: Array = (content_hashes(seed, x) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return shares


def scores_of(
    p: Array,
    method: str,
    penalty: float,
    free: int,
    share: Array | None = None,
    allow_empty: bool = False,
) -> Array:
    """How strange each class is, given the probabilities of its row; the likeliest is least so.

    lac   1 - p of the class
    aps   the sum of p over all likelier ones, and `share` of its own; of equal ones the first is
          likelier. A share of 0 always takes in the class in which the sum crosses the threshold.
    raps  the same, and `penalty` for each rank beyond `free`

    Unless sets may be empty, the score of the likeliest is 0, which no threshold is below.
    """
    if method == "lac":
        scores: Array = 1.0 - p
    else:
        order = np.argsort(-p, axis=1, kind="stable")
        ordered = np.take_along_axis(p, order, 1)
        total = np.zeros_like(p)
        np.cumsum(ordered[:, :-1], axis=1, out=total[:, 1:])
        if share is not None:
            total += share[:, None] * ordered
        if method == "raps":
            total += penalty * np.maximum(np.arange(1, p.shape[1] + 1) - free, 0)
        scores = np.empty_like(p)
        np.put_along_axis(scores, order, total, 1)
    if not allow_empty:
        scores[np.arange(len(p)), p.argmax(1)] = 0.0
    return scores


def threshold_of(scores: Array, weights: Array, coverage: float) -> float:
    """The first score at which the weight up to it is (sum of weights + 1) coverage; inf: none."""
    order = np.argsort(scores)
    weight = np.cumsum(weights[order])
    total = float(weight[-1]) if weight.size else 0.0
    at = int(np.searchsorted(weight, (total + 1) * coverage - 1e-9))
    return math.inf if at == scores.size else float(scores[order[at]])


def fit(
    logits: object,
    labels: object = None,
    *,
    coverage: float = 0.9,
    method: str = "lac",
    temperature: object = 1.0,
    penalty: float = 0.01,
    free: int = 5,
    randomize: bool = True,
    allow_empty: bool = False,
    class_conditional: bool = False,
    sample_weight: object = None,
    max_rows: int | None = None,
    seed: int = 0,
    **options: Unpack[RowOptions],
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
        randomize: For "aps" and "raps": take the class in which the sum of probabilities crosses
            the threshold in a share of rows, drawn by a hash of the row's logits and the seed. The
            sets are then smaller. False always takes it.
        allow_empty: Let a set be empty where no class is below the threshold. Otherwise it holds
            the likeliest class, and the threshold accounts for that.
        class_conditional: Promise the coverage for the rows of each class, by a threshold for each
            (Mondrian). A class with fewer than coverage / (1 - coverage) rows is in every set.
        sample_weight: The weight of each row: 2 counts as two rows.
        **options: ignore_index, where, input, class_names: see `RowOptions`.
        max_rows: The most rows that the threshold is taken from, drawn at random: 20,000 (and
            16,777,216 logits) unless told.
        seed: Of that draw, and of the random numbers.

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
    seed = as_seed(seed)
    randomize = as_bool(randomize, "randomize")
    allow_empty = as_bool(allow_empty, "allow_empty")
    class_conditional = as_bool(class_conditional, "class_conditional")
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie above 0 and below 1, got {coverage}")
    if not penalty >= 0.0:
        raise ValueError(f"penalty must not be negative, got {penalty}")
    rows = row_parts(logits, labels, sample_weight=sample_weight, name="labels", **options)
    examples = rows_to_fit(rows, max_rows, seed)
    hard = labels_of(examples)
    counted = np.flatnonzero(examples.weight_of_rows() > 0)
    temperature = one_temperature(temperature)
    free = min(int(free), sys.maxsize)  # more classes than there can be
    p = row_probabilities(examples, temperature, 0, examples.rows)[counted]
    if np.isnan(p).any():
        row = int(counted[np.argmax(np.isnan(p).any(1))])
        raise ValueError(f"logits: row {row} holds nan, or nothing but -inf")
    share = None
    if randomize and method != "lac":
        share = random_shares(examples.taking(counted), seed)
    y = hard[counted]
    scores = scores_of(p, method, penalty, free, share, allow_empty)[np.arange(y.size), y]
    weights, aim = examples.weight_of_rows()[counted], float(coverage)
    thresholds: tuple[float, ...] = ()
    if class_conditional:
        of_class = (y == k for k in range(examples.classes))
        thresholds = tuple(threshold_of(scores[own], weights[own], aim) for own in of_class)
    return Conformal(
        method=method,
        coverage=aim,
        threshold=max(thresholds) if thresholds else threshold_of(scores, weights, aim),
        num_classes=examples.classes,
        temperature=temperature,
        penalty=float(penalty),
        free=int(free),
        rows=int(counted.size),
        all_rows=rows.rows if examples.rows < rows.rows else int(counted.size),
        randomize=bool(randomize),
        allow_empty=bool(allow_empty),
        thresholds=thresholds,
        seed=int(seed),
    )
