"""Losses against mpmath and PyTorch, on hard rows, with every option; and what they refuse."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import reference
import reference_losses as truth
from comparisons import CASES, TWO_ULP, dtype_of
from optional import torch
from scipy import special

import hotmax as hm

INF, NAN = math.inf, math.nan
F = torch.nn.functional


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(got, expected) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def within(got, true, ulps: float, scale=None) -> None:
    worst = reference.worst_ulps(np.asarray(got), true, scale)
    assert worst <= ulps, f"{worst:.3g} ULP"


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
@pytest.mark.parametrize("heat", [1.0, 0.3, -2.0])
def test_gradient_accuracy(n, type_name, heat):
    """p - y within 3 ULP for labels, at the label and elsewhere, nearly one-hot or not."""
    x = (rng(n).standard_normal((4, n)) * 5).astype(type_name)
    x[0, 0] += math.copysign(40, heat)
    x[1, 0] += math.copysign(40, heat)
    labels = np.array([0, n - 1, n // 2, int(np.argmax(x[3] * math.copysign(1, heat)))])
    _, got = hm.cross_entropy(x, labels, temperature=heat, reduction="sum", return_grad=True)
    assert got.dtype == x.dtype
    true = [truth.cross_entropy_gradient(x[r], labels[r], heat) for r in range(4)]
    for r in range(4):
        within(got[r], true[r], 3)
    soft = np.zeros((4, n), type_name)
    soft[np.arange(4), labels] = 1
    _, got = hm.cross_entropy(x, soft, temperature=heat, reduction="sum", return_grad=True)
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


# --- special values, masks, temperatures --------------------------------------------------------


@pytest.mark.parametrize("n", [4, 80])
@pytest.mark.parametrize("type_name", ["float32", "float64"])
def test_special_rows(n, type_name):
    x = np.zeros((6, n), type_name)
    x[0, 1] = NAN
    x[1] = -INF
    x[2, 0] = INF
    x[3, 0] = -INF
    x[4, :2] = INF
    y = np.zeros(6, int)
    got, gradient = hm.cross_entropy(x, y, reduction="none", return_grad=True)
    same(np.isnan(got), [1, 1, 0, 0, 0, 0])
    same(got[2:4], [0, INF])
    assert got[4] == pytest.approx(math.log(2), rel=1e-6)
    assert np.isnan(gradient[:2]).all()
    same(gradient[2], np.zeros(n))
    same(gradient[4], [-0.5, 0.5, *[0] * (n - 2)])
    got = hm.cross_entropy(x, y + 1, reduction="none", weight=[1, 0] + [1] * (n - 2))
    same(got[2:], [0, 0, 0, 0])  # weight 0, though the loss is infinite


@pytest.mark.parametrize("n", [4, 80])
def test_limits_of_temperature(n):
    x = np.arange(n, dtype=float)
    x[-2] = x[-1]
    value, gradient = hm.cross_entropy(x, n - 1, temperature=0, return_grad=True)
    assert value == pytest.approx(math.log(2))
    same(gradient, [*[0] * (n - 2), INF, -INF])
    assert hm.cross_entropy(x, 0, temperature=0) == INF
    value, gradient = hm.cross_entropy(x, 0, temperature=INF, return_grad=True)
    assert value == pytest.approx(math.log(n))
    same(gradient, np.zeros(n))
    soft = np.zeros(n)
    soft[-1] = 1
    value, gradient = hm.cross_entropy(x, soft, temperature=0, return_grad=True)
    same(gradient, [*[0] * (n - 2), INF, -INF])
    assert hm.cross_entropy(x, 0, temperature=0, label_smoothing=0.1) == INF
    x[-1] += 1
    value, gradient = hm.cross_entropy(x, n - 1, temperature=0, return_grad=True)
    same(value, 0)
    same(gradient, np.zeros(n))
    value, gradient = hm.cross_entropy(x, n - 1, temperature=5e-324, return_grad=True)
    same(value, 0)
    same(gradient, np.zeros(n))


@pytest.mark.parametrize("n", [6, 90])
@pytest.mark.parametrize("type_name", ["float16", "float32", "float64"])
@pytest.mark.parametrize("soft", [False, True])
def test_mask_equals_slice(n, type_name, soft):
    x = rng(n).standard_normal((3, n)).astype(type_name)
    keep = np.ones(n, bool)
    keep[[1, n - 1]] = False
    x[:, 1] = NAN
    y = rng(1).integers(0, n - 2, 3)
    full = np.flatnonzero(keep)[y]
    if soft:
        y = hm.one_hot(y, n - 2) * 0.75 + hm.one_hot((y + 1) % (n - 2), n - 2) * 0.25
        full = np.zeros((3, n))
        full[:, keep] = y
    for heat in (1.0, 0.0, -0.7):
        for s in (0.0, 0.3):
            options = {"temperature": heat, "label_smoothing": s, "return_grad": True}
            value, gradient = hm.cross_entropy(x, full, where=keep, **options)
            shorter, its = hm.cross_entropy(x[:, keep], y, **options)
            if n - 2 > 64:
                same(value, shorter)
                same(gradient[:, keep], its)
            np.testing.assert_allclose(
                value, shorter, rtol=1e-3 if type_name == "float16" else 1e-6
            )
            same(gradient[:, ~keep], 0)


def test_a_target_that_is_masked():
    x, where = np.zeros((2, 3)), np.array([[True, False, True], [False] * 3])
    value, gradient = hm.cross_entropy(x, [1, 0], where=where, reduction="none", return_grad=True)
    same(value, [INF, INF])
    same(gradient, [[0.5, 0, 0.5], [0, 0, 0]])


def test_axes_layouts_and_read_only_inputs():
    x = rng().standard_normal((3, 4, 5))
    y = rng(1).integers(0, 4, (3, 5))
    want, its = hm.cross_entropy(
        np.moveaxis(x, 1, -1).copy(), y, reduction="none", return_grad=True
    )
    x.flags.writeable = y.flags.writeable = False
    before = x.tobytes(), y.tobytes()
    for form in (x, np.asfortranarray(x), x.astype(">f8"), x[::-1][::-1]):
        got, gradient = hm.cross_entropy(form, y, axis=1, reduction="none", return_grad=True)
        same(got, want)
        same(np.moveaxis(gradient, 1, -1), its)
    assert (x.tobytes(), y.tobytes()) == before
    y2 = rng(2).integers(0, 15, 4)
    want, its = hm.cross_entropy(np.moveaxis(x, 1, 0).reshape(4, 15), y2, return_grad=True)
    got, gradient = hm.cross_entropy(x, y2, axis=(0, 2), return_grad=True)
    same(got, want)
    same(np.moveaxis(gradient, 1, 0).reshape(4, 15), its)


@pytest.mark.parametrize("type_name", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 64, 65, 3000])
def test_the_same_bits(n, type_name):
    """In any batch, at any place, on any number of threads, with a temperature for each row."""
    count = 200_000 // n
    x = rng(n).standard_normal((count, n)).astype(type_name)
    y = rng(1).integers(0, n, count)
    options = {"reduction": "none", "return_grad": True}
    before = hm.get_threads()
    results = []
    try:
        for threads in (1, 2):
            hm.set_threads(threads)
            results.append(hm.cross_entropy(x, y, **options))
    finally:
        hm.set_threads(before)
    (value, gradient), other = results
    same(value, other[0])
    same(gradient, other[1])
    heats = hm.cross_entropy(x, y, temperature=np.ones((count, 1)), **options)
    same(value, heats[0])
    same(gradient, heats[1])
    for r in (0, 1, count // 2, count - 1):
        alone = hm.cross_entropy(x[r], y[r], **options)
        same(alone[0], value[r])
        same(alone[1], gradient[r])
    x[0], x[1, 0], y[2] = NAN, INF, -1
    beside = hm.cross_entropy(x, y, ignore_index=-1, **options)
    same(beside[0][3:], value[3:])
    same(beside[1][3:], gradient[3:])
    mean = hm.cross_entropy(x[3:], y[3:])
    np.testing.assert_allclose(mean, math.fsum(value[3:].tolist()) / (count - 3), rtol=1e-6)


def test_nothing_to_do():
    for shape in ((0, 3), (2, 0, 3)):
        value, gradient = hm.cross_entropy(
            np.empty(shape), np.empty(shape[:-1], int), return_grad=True
        )
        assert value == 0
        assert gradient.shape == shape
    assert hm.cross_entropy(np.empty((0, 3)), [], reduction="none").shape == (0,)
    assert hm.cross_entropy([[1.0, 2.0]], [0], weight=[0.0, 1.0]) == 0
    assert hm.perplexity(np.empty((0, 3)), []) == 1


# --- the other losses ---------------------------------------------------------------------------

CONFIDENT = np.array([[0.0, -40.0, -45.0], [1.0, 2.0, 0.5], [0.0, 50.0, 3.0], [0.3, 0.3, 0.3]])


@pytest.mark.parametrize(
    ("function", "true"),
    [(hm.mae_loss, truth.mae), (hm.brier_loss, truth.brier), (hm.focal_loss, truth.focal)],
)
@pytest.mark.parametrize("heat", [1.0, 0.5, -2.0])
def test_confidence_losses(function, true, heat):
    labels = np.array([0, 2, 0, 1])
    got, gradient = function(
        CONFIDENT, labels, temperature=heat, reduction="none", return_grad=True
    )
    for r in range(4):
        within(got[r], true(CONFIDENT[r], labels[r], heat), 8)

        def value(x, label=labels[r]):
            p = truth.probabilities(x, heat)
            if function is hm.mae_loss:
                return 1 - p[label]
            if function is hm.brier_loss:
                return reference.mp.fsum((v - (c == label)) ** 2 for c, v in enumerate(p))
            return -((1 - p[label]) ** 2) * reference.mp.log(p[label])

        want = truth.numeric_gradient(value, CONFIDENT[r])
        np.testing.assert_allclose(gradient[r], want.astype(float), rtol=1e-12, atol=1e-30)
    single = function(CONFIDENT.astype(np.float32), labels, temperature=heat)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, got.mean(), rtol=1e-6)
    ignored = function(CONFIDENT, [0, -1, 0, -1], ignore_index=-1, temperature=heat)
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
@pytest.mark.parametrize("heat", [1.0, 0.3, -1.5, 0.0])
def test_segments(type_name, heat):
    ids = rng().integers(0, 7, 60)
    ids[ids == 3] = 4  # an empty group
    x = (rng(1).standard_normal((2, 60)) * 5).astype(type_name)
    x[:, ids == 1] += 80  # each group has its own maximum
    got = hm.segment_softmax(x, ids, temperature=heat)
    sums = hm.segment_logsumexp(x, ids, num_segments=9, temperature=heat)
    assert got.dtype == sums.dtype == x.dtype
    assert sums.shape == (2, 9)
    for group in range(9):
        for r in range(2):
            part = x[r, ids == group]
            if part.size:
                within(got[r, ids == group], reference.softmax(part, heat), 2)
            scale = reference.logsumexp_scale(part, heat)
            within(sums[r, group], reference.logsumexp(part, heat), 2, scale)
    turned = hm.segment_softmax(np.moveaxis(x[..., None], 1, 0), ids, axis=0, temperature=heat)
    same(turned[:, :, 0].T, got)
    same(hm.segment_logsumexp(x.T, ids, axis=0, num_segments=9, temperature=heat).T, sums)


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
        monkeypatch.setattr("hotmax._losses.linear.TILE", tile)
        monkeypatch.setattr("hotmax._losses.linear.CLASSES", 128)
    h = rng().standard_normal((5, 10, 8)).astype(type_name)
    w = rng(1).standard_normal((n, 8)).astype(type_name)
    b = rng(2).standard_normal(n).astype(type_name)
    y = rng(3).integers(0, n, (5, 10))
    y[0, :3] = -7
    for bias, reduction, heat in ((None, "mean", 1.0), (b, "sum", 0.5), (b, "none", 2.0)):
        options = {"label_smoothing": smoothing, "reduction": reduction, "ignore_index": -7}
        tensors = [torch.from_numpy(a.astype(np.float64)).requires_grad_() for a in (h, w, b)]
        z = tensors[0] @ tensors[1].T
        if bias is not None:
            z = z + tensors[2]
        theirs = F.cross_entropy(
            z.reshape(-1, n) / heat, torch.from_numpy(y).reshape(-1), **options
        )
        theirs.sum().backward()
        value, gradients = hm.linear_cross_entropy(
            h, w, y, bias, temperature=heat, return_grad=True, **options
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
        alone = hm.linear_cross_entropy(h, w, y, bias, temperature=heat, **options)
        np.testing.assert_allclose(alone, value, rtol=1e-6)


# --- what is refused ----------------------------------------------------------------------------

X, Y = np.zeros((2, 3)), np.array([0, 1])
REFUSED = [
    (lambda: hm.cross_entropy(X, [0, 3]), ValueError, r"targets must lie in 0..2, got 3 at \(1,\)"),
    (lambda: hm.cross_entropy(X, [0, -1]), ValueError, "targets must lie in 0..2"),
    (lambda: hm.cross_entropy(X, [0, -2], ignore_index=-1), ValueError, "or be ignore_index, -1"),
    (lambda: hm.cross_entropy(X, [0]), ValueError, r"shape of the logits without axis, \(2,\)"),
    (lambda: hm.cross_entropy(X, [[0, 1], [1, 0]]), ValueError, "targets of integers"),
    (lambda: hm.cross_entropy(X, [[0.5, 0.5]]), ValueError, "targets of floats"),
    (lambda: hm.cross_entropy(X, X), ValueError, "add up to 1 over axis, got 0.0 in row 0"),
    (
        lambda: hm.cross_entropy(X, X + np.array([2, -1, 0])),
        ValueError,
        "at least 0, got -1.0 in row 0",
    ),
    (lambda: hm.cross_entropy(X, X * NAN), ValueError, "at least 0, got nan"),
    (lambda: hm.cross_entropy(X, [True, False]), TypeError, "targets must hold integers"),
    (lambda: hm.cross_entropy(X, ["a", "b"]), TypeError, "targets must hold"),
    (lambda: hm.cross_entropy(X, Y, label_smoothing=1.5), ValueError, "label_smoothing must lie"),
    (lambda: hm.cross_entropy(X, Y, label_smoothing=NAN), ValueError, "label_smoothing must lie"),
    (lambda: hm.cross_entropy(X, Y, label_smoothing="a"), TypeError, "label_smoothing must be a r"),
    (lambda: hm.cross_entropy(X, Y, reduction="avg"), ValueError, "reduction must be one of mean"),
    (lambda: hm.cross_entropy(X, Y, weight=[1, 2]), ValueError, "weight must hold one number for"),
    (lambda: hm.cross_entropy(X, Y, weight=[1, 2, -1]), ValueError, "weight must hold finite"),
    (lambda: hm.cross_entropy(X, Y, weight=[1, 2, NAN]), ValueError, "weight must hold finite"),
    (lambda: hm.cross_entropy(X, Y, ignore_index=0.5), TypeError, "ignore_index must be an int"),
    (lambda: hm.cross_entropy(X, X + 1 / 3, ignore_index=1), ValueError, "ignore_index needs"),
    (lambda: hm.cross_entropy(X, Y, temperature=NAN), ValueError, "temperature"),
    (lambda: hm.cross_entropy(X + 0j, Y), TypeError, "logits must hold"),
    (lambda: hm.cross_entropy(X, torch.tensor([0, 1])), TypeError, "targets"),
    (lambda: hm.nll_loss(X, [0.5, 0.5]), TypeError, "targets must hold integers"),
    (lambda: hm.nll_loss(X, [0, 9]), ValueError, "targets must lie"),
    (lambda: hm.focal_loss(X, Y, gamma=-1), ValueError, "gamma must be"),
    (lambda: hm.mae_loss(X, Y, reduction=None), ValueError, "reduction"),
    (lambda: hm.kl_divergence(X, X[:1]), ValueError, "logits_p and logits_q must have one shape"),
    (lambda: hm.distillation_loss(X, X.T), ValueError, "student and teacher must have one shape"),
    (lambda: hm.one_hot([0.5], 2), TypeError, "targets must hold integers"),
    (lambda: hm.one_hot([2], 2), ValueError, "targets must lie in 0..1"),
    (lambda: hm.one_hot([0], 0), ValueError, "classes must be at least 1"),
    (lambda: hm.smooth_labels([0], 0.1), ValueError, "classes must be given"),
    (lambda: hm.smooth_labels([[0.5, 0.6]], 0.1), ValueError, "add up to 1"),
    (lambda: hm.segment_softmax([1.0], [0, 1]), ValueError, "segment_ids must have shape"),
    (lambda: hm.segment_softmax([1.0], [-1]), ValueError, "segment_ids must be at least 0, got -1"),
    (lambda: hm.segment_softmax([1.0], [0.5]), TypeError, "segment_ids must hold integers"),
    (lambda: hm.segment_logsumexp([1.0], [3], num_segments=2), ValueError, "in 0..1, got 3"),
    (lambda: hm.linear_cross_entropy(X, X.T, Y), ValueError, "hidden must be"),
    (lambda: hm.linear_cross_entropy(X, X, Y, [1.0]), ValueError, "bias must have shape"),
    (lambda: hm.linear_cross_entropy(X, X, [0, 2]), ValueError, "targets must lie in 0..1"),
    (lambda: hm.linear_cross_entropy(X, X, Y, temperature=[1, 2]), ValueError, "one number"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED, ids=[w for _, _, w in REFUSED])
def test_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_half_precision_targets():
    soft = np.full((1, 2048), 1 / 2048).astype(dtype_of("bfloat16"))
    x = np.zeros((1, 2048), np.float32)
    assert hm.cross_entropy(x, soft) == pytest.approx(math.log(2048), rel=1e-6)
