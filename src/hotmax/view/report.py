"""hm.report: what logits, and labels if there are any, say about a classifier; a page to show."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

import hotmax as hm
from hotmax._core.arrays import refuse_masked
from hotmax._core.checks import as_seed
from hotmax._core.class_labels import in_order
from hotmax._core.files import whole
from hotmax.calibration.assessment import Assessment, Progress, assess, shape_of_predictions
from hotmax.calibration.by_group import by_group_rows
from hotmax.calibration.calibrated_source import Calibrate, calibrated_source
from hotmax.calibration.families import SMALLEST_POSITIVE
from hotmax.calibration.method_score import MethodScore
from hotmax.calibration.row_parts import row_parts
from hotmax.calibration.source import Source
from hotmax.view.elements import percent
from hotmax.view.findings import Findings, choice_of
from hotmax.view.json_values import json_value, printable
from hotmax.view.multilabel import MultilabelReport, multilabel_report
from hotmax.view.page import page


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


def outputs(estimator: Any, X: object, y: object) -> tuple[Any, Any, Any, str]:
    """(outputs, numbers of labels, names of classes, what the outputs are) of a classifier."""
    from hotmax.calibration.classifiers import outputs_of  # which needs scikit-learn

    if X is None or y is None:
        raise TypeError("report(estimator, X, y): X and y must be given")
    x, kind = outputs_of(estimator, X)
    classes, given = np.asarray(estimator.classes_), np.asarray(y)
    at = np.searchsorted(classes, given)
    strange = np.take(classes, np.minimum(at, classes.size - 1)) != given
    if strange.any():
        row = int(np.argmax(strange))
        raise ValueError(f"y must hold classes of the estimator, got {given[row]!r} in row {row}")
    if kind == "probabilities":
        x = x / x.sum(1, keepdims=True)
    return x, at, [str(name) for name in classes.tolist()], kind


def with_test(logits: object, labels: object, test: tuple[object, object]) -> tuple[Any, Any, int]:
    """(both sets of rows, their labels, the first row of the test set)."""
    if isinstance(logits, Source) or labels is None:
        raise TypeError("test needs logits and labels that are arrays")
    if not isinstance(test, tuple) or len(test) != 2:
        raise TypeError("test must be (logits, labels)")
    x, more = np.asarray(logits), np.asarray(test[0])
    if x.ndim != 2 or more.ndim != 2 or x.shape[1] != more.shape[1]:
        raise ValueError(f"test must have rows like logits, got {more.shape} and {x.shape}")
    y, others = np.asarray(labels), np.asarray(test[1])
    if y.shape != x.shape[:1] or others.shape != more.shape[:1]:
        raise ValueError("test: labels must be integers, one for each row")
    return np.concatenate([x, more]), np.concatenate([y, others]), len(x)


def calibrated(calibrator: Any, logits: object, input: str) -> Any:
    """The probabilities of a fitted calibrator; those of a Source are computed as it is read."""
    if not hasattr(calibrator, "predict_proba"):
        raise TypeError(f"calibrator must be a fitted one, got {type(calibrator).__name__}")
    if isinstance(logits, Source):
        return calibrated_source(logits, calibrator, SMALLEST_POSITIVE)
    return Calibrate(calibrator, input, SMALLEST_POSITIVE)(logits)


@overload
def report(
    logits: object,
    labels: object = None,
    class_names: Sequence[object] | None = None,
    *,
    title: str | None = None,
    seed: int = 0,
    input: str = "logits",
    by: object = None,
    calibrator: Any = None,
    test: tuple[object, object] | None = None,
    progress: Progress | None = None,
    multilabel: Literal[False] = False,
) -> Report: ...


@overload
def report(
    logits: object,
    labels: object = None,
    class_names: Sequence[object] | None = None,
    *,
    title: str | None = None,
    seed: int = 0,
    input: str = "logits",
    calibrator: Any = None,
    test: tuple[object, object] | None = None,
    progress: Progress | None = None,
    multilabel: Literal[True],
) -> MultilabelReport: ...


def report(
    logits: object,
    labels: object = None,
    class_names: Sequence[object] | None = None,
    *,
    title: str | None = None,
    seed: int = 0,
    input: str = "logits",
    by: object = None,
    calibrator: Any = None,
    test: tuple[object, object] | None = None,
    progress: Progress | None = None,
    multilabel: bool = False,
) -> Report | MultilabelReport:
    """What a classifier's logits are worth: a verdict, numbers with intervals, and a page.

    `report(estimator, X, y)` is about the predictions of a fitted scikit-learn classifier.

    With labels the rows are split at random in two halves: calibrators are fitted on one, and all
    figures are from the other, so that "after" means rows that no calibrator has seen.

    Args:
        logits: (rows, classes), of data that the model was not trained on. A memory-mapped array, a
            Dask array or frame, or a Source (`hotmax.io.source`) is read some rows at a time, in
            two passes or three: memory does not grow with the rows.
        labels: The class of each row, as integers; None if they are not known. A Source brings its
            own.
        class_names: The names of the classes.
        title: The heading of the page.
        seed: Of the split, and of the bootstrap.
        input: "probabilities" if `logits` holds those.
        by: The group of each row (site, month): calibration by group, with a test that accounts
            for their number.
        calibrator: A fitted calibrator: the report is about its probabilities.
        test: (logits, labels) of a test set: calibrators are fitted to all rows before, and scored
            on these.
        progress: Called as progress(stage, done) while it works, with done rising from 0 to 1.
        multilabel: Whether labels are independent: logits (rows, labels), of which each has a
            sigmoid of its own, and `labels` of that shape, 0 or 1; `class_names` are theirs.

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
    """
    seed = as_seed(seed)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be text or None, got {title!r}")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function or None, got {progress!r}")
    tell, shown_names = progress or silent, class_names
    if multilabel:
        if by is not None:
            raise ValueError("by is not for multilabel: give the rows of one group at a time")
        named = printable(title) if title else f"A report by hotmax {hm.__version__}"
        data = logits, labels, class_names
        return multilabel_report(*data, named, seed, input, calibrator, test, tell)
    if hasattr(logits, "decision_function") or hasattr(logits, "predict_proba"):
        logits, labels, shown_names, input = outputs(logits, labels, class_names)
        class_names = None
    first = None
    if test is not None:
        logits, labels, first = with_test(logits, labels, test)
    if calibrator is not None:
        logits, input = calibrated(calibrator, logits, input), "probabilities"
    labelled = logits.has_labels if isinstance(logits, Source) else labels is not None
    if labels is not None:
        refuse_masked(labels, "labels")
    rows = row_parts(
        logits, labels, input=input, name="labels", labelled=labelled, class_names=class_names
    )
    if rows.rows == 0:
        raise ValueError("logits must have at least one row")
    if labelled and rows.whole is not None and not rows.whole.labels.size:
        raise TypeError("labels must be integers, one for each row")
    if rows.classes < 2:
        raise ValueError(f"logits must have at least 2 classes, got {rows.classes}")
    if shown_names is None and isinstance(logits, Source):
        shown_names = logits.class_names
    names = checked_class_names(shown_names, rows.classes)
    assessment = None
    if labelled:
        shape, assessment = assess(rows, int(seed), tell, first)
    else:
        shape = shape_of_predictions(rows, int(seed), tell)
    groups = None
    if by is not None:
        if not labelled:
            raise ValueError("by needs labels")
        groups = by_group_rows(rows, by, 1.0, int(seed))
    tell("done", 1.0)
    return Report(
        title=printable(title) if title else f"A report by hotmax {hm.__version__}",
        rows=rows.rows,
        num_classes=rows.classes,
        class_names=names,
        seed=int(seed),
        shape=shape,
        assessment=assessment,
        groups=groups,
    )
