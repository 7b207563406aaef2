"""The losses that the sweep calls: values and gradients, against every kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import reference_losses

import hotmax as hm
from fuzz import wide, wide_losses
from fuzz.function import (
    EIGHT_ULP,
    ROUNDED,
    THREE_ULP,
    TWO_ULP,
    Array,
    Extras,
    Function,
    Generator,
)

GAMMA = 2.0
IGNORED = 1  # the label of ignored rows, where some are


def label_of(extras: Extras) -> int:
    return int(extras["labels"])


def value_of(name: str, **more: Any) -> Callable[..., Any]:
    """The loss of each row against labels."""

    def call(x: Any, extras: Extras, **options: Any) -> Any:
        return getattr(hm, name)(x, extras["labels"], reduction="none", **more, **options)

    return call


def gradient_of(name: str) -> Callable[..., Any]:
    """The gradient of the sum of the losses."""

    def call(x: Any, extras: Extras, **options: Any) -> Any:
        return getattr(hm, name)(x, extras["labels"], reduction="sum", return_grad=True, **options)[
            1
        ]

    return call


def by_label(truth: Callable[[wide.Rows, Array], Any]) -> Callable[..., Any]:
    """A truth without a size of its own."""
    return lambda rows, extras: (truth(rows, extras["labels"]), None)


def by_label_in_terms(truth: Callable[[wide.Rows, Array], Any]) -> Callable[..., Any]:
    return lambda rows, extras: truth(rows, extras["labels"])


# --- smoothing, weights, ignored labels, probabilities -------------------------------------------


def draw_options(rng: Generator, x: Array, type_name: str) -> Extras:
    """Class weights, smoothing and whether to ignore a label."""
    n = x.shape[1]
    weight = np.exp(rng.standard_normal(n) * rng.choice([0.0, 1.0, 5.0]))
    weight[rng.random(n) < 0.1] = 0.0
    return {
        "weight": weight if rng.random() < 0.5 else np.ones(n),
        "smoothing": float(rng.choice([0.0, 0.1, 1e-3, 0.9, 1.0])),
        "ignored": IGNORED if rng.random() < 0.5 else None,
    }


def soft_options(extras: Extras) -> dict[str, Any]:
    return {"weight": extras["weight"], "label_smoothing": extras["smoothing"]}


def with_options(x: Any, extras: Extras, **options: Any) -> Any:
    more = {**soft_options(extras), "ignore_index": extras["ignored"], **options}
    return hm.cross_entropy(x, extras["labels"], reduction="none", **more)


def gradient_with_options(x: Any, extras: Extras, **options: Any) -> Any:
    more = {**soft_options(extras), "ignore_index": extras["ignored"], **options}
    return hm.cross_entropy(x, extras["labels"], reduction="sum", return_grad=True, **more)[1]


def label_amounts(rows: wide.Rows, extras: Extras) -> Array:
    y = wide_losses.is_label(rows, extras["labels"])
    return wide_losses.amounts(rows, y, extras["weight"], extras["smoothing"])


def unless_ignored(values: Array, extras: Extras) -> Array:
    if extras["ignored"] is None:
        return values
    return np.where((extras["labels"] == extras["ignored"])[:, None], wide.WIDE(0), values)


def loss_with_options(rows: wide.Rows, extras: Extras) -> tuple[Array, None]:
    options = extras["weight"], extras["smoothing"]
    loss = wide_losses.soft_loss(rows, label_amounts(rows, extras), *options)
    return unless_ignored(loss, extras), None


def its_gradient(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
    gradient, size = wide_losses.soft_gradient(rows, label_amounts(rows, extras))
    return unless_ignored(gradient, extras), size


def against_probabilities(x: Any, extras: Extras, **options: Any) -> Any:
    return hm.cross_entropy(
        x, extras["targets"], reduction="none", **soft_options(extras), **options
    )


def gradient_against_probabilities(x: Any, extras: Extras, **options: Any) -> Any:
    more = {**soft_options(extras), **options}
    return hm.cross_entropy(x, extras["targets"], reduction="sum", return_grad=True, **more)[1]


def target_amounts(rows: wide.Rows, extras: Extras) -> Array:
    return wide_losses.amounts(rows, extras["targets"], extras["weight"], extras["smoothing"])


def loss_against_probabilities(rows: wide.Rows, extras: Extras) -> tuple[Array, None]:
    options = extras["weight"], extras["smoothing"]
    return wide_losses.soft_loss(rows, target_amounts(rows, extras), *options), None


# --- one number for all rows ---------------------------------------------------------------------


def mean_loss(rows: wide.Rows, extras: Extras) -> Array:
    return wide.cross_entropy(rows, extras["labels"]).mean()


def digits_lost(extras: Extras, loss: Array) -> Array:
    """exp turns an error of 2**-53 of the loss into that much, times the loss, of its result."""
    return np.maximum(1, np.ldexp(np.abs(loss), wide.FORMATS[extras["type"]][0] - 53))


def perplexity_errors(rows: wide.Rows, extras: Extras, result: Any) -> Array:
    loss = mean_loss(rows, extras)
    true = np.exp(loss).reshape(1, 1)
    error = wide.ulps(
        np.asarray(result).reshape(1, 1), true, extras["type"], true * digits_lost(extras, loss)
    )
    return np.broadcast_to(error, (len(rows.p), 1))


def perplexity_gradient_errors(rows: wide.Rows, extras: Extras, result: Array) -> Array:
    """Each row's gradient of the mean, times the perplexity; 0 stays 0 where that is inf."""
    loss, count = mean_loss(rows, extras), len(rows.p)
    gradient = wide.cross_entropy_gradient(rows, extras["labels"]) / count
    value = np.exp(loss)
    value = np.where(value > wide_losses.MOST, np.inf, value)  # what the gradient is multiplied by
    true = np.where((gradient == 0) & (value == np.inf), wide.WIDE(0), gradient * value)
    # The gradient of the loss is one of the type in which logits are computed: below its normal
    # numbers it has few digits or none, and what it has is multiplied.
    least = wide.FORMATS["float64" if extras["type"] == "float64" else "float32"][1]
    normal = np.ldexp(wide.WIDE(1), least)
    size = np.maximum(np.abs(gradient), normal) * value * digits_lost(extras, loss)
    errors = wide.ulps(result, true, extras["type"], size)
    vanished = (np.abs(gradient) < normal) & (value > 2.0**120) & ~np.isnan(result.astype(float))
    return np.where(vanished, 0.0, errors)


def nll_loss(rows: wide.Rows, extras: Extras) -> tuple[Array, None]:
    return -wide.at_label(extras["x"].astype(wide.WIDE), extras["labels"]), None


def nll_gradient(rows: wide.Rows, extras: Extras) -> tuple[Array, None]:
    return -wide_losses.is_label(rows, extras["labels"]).astype(wide.WIDE), None


# --- against other logits ------------------------------------------------------------------------


def kl_value(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
    return wide_losses.kl(extras["x"], extras["other"], rows, extras["rows of other"])


def kl_gradient(which: int) -> Callable[..., Any]:
    def truth(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
        other = extras["rows of other"]
        return wide_losses.kl_gradients(extras["x"], extras["other"], rows, other)[which]

    return truth


def distillation(which: int) -> Callable[..., Any]:
    def truth(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
        other = extras["rows of other"]
        return wide_losses.distillation(extras["x"], extras["other"], rows, other)[which]

    return truth


LOSSES = (
    Function(
        "cross_entropy",
        by_label(wide.cross_entropy),
        call=value_of("cross_entropy"),
        exact=lambda row, t, where, extras: reference_losses.cross_entropy(
            row, label_of(extras), t, where
        ),
        per_row=True,
        extras=("labels",),
    ),
    Function(
        "cross_entropy: gradient",
        by_label_in_terms(wide_losses.label_gradient),
        THREE_ULP,
        call=gradient_of("cross_entropy"),
        extras=("labels",),
        limits=False,
    ),
    # Within 2 ULP, as tests/losses/test_losses.py states for every kind of target.
    Function(
        "cross_entropy: smoothing, weights, ignored",
        loss_with_options,
        TWO_ULP,
        call=with_options,
        per_row=True,
        extras=("labels",),
        shared=draw_options,
    ),
    Function(
        "cross_entropy: probabilities",
        loss_against_probabilities,
        TWO_ULP,
        call=against_probabilities,
        per_row=True,
        extras=("targets",),
        shared=draw_options,
    ),
    # A p - a, in ULP of the larger: a product, a target's share and their difference are rounded.
    Function(
        "cross_entropy: gradient with smoothing, weights, ignored",
        its_gradient,
        EIGHT_ULP,
        call=gradient_with_options,
        extras=("labels",),
        shared=draw_options,
        limits=False,
    ),
    Function(
        "cross_entropy: gradient against probabilities",
        lambda rows, extras: wide_losses.soft_gradient(rows, target_amounts(rows, extras)),
        EIGHT_ULP,
        call=gradient_against_probabilities,
        extras=("targets",),
        shared=draw_options,
        masks=False,
        limits=False,
    ),
    Function(
        "nll_loss",
        nll_loss,
        ROUNDED,
        call=value_of("nll_loss"),
        per_row=True,
        extras=("labels",),
        temperature=False,
        masks=False,
    ),
    Function(
        "nll_loss: gradient",
        nll_gradient,
        ROUNDED,
        call=gradient_of("nll_loss"),
        extras=("labels",),
        temperature=False,
        masks=False,
    ),
    # exp of a loss that is within 2 ULP, and a rounding.
    Function(
        "perplexity",
        bound=THREE_ULP,
        call=lambda x, extras, **options: hm.perplexity(x, extras["labels"], **options),
        errors=perplexity_errors,
        extras=("labels",),
        masks=False,
    ),
    Function(
        "perplexity: gradient",
        bound=EIGHT_ULP,
        errors=perplexity_gradient_errors,
        call=lambda x, extras, **options: hm.perplexity(
            x, extras["labels"], return_grad=True, **options
        )[1],
        extras=("labels",),
        masks=False,
        limits=False,
    ),
    Function(
        "mae_loss",
        by_label(wide.mae_loss),
        EIGHT_ULP,
        call=value_of("mae_loss"),
        per_row=True,
        extras=("labels",),
    ),
    Function(
        "mae_loss: gradient",
        by_label_in_terms(wide_losses.mae_gradient),
        EIGHT_ULP,
        call=gradient_of("mae_loss"),
        extras=("labels",),
        limits=False,
    ),
    Function(
        "brier_loss",
        by_label(wide.brier_loss),
        EIGHT_ULP,
        call=value_of("brier_loss"),
        per_row=True,
        extras=("labels",),
    ),
    Function(
        "brier_loss: gradient",
        by_label_in_terms(wide_losses.brier_gradient),
        EIGHT_ULP,
        call=gradient_of("brier_loss"),
        extras=("labels",),
        limits=False,
    ),
    Function(
        "focal_loss",
        lambda rows, extras: (wide.focal_loss(rows, extras["labels"], GAMMA), None),
        EIGHT_ULP,
        call=value_of("focal_loss", gamma=GAMMA),
        per_row=True,
        extras=("labels",),
    ),
    Function(
        "focal_loss: gradient",
        by_label_in_terms(wide_losses.focal_gradient),
        EIGHT_ULP,
        call=gradient_of("focal_loss"),
        extras=("labels",),
        limits=False,
    ),
    # Values and gradients within 8 ULP, as tests/losses/test_divergences.py states.
    Function(
        "kl_divergence",
        kl_value,
        EIGHT_ULP,
        call=lambda x, extras, **options: hm.kl_divergence(
            x, extras["other"], reduction="none", **options
        ),
        per_row=True,
        extras=("other",),
        limits=False,
    ),
    *(
        Function(
            f"kl_divergence: gradient by {name}",
            kl_gradient(which),
            EIGHT_ULP,
            call=lambda x, extras, which=which, **options: hm.kl_divergence(
                x, extras["other"], reduction="sum", return_grad=True, **options
            )[1][which],
            extras=("other",),
            limits=False,
        )
        for which, name in enumerate("pq")
    ),
    Function(
        "distillation_loss",
        distillation(0),
        EIGHT_ULP,
        call=lambda x, extras, **options: hm.distillation_loss(
            x, extras["other"], reduction="none", **options
        ),
        per_row=True,
        extras=("other",),
        limits=False,
    ),
    Function(
        "distillation_loss: gradient",
        distillation(1),
        EIGHT_ULP,
        call=lambda x, extras, **options: hm.distillation_loss(
            x, extras["other"], reduction="sum", return_grad=True, **options
        )[1],
        extras=("other",),
        limits=False,
    ),
)
