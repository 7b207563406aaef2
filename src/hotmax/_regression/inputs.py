"""The options and the data of a softmax regression, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from hotmax._core.arrays import FLOAT64, Array, refuse_masked
from hotmax._core.checks import as_integer, as_real, as_smoothing
from hotmax._regression.objective import Data, check_columns
from hotmax._regression.solver import SOLVERS
from hotmax._regression.targets import class_numbers_of, target_probabilities, weigh


def check_options(model: Any) -> None:
    """Refuse options that are wrong, by their names."""
    if model.C is not None and not as_real(model.C, "C") > 0.0:
        raise ValueError(f"C must be above 0 (inf or None for no penalty), got {model.C!r}")
    temperature_of(model)
    as_smoothing(model.label_smoothing)
    if model.solver not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, got {model.solver!r}")
    if not 0.0 <= as_real(model.tol, "tol") < math.inf:
        raise ValueError(f"tol must be finite and at least 0, got {model.tol!r}")
    as_integer(model.max_iter, "max_iter", 1)
    if isinstance(model.class_weight, str) and model.class_weight != "balanced":
        raise ValueError(
            f"class_weight must be a dict, 'balanced' or None, got {model.class_weight!r}"
        )
    if not isinstance(model.class_weight, Mapping | str | None):
        raise TypeError(
            f"class_weight must be a dict, 'balanced' or None, got {model.class_weight!r}"
        )


def temperature_of(model: Any) -> float:
    temperature = as_real(model.temperature, "temperature")
    if not 0.0 < temperature < math.inf:
        raise ValueError(f"temperature must be above 0 and finite, got {model.temperature!r}")
    return temperature


def read_data(
    model: Any, X: Any, y: Any, sample_weight: Any, classes: Array | None, reset: bool
) -> tuple[Data, Array]:
    """(the data, the classes): those given, or those of y."""
    for name, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        refuse_masked(given, name)  # which scikit-learn reads through
    x, y = validate_data(
        model,
        X,
        y,
        reset=reset,
        accept_sparse="csr",
        dtype=[FLOAT64, np.float32],
        multi_output=True,
        y_numeric=False,
    )
    check_columns(x)
    weights = None
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, x, dtype=FLOAT64, ensure_non_negative=True)
    labels, probabilities = None, None
    if y.ndim == 2 and y.shape[1] > 1:
        probabilities = target_probabilities(y)
        classes = np.arange(y.shape[1]) if classes is None else classes
        if classes.size != y.shape[1]:
            raise ValueError(f"y must have {classes.size} columns, got {y.shape[1]}")
    else:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes = np.unique(y) if classes is None else classes
        labels = class_numbers_of(y, classes)
    if classes.size < 2:
        raise ValueError(
            "SoftmaxRegression needs samples of at least 2 classes in the data, but the data "
            f"contains only one class: {classes.tolist()[0]!r}"
        )
    weights = weigh(weights, model.class_weight, labels, probabilities, classes)
    if weights is not None and not weights.sum() > 0.0:
        raise ValueError("sample_weight and class_weight leave no row with weight")
    return (
        Data(
            x,
            labels,
            probabilities,
            weights,
            classes.size,
            bool(model.fit_intercept),
            temperature_of(model),
            as_smoothing(model.label_smoothing),
        ),
        classes,
    )


def base_number(base: object, classes: Array) -> int | None:
    """The number of the class that coefficients are differences to; None for centred ones."""
    if base is None:
        return None
    if isinstance(base, str) and base == "first":
        return 0
    found = np.flatnonzero(classes == base)
    if found.size != 1:
        raise ValueError(f"base must be one of {classes.tolist()}, got {base!r}")
    return int(found[0])
