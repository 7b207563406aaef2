"""Losses against mpmath and PyTorch, on hard rows, with every option."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import reference
import reference_losses as truth
from comparisons import CASES, TWO_ULP
from loss_cases import rng, same, within
from optional import torch
from scipy import special

import hotmax as hm

INF, NAN = math.inf, math.nan
F = torch.nn.functional


# --- accuracy ---------------------------------------------------------------------------------

FEW = [c for c in CASES if "100000" not in c.name and "65537" not in c.name]


@pytest.mark.parametrize("type_name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("case", FEW, ids=lambda c: c.name)
def test_cross_entropy_accuracy(case, type_name):
    """Labels at the maximum, the minimum and between; at every temperature of the case."""
    if type_name not in case.types:
        return
    row = case.row(type_name)
    order = np.argsort(row.astype(np.float64), kind="stable")
    labels = sorted({int(order[-1]), int(order[0]), int(order[order.size // 2])})
    for t in case.temperatures:
        for label in labels:
            got = hm.cross_entropy(row, label, temperature=t)
            assert got.dtype == row.dtype
            true = truth.cross_entropy(row, label, t)
            worst = reference.worst_ulps(np.asarray(got), true)
            assert worst <= TWO_ULP[type_name], f"T={t:g}, label {label}: {worst:.3g} ULP"


@pytest.mark.parametrize("type_name", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 10, 64, 65, 600])
def test_options_accuracy(n, type_name):
    """Weights, smoothing and probabilities: each row and their mean within 2 ULP."""
    x = (rng(n).standard_normal((3, n)) * 5).astype(type_name)
    x[0, 0] += 60  # nearly one-hot
    labels = np.array([0, n - 1, n // 2])
    weight = rng(1).random(n)
    soft = rng(2).random((3, n))
    soft = (soft / soft.sum(-1, keepdims=True)).astype(type_name)
    for s, w, targets in itertools.product((0.0, 0.1, 1.0), (None, weight), (labels, soft)):
        options = {"temperature": 0.7, "label_smoothing": s, "weight": w}
        got = hm.cross_entropy(x, targets, reduction="none", **options)
        for r in range(3):
            within(got[r], truth.cross_entropy(x[r], targets[r], 0.7, None, w, s), 2)
        got = hm.cross_entropy(x, targets, **options)
        within(got, truth.mean_loss(x, targets, w, temperature=0.7, smoothing=s), 2)


@pytest.mark.parametrize("type_name", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 10, 64, 65, 600])
@pytest.mark.parametrize("temperature", [1.0, 0.3, -2.0])
def test_gradient_accuracy(n, type_name, temperature):
    """p - y within 3 ULP for labels, at the label and elsewhere, nearly one-hot or not."""
    x = (rng(n).standard_normal((4, n)) * 5).astype(type_name)
    x[0, 0] += math.copysign(40, temperature)
    x[1, 0] += math.copysign(40, temperature)
    labels = np.array([0, n - 1, n // 2, int(np.argmax(x[3] * math.copysign(1, temperature)))])
    _, got = hm.cross_entropy(x, labels, temperature=temperature, reduction="sum", return_grad=True)
    assert got.dtype == x.dtype
    true = [truth.cross_entropy_gradient(x[r], labels[r], temperature) for r in range(4)]
    for r in range(4):
        within(got[r], true[r], 3)
    soft = np.zeros((4, n), type_name)
    soft[np.arange(4), labels] = 1
    _, got = hm.cross_entropy(x, soft, temperature=temperature, reduction="sum", return_grad=True)
    for r in range(4):
        within(got[r], true[r], 3)


@pytest.mark.parametrize("type_name", ["float32", "float64"])
def test_smoothed_gradient(type_name):
    """Where p and y cancel, the error is measured by the larger of them."""
    for n in (5, 70):
        x = rng(n).standard_normal((3, n)).astype(type_name)
        labels, weight = np.array([0, 1, n - 1]), rng(1).random(n)
        options = {"weight": weight, "label_smoothing": 0.2, "reduction": "sum"}
        _, got = hm.cross_entropy(x, labels, return_grad=True, **options)
        eps = float(np.finfo(type_name).eps)
        for r in range(3):
            true = truth.cross_entropy_gradient(x[r], labels[r], 1.0, None, weight, 0.2)
            error = np.abs(got[r].astype(float) - true.astype(float))
            assert (error <= 4 * eps).all()


def test_near_one_hot_where_others_lose_all():
    assert hm.cross_entropy([0.0, -40.0], 0) == 4.248354255291589e-18
    x = np.array([[0.0, -40.0]])
    assert F.cross_entropy(torch.from_numpy(x), torch.tensor([0])).item() == 0
    assert special.log_softmax(x)[0, 0] == 0
    tiny = hm.cross_entropy([0.0, -690.0], 0)
    within(tiny, truth.cross_entropy(np.array([0.0, -690.0]), 0), 1)
    assert 0 < tiny < 1e-299
    _, gradient = hm.cross_entropy([0.0, -690.0], 0, return_grad=True)
    assert gradient[0] == -gradient[1] != 0


def test_published_figures():
    p = np.array([0.99, *[0.01 / 999] * 999])
    assert hm.cross_entropy(np.log(p), 0) == pytest.approx(0.010, abs=5e-4)
    assert hm.cross_entropy(np.log(p), 0, label_smoothing=0.1) == pytest.approx(1.159, abs=5e-4)
    assert hm.smooth_labels([3], 0.1, num_classes=1000).min() == pytest.approx(0.0001, abs=1e-18)


# --- the same as PyTorch, in every combination ------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", ["labels", "ignored", "probabilities"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [5, 70])
def test_agrees_with_torch(n, weighted, smoothing, kind, reduction):
    for type_name, tolerance in (("float32", 3e-6), ("float64", 1e-14)):
        x = rng(n).standard_normal((6, n)).astype(type_name)
        options = {"label_smoothing": smoothing, "reduction": reduction}
        w = rng(1).random(n).astype(type_name) if weighted else None
        if kind == "probabilities":
            y = special.softmax(rng(2).standard_normal((6, n)), -1).astype(type_name)
        else:
            y = rng(3).integers(0, n, 6)
            if kind == "ignored":
                y[[1, 4]] = -100
                options["ignore_index"] = -100
        value, gradient = hm.cross_entropy(x, y, weight=w, return_grad=True, **options)
        t = torch.from_numpy(x).requires_grad_()
        theirs = F.cross_entropy(
            t, torch.from_numpy(y), None if w is None else torch.from_numpy(w), **options
        )
        theirs.sum().backward()
        np.testing.assert_allclose(value, theirs.detach().numpy(), rtol=tolerance, atol=0)
        np.testing.assert_allclose(gradient, t.grad.numpy(), rtol=0, atol=tolerance * n)
        alone = hm.cross_entropy(x, y, weight=w, **options)
        same(alone, value)


def test_axis_as_torch_has_it():
    """Images: (batch, classes, height, width)."""
    x, y = rng().standard_normal((2, 5, 3, 4)), rng(1).integers(0, 5, (2, 3, 4))
    value, gradient = hm.cross_entropy(x, y, axis=1, return_grad=True)
    t = torch.from_numpy(x).requires_grad_()
    theirs = F.cross_entropy(t, torch.from_numpy(y))
    theirs.backward()
    assert value == pytest.approx(theirs.item(), rel=1e-14)
    np.testing.assert_allclose(gradient, t.grad.numpy(), atol=1e-15)


def test_right_where_torch_is_not():
    x = np.array([[1.0, 2.0, -INF], [0.0, 0.0, 0.0]])
    y = np.array([0, 1])
    t, ty = torch.from_numpy(x), torch.from_numpy(y)
    # smoothing with a class that is not there
    assert F.cross_entropy(t, ty, label_smoothing=0.1).item() == INF
    got, gradient = hm.cross_entropy(x, y, label_smoothing=0.1, reduction="none", return_grad=True)
    shorter, its = hm.cross_entropy(
        x[:1, :2], y[:1], label_smoothing=0.1, reduction="none", return_grad=True
    )
    same(got[0], shorter[0])
    same(gradient[0], [*its[0], 0])
    # probability 0 at -inf
    soft = np.array([[0.5, 0.5, 0.0], [1 / 3] * 3])
    assert np.isnan(F.cross_entropy(t, torch.from_numpy(soft)).item())
    assert math.isfinite(hm.cross_entropy(x, soft))
    # all ignored
    ignored = np.array([-100, -100])
    assert np.isnan(F.cross_entropy(t, torch.from_numpy(ignored)).item())
    value, gradient = hm.cross_entropy(x, ignored, ignore_index=-100, return_grad=True)
    same(value, 0)
    same(gradient, np.zeros((2, 3)))
    # an ignored row of -inf
    x[0] = -INF
    y = np.array([-100, 1])
    t = torch.from_numpy(x).requires_grad_()
    F.cross_entropy(t, torch.from_numpy(y)).backward()
    assert np.isnan(t.grad.numpy()).any()
    value, gradient = hm.cross_entropy(x, y, ignore_index=-100, return_grad=True)
    assert value == pytest.approx(math.log(3), rel=1e-15)
    same(gradient[0], [0, 0, 0])
