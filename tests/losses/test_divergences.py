"""KL and distillation against mpmath: nearly equal rows, absent classes, every temperature."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import reference_losses as truth
from optional import torch

import hotmax as hm

jax.config.update("jax_enable_x64", True)
INF, NAN = math.inf, math.nan
F, mp = torch.nn.functional, reference.mp


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(got, expected) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def off(got, true) -> float:
    """The largest error, over the largest true number."""
    pairs = list(zip(np.ravel(got), true, strict=True))
    largest = max(2.0**-1021, *(abs(t) for t in true))
    return float(max(abs(mp.mpf(float(g)) - t) for g, t in pairs) / largest)


def rows_of(kind: str, n: int, size: float):
    """A row x, and a row z whose differences from x are of this size."""
    x = 3 * rng(n).standard_normal(n)
    z = x + size * rng(n + 1).standard_normal(n)
    if kind == "one class far":
        x[0], z[0] = x[0] - 60, x[0] - 55
    elif kind == "absent in p":
        x[1] = -INF
    elif kind == "shifted":
        z += 3
    return x, z


KINDS = ["plain", "one class far", "absent in p", "shifted"]
SIZES = [1e-15, 1e-12, 1e-6, 0.01, 0.3, 1.0, 3.0, 100.0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.01, 1.0, -3.0, 1e10, 1e40])
def test_accuracy(kind, temperature):
    """Values and gradients within 8 ULP, of themselves and of the largest of them."""
    for n, size in [(n, size) for n in (2, 5, 40) for size in SIZES]:
        x, z = rows_of(kind, n, size)
        if temperature < 0:
            x, z = -x, -z
        value, (by_p, by_q) = hm.kl_divergence(x, z, temperature=temperature, return_grad=True)
        loss, by_student = hm.distillation_loss(z, x, temperature, return_grad=True)
        with mp.workprec(1400):
            true, true_p, true_q = truth.kl_and_gradients(x, z, temperature)
            square = mp.mpf(temperature) ** 2
            assert off(value, [true]) < 8 * 2.0**-53
            assert off(loss, [true * square]) < 8 * 2.0**-53
            assert off(by_q, true_q) < 8 * 2.0**-53
            assert off(by_student, [g * square for g in true_q]) < 8 * 2.0**-53
            if any(true_p):
                assert off(by_p, true_p) < 8 * 2.0**-53


@pytest.mark.parametrize(
    "temperature",
    [1e-250, 1e-170, 1e-20, 1e12, 1e16, 1e20, 1e25, 1e100, 1e160, 1e170, 1e300, 1.7e308],
)
def test_distillation_at_extreme_temperatures(temperature):
    for student, teacher in (([1.0, 2.0], [2.0, 1.0]), ([0.1, 0.2, 0.7], [0.3, -1.1, 0.6])):
        value, gradient = hm.distillation_loss(student, teacher, temperature, return_grad=True)
        with mp.workprec(4400 if temperature > 1 else 400):
            true, _, by_q = truth.kl_and_gradients(teacher, student, temperature)
            square = mp.mpf(temperature) ** 2
            assert off(value, [true * square]) < 8 * 2.0**-53
            assert off(gradient, [g * square for g in by_q]) < 8 * 2.0**-53
    value, gradient = hm.distillation_loss([0.0, 1e250], [1e250, 0.0], 1e-280, return_grad=True)
    assert value == pytest.approx(1e-30, rel=1e-15)
    same(gradient, [-1e-280, 1e-280])


def test_gradients_with_absent_classes():
    _, (by_p, by_q) = hm.kl_divergence([0.0, -INF], [0.0, -2.0], return_grad=True)
    same(by_p, [0, 0])
    np.testing.assert_allclose(by_q, [-0.11920292202211755, 0.11920292202211755], rtol=1e-15)
    _, (by_p, by_q) = hm.kl_divergence([0.0, INF], [0.0, 1.0], return_grad=True)
    same(by_p, [0, 0])
    np.testing.assert_allclose(by_q, [0.2689414213699951, -0.2689414213699951], rtol=1e-15)
    student = torch.tensor([0.1, 1.0, -2.0], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([0.0, 1.0], dtype=torch.float64)
    p = torch.softmax(teacher, -1)
    (p * (p.log() - torch.log_softmax(student, -1)[:2])).sum().backward()
    _, ours = hm.distillation_loss([0.1, 1.0, -2.0], [0.0, 1.0, -INF], return_grad=True)
    np.testing.assert_allclose(ours, student.grad, rtol=1e-13)
    value, (by_p, by_q) = hm.kl_divergence([0.0, 0.0, 1.0], [0.0, -INF, 1.0], return_grad=True)
    same(value, INF)
    same(by_p, [-INF, INF, -INF])
    np.testing.assert_allclose(by_q.sum(), 0, atol=1e-15)
    value, (by_p, by_q) = hm.kl_divergence([0.0, -INF], [-INF, 0.0], return_grad=True)
    same(value, INF)
    same(by_p, [0, 0])
    same(by_q, [-1, 1])


def test_kl_divergence():
    x, z = rng().standard_normal((3, 6)), rng(1).standard_normal((3, 6))
    z[1] = x[1] + 1e-9 * rng(2).standard_normal(6)  # nearly equal
    z[2] = x[2] + 5  # equal
    for temperature in (1.0, 0.5, -2.0):
        value, (by_p, by_q) = hm.kl_divergence(
            x, z, temperature=temperature, reduction="none", return_grad=True
        )
        for r in range(3):
            true = truth.kl(x[r], z[r], temperature)
            if r < 2:
                assert off(value[r], [true]) < 8 * 2.0**-53
            assert 0 <= value[r] < 1e-29 or r < 2

            def by(first, second, temperature=temperature):
                p, q = (
                    truth.probabilities(first, temperature),
                    truth.probabilities(second, temperature),
                )
                logs = [reference.mp.log(a / b) for a, b in zip(p, q, strict=True)]
                return reference.mp.fsum(a * b for a, b in zip(p, logs, strict=True))

            def fixed(row):
                return [reference.mp.mpf(float(v)) for v in row]

            want = truth.numeric_gradient(lambda a, r=r: by(a, fixed(z[r])), x[r])
            np.testing.assert_allclose(by_p[r], want.astype(float), rtol=1e-9, atol=1e-24)
            want = truth.numeric_gradient(lambda a, r=r: by(fixed(x[r]), a), z[r])
            np.testing.assert_allclose(by_q[r], want.astype(float), rtol=1e-9, atol=1e-24)
    ours = hm.kl_divergence(x, z)
    theirs = F.kl_div(
        torch.log_softmax(torch.from_numpy(z), -1),
        torch.softmax(torch.from_numpy(x), -1),
        reduction="batchmean",
    )
    assert ours == pytest.approx(theirs.item(), rel=1e-12)
    same(hm.kl_divergence([0.0, -INF], [0.0, -INF]), 0)
    same(hm.kl_divergence([0.0, 0.0], [0.0, -INF]), INF)
    assert hm.kl_divergence([0.0, -INF], [0.0, 0.0]) == pytest.approx(math.log(2))
    same(hm.kl_divergence([0.0, NAN], [0.0, 1.0], where=[True, False]), 0)
    same(hm.kl_divergence([1.0, 0.0], [2.0, 0.0], temperature=0), 0)
    same(hm.kl_divergence([1.0, 0.0], [0.0, 1.0], temperature=0), INF)
    same(hm.kl_divergence([1.0, 0.0], [0.0, 1.0], temperature=INF), 0)


def test_distillation():
    x, z = rng().standard_normal((3, 5)), rng(1).standard_normal((3, 5))
    for temperature in (0.5, 1.0, 4.0, 100.0):
        value, gradient = hm.distillation_loss(x, z, temperature, return_grad=True)
        t = torch.from_numpy(x).requires_grad_()
        loss = temperature**2 * F.kl_div(
            torch.log_softmax(t / temperature, -1),
            torch.softmax(torch.from_numpy(z) / temperature, -1),
            reduction="batchmean",
        )
        loss.backward()
        assert value == pytest.approx(loss.item(), rel=1e-9)
        np.testing.assert_allclose(gradient, t.grad.numpy(), atol=1e-13)
    hot = hm.distillation_loss(x, z, 1e7, return_grad=True)
    limit = hm.distillation_loss(x, z, INF, return_grad=True)
    assert limit[0] == pytest.approx(hot[0], rel=1e-6)
    np.testing.assert_allclose(limit[1], hot[1], rtol=1e-4)
    assert limit[0] == pytest.approx(((x - z).var(-1) / 2).mean(), rel=1e-14)
    value, gradient = hm.distillation_loss(x, z, 0, return_grad=True)
    same(value, 0)
    same(gradient, np.zeros((3, 5)))


# --- jax, and torch's formulas ------------------------------------------------------------------


@partial(jax.jit, static_argnames=("function", "reduction"))
def compiled(function, arrays, temperature, reduction="mean"):
    return function(*arrays, temperature=temperature, reduction=reduction, return_grad=True)


def by_jax(function, *arrays, temperature=1.0, **options):
    """As one program for every temperature: by itself, jax compiles each operation apart."""
    arrays = tuple(map(jnp.asarray, arrays))
    in_type = jnp.asarray(temperature, arrays[0].dtype)
    return compiled(function, arrays, in_type, **options)


def by_torch_func(function, first, second, **options):
    """Inside torch.func a tensor shares no memory with the kernels: the formulas run."""

    def loss(*points):
        return function(*points, **options)

    points = torch.tensor(np.asarray(first)), torch.tensor(np.asarray(second))
    places = (0, 1) if function is hm.kl_divergence else 0
    gradients = torch.func.grad(lambda *p: loss(*p).sum(), places)(*points)
    return torch.func.vmap(loss)(*(p[None] for p in points))[0], gradients


@pytest.mark.parametrize("run", [by_jax, by_torch_func])
@pytest.mark.parametrize("kind", KINDS)
def test_formulas(kind, run):
    """Rows 3 apart have rounded gaps: differences of 1e-15 are beyond what is left of them.

    Where KL is large, the gradient by p is a difference of terms of its size.
    """
    sizes = [1e-4 if kind == "shifted" else 1e-15, 1e-6, 0.3, 3.0, 100.0]
    bar = 1e-8 if kind == "shifted" else 1e-11
    x, z = np.stack([rows_of(kind, 5, size) for size in sizes], axis=1)
    for temperature in (0.01, 1.0, -3.0, 1e10, 1e100):
        if temperature < 0:
            x, z = -x, -z
        options = {"temperature": temperature, "reduction": "none"}
        values, (by_p, by_q) = run(hm.kl_divergence, x, z, **options)
        losses, by_student = run(hm.distillation_loss, z, x, **options)
        for r in range(len(sizes)):
            with mp.workprec(1400):
                true, true_p, true_q = truth.kl_and_gradients(x[r], z[r], temperature)
                square = mp.mpf(temperature) ** 2
                assert values[r] >= 0
                assert off(values[r], [true]) < bar
                assert off(losses[r], [true * square]) < bar
                assert off(by_q[r], true_q) < bar
                assert off(by_student[r], [g * square for g in true_q]) < bar
                size = max(abs(g) for g in true_p) if true < 0.5 else true / abs(temperature)
                pairs = zip(by_p[r], true_p, strict=True)
                assert max(abs(mp.mpf(float(g)) - t) for g, t in pairs) <= bar * size
        if temperature < 0:
            x, z = -x, -z


def test_jax_in_float32():
    x, z = rng().standard_normal((2, 1, 1000)).astype(np.float32)
    for temperature in (10.0, 1e3, 1e4, 1e30):
        want, gradient = hm.distillation_loss(
            x.astype(np.float64), z.astype(np.float64), temperature, return_grad=True
        )
        value, ours = by_jax(hm.distillation_loss, x, z, temperature=temperature)
        assert float(value) == pytest.approx(want, rel=1e-5)
        np.testing.assert_allclose(ours, gradient, rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("run", [by_jax, by_torch_func])
def test_formulas_with_a_temperature_for_each_row(run):
    temperatures = np.array([[0.0], [INF], [2.0], [-INF]])
    x, z = rng().standard_normal((2, 4, 5))
    options = {"temperature": temperatures, "reduction": "none"}
    want, gradient = hm.distillation_loss(x, z, return_grad=True, **options)
    if run is by_jax:
        value, ours = run(hm.distillation_loss, x, z, **options)
        np.testing.assert_allclose(value, want, rtol=1e-13)
    else:
        _, ours = run(hm.distillation_loss, x, z, **options)
    np.testing.assert_allclose(ours, gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_jax_at_the_limits():
    """Of two classes each: jax compiles every operation for another shape anew."""
    assert by_jax(hm.distillation_loss, [1.0, 2.0], [2.0, -INF], temperature=INF)[0] == INF
    assert by_jax(hm.distillation_loss, [1.0, 2.0], [2.0, 1.0], temperature=INF)[0] == 0.5
    for x, z, temperature in (
        ([0.0, -INF], [0.0, -INF], 1.0),
        ([0.0, 0.0], [0.0, -INF], 1.0),
        ([0.0, -INF], [0.0, 0.0], 1.0),
        ([0.0, -INF], [0.0, 40.0], 1.0),
        ([1.0, 0.0], [2.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([1.0, 0.0], [1.0, 1.0], 0.0),
        ([1.0, 1.0], [1.0, 0.0], 0.0),
        ([1.0, 0.0], [0.0, 1.0], INF),
        ([0.0, INF], [0.0, 1.0], 1.0),
        ([NAN, 0.0], [0.0, 1.0], 1.0),
    ):
        value = hm.kl_divergence(jnp.asarray(x), jnp.asarray(z), temperature=temperature)
        np.testing.assert_allclose(
            value, hm.kl_divergence(x, z, temperature=temperature), rtol=1e-14
        )
    for z in ([0.0, -2.0], [0.0, 3.0]):
        _, ours = by_jax(hm.kl_divergence, [0.0, -INF], z)
        _, want = hm.kl_divergence([0.0, -INF], z, return_grad=True)
        np.testing.assert_allclose(ours, want, rtol=1e-13, atol=1e-16)
