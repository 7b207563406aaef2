"""Independent labels: numbers against plain NumPy, the level of the verdict, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest
from simulation import labels as simulation

import hotmax as hm
from hotmax import calibration as c
from hotmax.calibration.by_label import COARSE_BINS, LabelSums, label_test
from hotmax.calibration.chance import calibration_test


def outputs(rows=400, labels=4, temperature=1.0, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, labels)) * 3 - 1
    return z, (z / temperature + rng.logistic(size=z.shape) > 0).astype(int)


def naive_ece(p, y, bins=15):
    place = np.minimum(np.ceil(p * bins).astype(int) - 1, bins - 1)
    return sum(abs((p - y)[place == b].sum()) for b in range(bins)) / p.size


@pytest.mark.parametrize("input", ["logits", "probabilities"])
def test_numbers_by_label(input):
    z, y = outputs()
    p = 1 / (1 + np.exp(-z))
    found = c.by_label(z if input == "logits" else p, y, input=input)
    losses = np.logaddexp(0, np.where(y == 1, -z, z))
    for j, one in enumerate(found.labels):
        assert (one.name, one.rows) == (str(j), 400)
        assert one.base_rate.value == pytest.approx(y[:, j].mean(), rel=1e-12)
        assert one.probability == pytest.approx(p[:, j].mean(), rel=1e-12)
        assert one.gap.value == pytest.approx(p[:, j].mean() - y[:, j].mean(), abs=1e-12)
        low, high = one.base_rate.interval
        assert one.gap.interval == pytest.approx((one.probability - high, one.probability - low))
        assert one.nll.value == pytest.approx(losses[:, j].mean(), rel=1e-12)
        width = 1.959964 * losses[:, j].std() / 20
        assert one.nll.interval[1] - one.nll.value == pytest.approx(width, rel=2e-3)
        assert one.ece.value == pytest.approx(naive_ece(p[:, j], y[:, j]), rel=1e-9)
        assert one.ece.interval[0] <= one.ece.value <= one.ece.interval[1]
    assert found.nll.value == pytest.approx(losses.mean(), rel=1e-12)
    assert found.reliability.ece == pytest.approx(naive_ece(p.ravel(), y.ravel()), rel=1e-9)
    assert found.reliability.counts.sum() == y.size
    order = sorted(found.labels, key=lambda one: one.test.p_value)
    highest = 0.0
    for place, one in enumerate(order):  # Holm's rule, step by step
        highest = max(highest, min(1.0, one.test.p_value * (4 - place)))
        assert one.adjusted == pytest.approx(highest)


def test_temperature_and_evaluate():
    z, y = outputs(temperature=2.0)
    names = ["a", "b", "c", "d"]
    one = c.by_label(z, y, temperature=2.0, class_names=names)
    two = c.evaluate(z / 2, y, class_names=names, multilabel=True)
    assert str(one) == str(two)
    p = 1 / (1 + np.exp(-z))
    three = c.by_label(p, y, temperature=2.0, input="probabilities", class_names=names)
    assert three.nll.value == pytest.approx(one.nll.value, rel=1e-9)
    single = c.by_label(z[:, 0], y[:, 0])
    assert single.labels[0].nll.value == c.by_label(z[:, :1], y[:, :1]).labels[0].nll.value


def test_blocks_in_any_order():
    z, y = outputs(301)
    whole = LabelSums(4).update(z, y, "logits", 1.0).result("abcd", 0)
    parts = [LabelSums(4).update(z[s], y[s], "logits", 1.0) for s in np.s_[:100, 100:250, 250:]]
    merged = parts[2].merge(parts[0]).merge(parts[1]).result("abcd", 0)
    assert str(whole) == str(merged)
    assert whole.nll == merged.nll


def test_words_and_what_is_found():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 4)) * 3
    shift = np.array([0.0, 1.0, -1.0, 0.0])
    scale = np.array([1.0, 1.0, 1.0, 3.0])
    y = z / scale + shift + rng.logistic(size=z.shape) > 0
    found = c.by_label(z, y, class_names=["fine", "low", "high", "sure"])
    assert found.found == ("low", "high", "sure")
    assert [one.verdict for one in found.labels] == [
        "no miscalibration found",
        "probabilities too low",
        "probabilities too high",
        "miscalibrated in places",
    ]
    assert found.verdict == "miscalibrated: 3 of 4 labels"
    assert c.by_label(z[:, 0], y[:, 0]).verdict == "no miscalibration found in 1 label"
    text = str(found)
    assert "adjusted for 4 labels by Holm's rule" in text
    assert "5 at most" in text
    assert "<pre>" in found._repr_html_()
    assert found.plot().get_ylabel() == 'share of "yes"'


def test_small_p_values_of_many_labels_come_from_more_samples():
    """With 999 samples no label of 100 could be found: 100 times 0.001 is above 5 %."""
    z, y = outputs(500, 1, temperature=4.0)
    cells = LabelSums(1).update(z, y, "logits", 1.0).cells[0].values()
    few = label_test(cells, 1, np.random.default_rng(0)).p_value
    many = label_test(cells, 100, np.random.default_rng(0)).p_value
    assert few >= 0.001
    assert many * 100 <= 0.05
    wide = calibration_test(
        cells.reshape(COARSE_BINS, -1, cells.shape[1]).sum(1), np.random.default_rng(0)
    )
    fine = calibration_test(cells, np.random.default_rng(0))
    assert wide.gap == pytest.approx(fine.gap)
    assert wide.gap_by_chance[1] == pytest.approx(fine.gap_by_chance[1], rel=0.15)


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_false_verdicts(shared):
    """Of 150 calibrated models; labels of one row may depend on each other."""
    false = simulation.found_share(4, 60, 150, 1, shared=shared)
    assert false <= 0.065 + 2 * (0.05 * 0.95 / 150) ** 0.5
    assert simulation.found_share(4, 60, 40, 2, temperature=3.0) > 0.8


def test_refused():
    z, y = outputs(20)
    with pytest.raises(ValueError, match=r"targets must have the shape of the outputs, \(20, 4\)"):
        c.by_label(z, y[:, 0])
    with pytest.raises(ValueError, match="targets must be 0 or 1"):
        c.by_label(z, y + 1)
    with pytest.raises(ValueError, match="all of them lie in 0"):
        c.by_label(hm.softmax(z), y)
    with pytest.raises(ValueError, match="outputs must be probabilities"):
        c.by_label(z, y, input="probabilities")
    with pytest.raises(ValueError, match="class_names must have 4 names"):
        c.by_label(z, y, class_names=["a"])
    with pytest.raises(ValueError, match="'a' twice"):
        c.by_label(z, y, class_names=["a", "a", "b", "c"])
    with pytest.raises(ValueError, match=r"shape \(rows, labels\)"):
        c.by_label(z[:0], y[:0])
    with pytest.raises(TypeError, match="targets must be given"):
        c.evaluate(z, multilabel=True)
    with pytest.raises(ValueError, match="multilabel takes no sample_weight"):
        c.evaluate(z, y, sample_weight=np.ones(20), multilabel=True)
    with pytest.raises(ValueError, match="bins other than 15"):
        c.evaluate(z, y, bins=10, multilabel=True)
    wide = np.zeros((2, 1001))
    with pytest.raises(ValueError, match="1001 labels, and 1000 are tested together"):
        c.by_label(wide, wide)


# --- the report -------------------------------------------------------------------------------


def test_the_report(tmp_path):
    z, y = outputs(600, 3, temperature=2.5)
    result = hm.report(z, y, ["cat", "<dog>", "fox"], title="Labels", multilabel=True)
    assert result.verdict == "miscalibrated: 3 of 3 labels"
    assert result.fit_rows + result.score_rows == result.rows == 600
    assert all(1.8 < t < 3.3 for t in result.temperatures)
    assert result.nll_change.interval[1] < 0
    assert result.nll_change.value == pytest.approx(
        result.after.nll.value - result.before.nll.value, rel=1e-9
    )
    assert result.after.verdict == "no miscalibration found in 3 labels"
    text = str(result)
    for part in ("Labels", "independent labels", "Holm's rule", "base rate", "<dog>", "p adj."):
        assert part in text
    data = json.loads(result.to_json())
    assert data["before"]["labels"][0]["verdict"] == result.before.labels[0].verdict
    assert data["before"]["found"] == ["cat", "<dog>", "fox"]
    assert set(data["nll_change"]) == {"value", "interval"}
    page = result.to_html()
    assert "&lt;dog&gt;" in page
    assert "<dog>" not in page
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert len(page) < 500_000
    result.save(tmp_path / "a.html")
    with pytest.raises(FileExistsError):
        result.save(tmp_path / "a.html")
    assert "srcdoc" in result._repr_html_()
    assert "3 labels together" in result.plot().get_title(loc="left")


def test_report_on_a_test_set_and_through_a_calibrator():
    z, y = outputs(800, 3, temperature=2.5)
    fitted = c.SigmoidCalibrator().fit(z[:400], y[:400])
    tested = hm.report(z[:400], y[:400], test=(z[400:], y[400:]), multilabel=True)
    assert (tested.fit_rows, tested.score_rows) == (400, 400)
    want = [one.temperature_ for one in fitted.calibrators_]
    np.testing.assert_allclose(tested.temperatures, want, rtol=1e-6)
    own = hm.report(z[400:], y[400:], calibrator=fitted, multilabel=True)
    assert own.verdict == "no miscalibration found in 3 labels"
    p = 1 / (1 + np.exp(-z))
    same = hm.report(p[400:], y[400:], calibrator=fitted, input="probabilities", multilabel=True)
    assert same.before.nll.value == pytest.approx(own.before.nll.value, rel=1e-9)


def test_labels_that_fix_no_temperature():
    z, y = outputs(200, 2)
    y[:, 1] = z[:, 1] > 0  # separable
    result = hm.report(z, y, multilabel=True)
    assert result.limits == ("1",)
    assert result.temperatures[1] == 1.0
    assert "no temperature" in str(result)


def test_reports_that_are_refused():
    z, y = outputs(20)
    with pytest.raises(ValueError, match="by is not for multilabel"):
        hm.report(z, y, by=np.zeros(20, int), multilabel=True)
    with pytest.raises(TypeError, match="labels must be given"):
        hm.report(z, multilabel=True)
    with pytest.raises(ValueError, match="at least 2 rows"):
        hm.report(z[:1], y[:1], multilabel=True)
    with pytest.raises(ValueError, match="test must have 4 labels, got 3"):
        hm.report(z, y, test=(z[:, :3], y[:, :3]), multilabel=True)
    with pytest.raises(TypeError, match=r"test must be \(logits, labels\)"):
        hm.report(z, y, test=z, multilabel=True)
    with pytest.raises(TypeError, match="SigmoidCalibrator"):
        hm.report(z, y, calibrator=c.TemperatureScaling(), multilabel=True)
    fitted = c.SigmoidCalibrator().fit(z[:, :2], y[:, :2])
    with pytest.raises(ValueError, match="fitted to 2 labels, got 4"):
        hm.report(z, y, calibrator=fitted, multilabel=True)


def test_frames_in_another_order_are_refused():
    rng = np.random.default_rng(0)
    z = pandas.DataFrame(rng.normal(size=(50, 3)), columns=["a", "b", "c"])
    y = pandas.DataFrame(rng.random((50, 3)) < 0.5, columns=["a", "b", "c"])
    turned = ["c", "b", "a"]
    assert hm.report(z, y, multilabel=True).class_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="labels must have its columns in the order of logits"):
        hm.report(z, y[turned], multilabel=True)
    with pytest.raises(ValueError, match="test must have the columns of the fit"):
        hm.report(z, y, test=(z[turned], y), multilabel=True)
    own = hm.calibration.SigmoidCalibrator().fit(z, y)
    with pytest.raises(ValueError, match="logits must have the columns of the fit"):
        hm.report(z[turned], y[turned], calibrator=own, multilabel=True)


@pytest.mark.parametrize(("value", "input"), [(np.inf, "logits"), (0.0, "probabilities")])
def test_certain_and_wrong_outputs_are_named(value, input):
    outputs = np.random.default_rng(0).random((50, 3)) + (input == "logits")
    targets = np.arange(150).reshape(50, 3) % 2
    targets[37, 1], outputs[37, 1] = 1, value
    with pytest.raises(ValueError, match="row 37, label '1' holds"):
        hm.report(outputs, targets, multilabel=True, input=input)
