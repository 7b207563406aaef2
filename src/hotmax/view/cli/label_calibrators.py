"""Saved calibrators on the command line: of classes, of one logit, of independent labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax.view.cli.options import Input, LabelReading


def method_of(calibrator: Any) -> str:
    """The name of a calibrator's method."""
    if is_of_labels(calibrator):
        return str(calibrator.method)
    return str(calibrator._options()[0])


def is_of_labels(calibrator: Any) -> bool:
    return hasattr(calibrator, "calibrators_")


def loaded(path: str | Path, of_labels: bool) -> Any:
    """A calibrator for classes, or for independent labels; one of one logit is for two classes."""
    from hotmax.io.one_file import existing

    fitted: Any = hm.calibration.load(existing(path))
    if is_of_labels(fitted):
        if of_labels:
            return fitted
        if fitted.binary_:
            return fitted.calibrators_[0]
        raise ValueError(f"{path} is a calibrator of independent labels: --multilabel reads these")
    if of_labels:
        raise ValueError(
            f"{path} is a calibrator of classes, and not one of independent labels, which "
            "hotmax calibrate --multilabel --out writes"
        )
    return fitted


def fitting_reading(path: Path, reading: LabelReading) -> tuple[Any, LabelReading]:
    """(a calibrator, how files are read for it): one of several labels says by itself how."""
    from hotmax.io.one_file import existing

    fitted: Any = hm.calibration.load(existing(path))
    if is_of_labels(fitted) and not fitted.binary_:
        reading = replace(reading, multilabel=True)
    return loaded(path, reading.of_labels), reading


def label_probabilities(fitted: Any, logits: Array) -> Array:
    """The probabilities of "yes" that a calibrator of labels gives to logits (rows, labels)."""
    from hotmax.view.multilabel import probabilities_of_labels

    return probabilities_of_labels(fitted, logits, "logits")


def calibrated_labels(found: Input, calibrator: Path | None) -> tuple[Array, Array, str]:
    """Outputs, targets and what the outputs are: of a file, or of a calibrator on it."""
    logits, targets = found.arguments
    if calibrator is None:
        return logits, targets, "logits"
    return label_probabilities(loaded(calibrator, True), logits), targets, "probabilities"
