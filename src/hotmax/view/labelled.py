"""The part of a report's page that needs labels: the verdict, calibrators, classes, sets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hotmax import plots
from hotmax.calibration.assessment import (
    LEAST_CLASS_ROWS,
    Assessment,
)
from hotmax.calibration.method_score import UNCALIBRATED
from hotmax.calibration.reliability import Reliability
from hotmax.calibration.temperature_fit import REMEDY, is_limit
from hotmax.calibration.verdict import NOT_FOUND, level_of
from hotmax.plots import assessment as pictures
from hotmax.view.elements import (
    Cell,
    escape,
    figure_block,
    interval,
    number,
    percent,
    share,
    shown_name,
    table,
    tile,
)
from hotmax.view.findings import Findings, choice_of
from hotmax.view.guarantees import guarantee_sections


def bins_table(diagram: Reliability) -> str:
    rows: list[list[Cell]] = []
    for b in np.flatnonzero(diagram.counts > 0):
        rows.append(
            [
                f"{percent(diagram.edges[b], 0)} to {percent(diagram.edges[b + 1], 0)}",
                f"{diagram.counts[b]:,.0f}",
                percent(diagram.confidence[b]),
                percent(diagram.accuracy[b]),
                f"{100 * diagram.low[b]:.1f} to {100 * diagram.high[b]:.1f} %",
            ]
        )
    return table(["confidence", "rows", "says", "is right", "95 %"], rows)


def methods_table(result: Assessment) -> str:
    rows: list[list[Cell]] = []
    marked = -1
    for place, one in enumerate(result.scores):
        if one.method == result.advised:
            marked = place
        change = one.nll_change
        rows.append(
            [
                (one.method, "advised") if one.method == result.advised else one.method,
                share(one.accuracy),
                (percent(one.confidence), f"gap {100 * one.gap.value:+.1f}"),
                (percent(one.ece.value), interval(one.ece)),
                percent(one.ece_by_chance),
                number(one.nll),
                "" if one is result.before else (f"{change.value:+.4f}", number(change)[1]),
                number(one.brier),
                f"{one.fitted_rows:,}" if one.fitted_rows else "",
            ]
        )
    head = ["calibrator", "is right", "says", "ECE", "ECE by chance", "nll", "change of nll"]
    return table([*head, "Brier score", "fitted to rows"], rows, marked=marked)


def classes_table(result: Assessment, names: Sequence[str]) -> str:
    rows: list[list[Cell]] = [
        [
            shown_name(names[one.number]),
            f"{one.rows:,}",
            percent(one.confidence),
            share(one.accuracy),
            f"{100 * one.gap:+.1f}",
            f"{100 * one.gap_after:+.1f}" if math.isfinite(one.gap_after) else "-",
        ]
        for one in result.worst_classes
    ]
    head = ["predicted class", "rows", "says", "is right", "gap, points", "gap at the temperature"]
    return table(head, rows)


def risk_table(result: Assessment) -> str:
    curve = result.risk
    rows: list[list[Cell]] = []
    for aim in (0.1, 0.25, 0.5, 0.75, 0.9, 1.0):
        at = min(int(np.searchsorted(curve.coverage, aim)), curve.risk.size - 1)
        rows.append([percent(float(curve.coverage[at])), percent(float(curve.risk[at]), 2)])
    return table(["rows kept", "error among them"], rows)


def labelled_sections(report: Findings, result: Assessment) -> list[str]:
    before, after = result.before, result.score("temperature")
    fit = result.fit
    low, high = fit.interval
    fine = result.verdict == NOT_FOUND
    sentence = report.verdict[0].upper() + report.verdict[1:]
    gap = 100 * before.gap.value
    least, most = (100 * end for end in before.test.gap_by_chance)
    notes = [*report.weighting, *report.warnings]
    said = "".join(f"<p class=note>{escape(line)}</p>" for line in notes)
    parts = [
        f'<p class="verdict{" fine" if fine else ""}">{escape(sentence)}.</p>',
        f"<p>The gap is {gap:+.1f} points; by chance alone it would lie between {least:+.1f} and "
        f"{most:+.1f} in 95 of 100 samples. Test of calibration: {escape(level_of(before.test))}. "
        f"{escape(advice(result))}</p>{said}",
        '<div class="tiles">',
        tile(percent(before.accuracy.value), "accuracy", interval(before.accuracy)),
        tile(f"{fit.temperature:.3g}", "fitted temperature", f"95 %: {low:.3g} to {high:.3g}"),
        tile(
            f"{percent(before.ece.value)} \N{RIGHTWARDS ARROW} {percent(after.ece.value)}",
            "calibration error (ECE)",
            f"by chance alone up to {percent(after.ece_by_chance)}",
        ),
        tile(
            f"{before.nll.value:.3f} \N{RIGHTWARDS ARROW} {after.nll.value:.3f}",
            "nll, nats a row",
            "before, and at the temperature",
        ),
        "</div>",
        "<h2>Confidence and truth</h2>",
        '<div class="grid">',
        figure_block(
            "before",
            "Before calibration",
            "A bar is the share of right predictions among those of about one confidence. Bars on "
            "the dashed line are calibrated; hatching above a bar is overconfidence. Whiskers: "
            "95 % Wilson intervals. Below: how many rows are in each bin.",
            lambda figure: plots.plot_reliability(before.reliability, ax=figure.subplots()),
            bins_table(before.reliability),
            height=4.2,
        ),
        figure_block(
            "after",
            f"After, at temperature {fit.temperature:.3g}",
            "The same rows, which had no part in the choice of the temperature.",
            lambda figure: plots.plot_reliability(after.reliability, ax=figure.subplots()),
            bins_table(after.reliability),
            height=4.2,
        ),
        figure_block(
            "confidence",
            "How sure it is",
            "Shares of rows by confidence, hatched where the prediction is wrong. The two upright "
            "lines fall together if the model is calibrated on average.",
            lambda figure: plots.plot_confidence(
                before.reliability, after=after.reliability, ax=figure.subplots()
            ),
            bins_table(before.reliability),
        ),
        figure_block(
            "temperature",
            "Which temperature",
            "The negative log-likelihood of the fitting rows at each temperature; its least is the "
            "fitted one, with its 95 % profile likelihood interval. Above 1: overconfident.",
            lambda figure: plots.plot_temperature(fit, ax=figure.subplots()),
            table(
                ["temperature", "nll"],
                [[f"{t:.4g}", f"{nll:.6f}"] for t, nll in fit.curve],
            ),
        ),
        "</div>",
        "<h2>Calibrators</h2>",
        "<p>Each was fitted on one half of the rows and judged on the other. Small print: 95 % "
        f"intervals. {escape(shaded(result))}</p>",
        methods_table(result),
        "<p class=note>ECE is pushed up by noise: a calibrated model would stay below "
        '"ECE by chance" in 95 of 100 samples of this size. Its interval '
        "contains the value and reaches down to 0 where that may be the true error. nll and Brier "
        "score are proper: they cannot be made better than by honest probabilities. A "
        "calibrator that is right more often has learnt more than calibration from its rows.</p>",
        '<div class="grid">',
        figure_block(
            "methods",
            "What each calibrator gains",
            "The change of nll against no calibration, from the differences in each row, with its "
            "95 % interval. Further left is better.",
            lambda figure: pictures.plot_methods(result, ax=figure.subplots()),
            table(
                ["calibrator", "change of nll", "95 %"],
                [[one.method, *number(one.nll_change)] for one in result.scores[1:]],
            ),
            height=0.3 * len(result.scores) + 1.0,
        ),
        "</div>",
        "<h2>Where it is most overconfident</h2>",
        f"<p>{escape(worst(result, report.num_classes))}</p>",
        '<div class="grid">',
        classes_figure(result, report.class_names),
        figure_block(
            "risk",
            "If it may abstain",
            "The error among the most confident rows, for each share of rows kept. The area under "
            "the curve (AURC) is small if confidence ranks rows well, calibrated or not.",
            lambda figure: plots.plot_risk_coverage(result.risk, ax=figure.subplots()),
            risk_table(result),
        ),
        "</div>",
        *guarantee_sections(result, report.class_names),
        *groups_section(report),
    ]
    return parts


def groups_section(report: Findings) -> list[str]:
    found = report.groups
    if found is None:
        return []
    rows: list[list[Cell]] = [
        [
            shown_name(one.name),
            f"{one.rows:,}",
            share(one.accuracy),
            percent(one.confidence),
            (percent(one.ece.value), interval(one.ece)),
            f"{one.adjusted:.3f}",
            one.verdict,
        ]
        for one in found.groups
    ]
    head = ["group", "rows", "is right", "says", "ECE", "p, adjusted", "verdict"]
    return [
        "<h2>By group</h2>",
        f"<p>{len(found.found)} of {len(found.groups)} groups are not calibrated, over all rows. "
        "p-values are adjusted for the number of groups by Holm's rule: if all are calibrated, one "
        f"is found in {percent(found.level, 0)} of samples at most.</p>",
        '<div class="grid">',
        figure_block(
            "groups",
            "Confidence and truth in each group",
            "Where the two marks are apart, the group is over- or underconfident; a filled mark: "
            "beyond chance.",
            lambda figure: plots.plot_groups(found, ax=figure.subplots()),
            table(head, rows),
            height=0.28 * len(rows) + 1.0,
        ),
        "</div>",
        table(head, rows),
    ]


def advice(result: Assessment) -> str:
    """What the temperature does, and whether something else does more."""
    before, after = result.before, result.score("temperature")
    best = result.score(result.advised)
    if is_limit(result.fit.temperature):
        return (
            f"The fitted temperature is {result.fit.temperature:g}, a limit and no advice "
            f"({result.fit.diagnosis}): {REMEDY}."
        )
    text = (
        f"Dividing the logits by {result.fit.temperature:.3g} takes the ECE from "
        f"{percent(before.ece.value)} to {percent(after.ece.value)} and the nll from "
        f"{before.nll.value:.3f} to {after.nll.value:.3f}, on rows that had no part in its choice."
    )
    if result.advised == UNCALIBRATED:
        return f"{text} That is no gain beyond doubt: the logits may stay as they are."
    if result.advised == "temperature":
        return f"{text} No calibrator with more parameters is better beyond doubt."
    more = f"{text} The calibrator {best.method} takes the nll further, to {best.nll.value:.3f}"
    if best.accuracy.value - after.accuracy.value > 0.01:
        more += (
            f"; it is also right more often, {percent(best.accuracy.value)}, so that it has learnt "
            "something that the model had not"
        )
    return f"{more}."


def worst(result: Assessment, classes: int) -> str:
    if not result.worst_classes:
        return (
            f"No class is predicted in {LEAST_CLASS_ROWS} of the scoring rows: "
            "too few to tell them apart."
        )
    text = (
        "Rows in which a class is predicted, before calibration: the "
        f"{len(result.worst_classes)} of {classes:,} classes whose overconfidence is surest, among "
        f"those predicted in at least {LEAST_CLASS_ROWS} rows."
    )
    return text if classes <= 20 else f"{text} Of so many classes, some stand out by accident."


def classes_figure(result: Assessment, names: Sequence[str]) -> str:
    if not result.worst_classes:
        return ""
    return figure_block(
        "classes",
        "What it says, and what is right",
        "Diamonds: the mean confidence. Dots: the share that is right, with its 95 % Wilson "
        "interval. A diamond right of the interval is more than chance would give one class.",
        lambda figure: pictures.plot_classes(
            result.worst_classes, class_names=names, ax=figure.subplots()
        ),
        classes_table(result, names),
        height=0.27 * len(result.worst_classes) + 1.0,
    )


def shaded(result: Assessment) -> str:
    choice = choice_of(result)
    return f"Shaded: {result.advised}. {choice[0].upper()}{choice[1:]}."
