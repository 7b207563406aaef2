"""What the sweep calls: each function with its truth in longdouble, in mpmath, and its bound.

The softmax family and its derivatives are here, the others in files of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import reference

import hotmax as hm
from fuzz import choices, losses, products, wide
from fuzz.function import (
    EIGHT_ULP,
    THIRTY_TWO_ULP,
    Array,
    Extras,
    Function,
    Generator,
    derivative,
    in_mpmath,
    plain,
)

# Public names that the sweep leaves out, and why.
LEFT_OUT = {
    "one_hot": "copies labels",
    "smooth_labels": "takes labels, not logits",
    "add_bias": "one addition for each logit, NumPy's own",
    "chosen_logprobs": "one entry of log_softmax; its own tests in tests/sampling",
    "top_logprobs": "the largest entries of log_softmax; its own tests in tests/sampling",
    "verify": "a rule on draws; its chi-square test is in tests/sampling",
    "penalize": "one addition or product for each logit, NumPy's own",
    "saturation": "counts and means of what softmax gives",
    "attention_saturation": "counts and means of what attention_weights gives",
    "temperature_for_entropy": "solves for the temperature: exact where entropy is",
}


# --- segments ------------------------------------------------------------------------------------


def draw_segments(rng: Generator, x: Array, type_name: str) -> Extras:
    """Groups of any size in any order; the last may be empty."""
    n = x.shape[1]
    count = int(rng.choice([1, 2, 3, max(1, n // 2)]))
    ids = rng.integers(0, count, n)
    return {"ids": np.sort(ids) if rng.random() < 0.5 else ids, "groups": count + 1}


def by_segment(of_group: Any, extras: Extras, out: Array, per_group: bool) -> Array:
    """Fill `out` with of_group(rows of a group) at its entries, or at its number."""
    x, t, where = extras["x"], extras["temperature"], extras["where"]
    for group in range(extras["groups"]):
        entries = np.flatnonzero(extras["ids"] == group)
        if entries.size:
            allowed = None if where is None else where[:, entries]
            value = of_group(wide.rows_of(x[:, entries], t, allowed))
            out[:, [group] if per_group else entries] = value
    return out


def segment_softmax(rows: wide.Rows, extras: Extras) -> tuple[Array, None]:
    """0 for what is masked, beside nan too."""
    out = by_segment(wide.softmax, extras, np.zeros(extras["x"].shape, wide.WIDE), False)
    allowed = extras["where"]
    return out if allowed is None else np.where(allowed, out, wide.WIDE(0)), None


def segment_logsumexp(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
    shape = len(extras["x"]), extras["groups"]
    value = by_segment(wide.logsumexp, extras, np.full(shape, -np.inf, wide.WIDE), True)
    size = by_segment(wide.logsumexp_scale, extras, np.ones(shape, wide.WIDE), True)
    return value, size


# --- weights -------------------------------------------------------------------------------------


def weighted_errors(rows: wide.Rows, extras: Extras, result: Any) -> Array:
    """Of log |sum w e^z| and of its sign, where the sum is not lost in cancellation."""
    got, sign = (np.asarray(part).reshape(-1, 1) for part in result)
    w = extras["weights"].astype(wide.WIDE)
    allowed = np.ones(w.shape, bool) if extras["where"] is None else extras["where"]
    rows = wide.rows_of(extras["x"], extras["temperature"], allowed & (w != 0))
    e = np.where(rows.gap > -np.inf, np.exp(rows.gap) * (1 + rows.gap_low), wide.WIDE(0))
    total, absolute = (v.sum(-1, keepdims=True) for v in (w * e, np.abs(w) * e))
    there = rows.top > -np.inf
    own = np.where(np.isinf(rows.peak), rows.peak, rows.peak + np.log(np.abs(total)))
    true = np.where(there, own, -np.inf)
    true = np.where(rows.is_nan, np.nan, true)
    # The sum is one of float64s: it is right to 2**-53 of the absolute terms, its logarithm to
    # that over the sum.
    digits = wide.FORMATS[extras["type"]][0]
    rounded = np.ldexp(absolute / np.abs(total), digits - 53)
    scale = np.maximum(np.maximum(np.abs(rows.peak), np.abs(true)), rounded)
    errors = wide.ulps(got, true, extras["type"], np.where(there, scale, true))
    signs = np.where(rows.is_nan, np.nan, np.where(there, np.sign(total), wide.WIDE(0)))
    agree = (sign.astype(float) == signs) | (np.isnan(sign.astype(float)) & np.isnan(signs))
    lost = there & ~rows.is_nan & (np.abs(total) <= absolute * wide.WIDE(2.0**-40))
    return np.where(lost, 0.0, np.where(agree, errors, np.inf))


def hessian(rows: wide.Rows, extras: Extras) -> tuple[Array, Array]:
    """p[i] ((d[ij] - p[j]) (d[ik] - p[k]) - p[j] (d[jk] - p[k])) / T^2, and its largest term."""
    p, others = rows.p, rows.others
    n = p.shape[1]
    i, j, k = np.ogrid[:n, :n, :n]
    full = 2 * p[:, :, None, None] * p[:, None, :, None] * p[:, None, None, :]
    pair = np.where(i == j, p[:, None, None, :], p[:, None, :, None])  # of two alike, the other
    pair = np.where(j == k, p[:, :, None, None], pair)
    alike = np.where(j == k, p[:, None, :, None], p[:, :, None, None])
    slope = np.where(j == k, (others - p)[:, None, :, None], (others - p)[:, :, None, None])
    value = np.where((i == j) | (i == k) | (j == k), -pair * alike * slope, full)
    cube = (p * others * (others - p))[:, :, None, None]
    value = np.where((i == j) & (j == k), cube, value)
    size = np.where((i == j) & (j == k), (p * others)[:, :, None, None], pair * alike)
    size = np.where((i == j) | (i == k) | (j == k), np.maximum(size, np.abs(value)), np.abs(value))
    size = np.maximum(size, wide.WIDE(2.0**-1022))  # a float64 before it is divided by T^2
    square = (rows.size * rows.size)[:, :, None, None]
    value = value / square
    value = np.where(rows.masked[:, :, None, None], wide.WIDE(0), value)
    bad = (rows.bad & ~rows.masked)[:, :, None, None]
    return np.where(bad, wide.WIDE(np.nan), value), size / square


def with_opposite_temperature(x: Any, extras: Extras, **options: Any) -> Any:
    """Softmin at -T is softmax at T."""
    return hm.softmin(x, **{**options, "temperature": -np.asarray(options["temperature"])})


FAMILY = (
    Function(
        "softmax",
        plain(wide.softmax),
        exact=in_mpmath(reference.softmax),
        libraries=True,
    ),
    Function(
        "log_softmax",
        plain(wide.log_softmax),
        exact=in_mpmath(reference.log_softmax),
        libraries=True,
    ),
    Function(
        "logsumexp",
        lambda rows, extras: (wide.logsumexp(rows), wide.logsumexp_scale(rows)),
        exact=in_mpmath(reference.logsumexp),
        exact_scale=reference.logsumexp_scale,
        per_row=True,
        libraries=True,
    ),
    Function(
        "smoothmax",
        lambda rows, extras: (wide.smoothmax(rows), wide.smoothmax_scale(rows)),
        exact=in_mpmath(reference.smoothmax),
        exact_scale=reference.smoothmax_scale,
        per_row=True,
        libraries=True,
    ),
    Function(
        "entropy",
        plain(wide.entropy),
        exact=in_mpmath(reference.entropy),
        per_row=True,
        libraries=True,
    ),
    Function(
        "softargmax",
        plain(wide.softargmax),
        exact=in_mpmath(reference.softargmax),
        per_row=True,
        libraries=True,
    ),
    Function("hardmax", plain(wide.softmax), temperature=False),
    Function(
        "softmax_jvp",
        lambda rows, extras: wide.jvp(rows, extras["vector"]),
        EIGHT_ULP,
        call=lambda x, extras, **options: hm.softmax_jvp(x, extras["vector"], **options),
        extras=("vector",),
        limits=False,
    ),
    Function(
        "temperature_derivative",
        derivative(wide.temperature_derivative),
        EIGHT_ULP,
        limits=False,
    ),
    Function(
        "entropy_temperature_derivative",
        derivative(wide.entropy_temperature_derivative),
        THIRTY_TWO_ULP,  # a plain sum over the row
        per_row=True,
        limits=False,
    ),
    Function(
        "softmax_jacobian",
        derivative(wide.jacobian),
        EIGHT_ULP,
        order=2,
        limits=False,
        longest=17,
    ),
    Function("softmin", plain(wide.softmax), call=with_opposite_temperature),
    Function(
        "logsumexp: weights",
        call=lambda x, extras, **options: hm.logsumexp(
            x, weights=extras["weights"], return_sign=True, **options
        ),
        errors=weighted_errors,
        extras=("weights",),
    ),
    Function(
        "softmax_vjp",
        lambda rows, extras: wide.jvp(rows, extras["vector"]),  # the Jacobian is symmetric
        EIGHT_ULP,
        call=lambda x, extras, **options: hm.softmax_vjp(x, extras["vector"], **options),
        extras=("vector",),
        limits=False,
    ),
    Function(
        "entropy_gradient",
        derivative(wide.temperature_derivative),  # dH / dx is dp / dT
        EIGHT_ULP,
        limits=False,
    ),
    Function(
        "smoothmax_hessian",
        derivative(wide.jacobian),
        EIGHT_ULP,
        order=2,
        limits=False,
        longest=17,
    ),
    Function("softmax_hessian", hessian, EIGHT_ULP, order=3, limits=False, longest=9),
    Function(
        "segment_softmax",
        segment_softmax,
        call=lambda x, extras, **options: hm.segment_softmax(
            x, extras["ids"], num_segments=extras["groups"], **options
        ),
        shared=draw_segments,
        axes="one",
    ),
    Function(
        "segment_logsumexp",
        segment_logsumexp,
        call=lambda x, extras, **options: hm.segment_logsumexp(
            x, extras["ids"], num_segments=extras["groups"], **options
        ),
        shared=draw_segments,
        width=lambda extras: extras["groups"],
        axes="one",
    ),
)

FUNCTIONS = {
    function.name: function
    for function in (*FAMILY, *losses.LOSSES, *products.PRODUCTS, *choices.CHOICES)
}
