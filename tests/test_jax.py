"""jax arrays: derivatives under jit, grad and vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import hotmax as hm
from hotmax._libraries.jax import value

jax.config.update("jax_enable_x64", True)

CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "softmin", "softargmax", "entropy")
every = pytest.mark.parametrize("function", [getattr(hm, name) for name in CORE], ids=CORE)
X = np.random.default_rng(0).normal(size=(2, 3))
INF = np.inf


@every
def test_derivatives(function):
    def call(x, t):
        return function(x, temperature=t)

    order = 2 if function in (hm.softmax, hm.entropy) else 1  # the second takes jax ten seconds
    check_grads(jax.jit(call), (jnp.asarray(X), jnp.asarray(0.7)), order=order)


@every
def test_one_program_for_all_temperatures(function):
    """Not jitted by the caller: a number as temperature is known, yet compiles nothing anew."""
    known = value.fun._cache_size()
    for heat in (1.0, 0.7, 0.0, -0.0, INF, -INF, -2.0, 1e-300):
        got = function(jnp.asarray(X), temperature=heat)
        np.testing.assert_allclose(got, function(X, temperature=heat), rtol=1e-13)
    assert value.fun._cache_size() <= known + 1


@every
def test_traced_temperature_and_mask(function):
    where = np.array([True, False, True])
    heats = np.array([[0.5], [2.0]])
    call = jax.jit(lambda x, t, w: function(x, temperature=t, where=w))
    expected = function(X, temperature=heats, where=where)
    np.testing.assert_allclose(call(X, heats, where), expected, rtol=1e-13)
    rows = jax.jit(jax.vmap(lambda x, t: function(x, temperature=t, where=where)))
    np.testing.assert_allclose(rows(X, heats[:, 0]), expected, rtol=1e-13)


BAD = np.array([[1.0, -INF, 2.0], [-INF] * 3, [INF, 1.0, 2.0], [1.0, 1.0, 1.0]])


@every
def test_derivatives_are_never_nan(function):
    def loss(x, t, where):
        y = function(x, temperature=t, where=where)
        return jnp.where(jnp.isfinite(y), y, 0.0).sum()

    derivative = jax.jit(jax.grad(loss, (0, 1)))
    masks = (np.ones(3, bool), np.array([True, False, True]), np.zeros(3, bool))
    for heat in (1.0, 0.0, INF, -1.5):
        for where in masks:
            x = np.where(where, BAD, np.nan)
            by_x, by_t = derivative(x, heat, where)
            assert np.isfinite(by_x).all()
            assert np.isfinite(by_t)
            assert (np.asarray(by_x)[:, ~where] == 0).all()
            if heat in (0.0, INF) and function is not hm.smoothmax:
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
