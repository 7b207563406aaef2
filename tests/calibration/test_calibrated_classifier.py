"""CalibratedClassifier: scikit-learn's own checks, cross-fitting, metadata routing, a prior."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
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


def test_a_row_that_is_tested_twice_is_refused():
    X, y = data(60)
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    with pytest.raises(ValueError, match="cv must test each row once, got 2 times for row 0"):
        c.CalibratedClassifier(GaussianNB(), cv=folds).fit(X, y)


@pytest.mark.parametrize("method", ["temperature", "ensemble"])
def test_what_a_given_calibrator_takes_is_what_it_gets(method):
    """Probabilities become logits for a calibrator of logits, and the other way round."""
    X, y = data()
    index = np.searchsorted(["a", "b", "c"], y)
    model = GaussianNB().fit(X[:200], y[:200])
    p = np.maximum(model.predict_proba(X), 1e-12)
    of_logits = c.Calibrator(method).fit(np.log(p[200:]), index[200:])
    found = c.CalibratedClassifier(model, of_logits).predict_proba(X)
    np.testing.assert_allclose(found, of_logits.predict_proba(np.log(p)), rtol=1e-9)
    linear = LogisticRegression().fit(X[:200], y[:200])
    p = linear.predict_proba(X)
    of_probabilities = c.Calibrator(method, input="probabilities").fit(p[200:], index[200:])
    found = c.CalibratedClassifier(linear, of_probabilities).predict_proba(X)
    np.testing.assert_allclose(found, of_probabilities.predict_proba(p), rtol=1e-9)


PAIRS = SVC(decision_function_shape="ovo")


@pytest.mark.parametrize(
    "estimator",
    [
        PAIRS,
        make_pipeline(StandardScaler(), PAIRS),
        GridSearchCV(PAIRS, {"C": [0.5, 1.0]}, cv=2),
        BaggingClassifier(PAIRS, n_estimators=3, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scores_of_pairs_are_no_logits(estimator):
    """Of three classes there are three pairs."""
    X, y = data()
    estimator = estimator.fit(X[:200], y[:200])
    columns = estimator.decision_function(X).argmax(1)
    assert np.mean(estimator.classes_[columns] == estimator.predict(X)) < 0.7
    if isinstance(estimator, BaggingClassifier):  # which has probabilities
        p = c.calibrate(estimator, X[200:], y[200:]).predict_proba(X)
        assert np.mean(np.array(["a", "b", "c"])[p.argmax(1)] == y) > 0.7
        return
    with pytest.raises(ValueError, match=r"got 3 scores.*decision_function_shape=.ovr"):
        c.calibrate(estimator, X[200:], y[200:])
    with pytest.raises(ValueError, match=r"of pairs of classes"):
        c.CalibratedClassifier(estimator, cv=3).fit(X, y)
    joined = c.CalibratedClassifier(estimator, c.TemperatureScaling().fit(np.eye(3), [0, 0, 1]))
    with pytest.raises(ValueError, match=r"of pairs of classes"):  # of one row, too
        joined.predict_proba(X[:1])


@pytest.mark.parametrize("estimator", [SVC(), OneVsRestClassifier(PAIRS), LogisticRegression()])
def test_scores_of_classes_are_logits(estimator):
    X, y = data()
    model = c.CalibratedClassifier(estimator, cv=3).fit(X, y)
    assert model.calibrator_.input == "logits"
    assert np.mean(model.predict(X) == y) > 0.7


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
