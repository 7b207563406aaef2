"""What a masked array's mask means, in every argument of every public function.

For each argument that may be an array: the call without a mask that gives the same, or that a mask
is refused. `test_masked_arrays` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from families import plain_functions
from masked_meanings import (
    ABSENT,
    PADDING,
    ZERO,
    Arguments,
    Meaning,
    disallowed,
    ignored,
    left_out,
    refused,
)
from sklearn.linear_model import LogisticRegression

import hotmax as hm
from hotmax import plots
from hotmax.calibration import conformal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
OTHER = RNG.normal(size=(4, 3))
LABELS = np.array([0, 2, 1, 1])
MANY = RNG.normal(size=(60, 3)) * 3
MANY_LABELS = RNG.integers(0, 3, 60)
FEATURES = RNG.normal(size=(60, 2))
Q, K, V = RNG.normal(size=(2, 5)), RNG.normal(size=(3, 5)), RNG.normal(size=(3, 4))


@dataclass(frozen=True)
class Entry:
    """A call that works, and what a mask means in each of its arguments that may be an array."""

    call: Callable[..., Any]
    arguments: Arguments
    masks: dict[str, Meaning]
    also: Arguments = field(default_factory=dict)  # values of arguments that are not in the call


TRUE = np.ones((4, 3), bool)
ROW = {"temperature": np.ones((4, 1))}
OUT = {"out": np.empty((4, 3))}
NUMBERS_OUT = {"out": np.empty(4)}


def over_logits(name: str, first: str = "x", out: Arguments | None = None, **more: Any) -> Entry:
    masks = {first: left_out, "where": disallowed, "temperature": refused}
    also = {"where": TRUE, **ROW, **(out or {})}
    if out:
        masks["out"] = refused
    return Entry(getattr(hm, name), {first: X, **more}, masks, also)


def loss(name: str, **more: Any) -> Entry:
    masks = {"logits": left_out, "targets": ignored, "where": disallowed, "temperature": refused}
    also = {"where": TRUE, **ROW, **more}
    masks |= dict.fromkeys(more, refused)
    return Entry(getattr(hm, name), {"logits": X, "targets": LABELS}, masks, also)


ATTENTION = {
    **dict.fromkeys(("q", "k", "temperature", "sink"), refused),
    "where": disallowed,
    "bias": ABSENT,
}
ATTENTION_ALSO = {
    "where": np.ones((2, 3), bool),
    "bias": np.ones((2, 3)),
    "sink": np.zeros((2, 1)),
    "temperature": np.ones((2, 1)),
}
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


def drawn_with_penalties(**arguments: Any) -> Any:
    sampler = hm.Sampler({"repetition": 1.5}, seed=0)
    return [sampler(**arguments) for _ in range(5)]


def truncated_with_penalties(**arguments: Any) -> Any:
    return hm.Sampler({"repetition": 1.5, "top_k": 2}, seed=0).truncate(**arguments)


def written(blocks: Any, labels: Any) -> None:
    hm.io.write("never.npz", [blocks], shape=(4, 3), labels=labels)


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


SAMPLED = {"logits": left_out, "temperature": refused, "seed": refused, "where": disallowed}
TRAINING = {"X": FEATURES, "y": MANY_LABELS}
TRAINING_MASKS = dict.fromkeys(("X", "y", "sample_weight"), refused)
WEIGHED = {"sample_weight": np.ones(60)}
ONE_SEED = {"seed": np.array([3])}
PENALIZED = {"tokens": np.array([0, 1, 2, 1]), "repetition_penalty": 1.5}
WITH_TOKENS = {"logits": X, "tokens": np.array([0, 1, 2, 1])}
TOKEN_MASKS = {"logits": left_out, "tokens": PADDING, "where": disallowed}

TABLE: dict[str, Entry] = {
    "softmax": over_logits("softmax", out=OUT),
    "log_softmax": over_logits("log_softmax", out=OUT),
    "softmin": over_logits("softmin", out=OUT),
    "hardmax": Entry(
        hm.hardmax,
        {"x": X},
        {"x": left_out, "where": disallowed, "out": refused},
        {"where": TRUE, **OUT},
    ),
    "logsumexp": Entry(
        hm.logsumexp,
        {"x": X},
        {
            "x": left_out,
            "where": disallowed,
            "temperature": refused,
            "weights": ZERO,
            "out": refused,
        },
        {"where": TRUE, "weights": np.abs(OTHER), **ROW, **NUMBERS_OUT},
    ),
    **{name: over_logits(name, out=NUMBERS_OUT) for name in ("smoothmax", "softargmax", "entropy")},
    **{name: over_logits(name) for name in (*plain_functions(), "saturation")},
    **{
        name: Entry(
            getattr(hm, name),
            {"x": X, vector: OTHER},
            {"x": left_out, vector: ZERO, "where": disallowed, "temperature": refused},
            {"where": TRUE, **ROW},
        )
        for name, vector in (("softmax_jvp", "tangent"), ("softmax_vjp", "cotangent"))
    },
    **{
        name: Entry(
            getattr(hm, name),
            {"x": X, "segment_ids": np.array([0, 1, 0])},
            {"x": left_out, "segment_ids": refused, "where": disallowed, "temperature": refused},
            {"where": TRUE, **ROW},
        )
        for name in ("segment_softmax", "segment_logsumexp")
    },
    "cross_entropy": loss("cross_entropy", weight=np.ones(3)),
    "focal_loss": loss("focal_loss", weight=np.ones(3)),
    "perplexity": loss("perplexity"),
    "mae_loss": loss("mae_loss"),
    "brier_loss": loss("brier_loss"),
    "nll_loss": Entry(
        hm.nll_loss,
        {"log_probabilities": X, "targets": LABELS},
        {"log_probabilities": ABSENT, "targets": ignored, "weight": refused},
        {"weight": np.ones(3)},
    ),
    "linear_cross_entropy": Entry(
        hm.linear_cross_entropy,
        {"hidden": Q[:2], "weight": K, "targets": np.array([0, 2])},
        {
            **dict.fromkeys(("hidden", "weight", "bias", "temperature"), refused),
            "targets": ignored,
        },
        {"bias": np.ones(3), "temperature": np.array(1.0)},
    ),
    **{
        name: Entry(
            getattr(hm, name),
            {first: X, second: OTHER, "reduction": "none"},
            {first: left_out, second: left_out, "where": disallowed, "temperature": refused},
            {"where": TRUE, **ROW},
        )
        for name, first, second in (
            ("kl_divergence", "logits_p", "logits_q"),
            ("distillation_loss", "student", "teacher"),
        )
    },
    "one_hot": Entry(hm.one_hot, {"labels": LABELS, "num_classes": 3}, {"labels": refused}),
    "smooth_labels": Entry(
        hm.smooth_labels,
        {"targets": LABELS, "label_smoothing": 0.1, "num_classes": 3},
        {"targets": refused},
    ),
    "sample": Entry(
        hm.sample,
        {"logits": X, "size": 40, "seed": np.arange(4), **PENALIZED},
        {**SAMPLED, "tokens": PADDING},
        {"where": TRUE, **ROW},
    ),
    "truncate": Entry(
        hm.truncate,
        {"logits": X, "top_p": 0.8, **PENALIZED},
        {
            "logits": left_out,
            "where": disallowed,
            "tokens": PADDING,
            **dict.fromkeys(("temperature", "out"), refused),
        },
        {"where": TRUE, **ROW, **OUT},
    ),
    "top_logprobs": Entry(
        hm.top_logprobs,
        {"logits": X, "k": 2},
        {"logits": left_out, "where": disallowed, "temperature": refused},
        {"where": TRUE, **ROW},
    ),
    "chosen_logprobs": Entry(
        hm.chosen_logprobs,
        {"logits": X, "tokens": LABELS},
        {"logits": left_out, "tokens": PADDING, "where": disallowed, "temperature": refused},
        {"where": TRUE, **ROW},
    ),
    "verify": Entry(
        hm.verify,
        {"draft_logits": X[:3], "target_logits": OTHER, "draft_tokens": LABELS[:3], **ONE_SEED},
        {
            **dict.fromkeys(("draft_logits", "target_logits"), ABSENT),
            "draft_tokens": PADDING,
            **dict.fromkeys(("seed", "temperature"), refused),
        },
        {"temperature": np.ones(1)},
    ),
    "TextScorer.update": Entry(
        lambda **given: vars(hm.TextScorer().update(**given).result()),
        {"logits": X, "targets": LABELS},
        {
            "logits": left_out,
            "targets": ignored,
            "mask": disallowed,
            **dict.fromkeys(("documents", "num_bytes", "temperature"), refused),
            "where": disallowed,
        },
        {
            "mask": np.ones(4, bool),
            "documents": np.zeros(4, int),
            "num_bytes": np.ones(4, int),
            "where": TRUE,
            **ROW,
        },
    ),
    "gumbel_softmax": Entry(
        hm.gumbel_softmax,
        {"logits": X, "seed": np.arange(4)},
        SAMPLED,
        {"where": TRUE, **ROW},
    ),
    "penalize": Entry(
        hm.penalize,
        {"logits": X, "tokens": np.array([0, 1, 1]), "repetition": 1.5, "presence": 0.5},
        {"logits": ABSENT, "tokens": PADDING, "out": refused},
        OUT,
    ),
    "add_bias": Entry(
        hm.add_bias,
        {"logits": X, "tokens": np.array([0, 2])},
        {"logits": ABSENT, "tokens": refused, "out": refused},
        OUT,
    ),
    "Sampler.__init__": Entry(
        lambda seed: hm.Sampler({"temperature": 1.0}, seed=seed)(X),
        {"seed": np.arange(4)},
        {"seed": refused},
    ),
    "Sampler.__call__": Entry(drawn_with_penalties, WITH_TOKENS, TOKEN_MASKS, {"where": TRUE}),
    "Sampler.truncate": Entry(truncated_with_penalties, WITH_TOKENS, TOKEN_MASKS, {"where": TRUE}),
    "beam_search": Entry(
        lambda start: hm.beam_search(lambda p: X[:1].repeat(len(p), 0), start, width=2, length=2),
        {"start": np.array([0, 1])},
        {"start": refused},
    ),
    "frequencies": Entry(
        hm.frequencies,
        {"logits": X[0], "temperatures": np.array([0.5, 1.0]), "seed": np.arange(2)},
        {"logits": ABSENT, "temperatures": refused, "seed": refused},
    ),
    "temperature_for_entropy": Entry(
        hm.temperature_for_entropy,
        {"logits": X, "target": np.full(4, 0.3), "per_row": True},
        {"logits": left_out, "target": refused, "where": disallowed},
        {"where": TRUE},
    ),
    "attention": Entry(
        hm.attention, {"q": Q, "k": K, "v": V}, {**ATTENTION, "v": refused}, ATTENTION_ALSO
    ),
    "attention_vjp": Entry(
        hm.attention_vjp,
        {"q": Q, "k": K, "v": V, "gradient": V[:2]},
        {**ATTENTION, "v": refused, "gradient": ZERO},
        ATTENTION_ALSO,
    ),
    "attention_weights": Entry(hm.attention_weights, {"q": Q, "k": K}, ATTENTION, ATTENTION_ALSO),
    "attention_saturation": Entry(
        hm.attention_saturation, {"q": Q, "k": K}, ATTENTION, ATTENTION_ALSO
    ),
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
    "io.write": Entry(
        written, {"blocks": X, "labels": LABELS}, dict.fromkeys(("blocks", "labels"), refused)
    ),
    "plots.probabilities": Entry(plots.probabilities, {"logits": X[0]}, {"logits": refused}),
    "io.source": Entry(
        lambda **given: hm.calibration.fit_temperature(hm.io.source(**given)).temperature,
        {"data": MANY, "labels": MANY_LABELS},
        dict.fromkeys(("data", "labels"), refused),
    ),
    "plots.jacobian_map": Entry(plots.jacobian_map, {"logits": X[0]}, {"logits": refused}),
    "plots.hessian_map": Entry(plots.hessian_map, {"logits": X[0]}, {"logits": refused}),
    "plots.residuals": Entry(
        lambda logits: plots.residuals(logits, 0), {"logits": X[0]}, {"logits": refused}
    ),
    "plots.shift_and_scale": Entry(plots.shift_and_scale, {"logits": X[0]}, {"logits": refused}),
    "plots.smoothmax_bounds": Entry(
        plots.smoothmax_bounds, {"others": np.array([0.0, 1.0])}, {"others": refused}
    ),
    "plots.softargmax_sweep": Entry(
        plots.softargmax_sweep,
        {"logits": X[0], "temperatures": np.array([0.5, 1.0])},
        dict.fromkeys(("logits", "temperatures"), refused),
    ),
    "plots.sweep": Entry(
        plots.sweep,
        {"logits": X[0], "temperatures": np.array([0.5, 1.0])},
        dict.fromkeys(("logits", "temperatures"), refused),
    ),
    "plots.smoothing": Entry(
        plots.smoothing, {"amounts": np.array([0.0, 0.1])}, {"amounts": refused}
    ),
}
