"""The report: its numbers against other implementations."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
import reference_calibration as reference
from report_data import FITTING, SCORING, Y, Z, halves, rows_of, sample

import hotmax as hm

matplotlib.use("agg")


def test_before_and_after_are_those_of_rows_that_were_held_out(result):
    found = result.assessment
    temperature = reference.temperature(Z[FITTING][::5], Y[FITTING][::5])
    assert found.fit.temperature == pytest.approx(temperature, rel=0.2)  # of a fifth of the rows
    exact = hm.calibration.fit_temperature(Z[FITTING], Y[FITTING])  # tested by itself
    assert found.fit.temperature == pytest.approx(exact.temperature, rel=1e-9)
    assert found.fit.interval == pytest.approx(exact.interval, rel=1e-6)
    edges = np.arange(16) / 15
    for name, t in (("none", 1.0), ("temperature", exact.temperature)):
        one = found.score(name)
        confidence, correct, nll, brier = rows_of(t)
        assert one.accuracy.value == pytest.approx(correct.mean(), rel=1e-12)
        assert one.confidence == pytest.approx(confidence.mean(), rel=1e-7)
        assert one.nll.value == pytest.approx(nll.mean(), rel=1e-7)
        assert one.brier.value == pytest.approx(brier.mean(), rel=1e-7)
        want = reference.ece(confidence, correct, edges)
        assert one.ece.value == pytest.approx(want, abs=1e-7)
        error = 1.96 * nll.std(ddof=1) / np.sqrt(len(nll))
        assert one.nll.interval[0] == pytest.approx(nll.mean() - error, rel=1e-4)
        change = nll - rows_of()[2]
        assert one.nll_change.value == pytest.approx(change.mean(), rel=1e-6, abs=1e-12)
        wide = 1.96 * change.std(ddof=1) / np.sqrt(len(nll))
        assert one.nll_change.interval[1] == pytest.approx(change.mean() + wide, rel=1e-4, abs=1e-9)


def test_calibrators_are_those_of_the_library(result):
    """Fitted to all fitting rows, since these are few, and applied to the scoring rows."""
    scored = {one.method for one in result.assessment.scores}
    assert scored == {
        "none", "temperature", "ensemble", "vector", "matrix", "dirichlet", "histogram", "isotonic",
        "class_temperature", "quadratic", "softplus", "spline",
    }  # fmt: skip
    for method in ("vector", "isotonic", "histogram"):
        calibrator = hm.calibration.Calibrator(method).fit(Z[FITTING], Y[FITTING])
        p = calibrator.predict_proba(Z[SCORING])
        nll = -np.log(p[np.arange(len(p)), Y[SCORING]]).mean()
        one = result.assessment.score(method)
        assert one.nll.value == pytest.approx(nll, rel=1e-9)
        assert one.fitted_rows == FITTING.sum()


def test_the_interval_of_ece_is_that_of_the_metric(result):
    """But for the draws of the noise."""
    z, y = Z[SCORING], Y[SCORING]
    want = hm.calibration.ece(z, y, interval=True)
    got = result.assessment.before.ece
    assert got.value == pytest.approx(want.value, abs=1e-9)
    assert got.interval == pytest.approx(want.interval, abs=0.1 * (want.interval[1] - want.value))


def test_ece_by_chance_is_that_of_labels_drawn_from_the_predictions(result):
    confidence, _, _, _ = rows_of()
    rng = np.random.default_rng(5)
    place = np.searchsorted(np.arange(1, 15) / 15, confidence)
    n = len(confidence)
    lucky, gaps = [], []
    for _ in range(2000):
        drawn = rng.random(n) < confidence
        lucky.append(np.abs(np.bincount(place, confidence - drawn, 15)).sum() / n)
        gaps.append((confidence - drawn).mean())
    before = result.assessment.before
    assert before.ece_by_chance == pytest.approx(np.quantile(lucky, 0.95), rel=0.1)
    assert before.test.gap_by_chance == pytest.approx(np.quantile(gaps, [0.025, 0.975]), rel=0.15)
    assert before.test.p_value == 0.001


def test_classes(result):
    p, y = reference.softmax(Z[SCORING]), Y[SCORING]
    for one in result.assessment.worst_classes:
        rows = p.argmax(1) == one.number
        assert one.rows == rows.sum()
        assert one.confidence == pytest.approx(p.max(1)[rows].mean(), rel=1e-7)
        assert one.accuracy.value == pytest.approx((y[rows] == one.number).mean(), rel=1e-12)
    assert len(result.assessment.worst_classes) == 4
    sure = [one.confidence - one.accuracy.interval[1] for one in result.assessment.worst_classes]
    assert sure == sorted(sure, reverse=True)


def test_classes_that_are_rarely_predicted_are_not_called_the_worst():
    z, y = sample(400, 150)
    found = hm.report(z, y)
    rows = np.bincount(z[halves(400)[1]].argmax(1), minlength=150)
    assert all(rows[one.number] >= 10 for one in found.assessment.worst_classes)
    assert (rows < 10).all()
    assert "No class is predicted in 10 of the scoring rows" in found.to_html()


def test_conformal_sets(result):
    p = reference.softmax(Z)
    scores = 1 - p[FITTING][np.arange(FITTING.sum()), Y[FITTING]]
    n = len(scores)
    for one in result.assessment.sets:
        if one.method != "lac":
            continue
        threshold = np.sort(scores)[int(np.ceil((n + 1) * one.promised - 1e-9)) - 1]
        inside = 1 - p[SCORING] <= threshold
        held = inside[np.arange(len(inside)), Y[SCORING]].mean()
        assert one.coverage.value == pytest.approx(held, abs=2 / n)
        assert one.mean_size == pytest.approx(inside.sum(1).mean(), abs=5 / n)


def test_the_shape_of_predictions(result):
    p = reference.softmax(Z)
    entropy = -(p * np.log(p)).sum(1)
    shape = result.shape
    assert shape.confidence == pytest.approx(p.max(1).mean(), rel=1e-7)
    assert shape.entropy == pytest.approx(entropy.mean(), rel=1e-7)
    assert shape.effective[2] == pytest.approx(np.median(np.exp(entropy)), rel=1e-6)
    warmer = reference.softmax(Z, 1.1).max(1).mean() - p.max(1).mean()
    assert shape.slope == pytest.approx(warmer, rel=1e-6)
    assert shape.confidence_shares.sum() == pytest.approx(1.0)
    assert shape.effective_shares.sum() == pytest.approx(1.0)
    assert shape.saturation.saturated == pytest.approx((p.max(1) > 0.99).mean(), rel=1e-12)
    for t, value in zip(shape.temperatures[::8], shape.confidence_at[::8], strict=True):
        assert value == pytest.approx(reference.softmax(Z, t).max(1).mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("temperature", "verdict"),
    [(2.0, "overconfident"), (0.5, "underconfident"), (1.0, "no miscalibration found")],
)
def test_verdicts(temperature, verdict):
    assert hm.report(*sample(temperature=temperature, seed=3)).assessment.verdict == verdict


def test_errors_that_cancel_are_found():
    """Overconfident where sure, underconfident where not: right on average, and still wrong."""
    rng = np.random.default_rng(0)
    rows = 20_000
    confidence = np.where(np.arange(rows) % 2, 0.9, 0.6)
    z = np.stack([np.log(confidence / (1 - confidence)), np.zeros(rows)], axis=1)
    chance = np.where(np.arange(rows) % 2, 0.8, 0.7)
    labels = (rng.random(rows) > chance).astype(int)
    found = hm.report(z, labels).assessment
    assert found.verdict == "miscalibrated in places"
    assert found.before.ece.value == pytest.approx(0.1, abs=0.02)


def test_the_advice_is_the_simplest_that_is_not_clearly_worse():
    z, y = sample(6000, 3, seed=2)
    assert hm.report(z, y).assessment.advised == "temperature"
    tilted = z + np.array([3.0, 0.0, 0.0])  # a bias, which no temperature takes away
    found = hm.report(tilted, y).assessment
    assert found.advised in ("vector", "matrix", "dirichlet")
    assert found.score("vector").nll.value < found.score("temperature").nll.value
