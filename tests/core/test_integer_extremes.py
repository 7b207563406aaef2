"""Integers at and beyond the ends of their types: a clear error that names the argument."""

from __future__ import annotations

import numpy as np
import pytest

import hotmax as hm

X = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
EYE = 3.0 * np.eye(3)
LARGEST = 2**64 - 1
TOP = np.array([0, LARGEST], np.uint64)
HUGE = 10**400  # beyond float64 too
LOSSES = (
    hm.cross_entropy,
    hm.nll_loss,
    hm.mae_loss,
    hm.brier_loss,
    hm.focal_loss,
    hm.perplexity,
)


@pytest.mark.parametrize("loss", LOSSES)
def test_labels_and_ignore_index(loss):
    for beyond in (2**64, 2**70, -(2**63) - 1, HUGE):
        with pytest.raises(ValueError, match="ignore_index must be an int from"):
            loss(X, [0, 1], ignore_index=beyond)
    with pytest.raises(ValueError, match=rf"targets must lie in 0..2, got {LARGEST} at \(1,\)"):
        loss(X, TOP)
    with pytest.raises(ValueError, match=rf"targets must lie in 0..2, or .* got {LARGEST}"):
        loss(X, TOP, ignore_index=-1)  # which an int64 would wrap to
    with pytest.raises(ValueError, match="got 255"):
        loss(X, np.array([0, 255], np.uint8), ignore_index=-1)
    first = loss(X[:1], [0])
    assert loss(X, TOP, ignore_index=LARGEST) == first
    assert loss(X, np.array([0, 255], np.uint8), ignore_index=255) == first
    assert loss(X, np.array([0, -(2**63)]), ignore_index=-(2**63)) == first
    for never in (LARGEST, -(2**63), 300):  # no label of this type
        labels = np.array([0, 1], np.int8)
        assert loss(X, labels, ignore_index=never) == loss(X, labels)


CALLS = {
    "linear_cross_entropy": (
        "ignore_index",
        lambda: hm.linear_cross_entropy(X, EYE, [0, 1], ignore_index=2**70),
    ),
    "nll": ("ignore_index", lambda: hm.calibration.nll(EYE, [0, 1, 2], ignore_index=2**70)),
    "nll, uint64": ("targets", lambda: hm.calibration.nll(EYE[:2], TOP)),
    "nll, seed": ("seed", lambda: hm.calibration.nll(EYE, [0, 1, 2], interval=True, seed=-1)),
    "ece": ("bins", lambda: hm.calibration.ece(EYE, [0, 1, 2], bins=2**70)),
    "one_hot": ("num_classes", lambda: hm.one_hot([0, 1], 2**70)),
    "one_hot, memory": ("num_classes", lambda: hm.one_hot([0, 1], 2**61)),
    "one_hot, uint64": ("labels", lambda: hm.one_hot(TOP, 3)),
    "smooth_labels": ("num_classes", lambda: hm.smooth_labels([0, 1], 0.1, num_classes=2**70)),
    "label_smoothing": ("label_smoothing", lambda: hm.smooth_labels([0], HUGE, num_classes=3)),
    "gamma": ("gamma", lambda: hm.focal_loss(X, [0, 1], gamma=HUGE)),
    "gamma below": ("gamma", lambda: hm.focal_loss(X, [0, 1], gamma=-HUGE)),
    "num_segments": (
        "num_segments",
        lambda: hm.segment_softmax(X, [0, 1, 2], num_segments=2**70),
    ),
    "num_segments, memory": (
        "num_segments",
        lambda: hm.segment_logsumexp(X, [0, 1, 2], num_segments=2**61),
    ),
    "segment_ids": ("segment_ids", lambda: hm.segment_softmax(X[:, :2], TOP)),
    "segment_ids, num_segments": (
        f"segment_ids must lie in 0..1, got {LARGEST}",
        lambda: hm.segment_logsumexp(X[:, :2], TOP, num_segments=2),
    ),
    "size": ("size", lambda: hm.sample(X, size=2**70)),
    "size, memory": ("size", lambda: hm.sample(X, size=2**61)),
    "size, huge": ("size", lambda: hm.sample(X, size=HUGE)),
    "min_p": ("min_p", lambda: hm.sample(X, min_p=HUGE)),
    "draws": ("draws", lambda: hm.frequencies([0.0, 1.0], draws=HUGE)),
    "repetition": ("repetition", lambda: hm.penalize(X, [0], repetition=HUGE)),
    "temperature": ("temperature", lambda: hm.softmax(X, temperature=HUGE)),
    "target": ("target", lambda: hm.saturation(X, target=HUGE)),
    "base": ("base", lambda: hm.temperature_of_base(-HUGE)),
    "start": (
        "start",
        lambda: hm.beam_search(lambda p: np.zeros((len(p), 3)), TOP, width=2, length=1),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_names_the_argument(name):
    what, call = CALLS[name]
    with pytest.raises(ValueError, match=what):
        call()


def test_large_numbers_that_have_a_meaning():
    assert hm.sample(X, top_k=2**70, seed=0).tolist() == hm.sample(X, seed=0).tolist()
    np.testing.assert_array_equal(
        hm.softmax(X, temperature=2**70), hm.softmax(X, temperature=2.0**70)
    )
    np.testing.assert_array_equal(
        hm.softmax(X, temperature=2**54 + 1), hm.softmax(X, temperature=2.0**54)
    )
    sets = hm.calibration.conformal.fit(EYE, [0, 1, 2], method="raps", free=2**70)
    assert sets.sets(EYE).all()
