"""Class weights whose sum overflows or is subnormal: a mean over them is the same as over others.

Truth by mpmath.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from arrays import on

import hotmax as hm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3))
LABELS = np.array([0, 1, 2, 0, 1, 1, 2])
mp = mpmath.mp.clone()
mp.dps = 50

WEIGHTS = {
    "the sum overflows": [1e308, 1e308, 1e308],
    "the largest": [1.7e308, 1e308, 1.7e308],
    "smallest": [5e-324, 1e-323, 2e-323],
    "subnormal": [1e-310, 3e-309, 1e-308],
    "one subnormal": [0.0, 5e-324, 0.0],
    "every size": [1e308, 1e-300, 1.0],
    "large and none": [1e300, 0.0, 1e-300],
}


def mean_of(x: np.ndarray, labels: np.ndarray, weight: Any, loss: Any) -> float:
    total = mass = mp.mpf(0)
    for row, label in zip(x, labels, strict=True):
        exps = [mp.exp(mp.mpf(float(v))) for v in row]
        own = mp.mpf(float(weight[label]))
        total += own * loss(exps[label] / mp.fsum(exps), mp.mpf(float(row[label])))
        mass += own
    return float(total / mass)


LOSSES = {
    "cross_entropy": lambda p, x: -mp.log(p),
    "focal_loss": lambda p, x: -((1 - p) ** 2) * mp.log(p),
    "nll_loss": lambda p, x: -x,
}


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_does_not_depend_on_the_size_of_weights(name, weight):
    function = getattr(hm, name)
    for kind, tolerance in ((np.float64, 4e-16), (np.float32, 2e-7)):
        x = X.astype(kind)
        loss, gradient = function(x, LABELS, weight=weight, return_grad=True)
        want = mean_of(x, LABELS, weight, LOSSES[name])
        assert loss == pytest.approx(want, rel=tolerance)
        assert function(x, LABELS, weight=weight) == loss
        shares = [float(mp.mpf(w) / mp.mpf(max(weight))) for w in weight]
        _, same = function(x, LABELS, weight=shares, return_grad=True)
        np.testing.assert_allclose(gradient, same, rtol=1e-5, atol=1e-15)


def test_only_labels_that_occur_decide():
    """A class that no row has may weigh as much as it likes."""
    labels = np.zeros(7, np.int64)
    for weight in ([1e-320, 1e308, 0.0], [1e308, 1e-320, 0.0], [1e-320, 0.0, 0.0]):
        want = hm.cross_entropy(X, labels)
        assert hm.cross_entropy(X, labels, weight=weight) == pytest.approx(want, rel=4e-16)


def test_ordinary_weights_keep_their_bits_and_sums_their_size():
    assert hm.cross_entropy(X[:1], [0], weight=[1e300, 1, 1], reduction="sum") > 1e299
    assert hm.cross_entropy(X[:1], [0], weight=[1e-300, 1, 1], reduction="none") < 1e-299
    for power in (-900, -40, 40, 900):
        scaled = np.ldexp([3.0, 1.0, 0.7], power)
        got = hm.cross_entropy(X, LABELS, weight=scaled, label_smoothing=0.1)
        assert got == hm.cross_entropy(X, LABELS, weight=[3.0, 1.0, 0.7], label_smoothing=0.1)


def test_losses_whose_sum_overflows_have_a_mean():
    x = np.array([[1.2e308, 0.0]] * 3)
    assert hm.cross_entropy(x, [1, 1, 1]) == 1.2e308
    assert hm.nll_loss(-x, [0, 0, 0]) == 1.2e308
    assert hm.cross_entropy(x, [1, 1, 1], reduction="sum") == np.inf


@on("torch", "torch, generic", "strict")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_libraries(xp, dtype):
    for name in LOSSES:
        for case in ("the sum overflows", "smallest", "subnormal"):
            weight = np.array(WEIGHTS[case])
            got = xp.call(getattr(hm, name), X.astype(dtype), targets=LABELS, weight=weight)
            want = mean_of(X.astype(dtype), LABELS, weight, LOSSES[name])
            assert float(got) == pytest.approx(want, rel=1e-6 if dtype == "float32" else 1e-14)


def test_sample_weights_of_calibration_have_a_range():
    logits, labels = 3.0 * np.eye(3), [0, 1, 2]
    for size in (1e-151, 1e151, 5e-324, 1.7e308):
        with pytest.raises(ValueError, match=r"largest sample_weight must lie in 1e-150..1e\+150"):
            hm.calibration.nll(logits, labels, sample_weight=[size, 0.0, 0.0])
    same = hm.calibration.nll(logits, labels)
    for size in (1e-150, 1e150):
        assert hm.calibration.nll(logits, labels, sample_weight=[size] * 3) == pytest.approx(same)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 40, 100, 600])
def test_gradients_times_large_factors(dtype, n):
    """A class that is not there has gradient 0, however large the weight or small the T.

    The exponentials stop at 2**-1140, which times 1e30 was seen; and 1e300 in two words overflowed.
    """
    x = np.zeros((2, n), dtype)
    x[0, 2], x[1, 2] = -np.inf, -5000.0
    p = 1.0 / (n - 1)
    for size in (1e20, 1e30, 1e100, 1e300):
        weight = np.full(n, size)
        for options in ({"weight": weight}, {"temperature": 1.0 / size}):
            _, gradient = hm.cross_entropy(x, [1, 1], reduction="sum", return_grad=True, **options)
            with np.errstate(over="ignore"):
                want = np.where(np.arange(n) == 1, (p - 1.0) * size, p * size).astype(dtype)
            want[2] = 0.0
            np.testing.assert_allclose(gradient, [want, want], rtol=1e-6)
        _, gradient = hm.cross_entropy(
            x, np.eye(n)[[1, 1]], weight=weight, reduction="sum", return_grad=True
        )
        assert not gradient[:, 2].any()
        _, gradient = hm.focal_loss(x, [1, 1], weight=weight, reduction="sum", return_grad=True)
        assert not gradient[:, 2].any()


@on("torch, generic", "strict", "jitted")
@pytest.mark.parametrize("name", LOSSES)
def test_a_large_weight_that_no_label_has(xp, name):
    """Formulas scale by the largest weight that counts, known or traced."""
    labels, weight = np.array([0, 2, 2, 0, 0, 2, 0]), np.array([1e-200, 1e200, 2e-200])
    got = xp.call(getattr(hm, name), X, targets=labels, weight=weight)
    assert float(got) == pytest.approx(mean_of(X, labels, weight, LOSSES[name]), rel=1e-13)
