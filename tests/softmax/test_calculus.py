"""Derivatives of softmax against mpmath, finite differences, and those of PyTorch and JAX."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import reference
import reference_losses as truth
from optional import torch

import hotmax as hm

INF, NAN = math.inf, math.nan
mp = reference.mp

ROWS = {
    "mild": [0.3, -1.2, 2.0, 0.5],
    "nearly one-hot": [0.0, -40.0, -45.0, -60.0],
    "ties": [1.0, 1.0, -3.0],
    "two classes": [0.7, -0.4],
    "one class": [2.0],
    "far off": [1e6, 1e6 - 1, 1e6 - 3],
}
TEMPERATURES = (1.0, 0.4, 3.0, -2.0)

each_row = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
each_temperature = pytest.mark.parametrize("temperature", TEMPERATURES)


def same(got, expected) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def close(got, true, ulps, scale=None):
    worst = reference.worst_ulps(np.asarray(got), true, scale)
    assert worst <= ulps, f"{worst:.3g} ULP"


@each_row
@each_temperature
def test_tensors_against_mpmath(row, temperature):
    x = np.array(row)
    got = hm.softmax_jacobian(x, temperature=temperature)
    close(got, truth.jacobian(x, temperature), 4)
    close(hm.smoothmax_hessian(x, temperature=temperature), truth.jacobian(x, temperature), 4)
    single = hm.softmax_jacobian(x.astype(np.float32), temperature=temperature)
    assert single.dtype == np.float32
    close(single, truth.jacobian(x.astype(np.float32), temperature), 1)
    third = hm.softmax_hessian(x, temperature=temperature)
    true = truth.hessian(x, temperature)
    error = np.abs(third - true.astype(float))
    size = np.abs(got).max(initial=0) / abs(temperature)  # 1 - 2 p cancels where p is near 1/2
    assert (error <= 1e-15 * size).all()
    # symmetric, positive semidefinite, rows that add up to 0
    same(got, got.T)
    for other in (third.transpose(0, 2, 1), third.transpose(1, 0, 2), third.transpose(2, 1, 0)):
        same(third, other)
    size = np.abs(got).max(initial=0)
    assert np.abs(got.sum(-1)).max() <= 4e-16 * size
    assert np.linalg.eigvalsh(got * math.copysign(1, temperature)).min() >= -4e-16 * size


@each_row
@each_temperature
def test_directions_against_mpmath(row, temperature):
    x = np.array(row)
    v = np.random.default_rng(0).standard_normal(x.size)
    true = truth.jvp(x, v, temperature)
    for function in (hm.softmax_jvp, hm.softmax_vjp):
        got = function(x, v, temperature=temperature)
        np.testing.assert_allclose(got, true.astype(float), rtol=2e-14, atol=0)
        np.testing.assert_allclose(
            got, hm.softmax_jacobian(x, temperature=temperature) @ v, rtol=1e-9, atol=1e-16
        )


@each_row
@each_temperature
def test_temperature_derivatives_against_mpmath(row, temperature):
    x = np.array(row)
    true = truth.temperature_derivative(x, temperature).astype(float)
    np.testing.assert_allclose(
        hm.temperature_derivative(x, temperature=temperature), true, rtol=2e-14, atol=0
    )
    np.testing.assert_allclose(
        hm.entropy_gradient(x, temperature=temperature), true, rtol=2e-14, atol=0
    )
    got = hm.entropy_temperature_derivative(x, temperature=temperature)
    close(got, truth.entropy_temperature_derivative(x, temperature), 16)


@each_temperature
def test_finite_differences(temperature):
    """The formulas of the reference are themselves derivatives of softmax and of its entropy."""
    x = np.array([0.3, -1.2, 2.0, 0.5])
    exact = [mp.mpf(float(v)) for v in x]

    def entropy(z, t=temperature):
        return -mp.fsum(p * mp.log(p) for p in truth.probabilities(z, t))

    for i in range(x.size):
        by_x = truth.numeric_gradient(lambda z, i=i: truth.probabilities(z, temperature)[i], x)
        np.testing.assert_allclose(
            hm.softmax_jacobian(x, temperature=temperature)[i], by_x.astype(float), rtol=1e-14
        )
        for j in range(x.size):
            second = truth.numeric_gradient(
                lambda z, i=i, j=j: truth.jacobian_of(
                    truth.probabilities(z, temperature), i, j, temperature
                ),
                x,
            )
            np.testing.assert_allclose(
                hm.softmax_hessian(x, temperature=temperature)[i, j],
                second.astype(float),
                atol=1e-15,
            )
    h = mp.mpf(2) ** -60
    up, down = (truth.probabilities(exact, mp.mpf(temperature) + s) for s in (h, -h))
    by_temperature = [(a - b) / (2 * h) for a, b in zip(up, down, strict=True)]
    np.testing.assert_allclose(
        hm.temperature_derivative(x, temperature=temperature),
        [float(v) for v in by_temperature],
        rtol=1e-13,
    )
    by_temperature = (
        entropy(exact, mp.mpf(temperature) + h) - entropy(exact, mp.mpf(temperature) - h)
    ) / (2 * h)
    assert hm.entropy_temperature_derivative(x, temperature=temperature) == pytest.approx(
        float(by_temperature), rel=1e-13
    )
    by_x = truth.numeric_gradient(entropy, x)
    np.testing.assert_allclose(
        hm.entropy_gradient(x, temperature=temperature), by_x.astype(float), rtol=1e-12
    )


def test_two_classes_are_the_sigmoid():
    for gap in (0.0, 1.5, -3.0, 38.0, 600.0):
        s = 1 / (1 + mp.exp(-mp.mpf(gap)))
        rest = mp.exp(-mp.mpf(gap)) * s
        true = np.array([[s * rest, -s * rest], [-s * rest, s * rest]])
        close(hm.softmax_jacobian([gap, 0.0]), true, 3)


def softmax_of_jax(z, h):
    return jax.nn.softmax(z / h)


def derivatives_of_jax(z, h):
    return (
        jax.hessian(softmax_of_jax)(z, h),
        jax.jacfwd(softmax_of_jax, 1)(z, h),
        jax.hessian(lambda z: h * jax.nn.logsumexp(z / h))(z),
    )


@each_temperature
def test_against_torch_and_jax(temperature):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 3, 5))
    t = torch.from_numpy(x)

    def softmax(z):
        return torch.softmax(z / temperature, -1)

    full = torch.autograd.functional.jacobian(softmax, t).numpy()
    got = hm.softmax_jacobian(x, temperature=temperature)
    for r in range(3):
        np.testing.assert_allclose(got[r], full[r, :, r, :], atol=1e-15)
    theirs = torch.autograd.functional.jvp(softmax, t, torch.from_numpy(v))[1].numpy()
    np.testing.assert_allclose(hm.softmax_jvp(x, v, temperature=temperature), theirs, atol=1e-15)
    theirs = torch.autograd.functional.vjp(softmax, t, torch.from_numpy(v))[1].numpy()
    np.testing.assert_allclose(hm.softmax_vjp(x, v, temperature=temperature), theirs, atol=1e-15)

    second, by_temperature, third = jax.jit(derivatives_of_jax)(x[0], temperature)
    np.testing.assert_allclose(
        hm.softmax_hessian(x, temperature=temperature)[0], second, atol=1e-14
    )
    got = hm.temperature_derivative(x, temperature=temperature)[0]
    np.testing.assert_allclose(got, by_temperature, atol=1e-14)
    np.testing.assert_allclose(
        hm.smoothmax_hessian(x, temperature=temperature)[0], third, atol=1e-14
    )

    def entropy(z, h):
        p = jax.nn.softmax(z / h)
        return -(p * jax.numpy.log(p)).sum()

    np.testing.assert_allclose(
        hm.entropy_gradient(x, temperature=temperature)[0],
        jax.grad(entropy)(x[0], temperature),
        atol=1e-14,
    )
    np.testing.assert_allclose(
        hm.entropy_temperature_derivative(x, temperature=temperature)[0],
        jax.grad(entropy, 1)(x[0], temperature),
        atol=1e-14,
    )


def test_limits_of_temperature():
    x = [1.0, 3.0, 2.0]
    for temperature in (0.0, -0.0, INF, -INF):
        same(hm.softmax_jacobian(x, temperature=temperature), np.zeros((3, 3)))
        same(hm.softmax_hessian(x, temperature=temperature), np.zeros((3, 3, 3)))
        same(hm.softmax_jvp(x, [1.0, 2.0, 3.0], temperature=temperature), np.zeros(3))
        same(hm.temperature_derivative(x, temperature=temperature), np.zeros(3))
        same(hm.entropy_gradient(x, temperature=temperature), np.zeros(3))
        same(hm.entropy_temperature_derivative(x, temperature=temperature), 0)
    tied = [1.0, 1.0, 0.0]
    same(hm.softmax_jacobian(tied, temperature=0), [[INF, -INF, 0], [-INF, INF, 0], [0, 0, 0]])
    same(hm.softmax_jvp(tied, [1.0, 0.0, 9.0], temperature=0), [INF, -INF, 0])
    same(hm.temperature_derivative(tied, temperature=0), [0, 0, 0])
    small = hm.temperature_derivative(x, temperature=0.02)
    np.testing.assert_allclose(
        small, truth.temperature_derivative(x, 0.02).astype(float), rtol=1e-13
    )
    assert 0 < abs(small[0]) < 1e-30


def test_special_rows_and_masks():
    x = np.array([[NAN, 0.0, 1.0], [-INF] * 3, [-INF, 1.0, 2.0], [INF, 1.0, 2.0]])
    v = np.array([5.0, 1.0, -2.0])
    shorter = hm.softmax_jacobian([1.0, 2.0])
    got = hm.softmax_jacobian(x)
    assert np.isnan(got[:2]).all()
    same(got[2, 1:, 1:], shorter)
    same(got[2, 0], [0, 0, 0])
    same(got[3], np.zeros((3, 3)))
    for function in (
        lambda z: hm.softmax_jvp(z, v),
        hm.temperature_derivative,
        hm.entropy_gradient,
    ):
        result = function(x)
        assert np.isnan(result[:2]).all()
        same(result[3], [0, 0, 0])
        assert result[2, 0] == 0
    where = np.array([False, True, True])
    x[2, 0] = NAN
    same(hm.softmax_jacobian(x[2], where=where)[1:, 1:], shorter)
    same(hm.softmax_jacobian(x[2], where=where)[0], [0, 0, 0])
    same(
        hm.softmax_jvp(x[2], [NAN, 1.0, -2.0], where=where),
        [0, *hm.softmax_jvp([1.0, 2.0], [1.0, -2.0])],
    )
    same(hm.temperature_derivative(x[2], where=where), [0, *hm.temperature_derivative([1.0, 2.0])])
    same(
        hm.entropy_temperature_derivative(x[2], where=where),
        hm.entropy_temperature_derivative([1.0, 2.0]),
    )
    for f in (hm.temperature_derivative, hm.entropy_gradient):
        same(f(x[2], where=False), [0, 0, 0])
    same(hm.entropy_temperature_derivative(x[2], where=False), 0)
    same(hm.softmax_jacobian(x[2], where=False), np.zeros((3, 3)))


def test_axes_and_temperatures_for_each_row():
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    v = np.random.default_rng(1).standard_normal((2, 4, 3))
    moved, v_moved = np.moveaxis(x, 1, -1), np.moveaxis(v, 1, -1)
    assert hm.softmax_jacobian(x, axis=1).shape == (2, 3, 4, 4)
    same(hm.softmax_jacobian(x, axis=1), hm.softmax_jacobian(moved))
    same(hm.softmax_hessian(x, axis=1), hm.softmax_hessian(moved))
    same(np.moveaxis(hm.softmax_jvp(x, v, axis=1), 1, -1), hm.softmax_jvp(moved, v_moved))
    same(np.moveaxis(hm.temperature_derivative(x, axis=1), 1, -1), hm.temperature_derivative(moved))
    same(hm.softmax_jacobian(x, axis=None), hm.softmax_jacobian(x.reshape(-1)))
    same(
        hm.entropy_temperature_derivative(x, axis=(0, 2)),
        hm.entropy_temperature_derivative(np.moveaxis(x, 1, 0).reshape(4, 6)),
    )
    temperature = np.array([0.5, 2.0]).reshape(2, 1, 1)
    got = hm.softmax_jacobian(x, axis=1, temperature=temperature)
    for r, t in enumerate((0.5, 2.0)):
        same(got[r], hm.softmax_jacobian(x[r], axis=0, temperature=t))
    assert hm.softmax_jacobian(np.zeros((2, 0))).shape == (2, 0, 0)
    assert hm.softmax_jvp(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert hm.softmax_jacobian(np.zeros(3, np.float16)).dtype == np.float16
    assert hm.softmax_jacobian([1, 2]).dtype == np.float64


def test_refused():
    with pytest.raises(ValueError, match="tangent must broadcast to the shape of x"):
        hm.softmax_jvp([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="cotangent must broadcast"):
        hm.softmax_vjp([1.0, 2.0], [[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(TypeError, match="tangent must hold"):
        hm.softmax_jvp([1.0, 2.0], ["a", "b"])
    with pytest.raises(TypeError, match="x must hold"):
        hm.softmax_jacobian(np.zeros(2, complex))
    with pytest.raises(ValueError, match="temperature must not be nan"):
        hm.softmax_hessian([1.0, 2.0], temperature=NAN)
