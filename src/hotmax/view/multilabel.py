"""The report on independent labels: one verdict, a table by label, reliability of all together."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax import plots
from hotmax._core.arrays import Array
from hotmax._core.class_labels import names_of_columns, refuse_other_columns, refuse_other_order
from hotmax._core.files import whole
from hotmax.calibration.assessment import Progress
from hotmax.calibration.binning import BINS
from hotmax.calibration.by_label import (
    LabelSums,
    MultilabelCalibration,
    add_to_squares,
    aligned,
    checked_outputs,
    label_names,
)
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.exact_sums import ExactSums
from hotmax.calibration.one_output import as_two_classes
from hotmax.calibration.row_hash import held_out
from hotmax.calibration.score_sums import normal_estimate
from hotmax.calibration.temperature import fit_temperature
from hotmax.calibration.temperature_fit import is_limit
from hotmax.view.elements import Cell, escape, figure_block, number, percent, share, table, tile
from hotmax.view.json_values import json_value, printable
from hotmax.view.labelled import bins_table
from hotmax.view.page import document

LARGEST_LOGIT = 700.0  # of a probability that is 0 or 1 to all digits


@dataclass(frozen=True, eq=False)
class MultilabelReport:
    """The result of `report` with multilabel=True: `print` it, `save` it as a page.

    Attributes:
        title: The heading.
        rows: How many.
        class_names: The names of the labels.
        seed: Of the split, and of the test.
        fit_rows, score_rows: The rows to which temperatures are fitted, and those that score.
        temperatures: Of each label; 1 where the fitted one is a limit, 0 or inf.
        limits: The labels of which it is.
        before, after: The scoring rows, before and after division by the temperatures.
        nll_change: The change of the mean nll over labels, from the differences in each row.
    """

    title: str
    rows: int
    class_names: tuple[str, ...]
    seed: int
    fit_rows: int
    score_rows: int
    temperatures: tuple[float, ...]
    limits: tuple[str, ...]
    before: MultilabelCalibration
    after: MultilabelCalibration
    nll_change: Estimate

    @property
    def verdict(self) -> str:
        """That on the predictions before calibration, in a sentence."""
        return self.before.verdict

    @property
    def subtitle(self) -> str:
        return (
            f"{self.rows:,} rows, {len(self.class_names):,} independent labels: "
            f"{self.fit_rows:,} rows to fit temperatures, the other {self.score_rows:,} to score"
        )

    @property
    def temperature(self) -> str:
        """What a temperature for each label does, in a sentence."""
        change, (low, high) = self.nll_change.value, self.nll_change.interval
        text = (
            f"a temperature for each label, {min(self.temperatures):.3g} to "
            f"{max(self.temperatures):.3g}, changes the mean nll by {change:+.4f} (95 %: "
            f"{low:+.4f} to {high:+.4f}); after it: {self.after.verdict}"
        )
        if not self.limits:
            return text
        return f"{text}\nno temperature, for want of rows of both kinds: {', '.join(self.limits)}"

    def __str__(self) -> str:
        lines = [self.title, self.subtitle, "", self.verdict]
        lines += [f"test of calibration: {self.before.assurance}", self.temperature, ""]
        return "\n".join([*lines, *aligned(self.before.table())])

    def to_json(self) -> str:
        """All numbers, for other programs. What is not finite is text; what is not there, null."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        numbers = {name: json_value(value) for name, value in data.items()}
        for name in ("before", "after"):
            result = data[name]
            numbers[name] |= {"verdict": result.verdict, "found": list(result.found)}
            for one, label in zip(result.labels, numbers[name]["labels"], strict=True):
                label["verdict"] = one.verdict
        return json.dumps({"verdict": self.verdict, **numbers}, indent=1, allow_nan=False)

    def to_html(self) -> str:
        """One self-contained page. Needs matplotlib."""
        return document(self.title, self.subtitle, sections(self), how_made(self))

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

    def plot(self, ax: Any = None) -> Any:
        """Draw the reliability of all labels together on a matplotlib Axes, which is returned."""
        return self.before.plot(ax)


def sections(report: MultilabelReport) -> list[str]:
    before, after = report.before, report.after
    parts = [
        f"<h2>{escape(report.verdict)}</h2>",
        f"<p>Test of calibration: {escape(before.assurance)}.</p>",
        *(f"<p>{escape(line)}</p>" for line in report.temperature.splitlines()),
        '<div class="tiles">',
        tile(f"{len(before.found)} of {len(before.labels)}", "labels not calibrated"),
        tile(f"{before.nll.value:.4f}", "mean nll", f"after: {after.nll.value:.4f}"),
        tile(
            percent(before.reliability.ece),
            "ECE, labels together",
            f"after: {percent(after.reliability.ece)}",
        ),
        "</div>",
        "<h2>By label</h2>",
        labels_table(report),
        '<div class="grid">',
    ]
    for name, title, result in (
        ("before", "All labels together, before calibration", before),
        ("after", "All labels together, after a temperature for each", after),
    ):
        parts.append(
            figure_block(
                f"labels-{name}",
                title,
                'How often "yes" is right at each probability. Labels of one row count as '
                "independent in the intervals.",
                drawn(result),
                bins_table(result.reliability),
            )
        )
    return [*parts, "</div>"]


def drawn(result: MultilabelCalibration) -> Callable[[Any], object]:
    return lambda figure: plots.plot_labels(result, ax=figure.subplots())


def labels_table(report: MultilabelReport) -> str:
    rows: list[list[Cell]] = []
    for one, later, t in zip(
        report.before.labels, report.after.labels, report.temperatures, strict=True
    ):
        low, high = (100 * end for end in one.gap.interval)
        rows.append(
            [
                one.name,
                f"{one.rows:,}",
                share(one.base_rate),
                percent(one.probability),
                (f"{100 * one.gap.value:+.1f}", f"{low:+.1f} to {high:+.1f} points"),
                number(one.nll),
                share(one.ece),
                f"{one.adjusted:.3f}",
                one.verdict,
                f"{t:.3g}",
                later.verdict,
            ]
        )
    head = ["label", "rows", "base rate", "mean probability", "gap", "nll", "ECE"]
    head += ["p, adjusted", "verdict", "temperature", "after it"]
    return table(head, rows, "each label on the scoring rows, with 95 % intervals")


def how_made(report: MultilabelReport) -> str:
    return (
        f"{report.fit_rows:,} rows fit a temperature for each label, {report.score_rows:,} score; "
        f"the split is that of seed {report.seed}, and no row does both. Each label is tested as "
        'two classes: the probabilities of "yes" against targets drawn from them, by the gap '
        f"between mean probability and base rate, and by the ECE in {BINS} bins of equal width. "
        "p-values are adjusted by Holm's rule, which holds however labels depend on each other: "
        f"of 100 calibrated models {100 * report.before.level:g} at most are found wanting. "
        "Intervals are 95 %: Wilson's for shares, 1.96 standard errors for means over rows; that "
        "of the ECE contains the true error in 95 of 100 samples at least."
    )


def logits_for(outputs: Array, input: str) -> Array:
    """Outputs as logits, so that they can be divided by a temperature."""
    if input == "logits":
        return outputs.astype(np.float64)
    p = outputs.astype(np.float64)
    with np.errstate(divide="ignore"):
        odds: Array = np.log(p) - np.log1p(-p)
    finite: Array = np.clip(odds, -LARGEST_LOGIT, LARGEST_LOGIT)
    return finite


def fitted_temperatures(x: Array, y: Array) -> list[float]:
    return [
        fit_temperature(as_two_classes(x[:, label]), y[:, label]).temperature
        for label in range(x.shape[1])
    ]


def change_of_nll(before: Array, after: Array, y: Array) -> Estimate:
    """The change of the mean nll over labels, with its interval over rows."""
    sign = 1.0 - 2.0 * y
    change = np.logaddexp(0.0, sign * after) - np.logaddexp(0.0, sign * before)
    sums = ExactSums(2)
    add_to_squares(sums, change.mean(1))
    return normal_estimate(sums, 0, len(y))


def multilabel_report(
    logits: object,
    targets: object,
    class_names: Sequence[object] | None,
    title: str,
    seed: int,
    input: str,
    calibrator: Any,
    test: tuple[object, object] | None,
    tell: Progress,
) -> MultilabelReport:
    """`report` of independent labels; its arguments are those of `report`, checked."""
    refuse_other_order(logits, targets, "labels")
    if calibrator is not None:
        refuse_other_columns(getattr(calibrator, "columns_", None), logits, "logits")
    x, y = checked_outputs(logits, targets, input, "labels")
    named = names_of_columns(logits) if class_names is None else class_names
    names = tuple(map(printable, label_names(named, x.shape[1])))
    if test is not None:
        if not isinstance(test, tuple) or len(test) != 2:
            raise TypeError("test must be (logits, labels)")
        refuse_other_columns(names_of_columns(logits), test[0], "test")
        refuse_other_order(test[0], test[1], "test")
        more, others = checked_outputs(*test, input, "test")
        if more.shape[1] != x.shape[1]:
            raise ValueError(f"test must have {x.shape[1]} labels, got {more.shape[1]}")
        held = np.arange(len(x) + len(more)) >= len(x)
        x, y = np.concatenate([x, more]), np.concatenate([y, others])
    else:
        if len(x) < 2:
            raise ValueError("labels need at least 2 rows: one half to fit on, one half to score")
        held = held_out(seed, 0.5, len(x), 0, len(x))
    if calibrator is not None:
        x, input = probabilities_of_labels(calibrator, x, input), "probabilities"
    refuse_certain(x, y, input, names)
    tell("fitting temperatures", 0.0)
    z = logits_for(x, input)
    found = fitted_temperatures(z[~held], y[~held])
    limits = tuple(name for name, t in zip(names, found, strict=True) if is_limit(t))
    temperatures = [1.0 if is_limit(t) else t for t in found]
    tell("testing labels", 0.3)
    before = LabelSums(len(names)).update(x[held], y[held], input, 1.0).result(names, seed)
    tell("testing labels after calibration", 0.7)
    scaled = z / np.array(temperatures)
    after = LabelSums(len(names)).update(scaled[held], y[held], "logits", 1.0).result(names, seed)
    tell("done", 1.0)
    return MultilabelReport(
        title=title,
        rows=len(x),
        class_names=names,
        seed=int(seed),
        fit_rows=int((~held).sum()),
        score_rows=int(held.sum()),
        temperatures=tuple(temperatures),
        limits=limits,
        before=before,
        after=after,
        nll_change=change_of_nll(z[held], scaled[held], y[held]),
    )


def refuse_certain(x: Array, y: Array, input: str, names: tuple[str, ...]) -> None:
    """Raise where an output is infinite, or a probability of 0 or 1 is wrong: nll is infinite."""
    bad = np.isinf(x) if input == "logits" else np.where(y == 1, x == 0, x == 1)
    if bad.any():
        row, label = map(int, np.argwhere(bad)[0])
        raise ValueError(
            f"logits: row {row}, label {names[label]!r} holds {x[row, label]}, where nll is "
            "infinite; clip such outputs (--clip 1e-12)"
        )


def probabilities_of_labels(calibrator: Any, x: Array, input: str) -> Array:
    """Those that a fitted SigmoidCalibrator gives to outputs (rows, labels)."""
    if not hasattr(calibrator, "calibrators_"):
        raise TypeError(
            f"calibrator must be a fitted SigmoidCalibrator, got {type(calibrator).__name__}"
        )
    if calibrator.n_features_in_ != x.shape[1]:
        raise ValueError(
            f"calibrator was fitted to {calibrator.n_features_in_} labels, got {x.shape[1]}"
        )
    if calibrator.input != input:
        z = logits_for(x, input)
        x = z if calibrator.input == "logits" else 0.5 * (1.0 + np.tanh(0.5 * z))
    p: Array = calibrator.predict_proba(x[:, 0] if calibrator.binary_ else x)
    p = p.reshape(x.shape)
    least = math.ulp(0.0)
    clipped: Array = np.clip(p, least, 1.0 - 2.0**-53)
    return clipped
