"""Functions of matrix products that the sweep calls: attention, its gradient, a layer's loss.

Rows are queries or hidden states of some features; scores are of everyday size. A product of n
features is a sum of n rounded terms, whose order is BLAS's. An error e in a score is a factor
1 + e in its weight, so a ULP is taken at the size of the terms times (1 + the size of the scores).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import hotmax as hm
from fuzz import wide
from fuzz.function import EIGHT_ULP, FOUR_ULP, Array, Extras, Function, Generator
from fuzz.hard_rows import TYPES

FEATURES = 17
LENGTHS = (1, 2, 3, 17, 64, 65, 130)


def draw_features(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    return (rng.standard_normal(shape) * rng.choice([0.1, 1.0, 3.0])).astype(TYPES[name])


def draw_attention(rng: Generator, x: Array, type_name: str) -> Extras:
    rows, features = x.shape
    keys = int(rng.choice(LENGTHS))
    where = rng.random((rows, keys)) < 0.7 if rng.random() < 0.3 else None
    return {
        "k": draw_features(rng, (keys, features), type_name),
        "v": draw_features(rng, (keys, int(rng.integers(1, 9))), type_name),
        "upstream": rng.standard_normal((rows, 8)),
        "causal": bool(rng.random() < 0.3),
        "seen": where,
        "temperature of all": float(rng.choice([1.0, 0.5, 2.0, -1.0])),
        "bias": draw_features(rng, (rows, keys), type_name) if rng.random() < 0.3 else None,
        "sink": float(rng.standard_normal()) if rng.random() < 0.3 else None,
    }


def upstream(extras: Extras) -> Array:
    v = extras["v"]
    return extras["upstream"][:, : v.shape[1]].astype(v.dtype)


def attention_options(extras: Extras) -> dict[str, Any]:
    return {
        "where": extras["seen"],
        "causal": extras["causal"],
        "temperature": extras["temperature of all"],
        "bias": extras["bias"],
        "sink": None if extras["sink"] is None else np.array(extras["sink"], extras["k"].dtype),
    }


class Attended(NamedTuple):
    """Weights and what they come from, in longdouble."""

    p: Array
    grown: Array  # 1 + the size of the scores: by how much an error of a score grows
    slope: Any  # of the scores: scale / T


def attended(extras: Extras) -> Attended:
    q, k = (extras[name].astype(wide.WIDE) for name in ("x", "k"))
    slope = wide.WIDE(1.0 / np.sqrt(q.shape[1])) / wide.WIDE(extras["temperature of all"])
    z, size = q @ k.T * slope, np.abs(q) @ np.abs(k).T * abs(slope)
    if extras["bias"] is not None:
        bias = extras["bias"].astype(wide.WIDE)
        z, size = z + bias, size + np.abs(bias)
    seen = np.ones(z.shape, bool) if extras["seen"] is None else extras["seen"].copy()
    if extras["causal"]:
        seen &= np.tri(*z.shape, dtype=bool)
    if extras["sink"] is not None:  # a key without a value
        sink = np.array(extras["sink"], extras["k"].dtype).astype(wide.WIDE)
        z = np.concatenate([z, np.full((len(z), 1), sink)], 1)
        seen = np.concatenate([seen, np.ones((len(z), 1), bool)], 1)
    p = wide.softmax(wide.rows_of(z, np.ones((len(z), 1)), seen))[:, : len(k)]
    return Attended(p, 1 + size.max(-1, keepdims=True, initial=0), slope)


def attention_errors(rows: wide.Rows, extras: Extras, result: Array) -> Array:
    """In ULP of the largest value; times the size of the scores for float32."""
    found = attended(extras)
    v = extras["v"].astype(wide.WIDE)
    largest = np.abs(v).max(initial=0) * grown_in_type(found, extras)
    scale = np.broadcast_to(largest, result.shape)
    return wide.ulps(result, found.p @ v, extras["type"], scale).max(-1, keepdims=True)


def grown_in_type(found: Attended, extras: Extras) -> Array:
    """float64 products are in two words, those of other types in float32."""
    if extras["type"] == "float64":
        return np.ones_like(found.grown)
    return np.maximum(1, np.ldexp(found.grown, wide.FORMATS[extras["type"]][0] - 24))


def weights_errors(rows: wide.Rows, extras: Extras, result: Array) -> Array:
    """In ULP of 1, the most that a weight may be; times the size of the scores for float32."""
    found = attended(extras)
    scale = np.broadcast_to(grown_in_type(found, extras), result.shape)
    return wide.ulps(result, found.p, extras["type"], scale).max(-1, keepdims=True, initial=0)


def gradients(x: Any, extras: Extras, **options: Any) -> tuple[Any, Any, Any]:
    found = hm.attention_vjp(
        x, extras["k"], extras["v"], upstream(extras), **attention_options(extras)
    )
    return found.q, found.k, found.v


def vjp_errors(rows: wide.Rows, extras: Extras, result: Any) -> Array:
    """Of dq, dk and dv, each in ULP of its largest sum of absolute terms."""
    found = attended(extras)
    q, k, v = (extras[name].astype(wide.WIDE) for name in ("x", "k", "v"))
    g, p = upstream(extras).astype(wide.WIDE), found.p
    by_p, by_p_size = g @ v.T, np.abs(g) @ np.abs(v).T
    ds = p * (by_p - (p * by_p).sum(-1, keepdims=True)) * found.slope
    size = p * (by_p_size + (p * by_p_size).sum(-1, keepdims=True)) * np.abs(found.slope)
    size = size * found.grown
    true = ds @ k, ds.T @ q, p.T @ g
    sizes = size @ np.abs(k), size.T @ np.abs(q), (p * found.grown).T @ np.abs(g)
    worst = 0.0
    for got, want, its in zip(result, true, sizes, strict=True):
        scale = np.broadcast_to(its.max(initial=0), want.shape)
        worst = max(worst, wide.ulps(got, want, extras["type"], scale).max(initial=0))
    return np.full((len(q), 1), worst)


# --- a linear layer's loss -----------------------------------------------------------------------


def draw_layer(rng: Generator, x: Array, type_name: str) -> Extras:
    classes = int(rng.choice(LENGTHS))
    return {
        "weight": draw_features(rng, (classes, x.shape[1]), type_name),
        "bias": draw_features(rng, (1, classes), type_name)[0] if rng.random() < 0.5 else None,
        "labels of rows": rng.integers(0, classes, len(x)),
        "temperature of all": float(rng.choice([1.0, 0.5, 2.0])),
    }


def linear(x: Any, extras: Extras, **options: Any) -> Any:
    """(the losses, the gradients by hidden and by weight of their sum)"""
    given = x, extras["weight"], extras["labels of rows"], extras["bias"]
    temperature = extras["temperature of all"]
    losses = hm.linear_cross_entropy(*given, temperature=temperature, reduction="none")
    _, gradients = hm.linear_cross_entropy(
        *given, temperature=temperature, reduction="sum", return_grad=True
    )
    return losses, gradients[0], gradients[1]


def linear_errors(rows: wide.Rows, extras: Extras, result: Any) -> Array:
    h, w = (extras[name].astype(wide.WIDE) for name in ("x", "weight"))
    labels, temperature = extras["labels of rows"], wide.WIDE(extras["temperature of all"])
    bias = np.zeros(len(w)) if extras["bias"] is None else extras["bias"]
    z, size = h @ w.T + bias.astype(wide.WIDE), np.abs(h) @ np.abs(w).T + np.abs(bias)
    found = wide.rows_of(z, np.full((len(z), 1), temperature))
    loss = wide.cross_entropy(found, labels)
    gradient = wide.cross_entropy_gradient(found, labels)
    largest = size.max(-1, keepdims=True) / temperature
    change = (
        np.where(np.arange(len(w)) == labels[:, None], 1, found.p) * (1 + largest) / temperature
    )
    true = loss, gradient @ w, gradient.T @ h
    sizes = 1 + np.maximum(loss, largest), change @ np.abs(w), change.T @ np.abs(h)
    errors = np.zeros((len(h), 1))
    for place, (got, want, its) in enumerate(zip(result, true, sizes, strict=True)):
        part = wide.ulps(np.asarray(got).reshape(want.shape), want, extras["type"], its)
        worst = part.max(-1, keepdims=True) if place < 2 else part.max()
        errors = np.maximum(errors, worst)
    return errors


PRODUCTS = (
    Function(
        "attention",
        bound=FOUR_ULP,
        call=lambda x, extras, **options: hm.attention(
            x, extras["k"], extras["v"], **attention_options(extras)
        ),
        errors=attention_errors,
        shared=draw_attention,
        values=draw_features,
        temperature=False,
        masks=False,
        axes="last",
        longest=FEATURES,
    ),
    Function(
        "attention_weights",
        bound=FOUR_ULP,
        call=lambda x, extras, **options: hm.attention_weights(
            x, extras["k"], **attention_options(extras)
        ),
        errors=weights_errors,
        shared=draw_attention,
        values=draw_features,
        temperature=False,
        masks=False,
        axes="last",
        longest=FEATURES,
    ),
    Function(
        "attention_vjp",
        bound=FOUR_ULP,
        call=gradients,
        errors=vjp_errors,
        shared=draw_attention,
        values=draw_features,
        temperature=False,
        masks=False,
        axes="last",
        longest=FEATURES,
    ),
    Function(
        "linear_cross_entropy",
        bound=EIGHT_ULP,  # sums of 130 rounded terms, half a ULP each at random: sqrt(130) / 2 is 6
        call=linear,
        errors=linear_errors,
        shared=draw_layer,
        values=draw_features,
        temperature=False,
        masks=False,
        axes="last",
        same_bits=False,  # BLAS's products, as its docstring says
        longest=FEATURES,
    ),
)
