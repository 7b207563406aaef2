"""Calibrators with scikit-learn's conventions, on top of the table in `families`."""

from __future__ import annotations

import json
import math
import os
import warnings
from typing import Any

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
except ImportError:
    raise ImportError('calibrators need scikit-learn: pip install "hotmax[calibration]"') from None

from hotmax._backends.lazy import is_lazy, map_rows
from hotmax._core.arrays import Array
from hotmax._core.checks import as_real, as_seed
from hotmax._core.class_labels import names_of_columns, refuse_other_columns
from hotmax._core.files import write_whole
from hotmax.calibration.binning import check_bins
from hotmax.calibration.conformal import unlabelled
from hotmax.calibration.examples import Examples, read_rows, shape_of
from hotmax.calibration.families import FAMILIES, Family
from hotmax.calibration.likelihood import Likelihood
from hotmax.calibration.parameters import (
    FORMAT,
    LONGEST_FILE,
    VERSION,
    as_json,
    check_top,
    restored,
)
from hotmax.calibration.reservoir import rows_to_fit
from hotmax.calibration.row_parts import RowParts, Split, parts_of_examples, row_parts
from hotmax.calibration.temperature import fit_rows
from hotmax.calibration.temperature_fit import TemperatureFit
from hotmax.calibration.temperature_prior import as_prior


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A map from logits to calibrated probabilities, fitted to labels.

    Args:
        method: "temperature"; "vector" and "matrix", structured scaling of log-probabilities with
            penalties on diagonal, off-diagonal and bias; "dirichlet", the same with
            log-probabilities less their means; "quadratic", "softplus" and "spline", curves of
            log-probabilities; "class_temperature", one for each predicted class; "ensemble",
            temperature mixed with the identity and the uniform, fitted together; "isotonic" and
            "histogram", one class against the rest, mixed with a temperature; "platt", "beta" and
            "venn_abers", for two classes; "identity", which changes nothing; "stacked", all of
            these mixed in shares that cross-validation chooses, as by `select`.
        input: What comes in, "logits" or "probabilities".
        penalty: Times the method's own regularisation. In structured scaling, this is what its
            authors advise, times a factor that cross-validation chooses.
        bins: For "histogram".
        max_rows: The most rows that methods other than "temperature" are fitted to: 20,000 (and
            16,777,216 logits) unless told. They are drawn at random from all.
        seed: Of that draw.
        prior: For "temperature" on few rows: as in `fit_temperature`.

    After `fit`: `parameters_` (a dict), `classes_` (0, 1, ..., k - 1), `n_features_in_`, and
    `fitted_rows_`, the number of rows that it was fitted to. After a fit to a data frame also
    `columns_`, its columns: a frame with others, or in another order, is refused.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(500, 3)) * 4
        >>> labels = (logits / 2 + [0, 1, 0] + rng.gumbel(size=logits.shape)).argmax(1)
        >>> calibrator = hm.calibration.Calibrator("vector").fit(logits, labels)
        >>> calibrator.predict_proba(logits[:1]).shape
        (1, 3)
    """

    def __init__(
        self,
        method: str = "temperature",
        *,
        input: str = "logits",
        penalty: float = 1.0,
        bins: int = 15,
        max_rows: int | None = None,
        seed: int = 0,
        prior: float | None = None,
    ) -> None:
        self.method = method
        self.input = input
        self.penalty = penalty
        self.bins = bins
        self.max_rows = max_rows
        self.seed = seed
        self.prior = prior

    def _options(self) -> tuple[str, float, int]:
        return self.method, self.penalty, self.bins

    def _family(self, classes: int) -> Family:
        method, penalty, bins = self._options()
        if method not in FAMILIES:
            raise ValueError(f"method must be one of {', '.join(FAMILIES)}, got {method!r}")
        if FAMILIES[method].two_classes and classes != 2:
            raise ValueError(f"method {method!r} is for two classes, got {classes}")
        if not 0.0 <= as_real(penalty, "penalty") < math.inf:
            raise ValueError(f"penalty must be finite and not negative, got {penalty}")
        check_bins(bins)
        return FAMILIES[method]

    def fit(
        self,
        logits: object,
        targets: object = None,
        sample_weight: object = None,
        *,
        ignore_index: int | None = None,
        where: object = None,
        class_names: object = None,
    ) -> Calibrator:
        """Fit to labelled logits: arguments as in `fit_temperature`. Returns the calibrator.

        Warns if the fitted temperature is 0, as on few rows that are all predicted right: every
        prediction is then certain.
        """
        rows = row_parts(
            logits,
            targets,
            sample_weight=sample_weight,
            ignore_index=ignore_index,
            where=where,
            input=self.input,
            class_names=class_names,
        )
        self._fit_rows(rows)
        self.columns_ = names_of_columns(logits)
        if self.parameters_.get("temperature") == 0.0:
            warnings.warn(
                "the labels are separable: each has the largest logit of its row, and the fitted "
                "temperature is 0, which makes every prediction certain; more rows are needed, or "
                "prior=1",
                UserWarning,
                stacklevel=2,
            )
        return self

    def _fit_rows(self, rows: RowParts, split: Split | None = None) -> Calibrator:
        """Fit a temperature to all rows, or to a split; others to all of them or a reservoir."""
        method, _, _ = self._options()
        self._family(rows.classes)
        prior = as_prior(self.prior)
        if prior is not None and method != "temperature":
            raise ValueError(f'prior is for method "temperature", got {method!r}')
        if method == "temperature":
            fit = fit_rows(rows, split, prior=prior)
            count = rows.rows if split is None else split.count
            return self._fitted({"temperature": fit.temperature}, rows.classes, count)
        return self._fit(rows_to_fit(rows, self.max_rows, as_seed(self.seed), split))

    def _fitted(self, parameters: Any, classes: int, rows: int) -> Calibrator:
        self.parameters_ = parameters
        self.n_features_in_ = classes
        self.classes_ = np.arange(classes)
        self.fitted_rows_ = rows
        return self

    def _fit(self, examples: Examples) -> Calibrator:
        _, penalty, bins = self._options()
        family = self._family(examples.classes)
        fit_checks(examples)
        parameters = family.fit(examples, float(penalty), bins)
        return self._fitted(parameters, examples.classes, examples.rows)

    def predict_proba(self, logits: object, *, where: object = None) -> Array:
        """Calibrated probabilities, float64, in the shape of the logits; of a Dask array, lazily.

        Raises:
            ValueError: If a row holds nan or +inf, or no class at all, as in `fit`.
        """
        if not hasattr(self, "parameters_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        refuse_other_columns(getattr(self, "columns_", None), logits, "logits")
        if is_lazy(logits):
            lazy: Array = map_rows(self.predict_proba, logits, where, self.n_features_in_)
            return lazy
        x, mask = read_rows(logits, where=where, input=self.input, suspicious=False)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(f"logits must have {self.n_features_in_} classes, got {x.shape[1]}")
        rows = unlabelled(x, mask, self.input)
        method, _, _ = self._options()
        p = FAMILIES[method].apply(rows.logits(), self.parameters_)
        return p.reshape(shape_of(logits))

    def predict(self, logits: object, *, where: object = None) -> Array:
        """The likeliest class of each row, after calibration."""
        p = self.predict_proba(logits, where=where)
        chosen: Array = self.classes_[p.argmax(-1)]
        return chosen

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the fitted calibrator as JSON: whole, or not at all.

        Args:
            path: The file.
            force: Whether to overwrite a file that is there.

        Raises:
            FileExistsError: If the file is there, without `force`.
            ValueError: If `load` could not read it: more than 128 MiB, or numbers so large that
                the map would overflow.
        """
        write_whole(path, json.dumps(self._document(), allow_nan=False), force=force)

    def _document(self) -> dict[str, Any]:
        """What is written; a ValueError if it could not be read."""
        if not hasattr(self, "parameters_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        method, penalty, bins = self._options()
        data = {
            "format": FORMAT,
            "version": VERSION,
            "class": "TemperatureScaling" if isinstance(self, TemperatureScaling) else "Calibrator",
            "method": method,
            "input": self.input,
            "penalty": float(penalty),
            "bins": int(bins),
            "classes": self.n_features_in_,
            "parameters": {k: as_json(v) for k, v in self.parameters_.items()},
        }
        try:
            restored(check_top(data)["parameters"], method, self.n_features_in_)
        except ValueError as error:
            reason = str(error).removeprefix("is damaged: ")
            raise ValueError(f"this {method} calibrator cannot be saved: {reason}") from None
        length = len(json.dumps(data, allow_nan=False))
        if length > LONGEST_FILE:
            raise ValueError(
                f"this {method} calibrator cannot be saved: it takes {length} bytes, and "
                f"{LONGEST_FILE} are read"
            )
        return data


class TemperatureScaling(Calibrator):
    """One temperature for all logits, fitted exactly: see `fit_temperature`.

    Args:
        input: What comes in, "logits" or "probabilities".
        prior: For few rows: as in `fit_temperature`.

    After `fit`: `temperature_`, and `fit_`, the TemperatureFit with its interval.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> scaling = hm.calibration.TemperatureScaling().fit(logits, [0, 0, 1, 1])
        >>> scaling.predict_proba([[4.0, 0.0]]).round(6)
        array([[0.75, 0.25]])
    """

    fit_: TemperatureFit

    def __init__(self, *, input: str = "logits", prior: float | None = None) -> None:
        self.input = input
        self.prior = prior

    def _options(self) -> tuple[str, float, int]:
        return "temperature", 1.0, 15

    def _fit_rows(self, rows: RowParts, split: Split | None = None) -> Calibrator:
        self.fit_ = fit_rows(rows, split, prior=as_prior(self.prior))
        count = rows.rows if split is None else split.count
        return self._fitted({"temperature": self.fit_.temperature}, rows.classes, count)

    def _fit(self, examples: Examples) -> Calibrator:
        return self._fit_rows(parts_of_examples(examples))

    @property
    def temperature_(self) -> float:
        return float(self.parameters_["temperature"])


def calibrator_for(method: str, input: str = "logits", prior: float | None = None) -> Calibrator:
    """A calibrator of a method: TemperatureScaling for "temperature", which has an interval."""
    if method == "temperature":
        return TemperatureScaling(input=input, prior=prior)
    return Calibrator(method, input=input, prior=prior)


def fit_checks(examples: Examples) -> None:
    """What makes `fit_temperature` refuse rows makes every calibrator refuse them."""
    Likelihood(examples)


def calibrator_of(data: object) -> Calibrator:
    """The calibrator of a file's contents; a ValueError if they are not one."""
    top = check_top(data)
    parameters = restored(top["parameters"], top["method"], top["classes"], top["version"])
    if top["class"] == "TemperatureScaling":
        calibrator: Calibrator = TemperatureScaling(input=top["input"])
    else:
        options = {name: top[name] for name in ("input", "penalty", "bins")}
        calibrator = Calibrator(top["method"], **options)
    calibrator.parameters_ = parameters
    calibrator.n_features_in_ = top["classes"]
    calibrator.classes_ = np.arange(top["classes"])
    return calibrator
