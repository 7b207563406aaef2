"""What a masked array's mask means, in every argument of every public function.

For each argument that may be an array: the call without a mask that gives the same, or that a mask
is refused. `test_masked_arrays` reads it.
"""

from __future__ import annotations

from typing import Any

import masked_calibration
import numpy as np
from families import plain_functions
from masked_meanings import (
    ABSENT,
    LABELS,
    MANY,
    MANY_LABELS,
    OTHER,
    PADDING,
    RNG,
    TRUE,
    ZERO,
    Arguments,
    Entry,
    X,
    disallowed,
    ignored,
    left_out,
    refused,
)

import hotmax as hm
from hotmax import plots

Q, K, V = RNG.normal(size=(2, 5)), RNG.normal(size=(3, 5)), RNG.normal(size=(3, 4))
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


def drawn_with_penalties(**arguments: Any) -> Any:
    sampler = hm.Sampler({"repetition": 1.5}, seed=0)
    return [sampler(**arguments) for _ in range(5)]


def truncated_with_penalties(**arguments: Any) -> Any:
    return hm.Sampler({"repetition": 1.5, "top_k": 2}, seed=0).truncate(**arguments)


def written(blocks: Any, labels: Any) -> None:
    hm.io.write("never.npz", [blocks], shape=(4, 3), labels=labels)


SAMPLED = {"logits": left_out, "temperature": refused, "seed": refused, "where": disallowed}
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
    **masked_calibration.TABLE,
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
