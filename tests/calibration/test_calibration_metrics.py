"""Metrics against their definitions, computed by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_calibration as reference
from metric_cases import HARD, sample

import hotmax as hm
from hotmax import calibration as c
from hotmax.calibration.binning import mass_edges, width_edges
from hotmax.calibration.ranks import harmonic
from hotmax.calibration.smooth import smooth_error


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
