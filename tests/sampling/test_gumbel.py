"""Gumbel-softmax at every temperature, on every library: hard and soft pick the same class."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from optional import torch

import hotmax as hm

RNG = np.random.default_rng(0)
MAKERS = {
    "numpy": np.asarray,
    "torch": torch.tensor,
    "torch float32": lambda x: torch.tensor(x, dtype=torch.float32),
    "jax": jnp.asarray,
}
INF = math.inf
X = np.concatenate(
    [
        RNG.normal(size=(200, 5)),
        np.tile([[1.0, -INF, 2.0, 0.0, -INF], [INF, 0.0, INF, -INF, 1.0]], (100, 1)),
    ]
)


# One temperature for each row: then jax compiles its operations once.
SEVERAL = np.resize([1.0, 0.3, 20.0, 0.0, -0.0, -0.5, -3.0, -1e-30], (len(X), 1))


@pytest.mark.parametrize("name", MAKERS)
def test_hard_and_soft_pick_the_same_class(name):
    for temperature in (SEVERAL, *np.unique(SEVERAL)) if name != "jax" else (SEVERAL,):
        x = MAKERS[name](X)
        soft = np.asarray(hm.gumbel_softmax(x, temperature, seed=1))
        hard = np.asarray(hm.gumbel_softmax(x, temperature, hard=True, seed=1))
        assert np.isfinite(soft).all()
        assert (hard.sum(-1) == 1.0).all()
        np.testing.assert_array_equal(hard.argmax(-1), soft.argmax(-1))


@pytest.mark.parametrize("name", MAKERS)
def test_libraries_agree(name):
    for temperature in (0.7, -0.7, -INF, SEVERAL) if name != "jax" else (SEVERAL,):
        want = hm.gumbel_softmax(X, temperature, seed=3)
        got = np.asarray(hm.gumbel_softmax(MAKERS[name](X), temperature, seed=3))
        tolerance = {"rtol": 1e-5, "atol": 1e-6} if got.dtype == np.float32 else {"rtol": 1e-12}
        np.testing.assert_allclose(got, want, **tolerance)
        hard = np.asarray(hm.gumbel_softmax(MAKERS[name](X), temperature, hard=True, seed=3))
        np.testing.assert_array_equal(hard, hm.gumbel_softmax(X, temperature, hard=True, seed=3))


def test_below_0_it_is_a_draw_from_softmin():
    x = np.array([1.0, 0.0, 2.0, -1.0])
    hard = hm.gumbel_softmax(np.tile(x, (20000, 1)), -1.0, hard=True, seed=0)
    expected = 20000 * np.exp(-x) / np.exp(-x).sum()
    assert scipy.stats.chisquare(hard.sum(0), expected).pvalue > 1e-4
    mirrored = hm.gumbel_softmax(np.tile(-x, (20000, 1)), 1.0, hard=True, seed=0)
    np.testing.assert_array_equal(hard, mirrored)


@pytest.mark.parametrize(("x", "temperature"), [([INF, 0.0, INF], 1.0), ([-INF, 0.0, -INF], -1.0)])
def test_classes_that_share_all_the_mass_come_alike(x, temperature):
    """It was always the first."""
    hard = hm.gumbel_softmax(np.tile(x, (2000, 1)), temperature, hard=True, seed=0)
    assert hard[:, 1].sum() == 0
    assert abs(hard[:, 0].mean() - 0.5) < 4.0 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("name", MAKERS)
def test_ranges_beyond_the_type(name):
    """At such sizes noise adds nothing: it is softmax itself. At inf all are alike."""
    big = 1e308 if name in ("numpy", "torch") else 3e38
    x = MAKERS[name](np.tile([big, -big, 0.0, 0.0, 0.0], (len(X), 1)))
    temperatures = np.resize([big, 0.5 * big, -big, INF, -INF, 1e-310], (len(X), 1))
    ratios = np.resize([1.0, 2.0, -1.0, 0.0, 0.0, 1e4], (len(X), 1))  # big / T, as exp sees it
    z = np.array([1.0, -1.0, 0.0, 0.0, 0.0]) * ratios
    z -= z.max(-1, keepdims=True)
    want = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    got = np.asarray(hm.gumbel_softmax(x, temperatures, seed=1))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    if name != "jax":
        for row, temperature in enumerate(temperatures[:6, 0]):
            got = np.asarray(hm.gumbel_softmax(x, temperature, seed=1))
            np.testing.assert_allclose(got[row], want[row], rtol=1e-6)


# --- gradients --------------------------------------------------------------------------------

WEIGHTS = RNG.normal(size=5)
ROW = RNG.normal(size=5)


def numeric(temperature, seed=5):
    """d(sum of weights * sample) by the logits and by T, from differences of float64 samples."""

    def value(x, t):
        return (hm.gumbel_softmax(x, t, seed=seed) * WEIGHTS).sum()

    h = 1e-6
    by_x = [
        (value(ROW + h * e, temperature) - value(ROW - h * e, temperature)) / (2 * h)
        for e in np.eye(5)
    ]
    by_t = (value(ROW, temperature + h) - value(ROW, temperature - h)) / (2 * h)
    return by_x, by_t


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("temperature", [0.7, 3.0, -0.7, -3.0])
def test_gradients(hard, temperature):
    by_x, by_t = numeric(temperature)
    x = torch.tensor(ROW, requires_grad=True)
    t = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    (hm.gumbel_softmax(x, t, hard=hard, seed=5) * torch.tensor(WEIGHTS)).sum().backward()
    np.testing.assert_allclose(x.grad, by_x, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(t.grad, by_t, rtol=1e-6, atol=1e-9)


def test_gradients_in_jax_and_at_infinite_logits():
    def loss(x, t):
        return (hm.gumbel_softmax(x, t, hard=True, seed=5) * WEIGHTS).sum()

    take = jax.jit(jax.grad(loss, (0, 1)))
    by_x, by_t = numeric(-3.0)
    ours = take(jnp.asarray(ROW), jnp.asarray(-3.0))
    np.testing.assert_allclose(ours[0], by_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours[1], by_t, rtol=1e-4, atol=1e-5)
    for x in ([INF, 0.0, INF, 1.0, INF], [1.0, -INF, 0.0, 2.0, -INF]):
        row = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        (hm.gumbel_softmax(row, 0.5, hard=True, seed=5) * torch.tensor(WEIGHTS)).sum().backward()
        assert torch.isfinite(row.grad).all()
        assert (row.grad[torch.isinf(row)] == 0).all()
        ours = take(jnp.asarray(x), jnp.asarray(0.5))
        np.testing.assert_allclose(ours[0], row.grad, rtol=1e-4, atol=1e-6)


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"temperature": np.ones((2, 1)) * -1.0}, ValueError, "temperature must"),
        ({"temperature": math.nan}, ValueError, "temperature must not be nan"),
        ({"temperature": "hot"}, TypeError, "temperature must"),
        ({"where": np.ones(4, bool)}, ValueError, "where must"),
        ({"where": np.ones(5)}, TypeError, "where must hold bools"),
        ({"seed": [1, 2]}, ValueError, "seed must"),
        ({"seed": True}, TypeError, "seed must"),
        ({"axis": 3}, ValueError, "axis must"),
    ],
)
def test_bad_arguments_are_named(name, options, error, words):
    x = MAKERS[name](X[0])
    with pytest.raises(error, match=words):
        hm.gumbel_softmax(x, **{"seed": 0, **options})
