"""Probability losses, segments and the linear layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import reference_losses as truth
from comparisons import CASES
from loss_cases import rng, same, within
from optional import torch

import hotmax as hm

INF, NAN = math.inf, math.nan
F = torch.nn.functional


# --- accuracy ---------------------------------------------------------------------------------

FEW = [c for c in CASES if "100000" not in c.name and "65537" not in c.name]


# --- the other losses ---------------------------------------------------------------------------

CONFIDENT = np.array([[0.0, -40.0, -45.0], [1.0, 2.0, 0.5], [0.0, 50.0, 3.0], [0.3, 0.3, 0.3]])


@pytest.mark.parametrize(
    ("function", "true"),
    [(hm.mae_loss, truth.mae), (hm.brier_loss, truth.brier), (hm.focal_loss, truth.focal)],
)
@pytest.mark.parametrize("temperature", [1.0, 0.5, -2.0])
def test_confidence_losses(function, true, temperature):
    labels = np.array([0, 2, 0, 1])
    got, gradient = function(
        CONFIDENT, labels, temperature=temperature, reduction="none", return_grad=True
    )
    for r in range(4):
        within(got[r], true(CONFIDENT[r], labels[r], temperature), 8)

        def value(x, label=labels[r]):
            p = truth.probabilities(x, temperature)
            if function is hm.mae_loss:
                return 1 - p[label]
            if function is hm.brier_loss:
                return reference.mp.fsum((v - (c == label)) ** 2 for c, v in enumerate(p))
            return -((1 - p[label]) ** 2) * reference.mp.log(p[label])

        want = truth.numeric_gradient(value, CONFIDENT[r])
        np.testing.assert_allclose(gradient[r], want.astype(float), rtol=1e-12, atol=1e-30)
    single = function(CONFIDENT.astype(np.float32), labels, temperature=temperature)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, got.mean(), rtol=1e-6)
    ignored = function(CONFIDENT, [0, -1, 0, -1], ignore_index=-1, temperature=temperature)
    assert ignored == pytest.approx((got[0] + got[2]) / 2)


def test_mae_gradients_vanish_at_both_ends():
    for gap in (-40.0, 40.0):
        _, gradient = hm.mae_loss([gap, 0.0], 0, return_grad=True)
        p = reference.softmax(np.array([gap, 0.0]))[0]
        within(gradient[0], -p * (1 - p), 4)
        assert abs(gradient[0]) < 1e-16
    _, gradient = hm.cross_entropy([-40.0, 0.0], 0, return_grad=True)
    assert gradient[0] == -1  # cross entropy's does not


def test_focal_is_cross_entropy_at_gamma_0():
    x, y, w = rng().standard_normal((4, 6)), rng(1).integers(0, 6, 4), rng(2).random(6)
    ours = hm.focal_loss(x, y, gamma=0, weight=w, return_grad=True)
    want = hm.cross_entropy(x, y, weight=w, return_grad=True)
    assert ours[0] == pytest.approx(want[0], rel=1e-14)
    np.testing.assert_allclose(ours[1], want[1], rtol=1e-13)
    t = torch.from_numpy(x).requires_grad_()
    p = torch.softmax(t, -1)[torch.arange(4), torch.from_numpy(y)]
    loss = -((1 - p) ** 1.5 * torch.log(p)).mean()
    loss.backward()
    value, gradient = hm.focal_loss(x, y, gamma=1.5, return_grad=True)
    assert value == pytest.approx(loss.item(), rel=1e-13)
    np.testing.assert_allclose(gradient, t.grad.numpy(), atol=1e-15)


def test_special_rows_of_other_losses():
    x = np.array([[NAN, 0.0], [-INF, -INF], [INF, 0.0], [-INF, 0.0]])
    y = np.zeros(4, int)
    for function, want in (
        (hm.mae_loss, [NAN, NAN, 0, 1]),
        (hm.brier_loss, [NAN, NAN, 0, 2]),
        (hm.focal_loss, [NAN, NAN, 0, INF]),
    ):
        value, gradient = function(x, y, reduction="none", return_grad=True)
        same(value, want)
        assert np.isnan(gradient[:2]).all()
        same(gradient[2], [0, 0])
        value = function(x, y, where=np.zeros((4, 2), bool), reduction="none")
        same(value, [{hm.mae_loss: 1, hm.brier_loss: 1, hm.focal_loss: INF}[function]] * 4)


def test_nll_and_perplexity():
    x, y, w = rng().standard_normal((4, 6)), np.array([0, 5, -1, 2]), rng(2).random(6)
    logs = hm.log_softmax(x)
    for reduction in ("mean", "sum", "none"):
        options = {"reduction": reduction, "ignore_index": -1}
        value, gradient = hm.nll_loss(logs, y, weight=w, return_grad=True, **options)
        t = torch.from_numpy(logs.copy()).requires_grad_()
        theirs = F.nll_loss(t, torch.from_numpy(y), torch.from_numpy(w), **options)
        theirs.sum().backward()
        np.testing.assert_allclose(value, theirs.detach().numpy(), rtol=1e-14)
        np.testing.assert_allclose(gradient, t.grad.numpy(), rtol=1e-14)
    value, gradient = hm.nll_loss(logs.T, y, axis=0, ignore_index=-1, return_grad=True)
    assert value == pytest.approx(hm.cross_entropy(x, y, ignore_index=-1), rel=1e-15)
    same(gradient, hm.nll_loss(logs, y, ignore_index=-1, return_grad=True)[1].T)
    same(hm.nll_loss([[-INF, 0.0]], [0], weight=[0, 1], reduction="none"), [0])
    value, gradient = hm.perplexity(x, y, ignore_index=-1, return_grad=True)
    loss, its = hm.cross_entropy(x, y, ignore_index=-1, return_grad=True)
    assert value == pytest.approx(math.exp(loss), rel=1e-14)
    np.testing.assert_allclose(gradient, value * its, rtol=1e-14)
    assert hm.perplexity(np.zeros((3, 50)), [1, 2, 3]) == pytest.approx(50, rel=1e-14)


def test_one_hot_and_smooth_labels():
    same(hm.one_hot([[0, 1], [2, 2]], 3, axis=0), np.moveaxis(np.eye(3)[[[0, 1], [2, 2]]], -1, 0))
    assert hm.one_hot([], 3).shape == (0, 3)
    soft = np.array([[0.25, 0.75]], np.float32)
    got = hm.smooth_labels(soft, 0.5)
    assert got.dtype == np.float32
    same(got, [[0.375, 0.625]])
    x, y = rng().standard_normal((4, 6)), np.array([0, 5, 1, 2])
    a = hm.cross_entropy(x, hm.smooth_labels(y, 0.2, num_classes=6))
    assert a == pytest.approx(hm.cross_entropy(x, y, label_smoothing=0.2), rel=1e-14)


# --- segments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("temperature", [1.0, 0.3, -1.5, 0.0])
def test_segments(type_name, temperature):
    ids = rng().integers(0, 7, 60)
    ids[ids == 3] = 4  # an empty group
    x = (rng(1).standard_normal((2, 60)) * 5).astype(type_name)
    x[:, ids == 1] += 80  # each group has its own maximum
    got = hm.segment_softmax(x, ids, temperature=temperature)
    sums = hm.segment_logsumexp(x, ids, num_segments=9, temperature=temperature)
    assert got.dtype == sums.dtype == x.dtype
    assert sums.shape == (2, 9)
    for group in range(9):
        for r in range(2):
            part = x[r, ids == group]
            if part.size:
                within(got[r, ids == group], reference.softmax(part, temperature), 2)
            scale = reference.logsumexp_scale(part, temperature)
            within(sums[r, group], reference.logsumexp(part, temperature), 2, scale)
    transposed = hm.segment_softmax(
        np.moveaxis(x[..., None], 1, 0), ids, axis=0, temperature=temperature
    )
    same(transposed[:, :, 0].T, got)
    same(hm.segment_logsumexp(x.T, ids, axis=0, num_segments=9, temperature=temperature).T, sums)


def test_segments_special():
    same(hm.segment_softmax([1.0, NAN, 2.0, -INF], [0, 1, 2, 2]), [1, NAN, 1, 0])
    same(hm.segment_softmax([1.0, 5.0], [0, 0], where=[True, False]), [1, 0])
    assert hm.segment_softmax([], []).shape == (0,)
    same(hm.segment_logsumexp([], np.empty(0, int), num_segments=2), [-INF, -INF])
    same(hm.segment_logsumexp([1.0], [0], where=[False]), [-INF])


# --- the linear layer ---------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("n", "tile"), [(50, None), (300, 300 * 16)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_linear_cross_entropy(type_name, n, tile, smoothing, monkeypatch):
    if tile:
        monkeypatch.setattr("hotmax._losses.linear.TILE_LOGITS", tile)
        monkeypatch.setattr("hotmax._losses.linear.GRADIENT_CLASSES", 128)
    h = rng().standard_normal((5, 10, 8)).astype(type_name)
    w = rng(1).standard_normal((n, 8)).astype(type_name)
    b = rng(2).standard_normal(n).astype(type_name)
    y = rng(3).integers(0, n, (5, 10))
    y[0, :3] = -7
    for bias, reduction, temperature in ((None, "mean", 1.0), (b, "sum", 0.5), (b, "none", 2.0)):
        options = {"label_smoothing": smoothing, "reduction": reduction, "ignore_index": -7}
        tensors = [torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in (h, w, b)]
        z = tensors[0] @ tensors[1].T
        if bias is not None:
            z = z + tensors[2]
        theirs = F.cross_entropy(
            z.reshape(-1, n) / temperature, torch.from_numpy(y).reshape(-1), **options
        )
        theirs.sum().backward()
        value, gradients = hm.linear_cross_entropy(
            h, w, y, bias, temperature=temperature, return_grad=True, **options
        )
        tolerance = {"float16": 3e-3, "float32": 3e-5, "float64": 1e-12}[type_name]
        assert value.dtype == h.dtype
        want = theirs.detach().numpy().reshape(value.shape)
        np.testing.assert_allclose(value, want, rtol=tolerance, atol=tolerance)
        for got, tensor in zip(gradients, tensors, strict=True):
            if got is None:
                assert bias is None
                continue
            its = tensor.grad.numpy()
            assert got.dtype == h.dtype
            assert got.shape == its.shape
            np.testing.assert_allclose(got, its, atol=tolerance * np.abs(its).max())
        alone = hm.linear_cross_entropy(h, w, y, bias, temperature=temperature, **options)
        np.testing.assert_allclose(alone, value, rtol=1e-6)
