"""What a masked array's mask means in calibration, in regression and in the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from masked_meanings import (
    ABSENT,
    FEATURES,
    MANY,
    MANY_LABELS,
    OTHER,
    TRUE,
    ZERO,
    Entry,
    X,
    disallowed,
    ignored,
    left_out,
    refused,
)
from sklearn.linear_model import LogisticRegression

import hotmax as hm
from hotmax.calibration import conformal

MEASURED = {"logits": MANY, "targets": MANY_LABELS}
MEASURED_MASKS = {
    "logits": left_out,
    "targets": ignored,
    "sample_weight": ZERO,
    "where": disallowed,
    "temperature": refused,
}
MEASURED_ALSO = {
    "sample_weight": np.ones(60),
    "where": np.ones((60, 3), bool),
    "temperature": np.ones(1),
}
COMPARED = {"a": MANY, "b": MANY / 2, "labels": MANY_LABELS}
UNLABELLED = {"logits": left_out, "where": disallowed}


def measured(call: Callable[..., Any], *but: str) -> Entry:
    masks = {name: meaning for name, meaning in MEASURED_MASKS.items() if name not in but}
    return Entry(call, MEASURED, masks, MEASURED_ALSO)


def labelled(call: Callable[..., Any], *but: str) -> Entry:
    """As `measured`, of a function whose targets can only be labels."""
    entry = measured(call, *but)
    arguments, masks = (
        {"labels" if name == "targets" else name: value for name, value in part.items()}
        for part in (entry.arguments, entry.masks)
    )
    return replace(entry, arguments=arguments, masks=masks)


def fitted_regression() -> Any:
    return hm.SoftmaxRegression().fit(FEATURES, MANY_LABELS)


def calibrated() -> Any:
    return hm.calibration.TemperatureScaling().fit(MANY, MANY_LABELS)


GROUPS = np.arange(60) % 2
GROUPED = {
    "logits": MANY,
    "targets": np.where(np.arange(60) % 5, MANY.argmax(1), MANY_LABELS),
    "groups": GROUPS,
}
YES_OR_NO = {"logits": MANY[:, 0], "targets": (MANY[:, 0] / 2 + OTHER[0, 0] > 0).astype(int)}
YES_OR_NO["targets"][::7] = 1 - YES_OR_NO["targets"][::7]


def sigmoids(**given: Any) -> Any:
    return hm.calibration.SigmoidCalibrator().fit(**given)


def grouped(**given: Any) -> Any:
    return hm.calibration.GroupTemperatureScaling().fit(**given)


def classifier() -> Any:
    return LogisticRegression().fit(FEATURES, MANY_LABELS)


def reported(**given: Any) -> Any:
    labels = {"labels": MANY_LABELS} if "sample_weight" in given else {}
    return vars(hm.report(**(labels | given)).shape)


TRAINING = {"X": FEATURES, "y": MANY_LABELS}
TRAINING_MASKS = dict.fromkeys(("X", "y", "sample_weight"), refused)
WEIGHED = {"sample_weight": np.ones(60)}

TABLE: dict[str, Entry] = {
    "report": Entry(
        reported,
        {"logits": MANY},
        {"logits": ABSENT, "labels": refused, "by": refused, "sample_weight": ZERO},
        {"labels": MANY_LABELS, "by": np.arange(60) % 2, **WEIGHED},
    ),
    **{
        f"calibration.{name}": measured(getattr(hm.calibration, name))
        for name in (
            *("accuracy", "aurc", "brier", "decompose", "ece", "evaluate", "ks", "nll"),
            *("reliability", "risk_coverage", "smooth_ece"),
        )
    },
    "calibration.fit_temperature": measured(hm.calibration.fit_temperature, "temperature"),
    "calibration.select": measured(
        lambda **given: hm.calibration.select(candidates=["identity"], folds=2, **given).chosen,
        "temperature",
    ),
    "calibration.calibrate": Entry(
        lambda **given: hm.calibration.calibrate(classifier(), **given).predict_proba(FEATURES),
        TRAINING,
        {"X": refused, "y": refused, "sample_weight": ZERO},
        WEIGHED,
    ),
    "calibration.CalibratedClassifier.fit": Entry(
        lambda **given: (
            hm.calibration.CalibratedClassifier(classifier(), cv=2)
            .fit(**given)
            .predict_proba(FEATURES)
        ),
        TRAINING,
        {"X": refused, "y": refused, "sample_weight": refused},
        WEIGHED,
    ),
    "calibration.CalibratedClassifier.predict": Entry(
        lambda **given: hm.calibration.calibrate(classifier(), **TRAINING).predict(**given),
        {"X": FEATURES},
        {"X": refused},
    ),
    "calibration.CalibratedClassifier.predict_proba": Entry(
        lambda **given: hm.calibration.calibrate(classifier(), **TRAINING).predict_proba(**given),
        {"X": FEATURES},
        {"X": refused},
    ),
    "calibration.as_two_classes": Entry(
        hm.calibration.as_two_classes, {"outputs": MANY[:, 0]}, {"outputs": refused}
    ),
    "calibration.SigmoidCalibrator.fit": Entry(
        lambda **given: sigmoids(**given).predict_proba(MANY[:, 0]),
        YES_OR_NO,
        {"logits": refused, "targets": refused, "sample_weight": ZERO},
        WEIGHED,
    ),
    "calibration.SigmoidCalibrator.predict": Entry(
        lambda **given: sigmoids(**YES_OR_NO).predict(**given),
        {"logits": MANY[:, 0]},
        {"logits": refused},
    ),
    "calibration.SigmoidCalibrator.predict_proba": Entry(
        lambda **given: sigmoids(**YES_OR_NO).predict_proba(**given),
        {"logits": MANY[:, 0]},
        {"logits": refused},
    ),
    "calibration.GroupTemperatureScaling.fit": Entry(
        lambda **given: grouped(**given).temperatures_,
        GROUPED,
        {"logits": refused, "targets": refused, "groups": refused, "sample_weight": ZERO},
        WEIGHED,
    ),
    "calibration.GroupTemperatureScaling.predict": Entry(
        lambda **given: grouped(**GROUPED).predict(**given),
        {"logits": MANY, "groups": GROUPS},
        {"logits": refused, "groups": refused},
    ),
    "calibration.GroupTemperatureScaling.predict_proba": Entry(
        lambda **given: grouped(**GROUPED).predict_proba(**given),
        {"logits": MANY, "groups": GROUPS},
        {"logits": refused, "groups": refused},
    ),
    "calibration.Calibrator.fit": measured(
        lambda **given: hm.calibration.TemperatureScaling().fit(**given).parameters_, "temperature"
    ),
    "calibration.Calibrator.predict": Entry(
        lambda **given: calibrated().predict(**given),
        {"logits": MANY},
        UNLABELLED,
        MEASURED_ALSO,
    ),
    "calibration.Calibrator.predict_proba": Entry(
        lambda **given: calibrated().predict_proba(**given),
        {"logits": MANY},
        UNLABELLED,
        MEASURED_ALSO,
    ),
    "calibration.EvaluationState.update": measured(
        lambda **given: hm.calibration.EvaluationState().update(**given).result()
    ),
    "calibration.acceptance": labelled(
        lambda **given: hm.calibration.acceptance(error=0.3, **given), "sample_weight"
    ),
    "calibration.abstention": labelled(
        lambda **given: hm.calibration.abstention(errors=[0.3], **given), "sample_weight"
    ),
    "calibration.Acceptance.accept": Entry(
        lambda **given: hm.calibration.acceptance(MANY, MANY_LABELS, error=0.3).accept(**given),
        {"logits": MANY},
        UNLABELLED,
        MEASURED_ALSO,
    ),
    "calibration.Acceptance.evaluate": labelled(
        lambda **given: hm.calibration.acceptance(MANY, MANY_LABELS, error=0.3).evaluate(**given),
        "temperature",
        "sample_weight",
    ),
    "calibration.by_group": Entry(
        hm.calibration.by_group,
        {"logits": MANY, "labels": MANY_LABELS, "groups": np.arange(60) % 2},
        {
            "logits": left_out,
            "labels": ignored,
            "groups": refused,
            "where": disallowed,
            "temperature": refused,
        },
        MEASURED_ALSO,
    ),
    "calibration.by_label": Entry(
        hm.calibration.by_label,
        {"logits": MANY, "targets": (MANY > 0).astype(int)},
        {"logits": refused, "targets": refused, "temperature": refused},
        MEASURED_ALSO,
    ),
    "calibration.compare": Entry(
        hm.calibration.compare, COMPARED, dict.fromkeys(COMPARED, ABSENT) | {"labels": ignored}
    ),
    "calibration.ComparisonState.update": Entry(
        lambda **given: hm.calibration.ComparisonState().update(**given).result(),
        COMPARED,
        dict.fromkeys(COMPARED, ABSENT) | {"labels": ignored},
    ),
    "calibration.decide": Entry(
        lambda **given: hm.calibration.decide(input="logits", **given),
        {"probabilities": X, "costs": 1.0 - np.eye(3)},
        {
            "probabilities": left_out,
            "costs": refused,
            "where": disallowed,
            "temperature": refused,
        },
        {"where": TRUE, "temperature": np.ones(1)},
    ),
    "conformal.fit": labelled(conformal.fit),
    "conformal.Conformal.sets": Entry(
        lambda **given: conformal.fit(MANY, MANY_LABELS).sets(**given),
        {"logits": MANY},
        UNLABELLED,
        MEASURED_ALSO,
    ),
    "conformal.Conformal.evaluate": labelled(
        lambda **given: conformal.fit(MANY, MANY_LABELS).evaluate(**given),
        "temperature",
        "sample_weight",
    ),
    **{
        f"SoftmaxRegression.{name}": Entry(
            lambda method=name, **given: getattr(fitted_regression(), method)(**given),
            TRAINING,
            TRAINING_MASKS,
            WEIGHED,
        )
        for name in ("fit", "score", "summary")
    },
    "SoftmaxRegression.partial_fit": Entry(
        lambda **given: hm.SoftmaxRegression().partial_fit(**given),
        {**TRAINING, "classes": np.arange(3)},
        {**TRAINING_MASKS, "classes": refused},
        WEIGHED,
    ),
    **{
        f"SoftmaxRegression.{name}": Entry(
            lambda method=name, **given: getattr(fitted_regression(), method)(**given),
            {"X": FEATURES},
            {"X": refused},
        )
        for name in ("decision_function", "predict", "predict_log_proba", "predict_proba")
    },
}
