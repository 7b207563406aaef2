"""Binary and multilabel outputs: each a calibrator of two classes; files; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import reference_calibration as reference

from hotmax import calibration as c


def outputs(rows=300, labels=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, labels)) * 4
    return x, (x / 2 + 0.7 + rng.logistic(size=x.shape) > 0).astype(int)


@pytest.mark.parametrize("method", ["temperature", "platt", "beta", "venn_abers", "vector"])
def test_each_output_is_a_calibrator_of_two_classes(method):
    x, y = outputs()
    p = c.SigmoidCalibrator(method).fit(x, y).predict_proba(x)
    assert p.shape == x.shape
    for label in range(3):
        pairs = np.stack([0 * x[:, label], x[:, label]], axis=1)
        alone = c.Calibrator(method).fit(pairs, y[:, label]).predict_proba(pairs)[:, 1]
        np.testing.assert_array_equal(p[:, label], alone)
        one = c.SigmoidCalibrator(method).fit(x[:, label], y[:, label] == 1)
        np.testing.assert_array_equal(one.predict_proba(x[:, label]), alone)
        np.testing.assert_array_equal(one.predict(x[:, label]), alone > 0.5)


def test_the_temperature_of_a_sigmoid():
    """The likeliest T of sigmoid(x / T), on a grid."""
    x, y = outputs(labels=1)
    x, y = x[:, 0], y[:, 0]
    found = c.SigmoidCalibrator().fit(x, y).calibrators_[0].temperature_
    grid = found * np.array([0.99, 1.0, 1.01])
    losses = [np.logaddexp(0.0, -(2 * y - 1) * x / t).mean() for t in grid]
    assert np.argmin(losses) == 1


def test_probabilities_and_metrics():
    x, y = outputs(labels=1)
    x, y = x[:, 0], y[:, 0]
    p = 1 / (1 + np.exp(-x))
    fits = [
        c.SigmoidCalibrator(input=kind).fit(given, y).predict_proba(given)
        for kind, given in (("logits", x), ("probabilities", p))
    ]
    np.testing.assert_allclose(*fits, rtol=1e-6)
    pairs = c.as_two_classes(p, input="probabilities")
    assert c.nll(pairs, y, input="probabilities") == pytest.approx(
        -np.log(np.where(y == 1, p, 1 - p)).mean(), rel=1e-12
    )
    np.testing.assert_allclose(reference.softmax(c.as_two_classes(x)), pairs, rtol=1e-9)


def test_weights_and_select():
    x, y = outputs(200)
    w = np.random.default_rng(1).integers(1, 3, 200)
    weighted = c.SigmoidCalibrator().fit(x, y, w).predict_proba(x)
    repeated = c.SigmoidCalibrator().fit(np.repeat(x, w, axis=0), np.repeat(y, w, axis=0))
    np.testing.assert_allclose(weighted, repeated.predict_proba(x), rtol=1e-9)
    chosen = c.SigmoidCalibrator("select").fit(x[:, :1], y[:, :1])
    pairs = c.as_two_classes(x[:, 0])
    want = c.select(pairs, y[:, 0]).calibrator.predict_proba(pairs)[:, 1]
    np.testing.assert_array_equal(chosen.predict_proba(x[:, :1])[:, 0], want)


@pytest.mark.parametrize("binary", [True, False])
def test_saved_and_loaded(tmp_path, binary):
    x, y = outputs()
    x, y = (x[:, 0], y[:, 0]) if binary else (x, y)
    fitted = c.SigmoidCalibrator("beta").fit(x, y)
    path = tmp_path / "sigmoids.json"
    fitted.save(path)
    again = c.load(path)
    assert type(again) is c.SigmoidCalibrator
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))
    with pytest.raises(FileExistsError):
        fitted.save(path)
    data = json.loads(path.read_text())
    for name, value in {
        "version": 9,
        "binary": 2,
        "calibrators": [],
        "input": "odds",
        "method": "platt",
        "more": 1,
    }.items():
        path.write_text(json.dumps({**data, name: value}))
        with pytest.raises(ValueError, match=f"{path}"):
            c.load(path)
    data["calibrators"][0]["classes"] = 3
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="two classes"):
        c.load(path)


def test_refused():
    x, y = outputs(20)
    fitted = c.SigmoidCalibrator().fit(x, y)
    with pytest.raises(ValueError, match=r"\(rows, 3\)"):
        fitted.predict_proba(x[:, :2])
    with pytest.raises(ValueError, match="shape of the outputs"):
        c.SigmoidCalibrator().fit(x, y[:, 0])
    with pytest.raises(ValueError, match="0 or 1"):
        c.SigmoidCalibrator().fit(x, y + 1)
    with pytest.raises(ValueError, match="nan"):
        c.SigmoidCalibrator().fit(x * np.nan, y)
    with pytest.raises(ValueError, match=r"in 0\.\.1"):
        c.SigmoidCalibrator(input="probabilities").fit(x, y)
    with pytest.raises(TypeError, match="real numbers"):
        c.as_two_classes(["a"])
    with pytest.raises(ValueError, match="method must be one of"):
        c.SigmoidCalibrator("sigmoid").fit(x, y)
    with pytest.raises(Exception, match="not fitted"):
        c.SigmoidCalibrator().predict_proba(x)
