"""The part of a report's page on guarantees: prediction sets, and what to hand to a person."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotmax import plots
from hotmax.calibration.acceptance import Abstention
from hotmax.calibration.assessment import WORST, Assessment
from hotmax.calibration.set_coverage import ConformalEvaluation
from hotmax.view.elements import Cell, figure_block, percent, share, shown_name, table


def guarantee_sections(result: Assessment, names: Sequence[str]) -> list[str]:
    """Both sections; none of rows with weights or soft labels, of which the page says so."""
    detail, abstention = result.set_coverage, result.abstention
    if detail is None or abstention is None:
        return []
    return [
        "<h2>Sets that hold the answer</h2>",
        "<p>Conformal prediction gives each row a set of classes that holds the right one as often "
        "as promised, if new rows are like these. lac makes small sets, aps sets that grow where "
        f"the model is unsure, raps the same with a penalty "
        f"on large ones. Thresholds from {result.set_rows[0]:,} rows, judged on "
        f"{result.set_rows[1]:,} others.</p>",
        sets_table(result),
        coverage_table(detail, names),
        "<h2>What to hand to a person</h2>",
        "<p>Predictions are accepted above a threshold on confidence. With a guarantee, the error "
        "among what is accepted is at most the rate in the first column, with a probability of "
        f"{percent(1 - abstention.level, 0)}, for one rate chosen beforehand.</p>",
        '<div class="grid">',
        figure_block(
            "abstention",
            "Error rate and work for people",
            "The share of rows handed to a person for each error rate among the others: on these "
            "rows, and by thresholds that keep the rate with a guarantee.",
            lambda figure: plots.plot_abstention(abstention, ax=figure.subplots()),
            abstention_table(abstention),
        ),
        "</div>",
    ]


def sets_table(result: Assessment) -> str:
    rows: list[list[Cell]] = [
        [
            one.method,
            percent(one.promised, 0),
            share(one.coverage),
            f"{one.mean_size:.2f}",
            percent(one.single),
        ]
        for one in result.sets
    ]
    head = ["method", "promised", "holds the label", "mean size", "sets of one class"]
    return table(head, rows)


def coverage_table(one: ConformalEvaluation, names: Sequence[str]) -> str:
    """Coverage by confidence, by size and by class."""
    worst = sorted(one.by_class, key=lambda group: group.coverage.interval[1])[:WORST]
    rows: list[list[Cell]] = []
    for title, groups in (
        ("confidence", one.by_confidence), ("size", one.by_size), ("class", worst),
    ):  # fmt: skip
        for group in groups:
            name = shown_name(names[int(group.name)]) if title == "class" else group.name
            rows.append([f"{title} {name}", f"{group.rows:,}", share(group.coverage)])
    caption = f"aps at {percent(one.promised, 0)}, by group; the least covered classes"
    return table(["rows with", "rows", "holds the label"], rows, caption)


def abstention_table(curve: Abstention) -> str:
    columns = zip(curve.errors, curve.handed, curve.guaranteed, curve.thresholds, strict=True)
    rows: list[list[Cell]] = [
        [percent(error), percent(seen), percent(sure), "-" if math.isinf(at) else f"{at:.4g}"]
        for error, seen, sure, at in columns
    ]
    return table(["error", "handed over", "with guarantee", "confidence above"], rows)
