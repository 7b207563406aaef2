"""calibrate and evaluate where labels are independent of each other: --multilabel."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hotmax as hm
from hotmax.view.cli.label_calibrators import calibrated_labels, label_probabilities
from hotmax.view.cli.options import Input, check_free
from hotmax.view.cli.output import Table, say, say_json
from hotmax.view.cli.row_errors import naming_the_file

if TYPE_CHECKING:
    from hotmax.calibration.by_label import MultilabelCalibration


def evaluated_labels(
    found: Input, calibrator: Path | None, temperature: float, bins: int
) -> MultilabelCalibration:
    if bins != 15:
        raise ValueError(f"--bins is not for --multilabel, which has 15, got {bins}")
    outputs, targets, input = calibrated_labels(found, calibrator)
    return hm.calibration.evaluate(
        outputs,
        targets,
        input=input,
        temperature=temperature,
        class_names=found.class_names,
        multilabel=True,
    )


def data_of(result: MultilabelCalibration) -> dict[str, Any]:
    """The numbers of all labels, for JSON."""
    return {
        "verdict": result.verdict,
        "level": result.level,
        "nll": result.nll.value,
        "nll_interval": result.nll.interval,
        "ece": result.reliability.ece,
        "labels": [{**dataclasses.asdict(one), "verdict": one.verdict} for one in result.labels],
    }


def say_labels(found: Input, result: MultilabelCalibration, as_json: bool) -> None:
    if as_json:
        data = data_of(result)
        by_label = {"by_label": data.pop("labels")}
        say_json({**found.as_data(), "rows": result.rows, **data, **by_label})
        return
    say(str(found), "", *str(result).splitlines())


def calibrate_labels(
    found: Input, method: str, parts: Any, out: Path | None, force: bool, as_json: bool
) -> None:
    """Fit a calibrator to each label, and compare before and after on the rows held out.

    `parts` is the Holdout of `calibrate`.
    """
    from hotmax.calibration.row_hash import held_out
    from hotmax.calibration.temperature_fit import REMEDY, is_limit

    x, y = found.arguments
    rows, labels = x.shape
    held = np.ones(rows, bool)
    fitting = held
    if parts.held is not None:
        held = held_out(parts.seed, parts.held.share, rows, 0, rows)
        fitting = ~held
    names = found.class_names or tuple(map(str, range(labels)))
    options: Any = {"class_names": names, "seed": parts.seed}
    with naming_the_file(found), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the labels are separable")  # told below, by label
        calibrator = hm.calibration.SigmoidCalibrator(method).fit(x[fitting], y[fitting])
        before = hm.calibration.by_label(x[held], y[held], **options)
        p = label_probabilities(calibrator, x[held])
        after = hm.calibration.by_label(p, y[held], input="probabilities", **options)
    values = [one.parameters_.get("temperature") for one in calibrator.calibrators_]
    limits = [name for name, t in zip(names, values, strict=True) if is_limit(t)]
    told = f"the fitted temperature of label {', '.join(limits[:8])} is a limit, 0 or inf: {REMEDY}"
    if limits and out is not None and not force:
        raise ValueError(f"{found.name}: {told}; --force saves it all the same")
    if out is not None:
        check_free(out, force)
        calibrator.save(out, force=force)
    if as_json:
        data = {**found.as_data(), "rows": rows, "held_out": parts.held_out, "seed": parts.seed}
        data |= {"method": method, "temperatures": values, "limits": limits}
        figures = {"before": data_of(before), "after": data_of(after)}
        say_json({**data, **figures, "out": None if out is None else str(out)})
        return
    say(str(found), str(parts), f"method {method}, for each label")
    say(*([told] if limits else []), "", *compared_labels(before, after).lines(), "")
    say(f"before  {before.verdict}", f"after   {after.verdict}")
    say(f"test of calibration, before: {before.assurance}")
    say(f"written: {out}" if out else "not saved: --out calibrator.json would")


def compared_labels(before: MultilabelCalibration, after: MultilabelCalibration) -> Table:
    both = before, after
    rows = [
        ["mean NLL", *(f"{one.nll.value:.5f}" for one in both)],
        ["ECE, labels together", *(f"{one.reliability.ece:.3%}" for one in both)],
        ["labels not calibrated", *(f"{len(one.found)} of {len(one.labels)}" for one in both)],
    ]
    for first, second in zip(before.labels, after.labels, strict=True):
        gaps = (f"{100 * one.gap.value:+.2f} points" for one in (first, second))
        rows.append([f"gap of {first.name}", *gaps])
    return Table(("", "before", "after"), rows)
