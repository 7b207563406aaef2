"""The gradient of attention: by PyTorch's autograd, by differences, and under masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attention_cases import normal, qkv, sdpa
from optional import torch

import hotmax as hm

NAN, INF = math.nan, math.inf


def torch_attention(q, k, v, *, where=None, scale=None, temperature=1.0, bias=None, sink=None):
    """The formula in PyTorch, for its autograd; k and v with as many heads as q."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    z = q @ k.transpose(-1, -2) * (scale / temperature)
    if bias is not None:
        z = z + bias
    if where is not None:
        z = z.masked_fill(~torch.as_tensor(where), -INF)
    if sink is not None:
        z = torch.cat([z, torch.broadcast_to(sink, (*z.shape[:-1], 1))], -1)
        return torch.softmax(z, -1)[..., :-1] @ v
    return torch.softmax(z, -1) @ v


def torch_gradients(q, k, v, gradient, **options):
    tensors = {n: torch.tensor(x, requires_grad=True) for n, x in {"q": q, "k": k, "v": v}.items()}
    for name in ("bias", "sink"):
        if name in options:
            tensors[name] = torch.tensor(options.pop(name), requires_grad=True)
    given = dict(tensors)
    group = q.shape[-3] // k.shape[-3]
    for name in ("k", "v"):
        given[name] = tensors[name].repeat_interleave(group, -3)
    torch_attention(**given, **options).backward(torch.tensor(gradient))
    return {name: tensor.grad.numpy() for name, tensor in tensors.items()}


def check(got, want, tolerance):
    for name, gradient in want.items():
        ours = getattr(got, name)
        assert ours.shape == gradient.shape
        assert ours.dtype == gradient.dtype
        size = max(np.abs(gradient).max(), 1.0)
        np.testing.assert_allclose(ours, gradient, rtol=0, atol=tolerance * size, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name",
    ["plain", "groups", "masked", "biased", "biased in part", "sink", "temperature", "two tiles"],
)
def test_against_autograd(name, dtype):
    shape, keys, kv_heads = (2, 4, 7, 5), 9, 4
    if name == "groups":
        kv_heads = 2
    if name == "two tiles":
        shape, keys, kv_heads = (1, 2, 200, 20), 700, 1
    q, k, v = qkv(shape, keys, kv_heads, 6, dtype)
    options = {
        "masked": {"where": np.random.default_rng(1).random((7, 9)) < 0.7},
        "biased": {"bias": normal(2, 4, 7, 9, dtype=dtype)},
        "biased in part": {"bias": normal(4, 1, 9, dtype=dtype), "scale": 0.3},
        "sink": {"sink": normal(4, 1, 1, dtype=dtype)},
        "temperature": {"temperature": -0.6},
        "two tiles": {"bias": normal(700, dtype=dtype), "sink": np.array(0.5, dtype)},
    }.get(name, {})
    gradient = normal(*q.shape[:-1], 6, seed=7, dtype=dtype)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    got = hm.attention_vjp(q, k, v, gradient, **options)
    assert ("bias" in options) == (got.bias is not None)
    check(got, torch_gradients(q, k, v, gradient, **options), tolerance)


@pytest.mark.parametrize("alignment", [True, "lower_right"])
def test_causal(alignment):
    q, k, v = qkv((1, 2, 205, 8), 700)
    shift = 0 if alignment is True else 495
    gradient = normal(1, 2, 205, 8, seed=7)
    want = torch_gradients(q, k, v, gradient, where=np.tri(205, 700, shift, dtype=bool))
    check(hm.attention_vjp(q, k, v, gradient, causal=alignment), want, 1e-13)


def test_sdpas_own_gradient():
    q, k, v = qkv((1, 4, 50, 16), 60, 2, dtype="float32")
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    gradient = normal(1, 4, 50, 16, dtype="float32", seed=5)
    sdpa(*tensors, enable_gqa=True).backward(torch.tensor(gradient))
    got = hm.attention_vjp(q, k, v, gradient)
    check(got, dict(zip("qkv", (t.grad.numpy() for t in tensors), strict=True)), 1e-5)


def test_by_differences():
    """Central differences of attention itself, in every entry."""
    q, k, v = qkv((2, 3, 4), 5, 1)
    arguments = {"q": q, "k": k, "v": v, "bias": normal(3, 5), "sink": normal(2, 1, 1)}
    options = {"where": np.arange(5) != 2, "temperature": np.array([[[0.5]], [[2.0]]])}
    gradient = normal(2, 3, 4, seed=9)
    got = hm.attention_vjp(
        q, k, v, gradient, bias=arguments["bias"], sink=arguments["sink"], **options
    )
    step = 1e-5
    for name, x in arguments.items():
        ours = getattr(got, name)
        for place in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = {**arguments, name: x.copy()}
                moved[name][place] += sign * step
                result = hm.attention(
                    moved.pop("q"), moved.pop("k"), moved.pop("v"), **moved, **options
                )
                ends.append((result * gradient).sum())
            assert ours[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_hides_under_the_mask_never_leaks(dtype):
    q, k, v = qkv((1, 2, 30, 8), 650, dtype=dtype)
    gradient = normal(*q.shape, dtype=dtype, seed=4)
    where = np.arange(650) % 5 != 2
    clean = hm.attention_vjp(q, k, v, gradient, where=where)
    for junk in (NAN, INF, -INF):
        k2, v2 = k.copy(), v.copy()
        k2[..., ~where, :] = junk
        v2[..., ~where, :] = junk
        got = hm.attention_vjp(q, k2, v2, gradient, where=where)
        for name in "qkv":
            np.testing.assert_allclose(
                getattr(got, name), getattr(clean, name), atol=20 * np.finfo(dtype).eps
            )
        assert (got.k[..., ~where, :] == 0).all()
        assert (got.v[..., ~where, :] == 0).all()
    nothing = hm.attention_vjp(q, k, v, gradient, where=False)
    assert all((getattr(nothing, name) == 0).all() for name in "qkv")
    q[0, 0, 3] = NAN  # what is seen is seen
    seen = hm.attention_vjp(q, k, v, gradient)
    assert np.isnan(seen.q[0, 0, 3]).all()
    assert np.isfinite(seen.q[0, 0, 4]).all()
    assert np.isnan(seen.v[0, 0]).all()


def test_the_same_bits():
    q, k, v = qkv((2, 4, 205, 12), 700, 2, dtype="float32")
    gradient = normal(*q.shape, dtype="float32", seed=4)
    threads = hm.get_threads()
    whole = hm.attention_vjp(q, k, v, gradient, causal=True)
    try:
        hm.set_threads(1)
        single = hm.attention_vjp(q, k, v, gradient, causal=True)
    finally:
        hm.set_threads(threads)
    alone = hm.attention_vjp(q[1], k[1], v[1], gradient[1], causal=True)
    for name in "qkv":
        np.testing.assert_array_equal(getattr(whole, name), getattr(single, name))
        np.testing.assert_array_equal(getattr(whole, name)[1], getattr(alone, name))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e4, 1e6, 1e9, 1e15])
@pytest.mark.parametrize("sign", [1, -1])
def test_huge_scores_have_the_gradient_of_their_differences(dtype, size, sign):
    """The weights are made again relative to the largest score, not from a logsumexp of no digits.

    The scores are size, size and 0: the first two keys share all weight.
    """
    q = np.array([[sign * size, 1.0]], dtype)
    k, v = np.array([[1, 0], [1, 0], [0, 0]], dtype), np.eye(3, dtype=dtype)
    gradient = np.array([[1.0, 3.0, 7.0]], dtype)
    got = hm.attention_vjp(q, k, v, gradient, scale=sign / 3)
    np.testing.assert_allclose(got.v, np.array([[0.5], [0.5], [0]]) * gradient, rtol=1e-6)
    ds = np.array([-0.5, 0.5, 0.0]) * sign / 3  # p (g - p . g), times the scale
    np.testing.assert_allclose(got.k, ds[:, None] * q, rtol=1e-6, atol=0)
    cold = hm.attention_vjp(q / size, k, v, gradient, temperature=1e-300, scale=sign / 3)
    np.testing.assert_allclose(cold.v, got.v, rtol=1e-6)


def test_shapes_that_broadcast():
    q, k, v = qkv((3, 2, 4, 5), 6)
    k, v = k[0, :1], v[:1, :1]
    gradient = normal(3, 2, 4, 5, seed=4)
    got = hm.attention_vjp(q, k, v, gradient)
    whole = [np.broadcast_to(x, (3, 2, 6, 5)).copy() for x in (k, v)]
    want = hm.attention_vjp(q, *whole, gradient)
    assert got.k.shape == k.shape
    assert got.v.shape == v.shape
    np.testing.assert_allclose(got.k, want.k.sum((0, 1))[None], atol=1e-14)
    np.testing.assert_allclose(got.v, want.v.sum((0, 1))[None, None], atol=1e-14)
    flat = hm.attention_vjp(q[0, 0], k[0], v[0, 0], gradient[0, 0])
    np.testing.assert_allclose(flat.q, want.q[0, 0], atol=1e-15)


def test_bad_input():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"gradient must have the shape.*\(2, 4, 7, 5\).*\(7, 5\)"):
        hm.attention_vjp(q, k, v, np.ones((7, 5)))
    with pytest.raises(ValueError, match="temperature must not be 0"):
        hm.attention_vjp(q, k, v, q, temperature=0)
    with pytest.raises(ValueError, match="temperature must not be 0"):  # 1e10 / 1e-300 is inf
        hm.attention_vjp(q, k, v, q, temperature=1e-300, scale=1e10)
