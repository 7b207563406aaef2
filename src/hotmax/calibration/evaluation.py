"""Everything that is measured, in one pass over the logits, as a state that can be merged.

The state keeps sums over cells of confidence, so fine that smooth ECE, KS and AURC, which want
every row by itself, come out to some four digits; the reported bins are unions of cells, and exact.
"""

from __future__ import annotations

import copy
import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.binning import (
    CONFIDENCE,
    CORRECT,
    SQUARES,
    WEIGHT,
    bin_sums,
    check_bins,
    width_edges,
)
from hotmax.calibration.examples import Examples, one_temperature, read, step_of
from hotmax.calibration.metrics import binned_error, class_sums
from hotmax.calibration.ranks import groups_aurc, groups_ks
from hotmax.calibration.reliability import Reliability, reliability_of
from hotmax.calibration.scores import score

CELLS = 4096  # of equal width in 0..1
OCTAVE = 8  # further cells for each halving of 1 - confidence, down to the last float64 below 1


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of `evaluate`.

    Attributes:
        rows: The weight of all rows: their number, if they have no weights.
        num_classes: The number of classes.
        accuracy, nll, brier: Means over rows.
        nll_error: The standard error of `nll`: of rows as they came, whatever the weight of one.
        ece, ece_l2, ece_max, ece_debiased: Top-label calibration errors, as in `ece`.
        ece_classwise: The class-wise one; nan if it was not asked for.
        smooth_ece, ks, aurc: As the functions of these names, to some four digits.
        reliability: Accuracy against confidence.
        label_shares, predicted_shares: For each class, its share among labels and predictions.
    """

    rows: float
    num_classes: int
    accuracy: float
    nll: float
    nll_error: float
    brier: float
    ece: float
    ece_l2: float
    ece_max: float
    ece_debiased: float
    ece_classwise: float
    smooth_ece: float
    ks: float
    aurc: float
    reliability: Reliability
    label_shares: Array
    predicted_shares: Array

    def table(self) -> list[tuple[str, str]]:
        return [
            ("rows", f"{self.rows:g}"),
            ("classes", f"{self.num_classes}"),
            ("accuracy", f"{self.accuracy:.2%}"),
            ("nll", f"{self.nll:.5f} (standard error {self.nll_error:.5f})"),
            ("Brier score", f"{self.brier:.5f}"),
            ("ECE", f"{self.ece:.3%}"),
            ("ECE, l2", f"{self.ece_l2:.3%}"),
            ("ECE, l2 debiased", f"{self.ece_debiased:.3%}"),
            ("ECE, maximum", f"{self.ece_max:.3%}"),
            ("ECE, class-wise", f"{self.ece_classwise:.3%}"),
            ("smooth ECE", f"{self.smooth_ece:.3%}"),
            ("KS", f"{self.ks:.3%}"),
            ("AURC", f"{self.aurc:.5f}"),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<17} {value}" for name, value in self.table())

    def _repr_html_(self) -> str:
        body = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
            for name, value in self.table()
        )
        return f"<table>{body}</table>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the reliability diagram on a matplotlib Axes, which is returned."""
        return self.reliability.plot(ax)


def cell_edges(bins: int) -> Array:
    """Those of the bins, of CELLS equal cells, and of ever narrower ones towards 1."""
    finest = 1.0 - 2.0 ** -(np.arange(1, 41 * OCTAVE + 1) / OCTAVE + math.log2(CELLS))
    return np.unique(np.concatenate([width_edges(bins), width_edges(CELLS), finest]))


class EvaluationState:
    """What `evaluate` has summed so far: feed it batches, merge it with others, ask for the result.

    Its size is that of bins and classes, not of rows; with classwise=True, of bins times classes.

    Args:
        bins: Bins of equal width for the calibration errors.
        classwise: Keep what the class-wise error needs.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits, labels = rng.normal(size=(100, 3)), rng.integers(0, 3, 100)
        >>> first, second = hm.calibration.EvaluationState(), hm.calibration.EvaluationState()
        >>> whole = first.update(logits[:50], labels[:50]).merge(
        ...     second.update(logits[50:], labels[50:])
        ... )
        >>> round(whole.result().nll - hm.calibration.nll(logits, labels), 12)
        0.0
    """

    def __init__(self, *, bins: int = 15, classwise: bool = True) -> None:
        self.bins = check_bins(bins)
        self.classwise = bool(classwise)
        self.edges = cell_edges(self.bins)
        self.cells = np.zeros((self.edges.size - 1, SQUARES + 1))
        self.losses = np.zeros(4)  # w nll, w**2 nll, (w nll)**2, w Brier score
        self.classes: Array | None = None  # (classes, 2): the weight of labels, of predictions
        self.class_bins: Array | None = None

    def update(
        self,
        logits: object,
        targets: object,
        *,
        sample_weight: object = None,
        ignore_index: int | None = None,
        where: object = None,
        input: str = "logits",
        temperature: object = 1.0,
    ) -> EvaluationState:
        """Add rows, all or, after an error, none: arguments as in `nll`. Returns the state."""
        examples = read(
            logits,
            targets,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            where=where,
            input=input,
        )
        one = one_temperature(temperature)
        if self.classes is not None and len(self.classes) != examples.classes:
            raise ValueError(
                f"logits must have {len(self.classes)} classes, as before, got {examples.classes}"
            )
        step = 8 * step_of(examples.classes)  # few enough to be in the cache when looked at again
        added = self._empty(examples.classes)
        for start in range(0, examples.rows, step):
            added._add(examples.taking(slice(start, start + step)), one)
        return self.merge(added)

    def _empty(self, classes: int) -> EvaluationState:
        """A state of the same kind without rows."""
        state = copy.copy(self)
        state.cells, state.losses = np.zeros_like(self.cells), np.zeros_like(self.losses)
        state.classes = np.zeros((classes, 2))
        state.class_bins = np.zeros((classes, self.bins, 4)) if self.classwise else None
        return state

    def _add(self, examples: Examples, temperature: float) -> None:
        assert self.classes is not None
        rows = score(examples, temperature)
        weights = examples.weight_of_rows()
        # Cells end on the numbers of the confidences' own type, and so do the bins made of them.
        edges = self.edges.astype(rows.dtype).astype(np.float64)
        self.cells += bin_sums(rows.confidence, rows.correct, rows.weights, edges)
        there = weights > 0
        w, losses = weights[there], weights[there] * rows.nll[there]
        with np.errstate(over="ignore"):  # a loss of 1e308 has an infinite square
            self.losses += [losses.sum(), w @ losses, losses @ losses, w @ rows.brier[there]]
        count = examples.classes
        if examples.labels.size:
            self.classes[:, 0] += np.bincount(examples.labels, weights, count)
        else:
            self.classes[:, 0] += weights @ examples.soft
        self.classes[:, 1] += np.bincount(rows.predictions, weights, count)
        if self.class_bins is not None:
            inner = width_edges(self.bins, rows.dtype)[1:-1]
            self.class_bins += class_sums(examples, temperature, examples.weights, inner)

    def merge(self, other: EvaluationState) -> EvaluationState:
        """Add what another state has summed. Returns the state itself."""
        if not isinstance(other, EvaluationState):
            raise TypeError(f"other must be an EvaluationState, got {type(other).__name__}")
        if (self.bins, self.classwise) != (other.bins, other.classwise):
            raise ValueError("other must have the same bins and classwise")
        if other.classes is None:
            return self
        if self.classes is None:
            self.classes = np.zeros_like(other.classes)
            self.class_bins = None if other.class_bins is None else np.zeros_like(other.class_bins)
        if self.classes.shape != other.classes.shape:
            raise ValueError(
                f"other must have {len(self.classes)} classes, got {len(other.classes)}"
            )
        self.cells += other.cells
        with np.errstate(over="ignore"):
            self.losses += other.losses
        self.classes += other.classes
        if self.class_bins is not None:
            self.class_bins += other.class_bins
        return self

    def result(self) -> Evaluation:
        """The metrics of all rows so far."""
        if self.classes is None:
            raise ValueError("no rows yet: update first")
        total = float(self.cells[:, WEIGHT].sum())
        edges = width_edges(self.bins)
        starts = np.searchsorted(self.edges, edges[:-1])
        bins = np.add.reduceat(self.cells, starts, axis=0)
        full = self.cells[self.cells[:, WEIGHT] > 0]
        positions = full[:, CONFIDENCE] / full[:, WEIGHT]
        diagram = reliability_of(edges, bins, positions, full[:, WEIGHT], full[:, CORRECT])
        mean, first, second, brier = self.losses / total
        squares = full[:, SQUARES].sum() / total
        with np.errstate(
            invalid="ignore", over="ignore"
        ):  # the sum of (w (nll - mean))**2, multiplied out
            variance = second - 2 * mean * first + mean**2 * squares
            error = math.sqrt(max(variance, 0.0) / total)
        return Evaluation(
            rows=total,
            num_classes=len(self.classes),
            accuracy=float(full[:, CORRECT].sum() / total),
            nll=float(mean),
            nll_error=error,
            brier=float(brier),
            ece=diagram.ece,
            ece_l2=binned_error(bins, "l2", False),
            ece_max=binned_error(bins, "max", False),
            ece_debiased=binned_error(bins, "l2", True),
            ece_classwise=(
                math.nan if self.class_bins is None else binned_error(self.class_bins, "l1", False)
            ),
            smooth_ece=diagram.smooth_ece,
            ks=groups_ks(full),
            aurc=groups_aurc(full),
            reliability=diagram,
            label_shares=self.classes[:, 0] / total,
            predicted_shares=self.classes[:, 1] / total,
        )


def evaluate(
    logits: object,
    targets: object,
    *,
    bins: int = 15,
    classwise: bool = True,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    temperature: object = 1.0,
) -> Evaluation:
    """All metrics of labelled predictions in one pass: accuracy, nll, Brier, ECE and the rest.

    Args:
        logits, targets, sample_weight, ignore_index, where, input, temperature: As in `nll`.
        bins: Bins of equal width for the calibration errors.
        classwise: Whether to compute the class-wise error, which looks at every probability.

    Example:
        >>> import hotmax as hm
        >>> result = hm.calibration.evaluate([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], [0, 0, 1])
        >>> round(result.nll, 6), round(result.accuracy, 6)
        (0.496259, 0.666667)
    """
    state = EvaluationState(bins=bins, classwise=classwise)
    state.update(
        logits,
        targets,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        where=where,
        input=input,
        temperature=temperature,
    )
    return state.result()
