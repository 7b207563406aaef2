"""Mixtures of calibrators: shares, probabilities, files; and select, which makes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import reference_calibration as reference
from scipy.optimize import minimize

from hotmax import calibration as c
from hotmax.calibration import stacking
from hotmax.calibration.families import FAMILIES

DATA = Path(__file__).parent.parent / "data"
FEW = ["identity", "temperature", "vector", "matrix", "stacked"]


def skewed(rows, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 4
    return z, (z / 2 + np.arange(classes) / 2 + rng.gumbel(size=z.shape)).argmax(1)


@pytest.fixture(scope="module")
def selection():
    return c.select(*skewed(400), candidates=FEW)


def test_shares_are_nearly_the_likeliest(rng):
    losses = rng.exponential(size=(4, 500)) + np.array([[0.0], [0.1], [0.2], [2.0]])
    w = rng.uniform(0.5, 1.5, 500)

    def mean_loss(theta):
        shares = reference.softmax(np.append(0.0, theta)[None])[0]
        return w / w.sum() @ -np.log(shares @ np.exp(-losses))

    shares = stacking.shares_of(losses, w)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[3] == 0.0  # below 3 %
    mean = w / w.sum() @ stacking.mixed_losses(losses, shares)
    assert mean == pytest.approx(w / w.sum() @ -np.log(shares @ np.exp(-losses)), rel=1e-12)
    best = minimize(mean_loss, np.zeros(3)).fun
    assert best - 1e-5 < mean < best + 1e-3
    equal = stacking.shares_of(np.full((50, 10), 800.0), np.ones(10))
    np.testing.assert_allclose(equal, 0.02)


def test_losses_of_the_mixture_are_cross_fitted(rng):
    """The shares for a fold come from the others: by hand."""
    losses, w = rng.exponential(size=(3, 60)), np.ones(60)
    fold = np.arange(60) % 3
    found = stacking.stacked_losses(losses, w, fold)
    for number in range(3):
        shares = stacking.shares_of(losses[:, fold != number], w[fold != number])
        want = -np.log(shares @ np.exp(-losses[:, fold == number]))
        np.testing.assert_allclose(found[fold == number], want, rtol=1e-12)


def test_probabilities_are_those_of_the_parts_in_their_shares(selection):
    z, _ = skewed(50, seed=1)
    assert selection.chosen == "stacked"
    assert selection.calibrator.method == "stacked"
    parts = selection.calibrator.parameters_["parts"]
    assert {one["method"]: one["share"] for one in parts} == {
        method: share for method, share in selection.shares.items() if share > 0.0
    }
    want = sum(one["share"] * FAMILIES[one["method"]].apply(z, one["parameters"]) for one in parts)
    np.testing.assert_allclose(selection.calibrator.predict_proba(z), want, rtol=1e-15)
    np.testing.assert_allclose(want.sum(1), 1.0, rtol=1e-12)
    assert "share" in str(selection)


def test_without_stacked_nothing_is_mixed():
    found = c.select(*skewed(400), candidates=FEW[:-1])
    assert found.chosen in ("vector", "matrix")
    assert not found.shares
    with pytest.raises(ValueError, match="stacked mixes others"):
        c.select(*skewed(400), candidates=["stacked"])


def test_a_mixture_of_one_part_is_that_part():
    z, labels = skewed(400)
    found = c.select(z, labels, candidates=["identity", "vector", "stacked"])
    assert found.shares == {"identity": 0.0, "vector": 1.0}
    assert found.chosen == "vector"


def test_a_temperature_at_its_limit_has_no_share():
    z = np.random.default_rng(0).normal(size=(40, 3))
    found = c.select(z, z.argmax(1), candidates=["identity", "temperature", "vector", "stacked"])
    assert set(found.shares) == {"identity", "vector"}


def test_the_mixture_is_better_than_the_best_by_cross_validation():
    """Mean over splits of the nll of other rows: on one split, chance decides."""
    with np.load(DATA / "wideresnet-16-4-cifar-10.npz") as data:
        p, y = data["predictions"].astype(float), data["ground_truth"].astype(int).ravel()
    methods = ["softplus", "vector", "quadratic", "matrix"]
    gains = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(y))
        fit, test = order[:1000], order[1000:]
        pair = []
        for candidates in (methods, [*methods, "stacked"]):
            found = c.select(p[fit], y[fit], candidates=candidates, input="probabilities")
            q = found.calibrator.predict_proba(p[test])
            pair.append(c.nll(q, y[test], input="probabilities"))
        gains.append(pair[0] - pair[1])
    assert np.mean(gains) > 0.002


def test_a_calibrated_model_is_left_alone():
    """Identity or temperature: the one-standard-error rule finds no reason for more."""
    chosen = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((200, 3)) * 2
        labels = (z + rng.gumbel(size=z.shape)).argmax(1)
        methods = ["identity", "temperature", "vector", "softplus", "stacked"]
        chosen.append(c.select(z, labels, candidates=methods).chosen)
    assert sum(one in ("identity", "temperature") for one in chosen) >= 8


def test_shares_of_methods_that_have_no_part_are_none():
    z = np.random.default_rng(0).normal(size=(40, 3))
    found = c.select(z, z.argmax(1), candidates=["identity", "temperature", "vector", "stacked"])
    shares = {line.split()[0]: line.split()[5] for line in str(found).splitlines()[1:]}
    assert shares["temperature"] == "0.0%"
    assert shares["stacked"] == "100.0%"


def test_folds_do_not_depend_on_the_order_or_on_repeated_rows():
    """Weight 4 counts as four rows; shares of single folds were .24 apart."""
    z, labels = skewed(100, seed=1)
    test = skewed(500, seed=2)[0]
    p = c.Calibrator("stacked").fit(z, labels).predict_proba(test)
    order = np.random.default_rng(0).permutation(100)
    shuffled = c.Calibrator("stacked").fit(z[order], labels[order]).predict_proba(test)
    np.testing.assert_allclose(shuffled, p, atol=1e-6)
    weighted = c.Calibrator("stacked").fit(z, labels, np.full(100, 4.0)).predict_proba(test)
    repeated = c.Calibrator("stacked").fit(np.repeat(z, 4, 0), np.repeat(labels, 4))
    np.testing.assert_allclose(repeated.predict_proba(test), weighted, atol=0.05)


def test_equal_logits():
    """All rows are in one fold, and none is left to fit to."""
    z, labels = np.zeros((50, 3)), np.arange(50) % 3
    assert c.select(z, labels).chosen == "identity"
    p = c.Calibrator("stacked").fit(z, labels).predict_proba(z)
    np.testing.assert_allclose(p, 1 / 3, rtol=1e-15)


def test_few_rows_and_weights():
    z, labels = skewed(3)
    p = c.Calibrator("stacked").fit(z, labels).predict_proba(z)
    np.testing.assert_allclose(p, reference.softmax(z), rtol=1e-12)  # no rows to choose by
    z, labels = skewed(60)
    weights = np.where(np.arange(60) < 30, 1.0, 0.0)
    some = c.Calibrator("stacked").fit(z, labels, weights).predict_proba(z)
    half = c.Calibrator("stacked").fit(z[:30], labels[:30]).predict_proba(z)
    np.testing.assert_allclose(some, half, rtol=1e-12)


def test_files(selection, tmp_path):
    path, z = tmp_path / "stacked.json", skewed(50, seed=1)[0]
    selection.calibrator.save(path)
    want = selection.calibrator.predict_proba(z)
    np.testing.assert_array_equal(c.load(path).predict_proba(z), want)
    good = json.loads(path.read_text())
    parts = good["parameters"]["parts"]
    wrong = {
        "shares must": [{**parts[0], "share": 0.9}],
        "shares must not": [{**parts[0], "share": -0.5}, {**parts[1], "share": 1.5}],
        "one part only": [{**parts[0], "share": 0.5}] * 2,
        "list of up to": [],
        "a part must be": [{**parts[0], "more": 1}],
        "method must be one of": [{**parts[0], "method": "stacked"}],
        "is for two classes": [{**parts[0], "method": "platt"}],
        "has the parameters": [{**parts[0], "parameters": {}}],
        "share must hold": [{**parts[0], "share": "1"}],
    }
    for message, given in wrong.items():
        path.write_text(json.dumps({**good, "parameters": {"parts": given}}))
        with pytest.raises(ValueError, match=message):
            c.load(path)


def test_many_labels_with_mixtures_come_back(tmp_path):
    """498 outputs of three parts each: more objects than are read of other calibrators."""
    parts = [
        {"method": method, "share": 1 / 3, "parameters": {"line": np.array(line)}}
        for method, line in (("platt", [2.0, 0.1]), ("beta", [1.0, 1.0, 0.1]))
    ]
    parts.append({"method": "temperature", "share": 1 / 3, "parameters": {"temperature": 2.0}})
    one = c.Calibrator("stacked")._fitted({"parts": parts}, 2, 100)
    fitted = c.SigmoidCalibrator("stacked")
    fitted.calibrators_ = (one,) * 498
    fitted.binary_, fitted.n_features_in_ = False, 498
    fitted.save(tmp_path / "many.json")
    assert c.load(tmp_path / "many.json").n_features_in_ == 498
