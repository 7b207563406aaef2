"""The calibrators: scikit-learn's conventions, and what is needed for what."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import reference_calibration as reference
from calibration_samples import MANY, ONE_BY_ONE, sample
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB

from hotmax import calibration as c

# --- scikit-learn -----------------------------------------------------------------------------


def test_conventions():
    scaling = c.TemperatureScaling(input="probabilities")
    assert scaling.get_params() == {"input": "probabilities", "prior": None}
    assert clone(scaling).input == "probabilities"
    vector = c.Calibrator("vector", penalty=2.0)
    assert clone(vector).get_params() == vector.get_params()
    assert vector.set_params(penalty=3.0).penalty == 3.0
    z, labels = sample()
    fitted = c.TemperatureScaling().fit(z, labels)
    assert (
        fitted.temperature_ == fitted.fit_.temperature == c.fit_temperature(z, labels).temperature
    )
    assert fitted.score(z, labels) == (z.argmax(1) == labels).mean()
    scores = cross_val_score(c.Calibrator("vector"), z, labels, scoring="neg_log_loss", cv=3)
    assert np.isfinite(scores).all()


def test_not_fitted_and_wrong_shapes():
    for call in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(c.TemperatureScaling(), call)([[1.0, 2.0]])
    with pytest.raises(ValueError, match="labels of both classes"):
        c.Calibrator("platt", penalty=0.0).fit(sample(9, 2)[0], np.zeros(9, int))
    fitted = c.TemperatureScaling().fit(*sample())
    with pytest.raises(ValueError, match="4 classes"):
        fitted.predict_proba([[1.0, 2.0]])
    with pytest.raises(ValueError, match="method must be one of"):
        c.Calibrator("temprature").fit(*sample())
    with pytest.raises(ValueError, match="penalty"):
        c.Calibrator("vector", penalty=-1.0).fit(*sample())
    z, labels = sample()
    z[7, 2] = np.nan
    for method in MANY + ONE_BY_ONE:
        with pytest.raises(ValueError, match="row 7 holds nan"):
            c.Calibrator(method).fit(z, labels)


def test_calibrate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = np.array(["c", "a", "b"])[(X[:, :3] * 2 + rng.gumbel(size=(900, 3))).argmax(1)]
    for model in (LogisticRegression(C=1e3), GaussianNB()):
        model.fit(X[:200], y[:200])
        for method in ("temperature", "vector"):
            calibrated = c.calibrate(model, X[200:], y[200:], method=method)
            p = calibrated.predict_proba(X)
            assert calibrated.classes_.tolist() == ["a", "b", "c"]
            np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
            assert calibrated.score(X, y) > 0.6
            index = np.searchsorted(["a", "b", "c"], y[200:])
            before = model.predict_proba(X[200:])
            assert c.nll(p[200:], index, input="probabilities") <= c.nll(
                before, index, input="probabilities"
            )
    with pytest.raises(ValueError, match="has not seen"):
        c.calibrate(model, X, np.full(900, "z"))
    with pytest.raises(TypeError, match="decision_function"):
        c.calibrate(object(), X, y)


@pytest.mark.parametrize("model", [LogisticRegression(), GaussianNB()])
def test_the_calibrator_of_a_classifier_is_saved(model, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.array(["c", "a", "b"])[(X + rng.gumbel(size=(300, 3))).argmax(1)]
    calibrated = c.calibrate(model.fit(X[:100], y[:100]), X[100:], y[100:])
    path = tmp_path / "calibrator.json"
    calibrated.save(path)
    joined = c.CalibratedClassifier(model, c.load(path))
    np.testing.assert_array_equal(joined.predict_proba(X), calibrated.predict_proba(X))
    assert joined.predict(X).tolist() == calibrated.predict(X).tolist()
    with pytest.raises(FileExistsError, match="exists already"):
        calibrated.save(path)
    calibrated.save(path, force=True)


@pytest.mark.parametrize("method", ["temperature", "vector", "isotonic", "histogram"])
def test_classifiers_that_give_zeros(method):
    """A forest that has seen no leaf with the label: the optimum of clipped probabilities."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, :3] * 2 + rng.gumbel(size=(600, 3))).argmax(1)
    forest = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    q = forest.predict_proba(X[200:])
    assert (q[np.arange(400), y[200:]] == 0).any()
    calibrated = c.calibrate(forest, X[200:], y[200:], method=method)
    p = calibrated.predict_proba(X[200:])
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    assert np.isfinite(c.nll(p, y[200:], input="probabilities"))
    if method == "temperature":
        want = reference.temperature(np.log(np.maximum(q, 1e-12)), y[200:])
        assert calibrated.calibrator.temperature_ == pytest.approx(want, rel=1e-9)
        theirs = CalibratedClassifierCV(FrozenEstimator(forest), method="temperature")
        theirs.fit(X[200:], y[200:])
        assert c.nll(p, y[200:], input="probabilities") <= log_loss(
            y[200:], theirs.predict_proba(X[200:])
        )
    with pytest.raises(ValueError, match=r"probability 0.*clip"):
        c.Calibrator(method, input="probabilities").fit(q, y[200:])


def test_one_row_that_looks_like_probabilities():
    """By chance a row of logits may: refused where labels are fitted, not where rows are served."""
    fitted = c.TemperatureScaling().fit(*sample(classes=2))
    assert fitted.predict_proba([[0.25, 0.75]]).shape == (1, 2)
    assert c.nll([[0.25, 0.75]], [1]) > 0


# --- what is needed for what ------------------------------------------------------------------


WITHOUT = """
    import sys
    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("sklearn", "matplotlib"):
                raise ImportError(name)
    sys.meta_path.insert(0, Refuse())
    import numpy as np, hotmax as hm
    z = np.random.default_rng(0).normal(size=(50, 3)); y = z.argmax(1); y[:9] = 0
    c = hm.calibration
    print(c.fit_temperature(z, y).converged, c.evaluate(z, y).rows, c.conformal.fit(z, y).rows)
    shown = c.reliability(z, y)
    for call in (lambda: c.TemperatureScaling, lambda: c.select, lambda: shown.plot()):
        try:
            call()
        except ImportError as error:
            print(error)
    try:
        c.nothing
    except AttributeError as error:
        print(error)
"""


def test_only_the_calibrators_need_scikit_learn():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(WITHOUT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True 50.0 50",
        'calibrators need scikit-learn: pip install "hotmax[calibration]"',
        'calibrators need scikit-learn: pip install "hotmax[calibration]"',
        'plots need matplotlib: pip install "hotmax[plot]"',
        "module 'hotmax.calibration' has no attribute 'nothing'",
    ]


def test_public_names():
    assert c.__all__ == sorted(c.__all__)
    assert set(dir(c)) == set(c.__all__)
    for name in c.__all__:
        assert getattr(c, name).__doc__, name
