"""Metrics against their definitions, computed by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_calibration as reference

import hotmax as hm
from hotmax import calibration as c
from hotmax.calibration.binning import mass_edges, width_edges
from hotmax.calibration.ranks import harmonic
from hotmax.calibration.smooth import smooth_error

METRICS = [c.nll, c.brier, c.accuracy, c.ece, c.smooth_ece, c.ks, c.aurc]


def sample(rows=200, classes=5, seed=0, heat=2.0, scale=3.0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * scale
    return z, (z / heat + rng.gumbel(size=z.shape)).argmax(1)


def confidence_and_correct(p, labels):
    return p.max(1), (p.argmax(1) == labels).astype(float)


# --- the binning ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 40])
def test_bins_are_closed_on_the_right(kind, bins):
    """Confidence exactly on every edge, 0 and 1 among them, and the numbers next to it."""
    edges = (np.arange(bins + 1) / bins).astype(kind)
    near = [np.nextafter(edges, kind(2)), np.nextafter(edges, kind(-1)), edges]
    values = np.unique(np.clip(np.concatenate(near), 0, 1).astype(kind))
    sums = c.binning.bin_sums(
        values.astype(float), np.ones(values.size), np.ones(1), width_edges(bins, kind)
    )
    want = np.zeros(bins)
    for value in values:
        want[reference.bin_number(value, edges)] += 1
    np.testing.assert_array_equal(sums[:, 0], want)
    assert reference.bin_number(kind(0), edges) == 0
    assert reference.bin_number(kind(1), edges) == bins - 1


def test_a_confidence_of_one_is_in_the_last_bin():
    p = np.array([[1.0, 0.0], [0.95, 0.05], [0.0, 1.0]])
    shown = c.reliability(p, [0, 0, 0], bins=10, input="probabilities")
    assert shown.counts.tolist() == [0] * 9 + [3]
    assert shown.accuracy[-1] == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_edges_as_the_probabilities_have_them(kind):
    """0.6 lies on the edge 0.6 of five bins in float32 as in float64."""
    p = np.array([[0.6, 0.4], [0.61, 0.39], [0.2, 0.8]], kind)
    shown = c.reliability(p, [0, 0, 0], bins=5, input="probabilities")
    assert shown.counts.tolist() == [0, 0, 1, 2, 0]


def test_equal_mass():
    values = np.random.default_rng(0).random(1000)
    edges = mass_edges(values, np.ones(1), 10)
    counts = c.binning.bin_sums(values, values, np.ones(1), edges)[:, 0]
    assert counts.tolist() == [100] * 10
    tied = np.repeat([0.3, 0.7, 1.0], [500, 400, 100])
    counts = c.binning.bin_sums(tied, tied, np.ones(1), mass_edges(tied, np.ones(1), 10))[:, 0]
    assert sorted(counts[counts > 0].tolist()) == [100, 400, 500]


# --- each metric ------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 10, 80])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_proper_scores_and_accuracy(classes, kind):
    z, labels = sample(70, classes)
    z = z.astype(kind)
    p = reference.softmax(z)
    at = np.arange(70)
    y = np.eye(classes)[labels]
    assert c.nll(z, labels) == pytest.approx(-np.log(p[at, labels]).mean(), rel=1e-13)
    assert c.brier(z, labels) == pytest.approx(((p - y) ** 2).sum(1).mean(), rel=1e-13)
    assert c.accuracy(z, labels) == (p.argmax(1) == labels).mean()
    soft = 0.7 * y + 0.3 / classes
    assert c.nll(z, soft) == pytest.approx(-(soft * np.log(p)).sum(1).mean(), rel=1e-13)
    assert c.brier(z, soft) == pytest.approx(((p - soft) ** 2).sum(1).mean(), rel=1e-12)
    assert c.accuracy(z, soft) == pytest.approx(soft[at, p.argmax(1)].mean(), rel=1e-13)
    assert c.nll(p, labels, input="probabilities") == pytest.approx(c.nll(z, labels), rel=1e-13)
    assert c.brier(p, soft, input="probabilities") == pytest.approx(c.brier(z, soft), rel=1e-12)


def test_nll_keeps_its_digits_near_certainty():
    assert c.nll([[0.0, -40.0]], [0]) == pytest.approx(4.248354255291589e-18, rel=1e-13)
    assert c.nll([[0.0, -np.inf]], [1]) == math.inf


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("classes", [3, 70])
def test_ece(norm, bins, classes):
    z, labels = sample(150, classes)
    f, right = confidence_and_correct(reference.softmax(z), labels)
    edges = np.arange(bins + 1) / bins
    assert c.ece(z, labels, norm=norm, bins=bins) == pytest.approx(
        reference.ece(f, right, edges, norm), rel=1e-12
    )
    weights = np.random.default_rng(1).random(150)
    assert c.ece(z, labels, norm=norm, bins=bins, sample_weight=weights) == pytest.approx(
        reference.ece(f, right, edges, norm, weights), rel=1e-12
    )
    mass = mass_edges(f, np.ones(1), bins)
    assert c.ece(z, labels, norm=norm, bins=bins, binning="mass") == pytest.approx(
        reference.ece(f, right, mass, norm), rel=1e-12
    )


def test_debiased_ece():
    z, labels = sample(150)
    f, right = confidence_and_correct(reference.softmax(z), labels)
    edges = np.arange(16) / 15
    want = reference.ece(f, right, edges, "l2", debiased=True)
    assert c.ece(z, labels, norm="l2", debiased=True) == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match="debiased"):
        c.ece(z, labels, debiased=True)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_classwise_ece(norm, binning):
    z, labels = sample(120, 4)
    p = reference.softmax(z)
    errors = []
    for k in range(4):
        edges = np.arange(11) / 10 if binning == "width" else mass_edges(p[:, k], np.ones(1), 10)
        errors.append(reference.ece(p[:, k], (labels == k).astype(float), edges, norm))
    want = {"l1": np.mean(errors), "l2": np.sqrt(np.mean(np.square(errors))), "max": max(errors)}
    got = c.ece(z, labels, classwise=True, bins=10, norm=norm, binning=binning)
    assert got == pytest.approx(want[norm], rel=1e-12)


@pytest.mark.parametrize("near", [0.5, 0.95, 0.999])
def test_smooth_ece_also_at_the_boundary(near):
    rng = np.random.default_rng(0)
    f = np.clip(rng.normal(near, 0.02, 60), 0, 1)
    f[:5] = 1.0
    right = (rng.random(60) < 0.8).astype(float)
    got, width = smooth_error(f, (right - f) / 60)
    assert got == pytest.approx(reference.smooth_ece(f, right), abs=2e-5)
    assert got == width


def test_smooth_ece_of_mixed_signs():
    rng = np.random.default_rng(1)
    f = rng.random(80)
    right = (rng.random(80) < 0.5).astype(float)
    p = np.stack([f, 1 - f], axis=1)
    p = np.where(p.max(1, keepdims=True) == p[:, :1], p, p[:, ::-1])
    assert c.smooth_ece(p, 1 - right.astype(int), input="probabilities") == pytest.approx(
        reference.smooth_ece(p.max(1), right), abs=2e-5
    )


def test_ks():
    z, labels = sample(150)
    f, right = confidence_and_correct(reference.softmax(z), labels)
    weights = np.random.default_rng(1).random(150)
    assert c.ks(z, labels) == pytest.approx(reference.ks(f, right, np.ones(150)), rel=1e-12)
    assert c.ks(z, labels, sample_weight=weights) == pytest.approx(
        reference.ks(f, right, weights), rel=1e-12
    )


def test_aurc_and_risk_coverage():
    z, labels = sample(150)
    f, right = confidence_and_correct(reference.softmax(z), labels)
    assert c.aurc(z, labels) == pytest.approx(reference.aurc(f, right), rel=1e-12)
    curve = c.risk_coverage(z, labels)
    order = np.argsort(-f)
    np.testing.assert_allclose(
        curve.risk, np.cumsum(1 - right[order]) / np.arange(1, 151), atol=1e-14
    )
    assert curve.coverage[-1] == 1.0


def test_aurc_of_ties_is_the_mean_over_orders():
    rng = np.random.default_rng(0)
    f = rng.choice([0.6, 0.8, 0.9], 40)
    right = (rng.random(40) < f).astype(int)
    p = np.stack([f, 1 - f], axis=1)
    got = c.aurc(p, 1 - right, input="probabilities")
    assert got == pytest.approx(reference.aurc(f, right, 20_000), abs=1e-3)
    x = np.array([0.0, 1.0, 2.5, 10.0, 1e6])
    np.testing.assert_allclose(
        harmonic(x)[:4], [0, 1, 1.68037230554678, 2.92896825396825], 1e-13, 1e-14
    )


@pytest.mark.parametrize("score", ["nll", "brier"])
def test_decompose(score):
    z, labels = sample(300)
    parts = c.decompose(z, labels, score=score)
    metric = getattr(c, score)
    assert parts.total == pytest.approx(metric(z, labels), rel=1e-13)
    assert parts.calibration + parts.refinement == pytest.approx(parts.total, rel=1e-12)
    grid = [metric(z, labels, temperature=t) for t in np.geomspace(0.3, 10, 400)]
    assert parts.refinement <= min(grid) + 1e-12
    assert parts.refinement == pytest.approx(min(grid), abs=1e-4)
    assert score in str(parts)


def wild(seed):
    """Rows whose logits differ in size by thousands: the Brier score has several minima over T."""
    rng = np.random.default_rng(seed)
    rows, classes = rng.integers(3, 40), rng.integers(2, 5)
    z = rng.normal(size=(rows, classes)) * 10 ** rng.uniform(-3, 3, (rows, 1))
    return z, rng.integers(0, classes, rows)


HARD = {
    "best at 0": lambda: (np.array([[1.0, 0.0]] * 9 + [[100.0, 0.0]]), np.array([0] * 9 + [1])),
    "best at inf": lambda: (sample(50)[0], sample(50)[0].argmin(1)),
    **{f"wild {seed}": (lambda seed=seed: wild(seed)) for seed in range(12)},
}


@pytest.mark.parametrize("name", HARD)
def test_the_split_of_the_brier_score_is_at_the_least_of_all_temperatures(name):
    z, labels = HARD[name]()
    y = np.eye(z.shape[1])[labels]
    limits = [hm.hardmax(z), np.full(z.shape, 1 / z.shape[1])]
    others = [reference.softmax(z, t) for t in np.geomspace(1e-6, 1e7, 2000)]
    least = min(((p - y) ** 2).sum(1).mean() for p in limits + others)
    parts = c.decompose(z, labels, score="brier")
    assert parts.refinement <= least + 1e-12
    assert parts.refinement == pytest.approx(least, abs=1e-4)
    assert c.brier(z, labels, temperature=parts.temperature) == pytest.approx(
        parts.refinement, rel=1e-9
    )


def test_the_split_of_equal_logits():
    assert c.decompose(np.ones((3, 2)), [0, 1, 0], score="brier").calibration == 0.0


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


@pytest.mark.parametrize(("heat", "inverse"), [(-1.0, -1.0), (-2.5, -0.4), (-0.0, -1e6)])
@pytest.mark.parametrize("metric", METRICS)
def test_masks_below_temperature_zero(metric, heat, inverse):
    """A class that is not there has no mass at any temperature, also where -inf would have all."""
    z, labels, there = masked_labels()
    p = reference.softmax(np.where(there, inverse * z, -np.inf))
    got = metric(z, labels, where=there, temperature=heat)
    assert got == pytest.approx(metric(p, labels, input="probabilities"), rel=1e-9, abs=1e-12)


def test_masks_at_temperature_minus_infinity():
    z, labels, there = masked_labels()
    got = c.nll(z, labels, where=there, temperature=-math.inf)
    assert got == pytest.approx(np.log(there.sum(1)).mean(), rel=1e-12)


def debiased(*arguments, **options):
    return c.ece(*arguments, norm="l2", debiased=True, **options)


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


def test_the_bootstrap_holds_the_truth(monkeypatch):
    """nll, accuracy and the ECE of an overconfident model, against a million rows."""
    z, labels = sample(1_000_000, 3, 99)
    true = {f: f(z, labels) for f in (c.nll, c.accuracy, c.ece)}
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
    """The case in the README: one temperature cannot mend a few wild rows without hurting all."""
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
