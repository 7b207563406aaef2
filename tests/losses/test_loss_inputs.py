"""What losses take: byte orders, narrow types mixed with wide ones, keywords in any order."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_losses as truth
from arrays import on
from optional import library, torch

import hotmax as hm

jax.config.update("jax_enable_x64", True)
F = torch.nn.functional
CrossEntropyLoss = library("hotmax.torch").CrossEntropyLoss
X = np.random.default_rng(0).standard_normal((2, 3))


@pytest.mark.parametrize("kind", [">i4", ">i8", ">u2", "<i2", "u8"])
def test_labels_of_any_byte_order(kind):
    y = np.array([2, 0], kind)
    for loss in (hm.cross_entropy, hm.nll_loss, hm.mae_loss, hm.brier_loss, hm.focal_loss):
        for options in ({}, {"ignore_index": 1}):
            assert loss(X, y, **options) == loss(X, [2, 0])
    assert hm.linear_cross_entropy(X, np.eye(3), y) == hm.linear_cross_entropy(X, np.eye(3), [2, 0])


def test_a_label_that_would_wrap():
    with pytest.raises(ValueError, match="got 18446744073709551516"):
        hm.cross_entropy(X, np.array([0, 2**64 - 100], np.uint64), ignore_index=-100)


def test_probabilities_that_came_from_a_narrower_type():
    logits = np.random.default_rng(1).standard_normal((4, 1000)).astype(np.float32)
    narrow = torch.softmax(torch.from_numpy(logits), -1)
    want = F.cross_entropy(torch.from_numpy(logits).double(), narrow.double()).item()
    assert hm.cross_entropy(logits, narrow.double().numpy()) == pytest.approx(want, rel=1e-6)
    few = logits[:, :5]
    soft = torch.softmax(torch.from_numpy(few), -1).bfloat16()
    assert abs(soft.float().sum(-1) - 1).max() > 4e-4  # beyond what float32 would be allowed
    want = F.cross_entropy(torch.from_numpy(few).double(), soft.double()).item()
    for loss in (hm.cross_entropy, CrossEntropyLoss()):
        assert loss(torch.from_numpy(few), soft).item() == pytest.approx(want, rel=1e-6)
    assert hm.smooth_labels(soft, 0.1).dtype is torch.bfloat16
    for factor in (0.98, 1.02):
        with pytest.raises(ValueError, match="add up to 1"):
            hm.cross_entropy(logits, narrow.double().numpy() * factor)
    for factor in (0.992, 1.008):  # probabilities come rounded: one tolerance for all types
        hm.cross_entropy(logits, narrow.double().numpy() * factor)
    with pytest.raises(ValueError, match="add up to 1"):
        hm.cross_entropy(torch.from_numpy(few), soft * 1.5)


def test_keywords_in_any_order():
    x, y = torch.from_numpy(X), torch.tensor([2, 0])
    want = hm.cross_entropy(x, y, reduction="none")
    assert torch.equal(hm.cross_entropy(targets=y, logits=x, reduction="none"), want)
    assert torch.equal(hm.cross_entropy(reduction="none", targets=[2, 0], logits=x), want)
    assert torch.equal(hm.softmax_jacobian(axis=-1, x=x), hm.softmax_jacobian(x))
    with pytest.raises(TypeError, match=r"targets is a torch\.Tensor"):
        hm.cross_entropy(targets=y, logits=X.tolist())


@pytest.mark.parametrize("gamma", [0.5, 1e-3, 1.0, 2.0])
def test_focal_gradients_where_the_others_underflow(gamma):
    for row in ([0.0, -800.0], [0.0, -740.0], [0.0, -200.0]):
        _, ours = hm.focal_loss([row], [0], gamma=gamma, return_grad=True)
        _, by_jax = hm.focal_loss(jnp.array([row]), jnp.array([0]), gamma=gamma, return_grad=True)
        x = torch.tensor([row], dtype=torch.float64)
        by_func = torch.func.grad(lambda a: hm.focal_loss(a, torch.tensor([0]), gamma=gamma))(x)
        want = truth.numeric_gradient(lambda a: truth.focal_of(a, 0, gamma), row, mp_step())
        for gradient in (ours, by_jax, by_func):
            assert np.isfinite(np.asarray(gradient)).all()
            if row[1] > -708:
                assert float(gradient[0][1]) == pytest.approx(float(want[1]), rel=1e-9, abs=0)
            else:
                assert float(gradient[0][1]) == pytest.approx(float(want[1]), rel=1e-9, abs=0.01)
        if row[1] > -708:
            np.testing.assert_allclose(ours[0], want.astype(float), rtol=1e-9)
    x = torch.tensor([[0.0, -200.0]])
    assert (
        torch.func.grad(lambda a: hm.focal_loss(a, torch.tensor([0]), gamma=0.5))(x).abs().max()
        == 0
    )


def mp_step():
    return truth.mp.mpf(2) ** -60


@on("numpy", "jax", "torch")
def test_gamma_is_checked(xp):
    make = xp.make
    for gamma, error in ((-1.0, ValueError), (math.nan, ValueError), ("a", TypeError)):
        with pytest.raises(error, match="gamma must be"):
            hm.focal_loss(make(X), make(np.array([0, 1])), gamma=gamma)
    with pytest.raises(ValueError, match="gamma must be"):
        torch.func.grad(lambda a: hm.focal_loss(a, torch.tensor([0, 1]), gamma=-1.0))(
            torch.from_numpy(X)
        )


def test_linear_of_mixed_types():
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(5, 4, generator=generator).bfloat16()
    w, b = torch.randn(7, 4, generator=generator), torch.randn(7, generator=generator)
    y = torch.tensor([0, 1, 2, 3, 6])
    _, (d_h, d_w, d_b) = hm.linear_cross_entropy(h, w, y, b, return_grad=True)
    assert (d_h.dtype, d_w.dtype, d_b.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    points = [a.double().requires_grad_() for a in (h, w, b)]
    F.cross_entropy(points[0] @ points[1].T + points[2], y).backward()
    torch.testing.assert_close(d_w.double(), points[1].grad, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(d_b.double(), points[2].grad, rtol=1e-5, atol=1e-7)


def test_linear_with_an_ignored_row_of_nan():
    h, w = np.array([[1.0, 2.0], [math.nan, math.inf]]), np.eye(3, 2)
    got = hm.linear_cross_entropy(h, w, [0, -100], ignore_index=-100, return_grad=True)
    want = hm.linear_cross_entropy(h[:1], w, [0], return_grad=True)
    assert got[0] == want[0]
    np.testing.assert_array_equal(got[1][0], [want[1][0][0], [0, 0]])
    np.testing.assert_array_equal(got[1][1], want[1][1])
    for temperature in (0.0, 1e-200):  # no warning
        hm.linear_cross_entropy(h[:1], w, [0], temperature=temperature, return_grad=True)


def test_linear_without_features_and_of_lists():
    for make in (np.asarray, jnp.asarray, torch.from_numpy):
        loss = hm.linear_cross_entropy(make(np.empty((2, 0))), make(np.empty((3, 0))), [0, 1])
        assert float(loss) == pytest.approx(math.log(3), rel=1e-15)
    ours = hm.linear_cross_entropy(jnp.asarray(X), np.eye(3).tolist(), [0, 1], [0.0, 1.0, 2.0])
    want = hm.linear_cross_entropy(X, np.eye(3), [0, 1], [0.0, 1.0, 2.0])
    assert float(ours) == pytest.approx(float(want), rel=1e-14)


def test_perplexity_gradient_in_half_precision():
    x = np.random.default_rng(2).standard_normal((30000, 3)).astype(np.float16)
    y = np.arange(30000) % 3
    _, gradient = hm.perplexity(x, y, return_grad=True)
    _, want = hm.perplexity(x.astype(np.float64), y, return_grad=True)
    ulps = np.abs(gradient - want) / np.spacing(np.abs(want).astype(np.float16)).astype(np.float64)
    assert ulps.max() < 0.51


def test_segment_ids_out_of_reach():
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        hm.segment_softmax([1.0, 2.0], [0, -1])
    with pytest.raises(ValueError, match="if num_segments is not given, got 10000000000"):
        hm.segment_logsumexp([1.0, 2.0], [0, 10**10])
