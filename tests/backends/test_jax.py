"""jax arrays: derivatives under jit, grad and vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hotmax as hm
from hotmax._backends.jax import value

jax.config.update("jax_enable_x64", True)

CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "softmin", "softargmax", "entropy")
every = pytest.mark.parametrize("function", [getattr(hm, name) for name in CORE], ids=CORE)
X = np.random.default_rng(0).normal(size=(2, 3))
INF = np.inf


V = np.random.default_rng(1).normal(size=(3, 2, 3))  # two directions for x, and weights of f
S, H = (0.4, -0.3), 1e-4  # the same directions for the temperature; a step


def near(got, want, rtol):
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.abs(want).max())


@every
def test_derivatives(function):
    """Forward and backward, beside differences of what NumPy's arrays give."""

    def call(x, t):
        return function(x, temperature=t)

    def difference(x, t):
        near, far = (
            call(X + H * n * x, 0.7 + H * n * t) - call(X - H * n * x, 0.7 - H * n * t)
            for n in (1, 2)
        )
        return (8 * near - far) / (12 * H)

    weights = V[2] if function(X).ndim == 2 else V[2, :, 0]

    @jax.jit
    def forward_and_back(x, t):
        _, forward = jax.jvp(call, (x, t), (V[0], S[0]))
        return forward, jax.grad(lambda x, t: (weights * call(x, t)).sum(), (0, 1))(x, t)

    forward, (by_x, by_t) = forward_and_back(X, 0.7)
    near(forward, difference(V[0], S[0]), 1e-9)
    for i in np.ndindex(X.shape):
        one = np.zeros_like(X)
        one[i] = 1.0
        near(by_x[i], (weights * difference(one, 0.0)).sum(), 1e-8)
    near(by_t, (weights * difference(0.0, 1.0)).sum(), 1e-8)


@pytest.mark.parametrize("function", [hm.softmax, hm.entropy], ids=lambda f: f.__name__)
def test_second_derivatives(function):
    """Forward and backward along what came backward."""
    weights = V[2] if function(X).ndim == 2 else V[2, :, 0]

    def summed(x, t):
        return (weights * function(x, temperature=t)).sum()

    def at(n, m):
        return summed(X + H * (n * V[0] + m * V[1]), 0.7 + H * (n * S[0] + m * S[1]))

    gradient = jax.grad(summed, (0, 1))

    @jax.jit
    def twice(x, t):
        _, (by_x, by_t) = jax.jvp(gradient, (x, t), (V[0], S[0]))
        back = jax.grad(lambda x, t: along(gradient(x, t), 0), (0, 1))(x, t)
        return along((by_x, by_t), 1), along(back, 1)

    def along(gradients, i):
        return (gradients[0] * V[i]).sum() + gradients[1] * S[i]

    want = (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / (4 * H * H)
    for got in twice(X, 0.7):
        assert got == pytest.approx(want, rel=1e-6)


@every
def test_one_program_for_all_temperatures(function):
    """Not jitted by the caller: a number as temperature is known, yet compiles nothing anew."""
    known = value.fun._cache_size()
    for temperature in (1.0, 0.7, 0.0, -0.0, INF, -INF, -2.0, 1e-300):
        got = function(jnp.asarray(X), temperature=temperature)
        np.testing.assert_allclose(got, function(X, temperature=temperature), rtol=1e-13)
    assert value.fun._cache_size() <= known + 1


@every
def test_traced_temperature_and_mask(function):
    where = np.array([True, False, True])
    temperatures = np.array([[0.5], [2.0]])
    call = jax.jit(lambda x, t, w: function(x, temperature=t, where=w))
    expected = function(X, temperature=temperatures, where=where)
    np.testing.assert_allclose(call(X, temperatures, where), expected, rtol=1e-13)
    rows = jax.jit(jax.vmap(lambda x, t: function(x, temperature=t, where=where)))
    np.testing.assert_allclose(rows(X, temperatures[:, 0]), expected, rtol=1e-13)


BAD = np.array([[1.0, -INF, 2.0], [-INF] * 3, [INF, 1.0, 2.0], [1.0, 1.0, 1.0]])


@every
def test_derivatives_are_never_nan(function):
    def loss(x, t, where):
        y = function(x, temperature=t, where=where)
        return jnp.where(jnp.isfinite(y), y, 0.0).sum()

    derivative = jax.jit(jax.grad(loss, (0, 1)))
    masks = (np.ones(3, bool), np.array([True, False, True]), np.zeros(3, bool))
    for temperature in (1.0, 0.0, INF, -1.5):
        for where in masks:
            x = np.where(where, BAD, np.nan)
            by_x, by_t = derivative(x, temperature, where)
            assert np.isfinite(by_x).all()
            assert np.isfinite(by_t)
            assert (np.asarray(by_x)[:, ~where] == 0).all()
            if temperature in (0.0, INF) and function is not hm.smoothmax:
                assert (by_x == 0).all()
                assert by_t == 0


def test_without_float64():
    """jax's own default: integers are computed in float32."""
    with jax.enable_x64(False):
        y = hm.softmax(jnp.asarray([1, 2, 3]))
        assert y.dtype == jnp.float32
        np.testing.assert_allclose(y, hm.softmax([1, 2, 3]), rtol=1e-6)
        near = hm.log_softmax(jnp.asarray([0.0, -20.0]))
        np.testing.assert_allclose(near, hm.log_softmax(np.float32([0, -20])), rtol=1e-6)


LABELLED = ("cross_entropy", "nll_loss", "mae_loss", "brier_loss", "focal_loss")


@pytest.mark.parametrize("name", LABELLED)
def test_a_traced_label_is_ignored_though_it_is_a_class(name):
    function, x, labels = getattr(hm, name), np.log(hm.softmax(X)), np.array([0, 2])
    weights = [None] if name in ("mae_loss", "brier_loss") else [None, np.array([1e300, 2.0, 3.0])]
    for weight in weights:
        options = {"ignore_index": 0} | ({} if weight is None else {"weight": weight})
        want, gradient = function(x, labels, return_grad=True, **options)
        got = jax.jit(jax.value_and_grad(lambda x, y, o=options: function(x, y, **o)))(
            jnp.asarray(x), jnp.asarray(labels)
        )
        near(got[0], want, 1e-12)
        near(got[1], gradient, 1e-12)
