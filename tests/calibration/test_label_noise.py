"""The test of calibration on rows with weights and soft labels: its variance and its level."""

from __future__ import annotations

import numpy as np
import pytest
from simulation.weights import coverage_share, verdict_share

from hotmax.calibration.binning import BINS, FINE_BINS
from hotmax.calibration.chance import calibration_test
from hotmax.calibration.examples import read
from hotmax.calibration.label_noise import drawn_sums
from hotmax.calibration.method_score import union_of_cells
from hotmax.calibration.score_sums import Method, ScoreMethods
from hotmax.calibration.weighted_sums import WeightedSums

ONE_METHOD = ScoreMethods((Method("none", 1.0),), None, WeightedSums)


def two_classes(confidence):
    return np.stack([np.log(confidence / (1 - confidence)), np.zeros_like(confidence)], axis=1)


def summed(z, targets, weights=None):
    """(sums, cells, bins) of rows."""
    sums = ONE_METHOD(read(z, targets, sample_weight=weights))
    cells = sums.cells[0].values()
    return sums, *(union_of_cells(cells, sums.edges, n) for n in (FINE_BINS, BINS))


def test_draws_have_the_variance_of_weighted_labels(rng):
    """sum w**2 c (1 - c), cell by cell, and in all; whatever the weights are."""
    c = rng.uniform(0.5, 1.0, 3000)
    w = rng.exponential(size=3000)
    _, cells, _ = summed(two_classes(c), rng.integers(0, 2, 3000), w)
    full = cells[cells[:, 0] > 0]
    drawn = drawn_sums(rng, full, np.ones(len(full)), 4000)
    want = (w**2 * c * (1 - c)).sum()
    assert drawn.sum(1).var() == pytest.approx(want, rel=0.1)
    assert drawn.sum(1).mean() == pytest.approx((w * c).sum(), abs=4 * np.sqrt(want / 4000))
    assert (drawn >= 0).all()
    assert (drawn <= full[:, 0] * (1 + 1e-9)).all()
    wider = drawn_sums(rng, full, np.full(len(full), 2.5), 4000)
    assert wider.sum(1).var() == pytest.approx(2.5 * want, rel=0.1)
    narrower = drawn_sums(rng, full, np.full(len(full), 0.3), 4000)
    assert narrower.sum(1).var() == pytest.approx(0.3 * want, rel=0.1)


@pytest.mark.parametrize("annotators", [1, 3, 10])
def test_the_dispersion_of_shares_is_one_over_their_number(rng, annotators):
    c = rng.uniform(0.5, 1.0, 20_000)
    hits = rng.binomial(annotators, c) / annotators
    sums, _, bins = summed(two_classes(c), np.stack([hits, 1 - hits], axis=1))
    ratio = sums.residuals[0].dispersion(bins, soft=True, weighted=False)
    np.testing.assert_allclose(ratio[8:], 1 / annotators, rtol=0.15)
    assert (ratio <= 1.0).all()


def test_the_dispersion_is_not_that_of_a_bias(rng):
    """Overconfident by 0.1 everywhere, of shares that vary by a tenth: the gap is no noise."""
    c = rng.uniform(0.6, 1.0, 20_000)
    hits = rng.binomial(10, c - 0.1) / 10
    sums, _, bins = summed(two_classes(c), np.stack([hits, 1 - hits], axis=1))
    ratio = sums.residuals[0].dispersion(bins, soft=True, weighted=False)
    np.testing.assert_allclose(ratio[9:], 0.1, rtol=0.15)


def test_certain_labels_prove_nothing_about_few_rows():
    """All of 25 rows right at 99.9 %: residuals do not vary, and that is no certainty."""
    c = np.full(25, 0.999)
    soft = np.tile([1.0, 0.0], (25, 1))
    sums, cells, bins = summed(two_classes(c), soft)
    ratio = sums.residuals[0].dispersion(bins, soft=True, weighted=False)
    assert ratio[-1] > 0.9
    test = calibration_test(cells, np.random.default_rng(0), dispersion=ratio)
    assert test.p_value > 0.5


def test_weights_that_depend_on_labels_widen_the_test(rng):
    """Of labels 1, weight 4: the variance is that of w (s - c), above sum w**2 c (1 - c)."""
    c = rng.uniform(0.5, 1.0, 20_000)
    odds = (1 - c) / 4 / (c + (1 - c) / 4)
    labels = (rng.random(20_000) < odds).astype(int)
    w = np.where(labels == 1, 4.0, 1.0)
    sums, _, bins = summed(two_classes(c), labels, w)
    ratio = sums.residuals[0].dispersion(bins, soft=False, weighted=True)
    place = np.minimum(np.ceil(c * 15).astype(int) - 1, 14)
    residual = w * ((labels == 0) - c)
    seen = np.bincount(place, residual**2, 15)[8:]
    drawn = np.bincount(place, w**2 * c * (1 - c), 15)[8:]
    np.testing.assert_allclose(ratio[8:], np.maximum(seen / drawn, 1.0), rtol=0.25)


def test_rows_of_weight_1_have_the_plain_test(rng):
    """Labels that are drawn: the same distribution of draws, up to their random numbers."""
    c = rng.uniform(0.5, 1.0, 400)
    labels = (rng.random(400) > c).astype(int)
    sums, cells, bins = summed(two_classes(c), labels, np.ones(400))
    ratio = sums.residuals[0].dispersion(bins, soft=False, weighted=True)
    np.testing.assert_allclose(ratio, 1.0, atol=0.05)
    plain = calibration_test(cells, np.random.default_rng(0), 9999)
    weighted = calibration_test(cells, np.random.default_rng(0), 9999, np.ones(BINS))
    assert weighted.gap == plain.gap
    assert weighted.p_value == pytest.approx(plain.p_value, abs=0.03)
    assert weighted.gap_by_chance == pytest.approx(plain.gap_by_chance, rel=0.1)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("weights exponential", "ordinary"),
        ("shares of 3 annotators", "ordinary"),
        ("shares of 3 annotators", "one logit + 9"),
        ("Dirichlet around p", "ordinary"),
    ],
)
def test_calibrated_models_with_weights_are_seldom_found_wanting(case, kind):
    """A part of `make simulate`: 250 sets, of which 5 % and four deviations are 10.5 %."""
    assert verdict_share(case, kind, 10, 100, 250, seed=3) <= 0.105


def test_overconfident_models_are_found_sooner_by_soft_labels():
    by_shares = verdict_share("shares of 3 annotators", "ordinary", 10, 50, 100, 4, 1.5)
    by_labels = verdict_share("weights 1", "ordinary", 10, 50, 100, 4, 1.5)
    assert by_shares > by_labels + 0.1


@pytest.mark.parametrize("case", ["weights exponential", "shares of 3 annotators"])
def test_intervals_cover(case):
    """A part of `make simulate`: of 150 intervals 95 % and three deviations are 89.5 %."""
    held = coverage_share(case, 200, 150, seed=5)
    for name, share in held.items():
        assert share >= 0.895, name
