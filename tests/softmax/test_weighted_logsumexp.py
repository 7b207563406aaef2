"""logsumexp with weights, signs and keepdims."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from scipy import special
from softmax_family import same

import hotmax as hm

INF, NAN = math.inf, math.nan

REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)

LN2 = math.log(2)


@pytest.mark.parametrize("n", [1, 3, 70, 600])
@pytest.mark.parametrize("temperature", [1.0, 0.7, -2.0, 1e3])
def test_weights_against_the_truth(n, temperature):
    rng = np.random.default_rng(n)
    for scale in (1.0, 100.0):
        x = rng.standard_normal(n) * scale
        for weights in (rng.random(n), rng.random(n) * 1e300, rng.random(n) * 1e-300):
            got = hm.logsumexp(x, weights=weights, temperature=temperature)
            true, _ = reference.weighted_logsumexp(x, weights, temperature)
            peak = max(abs(v / temperature) for v in x)
            largest = max(peak, abs(float(np.log(weights.max()))), abs(float(true)))
            assert reference.ulps(got, true, "float64", reference.mp.mpf(largest)) <= 2


@pytest.mark.parametrize("n", [2, 10, 70])
def test_signed_weights_against_the_truth(n):
    rng = np.random.default_rng(n)
    for _ in range(5):
        x, weights = rng.standard_normal(n) * 5, rng.standard_normal(n)
        got, sign = hm.logsumexp(x, weights=weights, return_sign=True)
        true, true_sign = reference.weighted_logsumexp(x, weights)
        assert sign == float(true_sign)
        assert abs(float(got) - float(true)) < 1e-11


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp_as_in_scipy(axis, keepdims):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 5)) * 3
    for weights in (None, rng.random((3, 4, 5)), rng.random((1, 4, 1)), 2.5, rng.random(5)):
        got = hm.logsumexp(x, axis=axis, keepdims=keepdims, weights=weights)
        want = special.logsumexp(x, axis=axis, keepdims=keepdims, b=weights)
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-13)
    weights = rng.standard_normal((3, 4, 5))
    got, sign = hm.logsumexp(x, axis=axis, keepdims=keepdims, weights=weights, return_sign=True)
    want, want_sign = special.logsumexp(
        x, axis=axis, keepdims=keepdims, b=weights, return_sign=True
    )
    assert np.shape(got) == np.shape(sign) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-11)
    same(sign, want_sign)


def test_zero_weights_leave_out_even_inf_and_nan():
    same(hm.logsumexp([INF, 0.0], weights=[0.0, 1.0]), 0)
    same(hm.logsumexp([NAN, 0.0], weights=[0.0, 2.0]), LN2)
    same(hm.logsumexp([5.0, 0.0], weights=[0.0, 0.0]), -INF)
    same(hm.logsumexp([5.0, 0.0], weights=[0.0, 0.0], return_sign=True), (-INF, 0))
    same(hm.logsumexp([1.0, 1.0], weights=[1.0, -1.0], return_sign=True), (-INF, 0))
    same(hm.logsumexp([INF, 0.0], weights=[1.0, 1.0]), INF)
    same(hm.logsumexp([INF, 0.0], weights=[-1.0, 1.0], return_sign=True), (INF, -1))
    same(hm.logsumexp([-INF, 0.0], weights=[5.0, 1.0]), 0)
    same(hm.logsumexp([NAN, 0.0], weights=[1.0, 1.0]), NAN)
    same(hm.logsumexp([1.0, 0.0], weights=[NAN, 1.0]), NAN)
    same(hm.logsumexp([0.0, 0.0], weights=[1.0, 1.0], return_sign=True), (LN2, 1))


def test_the_logarithm_of_a_negative_sum_is_nan():
    """As in SciPy, where the sign is not asked for."""
    x = [[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]
    same(hm.logsumexp(x, weights=[1.0, -1.0])[[0, 2]], [NAN, -INF])
    assert hm.logsumexp(x, weights=[1.0, -1.0])[1] == pytest.approx(math.log(math.e**2 - math.e))
    out = np.zeros(3)
    same(hm.logsumexp(x, weights=-1.0, out=out), [NAN] * 3)
    same(out, [NAN] * 3)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -1.0], temperature=INF, return_sign=True)[1], 0)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -2.0], temperature=INF), NAN)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -2.0], temperature=0.0), NAN)


def test_weights_broadcast_x_too():
    got = hm.logsumexp(np.zeros(3), weights=np.ones((2, 3)))
    np.testing.assert_allclose(got, [math.log(3)] * 2, rtol=1e-15)
    x = np.random.default_rng(0).standard_normal((4, 6))
    where = x > -0.5
    np.testing.assert_array_equal(
        hm.logsumexp(x, weights=np.full(6, 3.0), where=where),
        hm.logsumexp(x, weights=np.where(where, 3.0, 0.0)),
    )


def test_unit_weights_change_nothing():
    for n in (3, 70, 600):
        x = np.random.default_rng(n).standard_normal((2, n)) * 4
        np.testing.assert_allclose(hm.logsumexp(x, weights=np.ones(n)), hm.logsumexp(x), rtol=2e-16)
        same(hm.logsumexp(x, return_sign=True)[1], [1, 1])


def test_keepdims():
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for function in REDUCING:
        for axis, shape in (
            (-1, (2, 3, 1)),
            (0, (1, 3, 4)),
            ((0, 2), (1, 3, 1)),
            (None, (1, 1, 1)),
        ):
            kept = function(x, axis=axis, keepdims=True)
            assert kept.shape == shape
            same(kept, np.reshape(function(x, axis=axis), shape))
