"""What metrics take; the bootstrap; and a trap."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_calibration as reference
from metric_cases import debiased, sample

import hotmax as hm
from hotmax import calibration as c

METRICS = [c.nll, c.brier, c.accuracy, c.ece, c.smooth_ece, c.ks, c.aurc]


# --- what they all take -----------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_ignored_rows_weights_masks_and_temperature(metric):
    z, labels = sample(60)
    want = metric(z[:40], labels[:40])
    padded, marked = z.copy(), labels.copy()
    padded[40:], marked[40:] = np.nan, -1
    assert metric(padded, marked, ignore_index=-1) == pytest.approx(want, rel=1e-12)
    weights = np.r_[np.ones(40), np.zeros(20)]
    assert metric(padded, labels, sample_weight=weights) == pytest.approx(want, rel=1e-12)
    there = np.ones(z.shape, bool)
    there[:, 3] = labels == 3
    gone = np.where(there, z, -np.inf)
    filled = np.where(there, z, np.nan)
    assert metric(filled, labels, where=there) == metric(gone, labels)
    assert metric(z, labels, temperature=2.5) == pytest.approx(metric(z / 2.5, labels), rel=1e-12)
    frozen = metric(z, labels, temperature=math.inf)
    assert frozen == pytest.approx(metric(z * 0, labels), rel=1e-12)
    assert metric(z, labels, temperature=0.0) == pytest.approx(
        metric(hm.hardmax(z), labels, input="probabilities"), rel=1e-12
    )
    with pytest.raises(ValueError, match="row 45 holds nan"):
        metric(np.where(np.arange(60)[:, None] == 45, np.nan, z), labels)
    with pytest.raises(ValueError, match="look like probabilities"):
        metric(reference.softmax(z), labels)
    with pytest.raises(TypeError):
        metric(z, labels, weigths=1)


def masked_labels():
    z, labels = sample(60)
    there = np.random.default_rng(1).random(z.shape) < 0.7
    there[np.arange(60), labels] = True
    return np.where(there, z, np.nan), labels, there


@pytest.mark.parametrize(("temperature", "inverse"), [(-1.0, -1.0), (-2.5, -0.4), (-0.0, -1e6)])
@pytest.mark.parametrize("metric", METRICS)
def test_masks_below_temperature_zero(metric, temperature, inverse):
    """A class that is not there has no mass at any temperature, also where -inf would have all."""
    z, labels, there = masked_labels()
    p = reference.softmax(np.where(there, inverse * z, -np.inf))
    got = metric(z, labels, where=there, temperature=temperature)
    assert got == pytest.approx(metric(p, labels, input="probabilities"), rel=1e-9, abs=1e-12)


def test_masks_at_temperature_minus_infinity():
    z, labels, there = masked_labels()
    got = c.nll(z, labels, where=there, temperature=-math.inf)
    assert got == pytest.approx(np.log(there.sum(1)).mean(), rel=1e-12)


@pytest.mark.parametrize(
    "metric", [c.nll, c.brier, c.accuracy, c.ece, c.ks, c.smooth_ece, debiased]
)
def test_repeats_are_weights(metric):
    z, labels = sample(50)
    times = np.random.default_rng(2).integers(0, 3, 50)
    repeated = metric(np.repeat(z, times, axis=0), np.repeat(labels, times))
    assert metric(z, labels, sample_weight=times) == pytest.approx(repeated, rel=1e-12)


def test_threads_and_layout_do_not_matter():
    z, labels = sample(40_000, 10)
    threads, results = hm.get_threads(), []
    try:
        for count in (1, 3):
            hm.set_threads(count)
            results.append([f(z, labels) for f in METRICS] + [c.ece(z, labels, classwise=True)])
            results.append(
                [f(np.asfortranarray(z), labels) for f in METRICS]
                + [c.ece(z, labels, classwise=True)]
            )
    finally:
        hm.set_threads(threads)
    assert results[0] == results[1] == results[2] == results[3]


# --- bootstrap --------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_bootstrap_intervals(metric, monkeypatch):
    monkeypatch.setattr("hotmax.calibration.bootstrap.REPLICATES", 100)
    z, labels = sample(80)
    estimate = metric(z, labels, interval=True)
    assert estimate.value == metric(z, labels)
    assert float(estimate) == estimate.value
    assert estimate.interval[0] < estimate.interval[1]
    assert metric(z, labels, interval=True) == estimate
    assert metric(z, labels, interval=True, seed=1) != estimate
    assert "95 %" in str(estimate)


@pytest.mark.slow
def test_the_bootstrap_holds_the_truth(monkeypatch):
    """nll, accuracy and the Brier score of an overconfident model, against a million rows."""
    z, labels = sample(1_000_000, 3, 99)
    true = {f: f(z, labels) for f in (c.nll, c.accuracy, c.brier)}
    monkeypatch.setattr("hotmax.calibration.bootstrap.REPLICATES", 200)
    held = dict.fromkeys(true, 0)
    sets = 150
    for seed in range(sets):
        z, labels = sample(400, 3, seed)
        for f, value in true.items():
            low, high = f(z, labels, interval=True).interval
            held[f] += low <= value <= high
    for f, count in held.items():
        assert 0.88 <= count / sets <= 0.99, (f.__name__, count / sets)


# --- a trap -----------------------------------------------------------------------------------


def test_nll_may_fall_while_ece_rises():
    """The case in the guide: one temperature cannot mend a few wild rows without hurting all."""
    logit = math.log(0.8 / 0.2)
    z = np.concatenate([np.tile([logit, 0.0], (900, 1)), np.tile([14.0, 0.0], (100, 1))])
    labels = np.r_[np.arange(900) % 5 == 0, np.arange(100) % 10 == 0].astype(int)
    fit = c.fit_temperature(z, labels)
    assert fit.nll < fit.nll_before - 0.03
    before, after = c.ece(z, labels), c.ece(z, labels, temperature=fit.temperature)
    assert before == pytest.approx(0.01, abs=1e-3)
    assert after > 5 * before


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z, y: c.ece(z, y, bins=0), ValueError, "bins"),
        (lambda z, y: c.ece(z, y, bins=2.5), TypeError, "bins"),
        (lambda z, y: c.ece(z, y, norm="l3"), ValueError, "norm"),
        (lambda z, y: c.ece(z, y, binning="equal"), ValueError, "binning"),
        (lambda z, y: c.ece(z, y, binning="equal", classwise=True), ValueError, "binning"),
        (lambda z, y: c.nll(z, y, interval=1), TypeError, "interval"),
        (lambda z, y: c.nll(z, y, seed="a"), TypeError, "seed"),
        (lambda z, y: c.nll(z, y, temperature=math.nan), ValueError, "temperature"),
        (lambda z, y: c.nll(z, y, temperature=[1.0, 2.0]), ValueError, "temperature"),
        (lambda z, y: c.decompose(z, y, score="ece"), ValueError, "score"),
        (lambda z, y: c.reliability(z, y, interval=True), ValueError, "interval"),
    ],
)
def test_bad_options_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call(*sample(20))


def test_a_picture_of_the_two_parts():
    import matplotlib.pyplot as plt

    logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    found = hm.calibration.decompose(logits, [0, 0, 1, 1])
    ax = found.plot()
    assert [bar.get_width() for bar in ax.patches] == [found.refinement, found.calibration]
    assert ax.patches[1].get_x() == found.refinement
    plt.close(ax.figure)


@pytest.mark.parametrize("weight", [None, [1.0, 3.0, 4.0]])
def test_a_mean_whose_sum_is_beyond_float64(weight):
    """No warning, and the mean of three losses of 1e308 is 1e308."""
    logits = np.array([[1e308, 0.0]] * 3)
    loss = hm.calibration.nll(logits, np.ones(3, int), sample_weight=weight)
    assert loss == pytest.approx(1e308, rel=1e-15)


def test_a_temperature_beyond_float64():
    logits = np.array([[1e308, 0.0], [0.0, 1e308], [-1e308, 0.9e308]] * 20)
    fit = hm.calibration.fit_temperature(logits, np.array([0, 1, 0] * 20))
    assert fit.temperature > 1e307
    assert fit.interval[1] == math.inf
