"""evaluate: all metrics of labelled predictions, in one pass."""

from __future__ import annotations

import dataclasses

import hotmax as hm
from hotmax.view.cli.options import BLOCK_READING, COMMON, BlockReading, Common, Files, Temperature
from hotmax.view.cli.output import progress, say, say_json
from hotmax.view.cli.row_errors import naming_the_file


def evaluate(
    *files: Files,
    temperature: Temperature = 1.0,
    bins: int = 15,
    reading: BlockReading = BLOCK_READING,
    common: Common = COMMON,
) -> None:
    """Print all metrics of labelled predictions: accuracy, nll, Brier score, ECE and the rest.

    Example: hotmax evaluate predictions.npz

    Example: hotmax evaluate 'shards/*.parquet' --cluster tcp://host:8786

    Parameters
    ----------
    files
        Logits and labels: .npz, .npy (with --labels), .csv, .parquet or .safetensors; several
        files, directories, patterns in quotes, or a .zarr.
    temperature
        Of the logits.
    bins
        Bins of equal width for the calibration errors.
    """
    with progress("reading"), reading.open(files) as found:
        if not found.has_labels:
            raise ValueError(f"{found.name} has no labels, which an evaluation needs: --labels")
        with naming_the_file(found):
            logits, labels = found.arguments
            result = hm.calibration.evaluate(logits, labels, temperature=temperature, bins=bins)
    if common.json:
        numbers = {
            field.name: getattr(result, field.name)
            for field in dataclasses.fields(result)
            if field.name != "reliability"
        }
        say_json({"source": found.name, **numbers})
        return
    say(str(found), "", *str(result).splitlines())
