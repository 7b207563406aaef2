"""Everything that is measured, in one pass over the logits, as a state that can be merged.

The state keeps sums over cells of confidence (`row_sums`), so fine that smooth ECE, KS and AURC,
which want every row by itself, come out to some four digits if rows are spread over them. Bins are
unions of cells, and exact.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any, Literal, overload

from hotmax._core.arrays import Array
from hotmax.calibration.binning import CORRECT, WEIGHT, check_bins
from hotmax.calibration.by_label import MultilabelCalibration, by_label
from hotmax.calibration.examples import no_rows, one_temperature, read
from hotmax.calibration.metrics import binned, binned_error
from hotmax.calibration.passes import Tell
from hotmax.calibration.ranks import groups_aurc, groups_ks
from hotmax.calibration.reliability import Reliability, diagram_of
from hotmax.calibration.row_parts import RowParts, parts_of_examples, row_parts
from hotmax.calibration.row_sums import BRIER, LABELS, NLL, PREDICTIONS, RowSums, RowSumsAt


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
        smooth_ece, ks, aurc: As the functions of these names, to some four digits. Rows whose
            confidences are in one cell of the histogram count as ties in `ks` and `aurc`: a cell is
            1/4096 wide, and ever narrower towards 1. Where a share s of the rows is in one cell,
            `ks` may be wrong by s / 4, and `aurc` by more.
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
        self.num_classes: int | None = None
        self.sums: RowSums | None = None

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
        class_names: object = None,
    ) -> EvaluationState:
        """Add rows, all or, after an error, none: arguments as in `nll`. Returns the state."""
        examples = read(
            logits,
            targets,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            where=where,
            input=input,
            class_names=class_names,
        )
        one = one_temperature(temperature)
        if self.num_classes not in (None, examples.classes):
            raise ValueError(
                f"logits must have {self.num_classes} classes, as before, got {examples.classes}"
            )
        job = RowSumsAt(one, self.bins, self.classwise)
        return self._merged(parts_of_examples(examples).run(job), examples.classes)

    def merge(self, other: EvaluationState) -> EvaluationState:
        """Add what another state has summed, in any order: the bits are the same.

        Returns the state itself.
        """
        if not isinstance(other, EvaluationState):
            raise TypeError(f"other must be an EvaluationState, got {type(other).__name__}")
        if (self.bins, self.classwise) != (other.bins, other.classwise):
            raise ValueError("other must have the same bins and classwise")
        if other.sums is None or other.num_classes is None:
            return self
        if self.num_classes not in (None, other.num_classes):
            raise ValueError(f"other must have {self.num_classes} classes, got {other.num_classes}")
        return self._merged(other.sums, other.num_classes)

    def _merged(self, sums: RowSums, classes: int) -> EvaluationState:
        if self.sums is None:
            self.sums = RowSums(self.bins, classes, self.classwise)
        self.sums.merge(sums)
        self.num_classes = classes
        return self

    def result(self) -> Evaluation:
        """The metrics of all rows so far."""
        if self.sums is None or self.num_classes is None:
            raise ValueError("no rows yet: update first")
        return evaluation_of(self.sums, self.num_classes)


def evaluation_of(sums: RowSums, classes: int) -> Evaluation:
    cells = sums.cells.values()
    total = float(cells[:, WEIGHT].sum())
    bins = binned(sums, cells)
    full = cells[cells[:, WEIGHT] > 0]
    diagram = diagram_of(sums, cells)
    nll, nll_error = sums.mean_loss(NLL)
    shares = sums.classes.values() / total
    class_bins = None if sums.class_bins is None else sums.class_sums()
    return Evaluation(
        rows=total,
        num_classes=classes,
        accuracy=float(full[:, CORRECT].sum() / total),
        nll=nll,
        nll_error=nll_error,
        brier=sums.mean_loss(BRIER)[0],
        ece=diagram.ece,
        ece_l2=binned_error(bins, "l2", False),
        ece_max=binned_error(bins, "max", False),
        ece_debiased=binned_error(bins, "l2", True),
        ece_classwise=math.nan if class_bins is None else binned_error(class_bins, "l1", False),
        smooth_ece=diagram.smooth_ece,
        ks=groups_ks(full),
        aurc=groups_aurc(full),
        reliability=diagram,
        label_shares=shares[:, LABELS],
        predicted_shares=shares[:, PREDICTIONS],
    )


@overload
def evaluate(
    logits: object,
    targets: object = None,
    *,
    input: str = "logits",
    temperature: object = 1.0,
    class_names: object = None,
    multilabel: Literal[True],
) -> MultilabelCalibration: ...


@overload
def evaluate(
    logits: object,
    targets: object = None,
    *,
    bins: int = 15,
    classwise: bool = True,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    temperature: object = 1.0,
    class_names: object = None,
    multilabel: Literal[False] = False,
) -> Evaluation: ...


def evaluate(
    logits: object,
    targets: object = None,
    *,
    bins: int = 15,
    classwise: bool = True,
    sample_weight: object = None,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    temperature: object = 1.0,
    class_names: object = None,
    multilabel: bool = False,
) -> Evaluation | MultilabelCalibration:
    """All metrics of labelled predictions in one pass: accuracy, nll, Brier, ECE and the rest.

    Args:
        logits, targets, sample_weight, ignore_index, where, input, temperature, class_names: As in
            `nll`. A Dask array, or a Source without targets, is read block by block.
        bins: Bins of equal width for the calibration errors.
        classwise: Whether to compute the class-wise error, which looks at every probability.
        multilabel: Whether labels are independent: outputs (rows, labels), of which each has a
            sigmoid of its own, and targets of that shape, 0 or 1. The result is that of `by_label`;
            it takes no weights, and has 15 bins.

    Example:
        >>> import hotmax as hm
        >>> result = hm.calibration.evaluate([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], [0, 0, 1])
        >>> round(result.nll, 6), round(result.accuracy, 6)
        (0.496259, 0.666667)
    """
    if multilabel:
        others = {"sample_weight": sample_weight, "ignore_index": ignore_index, "where": where}
        given = [name for name, value in others.items() if value is not None]
        if given or bins != 15:
            raise ValueError(f"multilabel takes no {' and '.join(given) or 'bins other than 15'}")
        return by_label(
            logits, targets, input=input, temperature=temperature, class_names=class_names
        )
    rows = row_parts(
        logits,
        targets,
        sample_weight=sample_weight,
        ignore_index=ignore_index,
        where=where,
        input=input,
        class_names=class_names,
    )
    return evaluate_rows(rows, temperature, bins, classwise)


def evaluate_rows(
    rows: RowParts, temperature: object, bins: int, classwise: bool = True, tell: Tell | None = None
) -> Evaluation:
    """`evaluate`, which tells of the blocks of its pass."""
    job = RowSumsAt(one_temperature(temperature), check_bins(bins), bool(classwise))
    sums = rows.run(job, tell)
    if sums is None or sums.weight == 0.0:
        raise no_rows()
    return evaluation_of(sums, rows.classes)
