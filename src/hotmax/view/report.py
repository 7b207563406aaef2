"""hm.report: what logits, and labels if there are any, say about a classifier; a page to show."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, overload

import hotmax as hm
from hotmax._core.arrays import refuse_masked
from hotmax._core.checks import as_seed
from hotmax._core.class_labels import in_order, refuse_other_columns, refuse_other_order
from hotmax._core.files import whole
from hotmax.calibration.assessment import (
    Assessment,
    Progress,
    RowWeights,
    assess,
    shape_of_predictions,
)
from hotmax.calibration.by_group import as_codes, by_group_rows
from hotmax.calibration.method_score import MethodScore
from hotmax.calibration.row_parts import row_parts
from hotmax.calibration.source import Source
from hotmax.view.elements import percent
from hotmax.view.findings import Findings, choice_of
from hotmax.view.json_values import json_value, printable
from hotmax.view.multilabel import MultilabelReport, multilabel_report
from hotmax.view.page import page
from hotmax.view.report_inputs import (
    ReportRows,
    calibrated,
    check_weights,
    has_soft_labels,
    outputs,
    with_test,
    without_weightless,
)


@dataclass(frozen=True, eq=False)
class Report(Findings):
    """The result of `report`: `print` it, `save` it as a page, or look at its numbers.

    Attributes:
        title: The heading.
        rows, num_classes: How many.
        class_names: Of the classes.
        seed: Of the split and of the bootstrap.
        shape: What needs no labels.
        assessment: What needs labels; None without.
    """

    def __str__(self) -> str:
        lines = [self.title, self.subtitle]
        if self.assessment is not None:
            lines += self.weighting
            lines += ["", self.verdict, self.level, self.temperature, ""]
            lines += score_lines(self.assessment)
            lines += ["", *self.warnings]
            if self.groups is not None:
                lines += ["", *str(self.groups).splitlines()]
        else:
            low, middle, high = (self.shape.effective[i] for i in (0, 2, 4))
            lines += [
                "",
                f"mean confidence {percent(self.shape.confidence)}; a temperature 10 % higher "
                f"changes it by {100 * self.shape.slope:+.2f} points",
                f"mean entropy {self.shape.entropy:.4g} nats; effective number of classes "
                f"{middle:.3g} (5 to 95 % of rows: {low:.3g} to {high:.3g})",
                "",
                str(self.shape.saturation),
            ]
        return "\n".join(lines).rstrip()

    def to_json(self) -> str:
        """All numbers, for other programs. What is not finite is text; what is not there, null."""
        return json.dumps(json_value(self), indent=1, allow_nan=False)

    def to_html(self) -> str:
        """One self-contained page, under 500 kB. Needs matplotlib."""
        return page(self)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page: whole, or not at all; an existing file only with `force`."""
        with whole(path, force=force) as file:
            file.write(self.to_html().encode())

    def _repr_html_(self) -> str:
        source = html.escape(self.to_html(), quote=True)
        frame = "width:100%;height:48rem;border:0"
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{source}" style="{frame}"></iframe>'
        )


def score_lines(result: Assessment) -> list[str]:
    """The table of calibrators as text."""

    def cells(one: MethodScore) -> list[str]:
        low, high = (100 * end for end in one.ece.interval)
        change = one.nll_change
        half_width = (change.interval[1] - change.interval[0]) / 2
        return [
            one.method + (" <-" if one.method == result.advised else ""),
            percent(one.accuracy.value),
            percent(one.confidence),
            f"{percent(one.ece.value)} ({low:.1f} to {high:.1f})",
            f"{one.nll.value:.4f}",
            "" if one is result.before else f"{change.value:+.4f} +- {half_width:.4f}",
        ]

    table = [["calibrator", "right", "says", "ECE (95 %)", "nll", "change (95 %)"]]
    table += [cells(one) for one in result.scores]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    advice = f"<- {choice_of(result)}"
    return [*lines, advice]


def checked_class_names(class_names: Sequence[object] | None, count: int) -> tuple[str, ...]:
    if class_names is None:
        return tuple(map(str, range(count)))
    if not in_order(class_names):
        raise TypeError(
            f"class_names must be a list of names or None, got {type(class_names).__name__}"
        )
    if len(class_names) != count:
        raise ValueError(
            f"class_names must have {count} names, one for each class, got {len(class_names)}"
        )
    return tuple(printable(str(name)) for name in class_names)


def silent(stage: str, done: float) -> None:
    """No progress to show."""


class ReportOptions(TypedDict, total=False):
    """Further keywords of `report`.

    input: "probabilities" if `logits` holds those.
    by: The group of each row (site, month): calibration by group, with a test that accounts for
        their number.
    calibrator: A fitted calibrator: the report is about its probabilities.
    test: (logits, labels) or (logits, labels, sample_weight) of a test set: calibrators are fitted
        to all rows before, and scored on these.
    progress: Called as progress(stage, done) while it works, with done rising from 0 to 1.
    """

    input: str
    by: object
    calibrator: Any
    test: tuple[object, ...] | None
    progress: Progress | None


@overload
def report(
    logits: object,
    labels: object = None,
    *third: Any,
    class_names: Sequence[object] | None = None,
    sample_weight: object = None,
    title: str | None = None,
    seed: int = 0,
    multilabel: Literal[False] = False,
    **options: Unpack[ReportOptions],
) -> Report: ...


@overload
def report(
    logits: object,
    labels: object = None,
    *third: Any,
    class_names: Sequence[object] | None = None,
    title: str | None = None,
    seed: int = 0,
    multilabel: Literal[True],
    **options: Unpack[ReportOptions],
) -> MultilabelReport: ...


def report(
    logits: object,
    labels: object = None,
    *third: Any,
    class_names: Sequence[object] | None = None,
    sample_weight: object = None,
    title: str | None = None,
    seed: int = 0,
    multilabel: bool = False,
    **options: Unpack[ReportOptions],
) -> Report | MultilabelReport:
    """What a classifier's logits are worth: a verdict, numbers with intervals, and a page.

    `report(estimator, X, y)` is about the predictions of a fitted scikit-learn classifier.

    With labels the rows are split at random in two halves: calibrators are fitted on one, and all
    figures are from the other, so that "after" means rows that no calibrator has seen.

    The verdict on rows with weights or soft labels tests whether the mean of the targets, given
    predictions and weights, is the prediction. The variance of drawn labels is then the sum of
    w**2 p (1 - p). That of soft labels is not known, and is estimated from their residuals; where
    few rows are wrong, it is drawn to that of drawn labels, which is its upper bound.

    Args:
        logits: (rows, classes), of data that the model was not trained on. A memory-mapped array, a
            Dask array or frame, or a Source (`hotmax.io.source`) is read some rows at a time, in
            two passes or three: memory does not grow with the rows.
        labels: The class of each row, as integers, text or categories; or soft labels, the
            probabilities of its classes, such as shares of annotators: metrics are then means over
            them. None if they are not known. A Source brings its own.
        *third: The names of the classes, like `class_names`; after an estimator and X, y.
        class_names: The names of the classes.
        sample_weight: The weight of each row, not negative. Weights that are whole numbers give
            the estimates of so many rows each (but for calibrators that choose a penalty by
            standard errors), and a weight of 0 leaves a row out; others count by their ratios.
            Intervals and verdict are those of rows as they came.
        title: The heading of the page.
        seed: Of the split, and of the bootstrap.
        multilabel: Whether labels are independent: logits (rows, labels), of which each has a
            sigmoid of its own, and `labels` of that shape, 0 or 1; `class_names` are theirs.
        **options: input, by, calibrator, test, progress: see `ReportOptions`.

    Returns:
        A Report: `print` it, `.save("report.html")`, `.to_json()`. With `multilabel` a
        MultilabelReport, which does the same.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 3)) * 4
        >>> labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
        >>> result = hm.report(logits, labels)
        >>> print(result.verdict)
        overconfident: says 85.7 %, is right 72.8 %
        >>> result.save("report.html")                                      # doctest: +SKIP
        >>> weights = rng.exponential(size=4000)
        >>> result = hm.report(logits, labels, sample_weight=weights)
        >>> print(result.weighting[0])
        weighted: the scoring rows are as certain as 1,017 of equal weight
    """
    if len(third) > 1:
        raise TypeError("report takes logits, labels and class_names, or an estimator, X and y")
    if multilabel:
        if sample_weight is not None:
            raise ValueError("sample_weight is not for multilabel")
        names = third[0] if third else class_names
        return labels_report(logits, labels, names, title, seed, **options)
    return report_of(
        logits, labels, third, class_names, sample_weight, title=title, seed=seed, **options
    )


def labels_report(
    logits: object,
    targets: object,
    class_names: Any,
    title: str | None,
    seed: int,
    *,
    input: str = "logits",
    by: object = None,
    **options: Any,
) -> MultilabelReport:
    if by is not None:
        raise ValueError("by is not for multilabel: give the rows of one group at a time")
    calibrator, test, tell = checked_options(**options)
    data = logits, targets, class_names
    named = checked_title(title)
    return multilabel_report(*data, named, as_seed(seed), input, calibrator, test, tell)


def report_of(
    logits: Any,
    labels: Any,
    third: tuple[Any, ...],
    class_names: Any,
    sample_weight: object,
    *,
    title: str | None,
    seed: int,
    input: str = "logits",
    by: object = None,
    **options: Any,
) -> Report:
    calibrator, test, tell = checked_options(**options)
    seed, title = as_seed(seed), checked_title(title)
    if hasattr(logits, "decision_function") or hasattr(logits, "predict_proba"):
        logits, labels, names, input = outputs(logits, labels, *third)
        shown_names, class_names = names if class_names is None else class_names, None
    else:
        if third and third[0] is not None:
            if class_names is not None:
                raise TypeError("class_names is given twice: by its place and by its name")
            class_names = third[0]
        shown_names = class_names
    first = None
    refuse_other_order(logits, labels, "labels")
    if calibrator is not None:
        refuse_other_columns(getattr(calibrator, "columns_", None), logits, "logits")
    if test is not None:
        logits, labels, sample_weight, first = with_test(logits, labels, sample_weight, test)
    if calibrator is not None:
        logits, input = calibrated(calibrator, logits, input), "probabilities"
    labelled = logits.has_labels if isinstance(logits, Source) else labels is not None
    if labels is not None:
        refuse_masked(labels, "labels")
    check_weights(sample_weight, logits, labelled)
    rows = row_parts(
        logits,
        labels,
        sample_weight=sample_weight,
        input=input,
        name="labels",
        labelled=labelled,
        class_names=class_names,
    )
    if rows.rows == 0:
        raise ValueError("logits must have at least one row")
    if rows.classes < 2:
        raise ValueError(f"logits must have at least 2 classes, got {rows.classes}")
    if shown_names is None and isinstance(logits, Source):
        shown_names = logits.class_names
    names = checked_class_names(shown_names, rows.classes)
    if by is not None:
        if not labelled:
            raise ValueError("by needs labels")
        as_codes(by, rows.rows, "by")  # checked before any work
    given = ReportRows(rows, first, by, sample_weight is not None, False)
    if labelled:
        given = without_weightless(
            dataclasses.replace(given, soft=has_soft_labels(logits, labels, rows))
        )
        shape, assessment = assess(given.rows, seed, tell, given.first, given.weighting)
        if sample_weight is not None and assessment.weights is None:  # those that are left have 1
            counts = assessment.fit_rows, assessment.score_rows
            assessment = dataclasses.replace(
                assessment, weights=RowWeights(True, False, *map(float, counts))
            )
        count = assessment.fit_rows + assessment.score_rows
    else:
        shape, assessment, count = shape_of_predictions(rows, seed, tell), None, rows.rows
    groups = None
    if by is not None:
        groups = by_group_rows(given.rows, given.by, 1.0, seed, given.weighting)
    tell("done", 1.0)
    return Report(
        title=title,
        rows=count,
        num_classes=rows.classes,
        class_names=names,
        seed=int(seed),
        shape=shape,
        assessment=assessment,
        groups=groups,
    )


def checked_title(title: str | None) -> str:
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be text or None, got {title!r}")
    return printable(title) if title else f"A report by hotmax {hm.__version__}"


def checked_options(
    calibrator: Any = None, test: Any = None, progress: Progress | None = None
) -> tuple[Any, Any, Progress]:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function or None, got {progress!r}")
    return calibrator, test, progress or silent
