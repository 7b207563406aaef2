"""Calibration of independent labels: each by the test of two classes, with one level for all.

Every label has a probability of "yes" of its own. The test of `chance` compares these with the
targets: their mean with the share of "yes", and bin by bin.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.checks import as_seed
from hotmax._core.class_labels import check_unique, checked_names
from hotmax._softmax.functions import softmax
from hotmax.calibration.binning import (
    BINS,
    CELL_POWERS,
    CONFIDENCE,
    CORRECT,
    FINE_BINS,
    ROWS,
    add_to_cells,
    width_edges,
)
from hotmax.calibration.by_group import holm
from hotmax.calibration.chance import LEVEL, CalibrationTest, calibration_test
from hotmax.calibration.error_interval import binned_interval
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.exact_sums import CellSums, ExactSums
from hotmax.calibration.examples import one_temperature, read
from hotmax.calibration.method_score import share_estimate
from hotmax.calibration.metrics import binned_error
from hotmax.calibration.one_output import as_two_classes, yes_or_no
from hotmax.calibration.reliability import Reliability, reliability_of
from hotmax.calibration.score_sums import fill_squares, normal_estimate
from hotmax.calibration.scores import score
from hotmax.calibration.verdict import MISCALIBRATED, NOT_FOUND

TOO_HIGH, TOO_LOW = "probabilities too high", "probabilities too low"
MOST_LABELS = 1000  # each takes about a megabyte
REFINED_BELOW = 0.01  # p-values up to here are computed anew, from more samples
MORE_SAMPLES = 40  # for each label: the smallest p-value is then half of what one of them needs
COARSE_BINS = 60  # cells of these samples


@dataclass(frozen=True)
class LabelScore:
    """One label: the probability of "yes" beside how often it is so.

    Attributes:
        name: Of the label.
        rows: How many.
        base_rate: The share of rows with the label, with its Wilson interval.
        probability: The mean probability of the label.
        gap: Mean probability - base rate; its interval is that of the base rate.
        nll: The mean over rows, with 1.96 standard errors.
        ece: That of the probabilities of "yes", with an interval that covers the true error.
        test: Of the hypothesis that the probabilities of this label are calibrated.
        adjusted: Its p-value, adjusted for the number of labels by Holm's rule.
    """

    name: str
    rows: int
    base_rate: Estimate
    probability: float
    gap: Estimate
    nll: Estimate
    ece: Estimate
    test: CalibrationTest
    adjusted: float

    @property
    def verdict(self) -> str:
        """In words, at a level that holds for all labels together.

        The gap by itself must be no chance either, by a p-value that is adjusted alike.
        """
        if self.adjusted > self.test.level:
            return NOT_FOUND
        if self.test.gap_p_value * (self.adjusted / self.test.p_value) > self.test.level:
            return MISCALIBRATED
        return TOO_HIGH if self.test.gap > 0.0 else TOO_LOW


@dataclass(frozen=True, eq=False)
class MultilabelCalibration:
    """The result of `by_label`, and of `evaluate` with multilabel=True.

    Attributes:
        labels: A LabelScore for each label, in the order of the columns.
        rows: How many.
        nll: The mean over rows of the mean over labels, with 1.96 standard errors over rows.
        reliability: All labels together: how often "yes" is right at each probability. Its
            intervals take the labels of one row for independent ones.
        level: The family-wise level of the verdict.
    """

    labels: tuple[LabelScore, ...]
    rows: int
    nll: Estimate
    reliability: Reliability
    level: float = LEVEL

    @property
    def found(self) -> tuple[str, ...]:
        """The labels whose probabilities are not calibrated."""
        return tuple(one.name for one in self.labels if one.adjusted <= self.level)

    @property
    def verdict(self) -> str:
        """One sentence about all labels."""
        count = len(self.labels)
        if not self.found:
            return f"{NOT_FOUND} in {count} label{'s' * (count > 1)}"
        return f"miscalibrated: {len(self.found)} of {count} label{'s' * (count > 1)}"

    @property
    def assurance(self) -> str:
        """How sure the verdict is, in words."""
        least = min(one.adjusted for one in self.labels)
        return (
            f"smallest p = {least:.3g}, adjusted for {len(self.labels)} labels by Holm's rule; of "
            f"100 calibrated models the test would find fault with {100 * self.level:g} at most"
        )

    def table(self) -> list[list[str]]:
        """The lines of the table by label, the head first."""
        lines = [
            ["label", "rows", "base rate", "says", "gap (95 %)", "nll", "ECE (95 %)", "p adj.", ""]
        ]
        for one in self.labels:
            gap, ece = ([100 * end for end in each.interval] for each in (one.gap, one.ece))
            lines.append(
                [
                    one.name,
                    str(one.rows),
                    f"{one.base_rate.value:.1%}",
                    f"{one.probability:.1%}",
                    f"{100 * one.gap.value:+.1f} ({gap[0]:+.1f} to {gap[1]:+.1f})",
                    f"{one.nll.value:.4f}",
                    f"{one.ece.value:.1%} ({ece[0]:.1f} to {ece[1]:.1f})",
                    f"{one.adjusted:.3f}",
                    one.verdict,
                ]
            )
        return lines

    def __str__(self) -> str:
        low, high = self.nll.interval
        lines = [
            self.verdict,
            self.assurance,
            f"nll, mean over labels: {self.nll.value:.5f} (95 %: {low:.5f} to {high:.5f}); ECE of "
            f"all labels together: {self.reliability.ece:.2%}",
            "",
            *aligned(self.table()),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>{self.reliability._picture()}"

    def plot(self, ax: Any = None) -> Any:
        """Draw the reliability of all labels together on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_labels

        return plot_labels(self, ax=ax)


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text: the first and the last column to the left, others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if at in (0, last) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


class LabelSums:
    """Sums over the rows of each label, in cells of the probability of "yes"."""

    def __init__(self, labels: int) -> None:
        self.rows = 0
        self.cells = [CellSums(FINE_BINS, CELL_POWERS) for _ in range(labels)]
        self.losses = [ExactSums(2) for _ in range(labels)]
        self.mean_loss = ExactSums(2)

    def update(self, outputs: Array, targets: Array, input: str, temperature: float) -> LabelSums:
        """Add rows: outputs and targets of the shape (rows, labels), checked."""
        rows, labels = outputs.shape
        total = np.zeros(rows)
        edges = width_edges(FINE_BINS)
        for label in range(labels):
            pairs, yes = as_two_classes(outputs[:, label], input=input), targets[:, label]
            examples = read(pairs, yes, input=input, whole=False)
            loss = score(examples, temperature).nll
            p = pairs[:, 1]
            if input == "logits" or temperature != 1.0:
                with np.errstate(divide="ignore"):
                    logits = pairs if input == "logits" else np.log(pairs)
                p = softmax(logits, temperature=temperature)[:, 1]
            right = yes.astype(np.float64)
            add_to_cells(self.cells[label], np.ascontiguousarray(p), right, np.ones(1), edges)
            add_to_squares(self.losses[label], loss)
            total += loss
        add_to_squares(self.mean_loss, total / labels)
        self.rows += rows
        return self

    def merge(self, other: LabelSums) -> LabelSums:
        for mine, theirs in zip(self.cells, other.cells, strict=True):
            mine.merge(theirs)
        for own, more in zip(self.losses, other.losses, strict=True):
            own.merge(more)
        self.mean_loss.merge(other.mean_loss)
        self.rows += other.rows
        return self

    def result(self, names: Sequence[str], seed: int) -> MultilabelCalibration:
        rng = np.random.default_rng(seed)
        cells = [one.values() for one in self.cells]
        tests = [label_test(one, len(cells), rng) for one in cells]
        adjusted = holm(np.array([test.p_value for test in tests]))
        found = []
        for label, (own, test) in enumerate(zip(cells, tests, strict=True)):
            bins = own.reshape(BINS, -1, own.shape[1]).sum(1)
            base_rate = share_estimate(float(own[:, CORRECT].sum()), self.rows)
            probability = float(own[:, CONFIDENCE].sum()) / self.rows
            low, high = base_rate.interval
            found.append(
                LabelScore(
                    name=names[label],
                    rows=self.rows,
                    base_rate=base_rate,
                    probability=probability,
                    gap=Estimate(test.gap, (probability - high, probability - low)),
                    nll=normal_estimate(self.losses[label], 0, self.rows),
                    ece=binned_interval(bins, binned_error(bins, "l1", False), "l1", rng),
                    test=test,
                    adjusted=float(adjusted[label]),
                )
            )
        pooled = np.sum(cells, axis=0)
        bins = pooled.reshape(BINS, -1, pooled.shape[1]).sum(1)
        full = pooled[pooled[:, ROWS] > 0]
        positions = full[:, CONFIDENCE] / full[:, ROWS]
        return MultilabelCalibration(
            labels=tuple(found),
            rows=self.rows,
            nll=normal_estimate(self.mean_loss, 0, self.rows),
            reliability=reliability_of(
                width_edges(BINS), bins, positions, full[:, ROWS], full[:, CORRECT]
            ),
        )


def add_to_squares(sums: ExactSums, values: Array) -> None:
    terms = np.empty((2, values.size))
    fill_squares(terms, [values])
    sums.add(terms)


def label_test(cells: Array, labels: int, rng: np.random.Generator) -> CalibrationTest:
    """The test of one label; a small p-value is computed anew from samples for so many labels.

    The second p-value stands by itself, so that p <= t in at most a share t of calibrated models:
    above SMALL the first must be <= t, and below it the second. Wider cells state a variance that
    is not too small.
    """
    test = calibration_test(cells, rng)
    samples = MORE_SAMPLES * labels - 1
    if test.p_value > REFINED_BELOW or samples <= 999:
        return test
    wider = cells.reshape(COARSE_BINS, -1, cells.shape[1]).sum(1)
    return calibration_test(wider, rng, samples)


def label_names(class_names: object, count: int) -> tuple[str, ...]:
    names = checked_names(class_names, count)
    check_unique(names)
    return tuple(map(str, range(count))) if names is None else names


def checked_outputs(
    logits: object, targets: object, input: str, name: str = "targets"
) -> tuple[Array, Array]:
    """Outputs and targets (rows, labels), checked; for one label also (rows,)."""
    refuse_masked(logits, "logits")
    as_two_classes(logits, input=input)
    x = np.asarray(logits)
    if targets is None:
        raise TypeError(f"{name} must be given: 0 or 1 for each label of each row")
    y = yes_or_no(targets, x.shape)
    if x.ndim == 1:
        x, y = x[:, None], y[:, None]
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"logits must have the shape (rows, labels), and be there; got {x.shape}")
    inside = input == "logits" and x.dtype.kind == "f" and x.size > 1
    if inside and ((x >= 0) & (x <= 1)).all() and ((x > 0) & (x < 1)).any():
        raise ValueError(
            "logits look like probabilities: all of them lie in 0..1; say "
            'input="probabilities" (--input probabilities)'
        )
    if x.shape[1] > MOST_LABELS:
        raise ValueError(
            f"logits: {x.shape[1]} labels, and {MOST_LABELS} are tested together at most"
        )
    return x, y


def by_label(
    logits: object,
    targets: object,
    *,
    input: str = "logits",
    temperature: object = 1.0,
    class_names: object = None,
    seed: int = 0,
) -> MultilabelCalibration:
    """Calibration of independent labels (sigmoids): a verdict, and a table by label.

    Args:
        logits: (rows, labels): an output for each label.
        targets: Of the same shape: 1 where a row has the label, else 0.
        input: What the outputs are, "logits" or "probabilities" of "yes".
        temperature: Of the logits.
        class_names: The names of the labels.
        seed: Of the test, which draws targets from the predictions' own probabilities.

    Returns:
        A MultilabelCalibration. If all labels are calibrated, one of them is found not to be in
        5 % of samples at most, whatever their number and however they depend on each other.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3)) * 3
        >>> scale = np.array([1.0, 1.0, 3.0])                       # label 2 is overconfident
        >>> targets = logits / scale + rng.logistic(size=logits.shape) > 0
        >>> hm.calibration.by_label(logits, targets).found
        ('2',)

    Reference:
        Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    one, number = one_temperature(temperature), as_seed(seed)
    x, y = checked_outputs(logits, targets, input)
    names = label_names(class_names, x.shape[1])
    return LabelSums(x.shape[1]).update(x, y, input, one).result(names, int(number))
