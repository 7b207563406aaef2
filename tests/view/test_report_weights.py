"""hm.report with weights and soft labels: its numbers, and what each form of it says."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pytest
import reference_calibration as reference
from report_data import halves, sample

import hotmax as hm

matplotlib.use("agg")

Z, Y = sample(500, 3)
ZT, YT = sample(400, 3, seed=1)
RNG = np.random.default_rng(7)
W, WT = RNG.exponential(size=500), RNG.exponential(size=400)
TIMES, TIMES_T = RNG.integers(0, 4, 500), RNG.integers(0, 4, 400)
SOFT = RNG.multinomial(3, reference.softmax(Z, 2.0)) / 3
SOFT_T = RNG.multinomial(3, reference.softmax(ZT, 2.0)) / 3
# Penalties of the others are chosen by standard errors, which repeated rows make too small.
UNPENALISED = ("none", "temperature", "ensemble", "histogram", "isotonic")
LEFT_OUT = "Prediction sets and shares to hand to a person are left out"


@pytest.fixture(scope="module")
def weighted():
    return hm.report(Z, Y, sample_weight=W, test=(ZT, YT, WT))


@pytest.fixture(scope="module")
def softly():
    return hm.report(Z, SOFT, test=(ZT, SOFT_T))


def scores_of(temperature, targets):
    """(confidence, correctness, nll, Brier score) of the test rows, by plain formulas."""
    p = reference.softmax(ZT, temperature)
    q = np.eye(3)[targets] if targets.ndim == 1 else targets
    right = q[np.arange(len(p)), p.argmax(1)]
    return p.max(1), right, -(q * np.log(p)).sum(1), ((p - q) ** 2).sum(1)


def plain_ece(confidence, right, weights):
    place = np.searchsorted(np.arange(1, 15) / 15, confidence)
    return np.abs(np.bincount(place, weights * (confidence - right), 15)).sum() / weights.sum()


@pytest.mark.parametrize("kind", ["weights", "soft labels"])
def test_estimates_and_standard_errors(weighted, softly, kind):
    report, w = (weighted, WT) if kind == "weights" else (softly, np.ones(400))
    targets = YT if kind == "weights" else SOFT_T
    found = report.assessment
    for name, t in (("none", 1.0), ("temperature", found.fit.temperature)):
        one = found.score(name)
        confidence, right, nll, brier = scores_of(t, targets)
        assert one.confidence == pytest.approx(np.average(confidence, weights=w), rel=1e-7)
        assert one.accuracy.value == pytest.approx(np.average(right, weights=w), rel=1e-9)
        assert one.ece.value == pytest.approx(plain_ece(confidence, right, w), abs=1e-7)
        for got, values in ((one.nll, nll), (one.brier, brier)):
            mean = np.average(values, weights=w)
            error = np.sqrt(((w * (values - mean)) ** 2).sum() * 400 / 399) / w.sum()
            assert got.value == pytest.approx(mean, rel=1e-7)
            assert got.interval == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), 1e-4)
        change = nll - scores_of(1.0, targets)[2]
        assert one.nll_change.value == pytest.approx(np.average(change, weights=w), abs=1e-9)
    low, high = found.before.accuracy.interval
    assert low < found.before.accuracy.value < high


def test_the_temperature_is_that_of_the_weighted_likelihood(weighted, softly):
    for report, targets, w in ((weighted, Y, W), (softly, SOFT, None)):
        fit = hm.calibration.fit_temperature(Z, targets, sample_weight=w)
        assert report.assessment.fit.temperature == pytest.approx(fit.temperature, rel=1e-9)


def test_the_interval_of_the_temperature_is_that_of_its_gradient(weighted, softly):
    """The variance of the gradient over the squared curvature, and not the curvature alone."""
    for report, targets, w in ((weighted, np.eye(3)[Y], W), (softly, SOFT, np.ones(500))):
        fit = report.assessment.fit
        z = Z / fit.temperature
        p = reference.softmax(z)
        mean = (p * z).sum(1)
        gradient = w * (mean - (targets * z).sum(1))
        curvature = (w * ((p * z**2).sum(1) - mean**2)).sum()
        error = np.sqrt((gradient**2).sum() * 500 / 499) / curvature
        low, high = fit.interval_by_information
        assert np.log(high / low) / 2 == pytest.approx(1.96 * error, rel=1e-4)
        low, high = fit.interval
        assert np.log(high / low) / 2 == pytest.approx(1.96 * error, rel=0.05)


@pytest.mark.slow
def test_the_scale_of_weights_does_not_matter(weighted):
    scale = 1e-3
    other = hm.report(Z, Y, sample_weight=scale * W, test=(ZT, YT, scale * WT)).assessment
    for one, two in zip(weighted.assessment.scores, other.scores, strict=True):
        assert one.nll.value == pytest.approx(two.nll.value, rel=1e-6)
        assert one.test.gap == pytest.approx(two.test.gap, abs=1e-6)
        assert one.accuracy.interval == pytest.approx(two.accuracy.interval, rel=1e-6)
    assert other.fit.interval == pytest.approx(weighted.assessment.fit.interval, rel=1e-6)


def estimates(score):
    names = ("accuracy", "nll", "brier", "ece", "nll_change", "gap")
    found = {name: getattr(score, name).value for name in names}
    diagram = score.reliability
    return found | {
        "confidence": score.confidence,
        "smooth": diagram.smooth_ece,
        "bins": tuple(np.nan_to_num(diagram.accuracy)),
        "curve": tuple(diagram.curve[1][diagram.curve[2] > 1e-3]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "soft labels"])
def test_whole_weights_are_repeated_rows(kind):
    """In every estimate; repeated rows are no more certain for that, and the report says less."""
    y, yt = (Y, YT) if kind == "labels" else (SOFT, SOFT_T)
    one = hm.report(Z, y, sample_weight=TIMES, test=(ZT, yt, TIMES_T)).assessment
    rows, more = np.repeat(np.arange(500), TIMES), np.repeat(np.arange(400), TIMES_T)
    two = hm.report(Z[rows], y[rows], test=(ZT[more], yt[more])).assessment
    assert one.fit.temperature == pytest.approx(two.fit.temperature, rel=1e-9)
    assert one.fit.nll == pytest.approx(two.fit.nll, rel=1e-9)
    for method in UNPENALISED:
        got, want = (estimates(found.score(method)) for found in (one, two))
        for name in got:
            assert got[name] == pytest.approx(want[name], rel=1e-6, abs=1e-9), (method, name)
    assert one.risk.aurc == pytest.approx(two.risk.aurc, rel=1e-9)
    np.testing.assert_allclose(one.risk.risk, two.risk.risk, atol=1e-12)
    classes = {each.number: each for each in two.worst_classes}
    for each in one.worst_classes:
        same = classes[each.number]
        assert each.accuracy.value == pytest.approx(same.accuracy.value)
        assert (each.gap, each.gap_after) == pytest.approx((same.gap, same.gap_after), abs=1e-9)
    for name in ("accuracy", "nll"):
        low, high = getattr(one.before, name).interval
        least, most = getattr(two.before, name).interval
        assert high - low > 1.2 * (most - least)


@pytest.mark.parametrize("soft", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_rows_of_weight_0_are_left_out(soft):
    """The split, all intervals and the text are those of the other rows, whatever these hold."""
    y = SOFT if soft else Y
    there = RNG.random(500) < 0.6
    spoiled = np.where(there[:, None], Z, np.nan)
    one = hm.report(spoiled, y, sample_weight=np.where(there, W, 0.0), by=Y)
    two = hm.report(Z[there], y[there], sample_weight=W[there], by=Y[there])
    assert one.to_json() == two.to_json()
    assert one.rows == there.sum()


@pytest.mark.slow
def test_weights_of_0_and_1_give_the_whole_report():
    there = np.arange(500) % 2 == 1
    one = hm.report(Z, Y, sample_weight=there.astype(float))
    two = hm.report(Z[there], Y[there])
    found, want = (json.loads(each.to_json()) for each in (one, two))
    assert found["assessment"].pop("weights")["score_effective_rows"] == 125
    assert found == want
    assert "weighted: the scoring rows are as certain as 125 of equal weight" in str(one)
    assert LEFT_OUT not in str(one)


def test_every_form_says_that_there_are_weights(weighted, softly):
    rows = round(WT.sum() ** 2 / (WT**2).sum())
    text = f"weighted: the scoring rows are as certain as {rows} of equal weight"
    for said in (str(weighted), weighted.to_html()):
        assert text in said
        assert LEFT_OUT in said
    used = json.loads(weighted.to_json())["assessment"]["weights"]
    assert used["sample_weight"] is True
    assert used["soft_labels"] is False
    assert used["score_effective_rows"] == pytest.approx(WT.sum() ** 2 / (WT**2).sum())
    assert used["fit_effective_rows"] == pytest.approx(W.sum() ** 2 / (W**2).sum())
    for said in (str(softly), softly.to_html()):
        assert "soft labels: right is the mean probability" in said
        assert "400 rows of equal weight score" in said
        assert LEFT_OUT in said
    used = json.loads(softly.to_json())["assessment"]["weights"]
    assert (used["sample_weight"], used["soft_labels"]) == (False, True)
    assert used["score_effective_rows"] == 400
    page = weighted.to_html()
    assert "Sets that hold the answer" not in page
    assert "What to hand to a person" not in page
    assert "What needs no labels counts each row once" in page


def test_reports_without_them_say_nothing(result):
    assert "weights" not in json.loads(result.to_json())["assessment"]
    assert "weight" not in str(result)
    assert "What to hand to a person" in result.to_html()


def test_by_group_takes_weights():
    group = np.arange(500) % 2
    found = hm.report(Z, Y, sample_weight=W, by=group).groups
    p = reference.softmax(Z)
    for one in found.groups:
        own = group == int(one.name)
        right = np.average(p.argmax(1)[own] == Y[own], weights=W[own])
        assert one.accuracy.value == pytest.approx(right)
        assert one.confidence == pytest.approx(np.average(p.max(1)[own], weights=W[own]))
        nll = -np.log(p[np.arange(500), Y])[own]
        assert one.nll.value == pytest.approx(np.average(nll, weights=W[own]))
        assert one.rows == own.sum()


@pytest.mark.parametrize("soft", [False, True])
def test_a_calibrator_takes_weights(soft):
    y = SOFT if soft else Y
    fitted = hm.calibration.TemperatureScaling().fit(Z, y, W)
    found = hm.report(Z, y, sample_weight=W, calibrator=fitted).assessment
    held = halves(500)[1]
    p = reference.softmax(Z, fitted.temperature_)[held]
    q = (y if soft else np.eye(3)[y])[held]
    want = np.average(-(q * np.log(p)).sum(1), weights=W[held])
    assert found.before.nll.value == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_sources_and_dask_give_the_same(soft, lazy):
    array = pytest.importorskip("dask.array")
    y = SOFT if soft else Y
    want = hm.report(Z, y, sample_weight=W)
    if lazy:
        got = hm.report(
            array.from_array(Z, chunks=(120, 3)),
            array.from_array(y, chunks=(120, 3) if soft else 120),
            sample_weight=array.from_array(W, chunks=120),
        )
    else:
        got = hm.report(hm.io.source(Z, y), sample_weight=W)
    assert got.to_json() == want.to_json()


def test_rows_that_are_not_in_memory(monkeypatch):
    """Passes over blocks, in which rows of weight 0 count nowhere; the split is another."""
    import hotmax.calibration.assessment as assessment
    import hotmax.view.report_inputs as inputs

    weights = np.where(np.arange(500) % 5 == 0, 0.0, W)
    monkeypatch.setattr(assessment, "MOST_IN_MEMORY", 10)
    monkeypatch.setattr(inputs, "MOST_IN_MEMORY", 10)
    monkeypatch.setattr(hm.calibration.temperature, "MOST_IN_MEMORY", 10)
    got = hm.report(hm.io.source(Z, Y), sample_weight=weights)
    held = halves(500)[1] & (weights > 0)
    p = reference.softmax(Z)
    want = np.average(-np.log(p[np.arange(500), Y])[held], weights=weights[held])
    assert got.assessment.before.nll.value == pytest.approx(want, rel=1e-9)
    assert got.assessment.score_rows == held.sum()
    assert got.rows == 400
    total = weights[held].sum() ** 2 / (weights[held] ** 2).sum()
    assert got.assessment.weights.score_effective_rows == pytest.approx(total)
    assert got.shape.confidence == pytest.approx(p.max(1)[weights > 0].mean())


def test_an_estimator_with_names_weights_and_soft_labels():
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LogisticRegression().fit(Z, Y)
    names = ["ant", "bee", "cat"]
    found = hm.report(model, ZT, YT, class_names=names, sample_weight=WT)
    assert found.class_names == ("ant", "bee", "cat")
    want = hm.report(model.decision_function(ZT), YT, names, sample_weight=WT)
    assert found.to_json() == want.to_json()
    softly = hm.report(model, ZT, SOFT_T)
    assert softly.assessment.weights.soft_labels
    assert softly.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((Z,), {"sample_weight": W}, "sample_weight needs labels"),
        ((Z, Y), {"sample_weight": W[:5]}, "sample_weight must have shape"),
        ((Z, Y), {"sample_weight": -W}, "sample_weight must be finite and not negative"),
        ((Z, Y), {"sample_weight": 0 * W}, "no row is left"),
        ((Z, Y), {"sample_weight": np.where(np.arange(500) < 499, 0.0, 1.0)}, "at least 2 rows"),
        ((Z, Y), {"sample_weight": 1e200 * W}, "the largest sample_weight"),
        ((hm.io.source(Z, Y),), {"sample_weight": -W}, "sample_weight must be finite"),
        ((hm.io.source(Z, Y),), {"sample_weight": W[:5]}, "sample_weight must have shape"),
        ((hm.io.source(Z, Y),), {"sample_weight": ["a"] * 500}, "sample_weight must be numbers"),
        ((Z, SOFT[:, :2]), {}, "labels must have shape"),
        ((Z, 2 * SOFT), {}, "labels that are probabilities"),
        ((Z, Y), {"test": (ZT, SOFT_T)}, "its labels must be soft if labels are"),
        ((Z, Y), {"test": (ZT, YT, WT[:3])}, "test: sample_weight must have shape"),
        ((Z, Y), {"test": (ZT, YT, WT, WT)}, "test must be"),
        ((Z, Y, ["a", "b", "c"]), {"class_names": ["a", "b", "c"]}, "class_names is given twice"),
        ((Z, Y, None, None), {}, "report takes logits, labels and class_names"),
        ((Z, Y), {"weight": W}, "unexpected keyword argument 'weight'"),
        (
            (Z, Y),
            {"test": (ZT, YT), "sample_weight": np.r_[np.ones(499), np.nan]},
            "sample_weight must be finite",
        ),
    ],
)
def test_bad_weights_and_soft_labels_are_named(arguments, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        hm.report(*arguments, **options)


def test_no_weight_in_the_test_set_is_refused():
    with pytest.raises(ValueError, match="sample_weight must not be 0 in all rows of the test set"):
        hm.report(Z, Y, test=(ZT, YT, 0 * WT))
