"""Attention against mpmath and PyTorch."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import reference
import reference_attention
from attention_cases import normal, qkv, sdpa, worst
from optional import torch

import hotmax as hm
from hotmax._kernels.attention.scores import TILE_KEYS

INF, NAN = math.inf, math.nan


# --- against mpmath ---------------------------------------------------------------------------

MASK = np.random.default_rng(5).random((6, 700)) < 0.7
BIAS = np.random.default_rng(6).standard_normal((6, 700)) * 3

# name: keys, features, size of q, options. Beyond TILE_KEYS there is more than one tile.
assert MASK.shape[-1] > TILE_KEYS
CASES = {
    "one key": (1, 4, 1.0, {}),
    "one feature": (9, 1, 1.0, {}),
    "few": (9, 8, 1.0, {}),
    "two tiles": (700, 8, 1.0, {}),
    "64 features": (70, 64, 1.0, {}),
    "causal": (6, 16, 1.0, {"causal": True}),
    "causal, lower right": (200, 16, 1.0, {"causal": "lower_right"}),
    "masked": (700, 8, 1.0, {"where": MASK}),
    "biased": (700, 8, 1.0, {"bias": BIAS}),
    "masked and biased": (700, 8, 1.0, {"where": MASK, "bias": BIAS}),
    "sink": (40, 8, 1.0, {"sink": 0.0}),
    "large sink": (40, 8, 1.0, {"sink": 6.5}),
    "biased, sink": (700, 8, 1.0, {"bias": BIAS, "sink": -1.5}),
    "temperature": (40, 8, 1.0, {"temperature": 0.3}),
    "negative temperature": (40, 8, 1.0, {"temperature": -0.7, "bias": BIAS}),
    "scale": (40, 8, 1.0, {"scale": 0.9}),
    "negative scale": (40, 8, 1.0, {"scale": -0.7}),
    "no scale at all": (40, 8, 1.0, {"scale": 0.0}),
    "almost temperature 0": (40, 8, 1.0, {"temperature": 1e-30}),
    "almost infinite temperature": (40, 8, 1.0, {"temperature": 1e30}),
    "a sink that takes all": (40, 8, 1.0, {"sink": 800.0}),
    "a sink that takes nothing": (40, 8, 1.0, {"sink": -800.0}),
    "bias of thousands": (700, 8, 1.0, {"bias": BIAS * 1000}),
    "bias of -inf": (700, 8, 1.0, {"bias": np.where(MASK, BIAS, -INF), "sink": 0.5}),
    "many features": (30, 1000, 1.0, {}),
}
LARGE = {  # scores of hundreds: float32 products cannot hold them to the last digits
    "scores of 100": (700, 8, 40.0, {"scale": 1.0}),
    "scores of 1000": (70, 64, 100.0, {"scale": 1.0, "sink": 3.0}),
    "scores of 100, biased": (700, 8, 40.0, {"scale": 1.0, "bias": BIAS, "where": MASK}),
}


def case(row, dtype):
    keys, features, size, options = row
    q = normal(6, features, seed=keys, dtype=dtype, size=size)
    k, v = (normal(keys, features, seed=keys + s, dtype=dtype) for s in (1, 2))
    options = {
        name: value[:, :keys] if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    if "bias" in options:
        options["bias"] = options["bias"].astype(dtype)
    return q, k, v, options


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*itertools.product(CASES, ("float32", "float64")), *itertools.product(LARGE, ("float64",))],
)
def test_against_mpmath(name, dtype):
    """Within 4 ULP of the largest value; the weights within 4 of the largest weight."""
    q, k, v, options = case({**CASES, **LARGE}[name], dtype)
    out, logsumexp = hm.attention(q, k, v, **options, return_logsumexp=True)
    assert out.dtype == logsumexp.dtype == dtype
    weights, sums = reference_attention.weights(q, k, **options)
    assert worst(out, reference_attention.weighted(weights, v), v) <= 4
    got = hm.attention_weights(q, k, **options)
    one = reference.mp.mpf(1)
    assert reference.worst_ulps(got, np.array(weights, object), one) <= 4
    for a, b in zip(logsumexp.tolist(), sums, strict=True):
        assert reference.ulps(a, b, dtype, max(abs(b), 4)) <= 2


def test_equal_weights_do_not_add_up_their_roundings():
    """A thousand equal weights of equal values: the mean is the value."""
    for dtype in ("float32", "float64"):
        v = np.full((1000, 3), 1 / 3, dtype)
        out = hm.attention(np.zeros((2, 4), dtype), normal(1000, 4, dtype=dtype), v)
        np.testing.assert_allclose(out, v[:2], rtol=4 * np.finfo(dtype).eps)


# --- against PyTorch --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "keys", "kv_heads", "features"),
    [
        ((4, 1, 8), 1, 4, 8),
        ((1, 3, 17, 5), 17, 3, 5),
        ((2, 4, 7, 5), 9, 4, 3),
        ((2, 6, 200, 16), 200, 2, 16),
        ((1, 4, 13, 64), 401, 1, 64),
        ((1, 2, 401, 33), 13, 2, 70),
        ((2, 2, 2, 193, 8), 195, 2, 8),
    ],
)
def test_against_torch(shape, keys, kv_heads, features, causal, dtype):
    q, k, v = qkv(shape, keys, kv_heads, features, dtype)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    tolerance = {"float32": 5e-6, "float64": 1e-14}[dtype]
    got = hm.attention(q, k, v, causal=causal)
    want = sdpa(*tensors, is_causal=causal, enable_gqa=True)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
    mask = np.random.default_rng(9).random((shape[-2], keys)) < 0.6
    mask[0] = False
    got = hm.attention(q, k, v, where=mask, scale=0.7)
    want = sdpa(*tensors, attn_mask=torch.from_numpy(mask), scale=0.7, enable_gqa=True)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)
    assert (got[..., 0, :] == 0).all()
    bias = normal(shape[-3], shape[-2], keys, dtype=dtype, seed=3)
    got = hm.attention(q, k, v, bias=bias)
    want = sdpa(*tensors, attn_mask=torch.from_numpy(bias), enable_gqa=True)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.torch
def test_causal_alignment_is_torchs():
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    for queries, keys in ((5, 9), (450, 451)):
        q, k, v = qkv((1, 2, queries, 4), keys)
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        for name, make in (("upper_left", causal_upper_left), ("lower_right", causal_lower_right)):
            want = sdpa(*tensors, attn_mask=make(queries, keys)._materialize())
            np.testing.assert_allclose(hm.attention(q, k, v, causal=name), want, atol=1e-14)
        np.testing.assert_array_equal(
            hm.attention(q, k, v, causal=True), hm.attention(q, k, v, causal="upper_left")
        )
