"""evaluate: all metrics of labelled predictions, in one pass."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hotmax.view.cli.decide import calibrated
from hotmax.view.cli.labels import evaluated_labels, say_labels
from hotmax.view.cli.options import COMMON, LABEL_READING, Common, Files, LabelReading, Temperature
from hotmax.view.cli.output import progress, say, say_json
from hotmax.view.cli.row_errors import naming_the_file


def evaluate(
    *files: Files,
    calibrator: Path | None = None,
    temperature: Temperature = 1.0,
    bins: int = 15,
    reading: LabelReading = LABEL_READING,
    common: Common = COMMON,
) -> None:
    """Print all metrics of labelled predictions: accuracy, nll, Brier score, ECE and the rest.

    Example: hotmax evaluate predictions.npz

    Example: hotmax evaluate test.npz --calibrator calibrator.json

    Example: hotmax evaluate labels.npz --multilabel --calibrator calibrator.json

    Example: hotmax evaluate 'shards/*.parquet' --cluster tcp://host:8786

    Parameters
    ----------
    files
        Logits and labels: .npz, .npy (with --labels), .csv, .parquet or .safetensors; several
        files, directories, patterns in quotes, or a .zarr.
    calibrator
        The JSON file of a calibrator, which is applied first.
    temperature
        Of the logits.
    bins
        Bins of equal width for the calibration errors.
    """
    from hotmax.calibration.assessment import telling
    from hotmax.calibration.evaluation import evaluate_rows
    from hotmax.calibration.row_parts import row_parts

    if calibrator is not None and temperature != 1.0:
        raise ValueError("--calibrator and --temperature exclude each other: give one of them")
    with progress("reading") as update, reading.open(files) as found:
        if not found.has_labels:
            raise ValueError(f"{found.name} has no labels, which an evaluation needs: --labels")
        if found.multilabel:
            with naming_the_file(found):
                labelled = evaluated_labels(found, calibrator, temperature, bins)
            say_labels(found, labelled, common.json)
            return
        with naming_the_file(found):
            logits, labels, input = calibrated(found, calibrator)
            rows = row_parts(logits, labels, input=input)
            tell = telling(update, 0.0, 1.0)("pass 1 of 1, summing")
            result = evaluate_rows(rows, temperature, bins, tell=tell)
    if common.json:
        numbers = {
            field.name: getattr(result, field.name)
            for field in dataclasses.fields(result)
            if field.name != "reliability"
        }
        say_json({**found.as_data(), **numbers})
        return
    say(str(found), "", *str(result).splitlines())
