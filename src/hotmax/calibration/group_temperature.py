"""A temperature for each group of rows, such as a site or a month, shrunk to that of all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
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
from hotmax._softmax.functions import softmax
from hotmax.calibration.conformal import unlabelled
from hotmax.calibration.estimate import NORMAL
from hotmax.calibration.examples import INPUTS, Examples, read, read_rows, shape_of
from hotmax.calibration.likelihood import Likelihood
from hotmax.calibration.mixture import logits_of, used
from hotmax.calibration.parameters import LARGEST_CLASSES
from hotmax.calibration.search import fit_examples
from hotmax.calibration.temperature_fit import is_limit
from hotmax.calibration.temperature_prior import fit_with_prior

GROUP_FORMAT, GROUP_VERSION = "hotmax group temperatures", 1
HOTTEST = 1e300
SMALLEST_DEVIATION = 1e-6  # of log T between groups, below which all have the same temperature


def group_names(groups: object, rows: int) -> Array:
    """The group of each row as text."""
    refuse_masked(groups, "groups")
    names = np.asarray(groups)
    if names.shape != (rows,):
        raise ValueError(f"groups must have one entry for each of {rows} rows, got {names.shape}")
    if names.dtype.kind not in "biuUSO":
        raise TypeError(f"groups must be text or integers, got {names.dtype}")
    return np.array([str(name) for name in names.tolist()])


def deviation_between(logs: Array, variances: Array) -> float:
    """The standard deviation of log T between groups, beyond what their errors explain.

    By the method of moments of DerSimonian and Laird, 1986.
    """
    if len(logs) < 2:
        return 0.0
    w = 1.0 / variances
    mean = float(w @ logs) / float(w.sum())
    excess = float(w @ (logs - mean) ** 2) - (len(logs) - 1)
    scale = float(w.sum()) - float(w @ w) / float(w.sum())
    return math.sqrt(max(excess / scale, 0.0)) if scale > 0.0 else 0.0


class GroupTemperatureScaling(BaseEstimator):  # type: ignore[misc]
    """A temperature for each group of rows, shrunk to the temperature of all rows.

    log T of a group has a normal prior around that of all rows. Its standard deviation is estimated
    from the groups: where they differ by no more than chance, all have the same temperature, and a
    group of few rows stays near it. A group that the fit has not seen has the temperature of all.

    Args:
        input: What comes in, "logits" or "probabilities".

    After `fit`: `temperature_` of all rows, `temperatures_`, a dict by group, and `deviation_`, the
    estimated standard deviation of log T between groups.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits, site = rng.normal(size=(4000, 3)) * 4, np.arange(4000) % 2
        >>> labels = (logits / (1.0 + site[:, None]) + rng.gumbel(size=logits.shape)).argmax(1)
        >>> scaling = hm.calibration.GroupTemperatureScaling().fit(logits, labels, site)
        >>> {name: round(value, 1) for name, value in scaling.temperatures_.items()}
        {'0': 1.0, '1': 2.0}
    """

    temperature_: float
    temperatures_: dict[str, float]
    deviation_: float
    n_features_in_: int

    def __init__(self, *, input: str = "logits") -> None:
        self.input = input

    def fit(
        self, logits: object, targets: object, groups: object, sample_weight: object = None
    ) -> GroupTemperatureScaling:
        """Fit to labelled logits; `groups` has text or an integer for each row.

        Raises:
            ValueError: If the temperature of all rows is a limit, 0 or inf.
        """
        refuse_masked(logits, "logits")
        refuse_masked(targets, "targets")
        examples = read(logits, targets, sample_weight=sample_weight, input=self.input)
        names = group_names(groups, examples.rows)
        weighted = examples.weight_of_rows() > 0.0
        examples, names = used(examples), names[weighted]
        shared = fit_examples(examples).temperature
        if is_limit(shared):
            raise ValueError(f"the temperature of all rows is a limit, {shared}: use more rows")
        parts = {str(name): examples.taking(names == name) for name in np.unique(names)}
        self.temperature_ = shared
        self.deviation_ = self._deviation(parts)
        self.temperatures_ = {}
        for name, part in parts.items():
            value = shared
            if self.deviation_ > SMALLEST_DEVIATION:
                tempered = replace(
                    part, x=logits_of(part) / shared, where=None, probabilities=False
                )
                value *= fit_with_prior(Likelihood(tempered), self.deviation_).temperature
            self.temperatures_[name] = value
        self.n_features_in_ = examples.classes
        self.columns_ = names_of_columns(logits)
        return self

    def _deviation(self, parts: Mapping[str, Examples]) -> float:
        logs, variances = [], []
        for part in parts.values():
            fit = fit_examples(part)
            low, high = fit.interval_by_information
            if not is_limit(fit.temperature) and 0.0 < low < high < math.inf:
                logs.append(math.log(fit.temperature))
                variances.append((math.log(high / low) / (2.0 * NORMAL)) ** 2)
        return deviation_between(np.array(logs), np.array(variances))

    def predict_proba(self, logits: object, groups: object) -> Array:
        """Calibrated probabilities, float64; `groups` has an entry for each row."""
        if not hasattr(self, "temperatures_"):
            raise NotFittedError("this GroupTemperatureScaling is not fitted yet: call fit first")
        refuse_other_columns(getattr(self, "columns_", None), logits, "logits")
        refuse_masked(logits, "logits")
        x, mask = read_rows(logits, where=None, input=self.input, suspicious=False)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(f"logits must have {self.n_features_in_} classes, got {x.shape[1]}")
        names = group_names(groups, len(x))
        rows = unlabelled(x, mask, self.input).logits()
        temperatures = np.array(
            [self.temperatures_.get(name, self.temperature_) for name in names.tolist()]
        )
        p: Array = softmax(rows, temperature=temperatures[:, None])
        return p.reshape(shape_of(logits))

    def predict(self, logits: object, groups: object) -> Array:
        """The likeliest class of each row."""
        chosen: Array = self.predict_proba(logits, groups).argmax(-1)
        return chosen

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the fitted calibrator as JSON: whole, or not at all; `load` reads it.

        Raises:
            FileExistsError: If the file is there, without `force`.
        """
        if not hasattr(self, "temperatures_"):
            raise NotFittedError("this GroupTemperatureScaling is not fitted yet: call fit first")
        data = {
            "format": GROUP_FORMAT,
            "version": GROUP_VERSION,
            "input": self.input,
            "classes": self.n_features_in_,
            "temperature": self.temperature_,
            "deviation": self.deviation_,
            "temperatures": self.temperatures_,
        }
        write_whole(path, json.dumps(data, allow_nan=False), force=force)


def group_temperatures_of(data: Mapping[str, Any]) -> GroupTemperatureScaling:
    """The calibrator of a file's contents; a ValueError if they are not one."""
    keys = {"format", "version", "input", "classes", "temperature", "deviation", "temperatures"}
    if data.get("version") != GROUP_VERSION or type(data["version"]) is not int:
        raise ValueError(f"has version {data.get('version')!r}, and {GROUP_VERSION} is read here")
    if set(data) != keys:
        raise ValueError(f"is damaged: it has the keys {sorted(data)[:12]}, not {sorted(keys)}")
    if data["input"] not in INPUTS:
        raise ValueError(f"is damaged: input must be one of {', '.join(INPUTS)}")
    if not is_count(data["classes"]) or not 1 <= data["classes"] <= LARGEST_CLASSES:
        raise ValueError(f"is damaged: classes must be an integer in 1..{LARGEST_CLASSES}")
    groups = data["temperatures"]
    if type(groups) is not dict or not groups:
        raise ValueError("is damaged: temperatures must be an object, with a number for each group")
    for value in (data["temperature"], *groups.values()):
        if type(value) not in (int, float) or not 0.0 < value <= HOTTEST:
            raise ValueError(f"is damaged: temperatures must lie above 0, up to {HOTTEST:g}")
    if type(data["deviation"]) not in (int, float) or not 0.0 <= data["deviation"] <= HOTTEST:
        raise ValueError(f"is damaged: deviation must lie in 0..{HOTTEST:g}")
    calibrator = GroupTemperatureScaling(input=data["input"])
    calibrator.n_features_in_ = data["classes"]
    calibrator.temperature_ = float(data["temperature"])
    calibrator.deviation_ = float(data["deviation"])
    calibrator.temperatures_ = {name: float(value) for name, value in groups.items()}
    return calibrator
