"""Binary and multilabel outputs: one logit, or one for each label, with sigmoids of their own."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

try:
    from sklearn.base import BaseEstimator
    from sklearn.exceptions import NotFittedError
except ImportError:
    raise ImportError('calibrators need scikit-learn: pip install "hotmax[calibration]"') from None

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.class_labels import names_of_columns, refuse_other_columns
from hotmax._core.files import write_whole
from hotmax._core.reading import is_count
from hotmax.calibration.calibrators import Calibrator, calibrator_for, calibrator_of
from hotmax.calibration.examples import INPUTS
from hotmax.calibration.one_output import as_two_classes, yes_or_no
from hotmax.calibration.parameters import LONGEST_FILE
from hotmax.calibration.selection import select

SIGMOID_FORMAT, SIGMOID_VERSION = "hotmax sigmoid calibrator", 1
MOST_OUTPUTS = 498  # each of 40 objects of a file at most
BY_SELECTION = "select"


class SigmoidCalibrator(BaseEstimator):  # type: ignore[misc]
    """A calibrator of one logit, or of one logit for each label: sigmoids instead of a softmax.

    Each output has a calibrator of two classes of its own.

    Args:
        method: A method of `Calibrator`, or "select", by which each output has the method that
            `select` chooses.
        input: What comes in, "logits" or "probabilities" of "yes".

    After `fit`: `calibrators_`, one for each output, and `n_features_in_`.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(500, 3)) * 4
        >>> labels = logits / 2 + rng.logistic(size=logits.shape) > 0
        >>> fitted = hm.calibration.SigmoidCalibrator().fit(logits, labels)
        >>> [round(one.temperature_, 1) for one in fitted.calibrators_]
        [2.0, 2.0, 2.1]
        >>> fitted.predict_proba(logits).shape
        (500, 3)
    """

    calibrators_: tuple[Calibrator, ...]

    def __init__(self, method: str = "temperature", *, input: str = "logits") -> None:
        self.method = method
        self.input = input

    def fit(
        self, logits: object, targets: object, sample_weight: object = None
    ) -> SigmoidCalibrator:
        """Fit to outputs (rows,) or (rows, labels) and targets of that shape, 0 or 1."""
        refuse_masked(logits, "logits")
        x = as_two_classes(logits, input=self.input)
        if x.ndim not in (2, 3) or 0 in x.shape:
            raise ValueError(
                "logits must have the shape (rows,) or (rows, labels), and be there; got "
                f"{x.shape[:-1]}"
            )
        y = yes_or_no(targets, x.shape[:-1])
        self.binary_ = x.ndim == 2
        if self.binary_:
            x, y = x[:, None], y[:, None]
        found = []
        for number in range(x.shape[1]):
            rows = x[:, number], y[:, number]
            if self.method == BY_SELECTION:
                chosen = select(*rows, sample_weight=sample_weight, input=self.input)
                found.append(chosen.calibrator)
            else:
                calibrator = calibrator_for(self.method, self.input)
                found.append(calibrator.fit(*rows, sample_weight))
        self.calibrators_ = tuple(found)
        self.n_features_in_ = len(found)
        self.columns_ = names_of_columns(logits)
        return self

    def predict_proba(self, logits: object) -> Array:
        """The calibrated probabilities of "yes", float64, in the shape of the outputs."""
        if not hasattr(self, "calibrators_"):
            raise NotFittedError("this SigmoidCalibrator is not fitted yet: call fit first")
        refuse_other_columns(getattr(self, "columns_", None), logits, "logits")
        refuse_masked(logits, "logits")
        x = as_two_classes(logits, input=self.input)
        wanted = "(rows,)" if self.binary_ else f"(rows, {self.n_features_in_})"
        if x.ndim != (2 if self.binary_ else 3) or (
            not self.binary_ and x.shape[1] != self.n_features_in_
        ):
            raise ValueError(f"logits must have the shape {wanted}, got {x.shape[:-1]}")
        if self.binary_:
            p: Array = self.calibrators_[0].predict_proba(x)[:, 1]
            return p
        columns = [one.predict_proba(x[:, i])[:, 1] for i, one in enumerate(self.calibrators_)]
        return np.stack(columns, axis=1)

    def predict(self, logits: object) -> Array:
        """1 where "yes" is likelier than "no", else 0."""
        return (self.predict_proba(logits) > 0.5).astype(np.int64)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the fitted calibrator as JSON: whole, or not at all; `load` reads it.

        Raises:
            FileExistsError: If the file is there, without `force`.
            ValueError: If `load` could not read it.
        """
        if not hasattr(self, "calibrators_"):
            raise NotFittedError("this SigmoidCalibrator is not fitted yet: call fit first")
        if self.n_features_in_ > MOST_OUTPUTS:
            raise ValueError(
                f"this calibrator cannot be saved: {self.n_features_in_} outputs, and "
                f"{MOST_OUTPUTS} are read"
            )
        data = {
            "format": SIGMOID_FORMAT,
            "version": SIGMOID_VERSION,
            "method": self.method,
            "input": self.input,
            "binary": int(self.binary_),
            "calibrators": [one._document() for one in self.calibrators_],
        }
        text = json.dumps(data, allow_nan=False)
        if len(text) > LONGEST_FILE:
            raise ValueError(
                f"this calibrator cannot be saved: it takes {len(text)} bytes, and "
                f"{LONGEST_FILE} are read"
            )
        write_whole(path, text, force=force)


def sigmoids_of(data: dict[str, Any]) -> SigmoidCalibrator:
    """The calibrator of a file's contents; a ValueError if they are not one."""
    keys = {"format", "version", "method", "input", "binary", "calibrators"}
    if data.get("version") != SIGMOID_VERSION or type(data["version"]) is not int:
        raise ValueError(f"has version {data.get('version')!r}, and {SIGMOID_VERSION} is read here")
    if set(data) != keys:
        raise ValueError(f"is damaged: it has the keys {sorted(data)[:12]}, not {sorted(keys)}")
    if type(data["method"]) is not str or data["input"] not in INPUTS:
        raise ValueError("is damaged: method must be text, and input logits or probabilities")
    if not is_count(data["binary"]) or data["binary"] not in (0, 1):
        raise ValueError("is damaged: binary must be 0 or 1")
    given = data["calibrators"]
    if type(given) is not list or not given or (data["binary"] and len(given) != 1):
        raise ValueError("is damaged: calibrators must be a list, of one if it is binary")
    found = tuple(calibrator_of(each) for each in given)
    if any(one.n_features_in_ != 2 or one.input != data["input"] for one in found):
        raise ValueError("is damaged: calibrators must be for two classes, and for the same input")
    if any(data["method"] not in (BY_SELECTION, one._options()[0]) for one in found):
        raise ValueError("is damaged: calibrators must be of the method of the whole")
    calibrator = SigmoidCalibrator(data["method"], input=data["input"])
    calibrator.calibrators_ = found
    calibrator.binary_ = bool(data["binary"])
    calibrator.n_features_in_ = len(found)
    return calibrator
