"""A report as one HTML page: no script, no request, light and dark, to print and to read out."""

from __future__ import annotations

import importlib.resources
import math
from typing import Any

import hotmax as hm
from hotmax import plots
from hotmax.calibration.assessment import (
    MOST_CLASSES,
    MOST_LOGITS,
)
from hotmax.calibration.binning import BINS
from hotmax.calibration.chance import LEVEL, SAMPLES
from hotmax.calibration.ranks import aurc_doubt
from hotmax.calibration.request import MOST_SCORED
from hotmax.calibration.reservoir import MOST_ROWS
from hotmax.calibration.row_sums import CELLS
from hotmax.calibration.shape import ENTROPY_CELLS, QUANTILES, Shape
from hotmax.plots import assessment as pictures
from hotmax.view.elements import (
    escape,
    figure_block,
    percent,
    table,
    tile,
)
from hotmax.view.findings import Findings
from hotmax.view.labelled import labelled_sections

# --- without labels ---------------------------------------------------------------------------


def unlabelled_sections(report: Findings, shape: Shape) -> list[str]:
    quantiles = [f"{q:.0%}" for q in QUANTILES]
    found = shape.saturation
    parts = [
        "<h2>The shape of the predictions</h2>",
        "<p>This needs no labels: how sure the model is, not whether it is right.</p>",
        '<div class="tiles">',
        tile(percent(shape.confidence), "mean confidence"),
        tile(
            f"{shape.entropy:.3g}",
            "mean entropy, nats",
            f"uniform would be {math.log(report.num_classes):.3g}",
        ),
        tile(
            f"{shape.effective[2]:.3g}",
            "effective classes, median",
            f"5 to 95 % of rows: {shape.effective[0]:.3g} to {shape.effective[4]:.3g}",
        ),
        tile(percent(found.saturated), "saturated rows", "with a probability above 99 %"),
        tile(
            f"{100 * shape.slope:+.2f}",
            "points of confidence",
            "if the temperature rises by 10 %",
        ),
        "</div>",
        '<div class="grid">',
    ]
    if report.assessment is None:
        parts.append(
            figure_block(
                "shape",
                "How sure it is",
                "Shares of rows by the largest probability.",
                lambda figure: pictures.plot_shape(shape, ax=figure.subplots()),
                histogram_table(
                    shape.confidence_edges, shape.confidence_shares, "confidence", 100.0
                ),
            )
        )
    parts += [
        figure_block(
            "effective",
            "How many classes it hesitates between",
            "exp(entropy) of each row: 1 if one class has it all, n if n classes share evenly.",
            lambda figure: pictures.plot_effective(shape, ax=figure.subplots()),
            table(quantiles, [[f"{value:.4g}" for value in shape.effective]], "quantiles of rows")
            + histogram_table(shape.effective_edges, shape.effective_shares, "effective classes"),
        ),
        figure_block(
            "sensitivity",
            "Sensitivity to temperature",
            "Mean confidence and mean entropy if all logits are divided by a temperature. Steep at "
            f"1 means that the scale of the logits decides. From {shape.swept_rows:,} rows.",
            lambda figure: pictures.plot_sensitivity(shape, ax=figure.subplots()),
            table(
                ["temperature", "mean confidence", "mean entropy"],
                [
                    [f"{t:.3g}", percent(float(p)), f"{h:.4f}"]
                    for t, p, h in zip(
                        shape.temperatures, shape.confidence_at, shape.entropy_at, strict=True
                    )
                ],
            ),
        ),
        figure_block(
            "saturation",
            "Gradient health",
            "Probabilities, and p (1 - p), through which a gradient must pass, on a log scale. "
            f"What piles up at the left learns nothing. From {found.rows:,} rows.",
            lambda figure: plots.plot_saturation(found, figure=figure),
            table(["", ""], [list(line) for line in found.lines()]),
            height=3.9,
        ),
        "</div>",
    ]
    return parts


def histogram_table(edges: Any, shares: Any, name: str, scale: float = 1.0) -> str:
    rows = [
        [f"{scale * edges[i]:.3g} to {scale * edges[i + 1]:.3g}", percent(float(shares[i]), 2)]
        for i in range(len(shares))
        if shares[i] > 0
    ]
    return table([name + (", %" if scale == 100.0 else ""), "share of rows"], rows)


# --- the page ---------------------------------------------------------------------------------


def made(report: Findings) -> str:
    """How the figures were made, in a few sentences."""
    if report.assessment is None:
        return "All rows were read; where fewer were used, they were drawn at random."
    result = report.assessment
    limits = ", ".join(f"{name} {most}" for name, most in MOST_CLASSES.items())
    split = "The rows that score are a test set of their own: "
    if not result.test_set:
        split = (
            f"The {report.rows:,} rows were split at random (by a hash of seed {report.seed} and "
            "the number of the row): "
        )
    left = "; ".join(f"{method} {why}" for method, why in result.left_out)
    return (
        split
        + f"{result.fit_rows:,} fit calibrators, {result.score_rows:,} score them, and no row does "
        "both. The temperature is fitted to all fitting rows; the others to at most "
        f"{MOST_ROWS:,} of them with {MOST_LOGITS:,} logits, drawn at random. The most classes "
        f"that a calibrator is tried on: {limits}; the others have no limit. "
        + (f"Not tried here: {left}. " if left else "")
        + "Intervals are 95 %: Wilson's for shares, 1.96 standard errors for means over rows, "
        f"profile likelihood for the temperature. That of the ECE ({BINS} bins of equal width) "
        "contains the estimate, and the true error in 95 of 100 samples at least; it begins at 0 "
        "where the error may be 0. The verdict tests whether labels drawn from the predictions' "
        f"own probabilities, {SAMPLES} times, would give such a gap or such an ECE; both tests "
        f"together have the level {100 * LEVEL:g} %. Accuracy, "
        "nll, Brier score and ECE are exact sums over rows. The smooth curves, the risk-coverage "
        f"curve and its area come from histograms of confidence with some {CELLS:,} cells, whose "
        "rows count as ties: the smooth curves are right to about four digits, the area is off by "
        f"at most {aurc_doubt(result.risk.coverage, result.risk.risk):.1g}. Of more than "
        f"{MOST_SCORED:,} rows, the quantiles of effective classes come from {ENTROPY_CELLS:,} "
        "cells of entropy, right to 0.1 %. The curve of nll over temperature is drawn from at most "
        f"{MOST_ROWS:,} fitting rows. The method "
        "advised was chosen on one half of the scoring rows, as the simplest within one standard "
        "error of the best nll, and is advised if it gains beyond doubt on the other half."
        + made_with_weights(report)
    )


def made_with_weights(report: Findings) -> str:
    """What is different for rows with weights or soft labels."""
    assert report.assessment is not None
    used = report.assessment.weights
    if used is None or report.assessment.abstention is not None:
        return ""
    return (
        " Rows have "
        + " and ".join(
            name
            for name, there in (("weights", used.sample_weight), ("soft labels", used.soft_labels))
            if there
        )
        + f": those that fit are as certain as {used.fit_effective_rows:,.0f} of equal weight, "
        f"those that score as {used.score_effective_rows:,.0f}. Means are weighted, and their "
        "standard errors those of rows as they came. The verdict tests whether the mean of targets "
        "is the prediction, with the variance sum w\N{SUPERSCRIPT TWO} p (1 - p) of drawn labels "
        "times their dispersion, which is estimated from the residuals; so are the intervals of "
        "accuracy and ECE. The likelihood of the temperature is adjusted to the variance of its "
        "gradient. What needs no labels counts each row once."
    )


def page(report: Findings) -> str:
    body: list[str] = []
    if report.assessment is not None:
        body += labelled_sections(report, report.assessment)
    body += unlabelled_sections(report, report.shape)
    return document(report.title, report.subtitle, body, made(report))


def document(title: str, subtitle: str, body: list[str], how: str) -> str:
    """A page of these parts; `how` says how its figures were made."""
    style = importlib.resources.files("hotmax.view").joinpath("page.css").read_text("utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body><main>"
        f"<header><h1>{escape(title)}</h1>"
        f'<p class="quiet">{escape(subtitle)}</p></header>\n'
        + "\n".join(body)
        + f'<footer><h3>How this was made</h3><p class="quiet">{escape(how)}</p>'
        f'<p class="quiet">hotmax {escape(hm.__version__)}</p></footer></main></body></html>\n'
    )
