"""Losses at special values, masks and temperatures; and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from comparisons import dtype_of
from loss_cases import rng, same
from optional import torch

import hotmax as hm

INF, NAN = math.inf, math.nan


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
    present = np.ones(n, bool)
    present[[1, n - 1]] = False
    x[:, 1] = NAN
    y = rng(1).integers(0, n - 2, 3)
    full = np.flatnonzero(present)[y]
    if soft:
        y = hm.one_hot(y, n - 2) * 0.75 + hm.one_hot((y + 1) % (n - 2), n - 2) * 0.25
        full = np.zeros((3, n))
        full[:, present] = y
    for temperature in (1.0, 0.0, -0.7):
        for s in (0.0, 0.3):
            options = {"temperature": temperature, "label_smoothing": s, "return_grad": True}
            value, gradient = hm.cross_entropy(x, full, where=present, **options)
            shorter, its = hm.cross_entropy(x[:, present], y, **options)
            if n - 2 > 64:
                same(value, shorter)
                same(gradient[:, present], its)
            np.testing.assert_allclose(
                value, shorter, rtol=1e-3 if type_name == "float16" else 1e-6
            )
            same(gradient[:, ~present], 0)


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
    temperatures = hm.cross_entropy(x, y, temperature=np.ones((count, 1)), **options)
    same(value, temperatures[0])
    same(gradient, temperatures[1])
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
    (lambda: hm.one_hot([0.5], 2), TypeError, "labels must hold integers"),
    (lambda: hm.one_hot([2], 2), ValueError, "labels must lie in 0..1"),
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
