"""Which predictions to accept, and which to hand to a person: thresholds on confidence.

A threshold for a target error among what is accepted has a finite-sample guarantee, by fixed-
sequence testing. A part of the rows (the pilot) lays down a sequence of thresholds, from strict to
lenient. The others test them in that order: the errors among the accepted rows are binomial, and
the test is exact. It stops at the first threshold that fails. The error exceeds the target with a
probability of `level` at most, however many thresholds are tried: the first bad one would have to
pass its test.
"""

from __future__ import annotations

import html
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.checks import as_real, as_seed
from hotmax.calibration.binning import BINS, CORRECT, ROWS, WEIGHT
from hotmax.calibration.binomial import upper_bound
from hotmax.calibration.conformal import unlabelled
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.examples import no_rows, one_temperature, read_rows, shape_of
from hotmax.calibration.fixed_sequence import above, passed, sequence_of
from hotmax.calibration.method_score import share_estimate
from hotmax.calibration.passes import Together
from hotmax.calibration.row_parts import RowOptions, RowParts, Split, row_parts
from hotmax.calibration.row_sums import RowSums, RowSumsAt
from hotmax.calibration.rule_files import Field, read_rule, write_rule
from hotmax.calibration.scores import row_probabilities

ACCEPTANCE_FORMAT = "hotmax acceptance rule"
PILOT = 0.2  # the share of rows that lays down the sequence of thresholds
TARGETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True)
class Acceptance:
    """The result of `acceptance`: accept a prediction if its confidence is above `threshold`.

    Attributes:
        error: The target: the error among what is accepted exceeds it with a probability of
            `level` at most.
        level: That probability, over the labelled rows.
        threshold: Predictions of a higher confidence are accepted; inf: none, since no threshold
            could be shown to meet the target.
        accepted: The share of the testing rows that is accepted.
        observed_error: Among these; nan if there are none.
        error_bound: The exact upper bound of their error at `level`, for this threshold by itself.
        num_classes, temperature: Of the logits.
        rows: The labelled rows; a fifth of them lays down thresholds, the others test them.
    """

    error: float
    level: float
    threshold: float
    accepted: float
    observed_error: float
    error_bound: float
    num_classes: int
    temperature: float
    rows: int

    @property
    def precision(self) -> float:
        """The target as a share of right predictions."""
        return 1.0 - self.error

    def __str__(self) -> str:
        promise = (
            f"error of at most {self.error:.2%} among accepted predictions, with probability "
            f"{1 - self.level:g}"
        )
        if math.isinf(self.threshold):
            return f"{promise}: no threshold could be shown to give it on {self.rows} rows"
        return (
            f"{promise}: accept confidence above {self.threshold:.6g}; on {self.rows} rows "
            f"{self.accepted:.1%} are accepted, {1 - self.accepted:.1%} handed to a person, and "
            f"{self.observed_error:.2%} of the accepted are wrong"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def accept(self, logits: object, *, where: object = None, input: str = "logits") -> Array:
        """A bool for each row: True if its prediction is accepted, False for a person."""
        x, mask = read_rows(logits, where=where, input=input, suspicious=False)
        if x.shape[1] != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {x.shape[1]}")
        examples = unlabelled(x, mask, input)
        p = row_probabilities(examples, self.temperature, 0, examples.rows)
        if np.isnan(p).any():
            row = int(np.argmax(np.isnan(p).any(1)))
            raise ValueError(f"{examples.name}: row {row} holds nan, or nothing but -inf")
        result: Array = (p.max(1) > self.threshold).reshape(shape_of(logits)[:-1])
        return result

    def evaluate(
        self,
        logits: object,
        labels: object = None,
        **options: Unpack[RowOptions],
    ) -> AcceptanceEvaluation:
        """What is accepted of other rows, and how much of it is wrong."""
        rows = hard_rows(logits, labels, **options)
        if rows.classes != self.num_classes:
            raise ValueError(f"logits must have {self.num_classes} classes, got {rows.classes}")
        sums: RowSums = rows.run(RowSumsAt(self.temperature, BINS, False))
        counted = counts_of(sums)
        inside = sums.edges[:-1] >= self.threshold
        accepted, right = counted[inside].sum(0)
        total = int(counted[:, 0].sum())
        if not total:
            raise no_rows()
        nothing = Estimate(math.nan, (0.0, 1.0))
        wrong = share_estimate(accepted - right, accepted) if accepted else nothing
        return AcceptanceEvaluation(self.error, share_estimate(accepted, total), wrong, total)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the rule as JSON, for `load_acceptance`; an existing file only with `force`."""
        write_rule(
            path,
            ACCEPTANCE_FORMAT,
            {name: getattr(self, name) for name in ACCEPTANCE_FIELDS},
            force,
        )


@dataclass(frozen=True)
class AcceptanceEvaluation:
    """What a rule gives on other rows: shares with 95 % Wilson intervals.

    Attributes:
        target: The error that was asked for.
        accepted: The share of rows that is accepted.
        error: The share of wrong predictions among them.
        rows: The number of rows.
    """

    target: float
    accepted: Estimate
    error: Estimate
    rows: int

    def __str__(self) -> str:
        if math.isnan(self.error.value):
            return f"none of {self.rows} rows is accepted (target {self.target:.2%})"
        low, high = self.error.interval
        return (
            f"{self.accepted.value:.1%} of {self.rows} rows are accepted; "
            f"{self.error.value:.2%} of these are wrong (95 %: {low:.2%} to {high:.2%}; "
            f"target {self.target:.2%})"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


ACCEPTANCE_FIELDS = {
    "error": Field(float, (0.0, 1.0)),
    "level": Field(float, (0.0, 1.0)),
    "threshold": Field(float, (0.0, math.inf)),
    "accepted": Field(float, (0.0, 1.0)),
    "observed_error": Field(float, (0.0, 1.0), unknown=True),
    "error_bound": Field(float, (0.0, 1.0)),
    "num_classes": Field(int, (1, 1 << 22)),
    "temperature": Field(float, (-math.inf, math.inf)),
    "rows": Field(int, (1, sys.maxsize)),
}


def load_acceptance(path: str | os.PathLike[str]) -> Acceptance:
    """Read a rule that `Acceptance.save` has written; types and ranges are checked.

    Raises:
        ValueError: If the file holds something else or is damaged; it names the file.
        OSError: If it is not there or may not be read.
    """
    return Acceptance(**read_rule(path, ACCEPTANCE_FORMAT, ACCEPTANCE_FIELDS))


@dataclass(frozen=True, eq=False)
class Abstention:
    """The result of `abstention`: what share is handed to a person at each error rate.

    Attributes:
        errors: Targets of the error among accepted predictions.
        handed: The least share that must be handed over on these rows for that error.
        guaranteed: The share by a rule that has the target with probability 1 - level: 1 if no
            threshold could be shown to.
        thresholds: Of these rules, on confidence.
        level: Of each rule by itself.
        error_of_all: The error if nothing is handed over.
        rows: The number of rows.
    """

    errors: Array
    handed: Array
    guaranteed: Array
    thresholds: Array
    level: float
    error_of_all: float
    rows: int

    def __str__(self) -> str:
        lines = ["error among accepted   handed over   with guarantee   confidence above"]
        for target, seen, sure, edge in zip(
            self.errors, self.handed, self.guaranteed, self.thresholds, strict=True
        ):
            above = "-" if math.isinf(edge) else f"{edge:.6g}"
            lines.append(f"{target:>20.2%}   {seen:>11.1%}   {sure:>14.1%}   {above:>16}")
        last = f"all accepted: {self.error_of_all:.2%} wrong; guarantee {1 - self.level:g}"
        return "\n".join([*lines, last])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curves on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_abstention

        return plot_abstention(self, ax=ax)


def counts_of(sums: RowSums) -> Array:
    """(rows, right ones) of each cell of confidence."""
    cells = sums.cells.values()
    if not np.array_equal(cells[:, WEIGHT], cells[:, ROWS]):
        raise ValueError("sample_weight must be 0 or 1: the exact test counts rows")
    return np.rint(cells[:, [ROWS, CORRECT]]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RiskSums:
    """Counts in cells of confidence, of the pilot and of the testing rows."""

    edges: Array
    pilot: Array
    testing: Array
    classes: int
    temperature: float

    def rule(self, error: float, level: float) -> Acceptance:
        tested = int(self.testing[:, 0].sum())
        cell = passed(self.testing, sequence_of(self.pilot, tested, error), error, level)
        accepted, right = (0, 0) if cell is None else map(int, above(self.testing)[cell])
        return Acceptance(
            error=error,
            level=level,
            threshold=math.inf if cell is None else float(self.edges[cell]),
            accepted=accepted / max(tested, 1),
            observed_error=(accepted - right) / accepted if accepted else math.nan,
            error_bound=upper_bound(accepted - right, accepted, level) if accepted else 1.0,
            num_classes=self.classes,
            temperature=self.temperature,
            rows=tested + int(self.pilot[:, 0].sum()),
        )

    def curve(self, errors: Array, level: float) -> Abstention:
        tail = above(self.pilot + self.testing)
        total = int(tail[0, 0])
        with np.errstate(invalid="ignore"):
            wrong = (tail[:, 0] - tail[:, 1]) / tail[:, 0]
        kept = [tail[:, 0][wrong <= error].max(initial=0) / total for error in errors]
        rules = [self.rule(float(error), level) for error in errors]
        return Abstention(
            errors=errors,
            handed=1.0 - np.array(kept),
            guaranteed=1.0 - np.array([rule.accepted for rule in rules]),
            thresholds=np.array([rule.threshold for rule in rules]),
            level=level,
            error_of_all=float(wrong[0]),
            rows=total,
        )


def hard_rows(logits: object, labels: object, **options: Any) -> RowParts:
    rows = row_parts(logits, labels, name="labels", **options)
    if rows.whole is not None and rows.whole.labels.size == 0:
        raise ValueError("labels must be integers: a prediction is right or wrong")
    return rows


def risk_sums(rows: RowParts, temperature: float, seed: int) -> RiskSums:
    """Both parts in one pass."""
    pilot = Split(seed, PILOT, rows.rows, True)
    jobs = [
        RowSumsAt(temperature, BINS, False, part) for part in (pilot, replace(pilot, held=False))
    ]
    states = rows.run(Together(tuple(jobs))).states
    of_pilot, of_testing = (counts_of(state) for state in states)
    if not (of_pilot.any() or of_testing.any()):
        raise no_rows()
    return RiskSums(states[0].edges, of_pilot, of_testing, rows.classes, temperature)


def checked_target(error: object, level: object) -> tuple[float, float]:
    for name, value in (("error", error), ("level", level)):
        if not 0.0 < as_real(value, name) < 1.0:
            raise ValueError(f"{name} must lie above 0 and below 1, got {value}")
    return float(error), float(level)  # type: ignore[arg-type]


def acceptance(
    logits: object,
    labels: object = None,
    *,
    error: float | None = None,
    precision: float | None = None,
    level: float = 0.05,
    temperature: object = 1.0,
    seed: int = 0,
    **options: Unpack[RowOptions],
) -> Acceptance:
    """A threshold on confidence for a target error among accepted predictions, with a guarantee.

    The error of what is accepted, of new rows like these, exceeds the target with a probability of
    `level` at most: an exact statement for any number of rows, any model, calibrated or not.

    Args:
        logits, labels: As in `conformal.fit`: rows that the model and its calibrator were not
            fitted to.
        error, precision: The target, one of them: 1 - precision is the error.
        level: The probability with which the guarantee may fail.
        temperature: Of the logits.
        seed: Of the split: a fifth of the rows lays down the thresholds that the others test.
        **options: ignore_index, where, input, class_names: see `RowOptions`.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(9000, 5)) * 3
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        >>> rule = hm.calibration.acceptance(logits[:4500], labels[:4500], error=0.05)
        >>> found = rule.evaluate(logits[4500:], labels[4500:])
        >>> found.error.value < 0.05 and 0.0 < found.accepted.value < 1.0
        True

    Reference:
        Angelopoulos, Bates, Candes, Jordan and Lei, Learn then test: calibrating predictive
        algorithms to achieve risk control, 2021. Clopper and Pearson, The use of confidence or
        fiducial limits illustrated in the case of the binomial, 1934.
    """
    if (error is None) == (precision is None):
        raise TypeError("error or precision must be given, and not both")
    if error is None:
        as_real(precision, "precision")
        assert precision is not None
        if not 0.0 < precision < 1.0:
            raise ValueError(f"precision must lie above 0 and below 1, got {precision}")
        error = 1.0 - float(precision)
    target, level = checked_target(error, level)
    rows = hard_rows(logits, labels, **options)
    return risk_sums(rows, one_temperature(temperature), as_seed(seed)).rule(target, level)


def abstention(
    logits: object,
    labels: object = None,
    *,
    errors: Sequence[float] = TARGETS,
    level: float = 0.05,
    temperature: object = 1.0,
    seed: int = 0,
    **options: Unpack[RowOptions],
) -> Abstention:
    """What share of rows is handed to a person at each error rate among the others.

    Args:
        errors: The error rates.
        logits, labels, level, temperature, seed, **options: As in `acceptance`. The guarantee is
            for one error rate, chosen beforehand.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(9000, 5)) * 3
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        >>> curve = hm.calibration.abstention(logits, labels, errors=[0.05, 0.1])
        >>> bool((curve.guaranteed >= curve.handed - 0.02).all())
        True
    """
    targets = np.array([checked_target(error, level)[0] for error in errors])
    if not targets.size:
        raise ValueError("errors must name one error rate at least")
    rows = hard_rows(logits, labels, **options)
    sums = risk_sums(rows, one_temperature(temperature), as_seed(seed))
    return sums.curve(targets, float(level))
