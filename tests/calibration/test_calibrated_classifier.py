"""CalibratedClassifier: scikit-learn's own checks, cross-fitting, metadata routing, a prior."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from hotmax import calibration as c


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [c.CalibratedClassifier(), c.CalibratedClassifier(GaussianNB(), c.Calibrator("vector"), cv=2)]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def data(rows=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    return X, np.array(["c", "a", "b"])[(2 * X + rng.gumbel(size=(rows, 3))).argmax(1)]


def test_fit_is_by_outputs_of_cross_validation():
    X, y = data()
    model = c.CalibratedClassifier(GaussianNB(), cv=4).fit(X, y)
    p = cross_val_predict(GaussianNB(), X, y, cv=StratifiedKFold(4), method="predict_proba")
    logs = np.log(np.maximum(p, 1e-12))
    want = c.fit_temperature(logs, y, class_names=["a", "b", "c"]).temperature
    assert model.calibrator_.temperature_ == pytest.approx(want, rel=1e-9)
    whole = GaussianNB().fit(X, y)
    np.testing.assert_array_equal(model.estimator_.theta_, whole.theta_)
    assert model.classes_.tolist() == ["a", "b", "c"]


def test_weights_go_to_the_model_and_to_the_calibrator():
    X, y = data()
    weights = np.where(np.arange(400) < 200, 1.0, 3.0)
    folds = StratifiedKFold(4)
    model = c.CalibratedClassifier(LogisticRegression(), cv=folds).fit(X, y, weights)
    p = np.empty((400, 3))
    for train, test in folds.split(X, y):
        fold = LogisticRegression().fit(X[train], y[train], weights[train])
        p[test] = fold.decision_function(X[test])
    want = c.fit_temperature(p, y, sample_weight=weights, class_names=["a", "b", "c"])
    assert model.calibrator_.temperature_ == pytest.approx(want.temperature, rel=1e-9)
    whole = LogisticRegression().fit(X, y, weights)
    np.testing.assert_array_equal(model.estimator_.coef_, whole.coef_)


def test_metadata_routing():
    X, y = data()
    groups, weights = np.arange(400) // 40, np.linspace(1.0, 2.0, 400)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=False)
        model = c.CalibratedClassifier(inner, cv=GroupKFold(5))
        model.set_fit_request(sample_weight=True).fit(X, y, sample_weight=weights, groups=groups)
        unweighted = LogisticRegression().fit(X, y)
        np.testing.assert_array_equal(model.estimator_.coef_, unweighted.coef_)
        inner.set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weights, groups=groups)
        weighted = LogisticRegression().fit(X, y, weights)
        np.testing.assert_array_equal(model.estimator_.coef_, weighted.coef_)
    with pytest.raises(ValueError, match="groups"):
        c.CalibratedClassifier(cv=GroupKFold(5)).fit(X, y)


def test_what_is_wrong_is_said():
    X, y = data(40)
    with pytest.raises(NotFittedError):
        c.CalibratedClassifier().predict_proba(X)
    with pytest.raises(ValueError, match="2 classes at least"):
        c.CalibratedClassifier().fit(X, np.zeros(40))

    class Half:
        def split(self, X, y=None, groups=None):
            yield np.arange(20), np.arange(20, 40)

        def get_n_splits(self, *given):
            return 1

    with pytest.raises(ValueError, match="cv must test each row"):
        c.CalibratedClassifier(cv=Half()).fit(X, y)


@pytest.mark.parametrize("made", [c.TemperatureScaling, c.Calibrator])
def test_a_prior_on_the_temperature(made):
    x = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 4.0]])  # separable: T = 0 without a prior
    y = [0, 0, 1]
    with pytest.warns(UserWarning, match="prior=1"):
        assert made().fit(x, y).parameters_["temperature"] == 0.0
    want = c.fit_temperature(x, y, prior=1.0).temperature
    assert made(prior=1.0).fit(x, y).parameters_["temperature"] == want > 0.0
    with pytest.raises(ValueError, match="prior"):
        made(prior=-1.0).fit(x, y)
    with pytest.raises(ValueError, match='prior is for method "temperature"'):
        c.Calibrator("vector", prior=1.0).fit(x, y)
