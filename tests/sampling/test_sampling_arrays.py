"""Tensors of torch and arrays of jax: the draws of NumPy, in their own kind, and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import on
from optional import torch

import hotmax as hm

X = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
OPTIONS = [{}, {"top_p": 0.7}, {"top_k": 3, "size": 4}, {"size": 3, "replace": False}]


@on("torch", "jax")
@pytest.mark.parametrize("options", OPTIONS)
def test_draws_in_the_same_kind(xp, options):
    make = xp.make
    got = hm.sample(make(X), seed=3, **options)
    assert isinstance(got, type(make(X)))
    if isinstance(got, torch.Tensor):
        assert got.dtype is torch.int64
    np.testing.assert_array_equal(np.asarray(got), hm.sample(X, seed=3, **options))


@on("torch", "jax")
def test_other_arguments_of_the_same_make(xp):
    make = xp.make
    temperatures, where = np.linspace(0.5, 2, 6)[:, None], X > -0.5
    seeds = np.arange(6)
    want = hm.sample(X, temperature=temperatures, where=where, seed=seeds)
    got = hm.sample(make(X), temperature=make(temperatures), where=make(where), seed=make(seeds))
    np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_truncate_keeps_the_float_type(kind):
    tensor = torch.from_numpy(X).to(getattr(torch, kind))
    got = hm.truncate(tensor, top_k=4)
    assert got.dtype is tensor.dtype
    kept = torch.isfinite(got)
    assert (kept.sum(-1) >= 4).all()
    assert torch.equal(got[kept], tensor[kept])
    if kind != "float64":
        array = jnp.asarray(X).astype(kind)
        got = hm.truncate(array, top_k=4)
        assert got.dtype == array.dtype
        assert bool((got == jnp.where(jnp.isfinite(got), array, got)).all())


@on("torch", "jax")
def test_samplers_penalties_and_biases(xp):
    make = xp.make
    sampler = hm.Sampler({"temperature": 0.7, "repetition": 1.2}, seed=1)
    same = hm.Sampler({"temperature": 0.7, "repetition": 1.2}, seed=1)
    tokens = np.array([1, 2, 2])
    got = sampler(make(X), tokens=make(tokens))
    assert type(got) is type(make(X))
    np.testing.assert_array_equal(np.asarray(got), same(X, tokens=tokens))
    for got, want in (
        (sampler.truncate(make(X), tokens=make(tokens)), same.truncate(X, tokens=tokens)),
        (
            hm.penalize(make(X), make(tokens), presence=1.0),
            hm.penalize(X, tokens, presence=1.0),
        ),
        (hm.add_bias(make(X), {2: -1.0}), hm.add_bias(X, {2: -1.0})),
    ):
        assert type(got) is type(make(X))
        np.testing.assert_array_equal(np.asarray(got), want)


def test_beam_search_over_a_torch_model():
    table = np.random.default_rng(1).normal(size=(5, 5))
    tensor = torch.from_numpy(table).requires_grad_()
    ours = hm.beam_search(lambda p: table[p[:, -1]], [0], width=3, length=4)
    theirs = hm.beam_search(lambda p: tensor[p[:, -1]], torch.tensor([0]), width=3, length=4)
    assert ours == theirs


def test_draws_inside_jit_are_refused():
    with pytest.raises(TypeError, match="logits is traced"):
        jax.jit(lambda x: hm.sample(x, seed=0))(jnp.asarray(X))


# --- Gumbel-softmax ---------------------------------------------------------------------------

WEIGHTS = np.random.default_rng(2).normal(size=X.shape)


def noise():
    """The noise of seed 5, up to a constant in each row, which softmax does not see."""
    return np.log(hm.gumbel_softmax(np.zeros(X.shape), seed=5))


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_gumbel_softmax_is_differentiable_in_torch(hard, temperature):
    x = torch.from_numpy(X.astype(np.float64)).requires_grad_()
    y = hm.gumbel_softmax(x, temperature=temperature, hard=hard, seed=5)
    (y * torch.from_numpy(WEIGHTS)).sum().backward()
    same = x.detach().clone().requires_grad_()
    soft = torch.softmax((same + torch.from_numpy(noise())) / temperature, -1)
    (soft * torch.from_numpy(WEIGHTS)).sum().backward()
    torch.testing.assert_close(x.grad, same.grad, rtol=1e-9, atol=1e-12)
    want = torch.nn.functional.one_hot(soft.argmax(-1), 9).double() if hard else soft
    torch.testing.assert_close(y, want, rtol=0 if hard else 1e-9, atol=0 if hard else 1e-12)


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_is_differentiable_in_jax(hard):
    def loss(x):
        return (hm.gumbel_softmax(x, temperature=0.5, hard=hard, seed=5) * WEIGHTS).sum()

    def theirs(x):
        return (jax.nn.softmax((x + noise().astype(np.float32)) / 0.5) * WEIGHTS).sum()

    x = jnp.asarray(X)
    for ours in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(ours(x), jax.grad(theirs)(x), rtol=1e-4, atol=1e-5)
    y = np.asarray(hm.gumbel_softmax(x, hard=hard, seed=5))
    if hard:
        np.testing.assert_array_equal(y, hm.gumbel_softmax(X, hard=True, seed=5))
    else:
        np.testing.assert_allclose(y, hm.gumbel_softmax(X, seed=5), rtol=1e-5)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int32"])
def test_gumbel_softmax_of_other_types(kind):
    x = torch.from_numpy(X).to(getattr(torch, kind))
    y = hm.gumbel_softmax(x, hard=True, seed=5)
    assert y.dtype is (x.dtype if x.is_floating_point() else torch.float64)
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum(-1) == 1).all()
    array = jnp.asarray(X).astype(kind)
    y = hm.gumbel_softmax(array, hard=True, seed=5)
    assert y.dtype == (array.dtype if kind != "int32" else jnp.result_type(float))
    assert bool((y.sum(-1) == 1).all())


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, jnp.asarray])
def test_a_seed_in_an_array_of_no_dimension(make):
    """It is one number: rows still differ."""
    x = np.zeros((4, 100))
    np.testing.assert_array_equal(hm.sample(x, seed=make(5)), hm.sample(x, seed=5))
    assert len(set(hm.sample(x, seed=make(5)).tolist())) > 1


@on("numpy", "torch", "jax")
def test_hard_is_one_hot_far_from_zero(xp):
    """The noise keeps its digits, and what still ties goes to the first."""
    x = xp.make(np.full((50_000, 10), 1e4, np.float32))
    y = np.asarray(hm.gumbel_softmax(x, hard=True, seed=1))
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum(-1) == 1).all()
    counts = y.sum(0)
    assert ((counts - 5000.0) ** 2 / 5000.0).sum() < 27.9  # chi-square, 9 degrees: 1 in 1000


@on("numpy", "torch", "jax")
def test_masks_and_infinities_in_gumbel_softmax(xp):
    x = np.array([[1.0, -np.inf, 2.0], [np.inf, 0.0, 1.0], [-np.inf] * 3])
    for hard in (False, True):
        y = np.asarray(hm.gumbel_softmax(xp.make(x), 0.5, hard=hard, seed=0))
        assert y[0, 1] == 0
        assert y[1].tolist() == [1, 0, 0]
        assert np.isnan(y[2]).all()
    y = hm.gumbel_softmax(xp.make(x), hard=True, where=np.array([True, True, False]), seed=0)
    np.testing.assert_array_equal(np.asarray(y)[:2], [[1, 0, 0], [1, 0, 0]])


def test_fresh_noise_is_refused_while_traced():
    with pytest.raises(ValueError, match="seed must be given while jax traces"):
        jax.jit(lambda x: hm.gumbel_softmax(x))(jnp.ones(3))
    with pytest.raises(TypeError, match="seed is traced"):
        jax.jit(lambda s: hm.sample(np.zeros(3), seed=s))(3)
