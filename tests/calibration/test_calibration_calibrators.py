"""The calibrators: optima by independent means, scikit-learn's conventions."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import reference_calibration as reference
import scipy.optimize
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

MANY = ["identity", "temperature", "ensemble", "vector", "matrix", "dirichlet"]
ONE_BY_ONE = ["isotonic", "histogram"]
TWO = ["platt", "beta"]


def sample(rows=400, classes=4, seed=0):
    """Overconfident logits, with a class that is too rare among the predictions."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 4
    return z, (z / 2 + (np.arange(classes) == 1) * 1.5 + rng.gumbel(size=z.shape)).argmax(1)


def classes_of(method):
    return 2 if method in TWO else 4


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE + TWO)
def test_every_method_gives_probabilities(method):
    z, labels = sample(classes=classes_of(method))
    fitted = c.Calibrator(method).fit(z, labels)
    p = fitted.predict_proba(z)
    assert p.shape == z.shape
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(z), p.argmax(1))
    if method != "identity":
        assert c.nll(p, labels, input="probabilities") < c.nll(z, labels)
    # the shift of a row, which softmax does not see, changes nothing
    np.testing.assert_allclose(fitted.predict_proba(z + 7.0), p, rtol=1e-9)
    # nor does it matter in which form the same numbers come
    q = reference.softmax(z)
    again = c.Calibrator(method, input="probabilities").fit(q, labels).predict_proba(q)
    np.testing.assert_allclose(again, p, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["vector", "matrix", "dirichlet", *ONE_BY_ONE])
def test_better_on_rows_that_were_not_seen(method):
    z, labels = sample(4000)
    test, truth = sample(4000, seed=1)
    p = c.Calibrator(method).fit(z, labels).predict_proba(test)
    heat = c.fit_temperature(z, labels).temperature
    assert c.nll(p, truth, input="probabilities") < c.nll(test, truth, temperature=heat)


@pytest.mark.parametrize("method", ["vector", "matrix", "dirichlet"])
def test_few_rows_do_not_lead_astray(method):
    """40 rows of 10 classes: far fewer than numbers to fit, and still no worse than nothing."""
    z, labels = sample(40, 10)
    test, truth = sample(4000, 10, seed=1)
    p = c.Calibrator(method).fit(z, labels).predict_proba(test)
    assert c.nll(p, truth, input="probabilities") < c.nll(test, truth)
    free = c.Calibrator(method, penalty=1e-6).fit(z, labels).predict_proba(test)
    assert c.nll(p, truth, input="probabilities") < c.nll(free, truth, input="probabilities")


@pytest.mark.parametrize("rows", [5, 20, 60])
@pytest.mark.parametrize(("method", "harm"), [("dirichlet", 0.03), ("histogram", 0.08)])
def test_next_to_no_rows_do_little_harm(method, harm, rows):
    """Well calibrated logits of five classes: what is fitted is noise, and may not cost much."""

    def calibrated(count, seed):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((count, 5)) * 2
        return z, (z / 1.5 + rng.gumbel(size=z.shape)).argmax(1)

    test, truth = calibrated(4000, 99)
    losses = [
        c.nll(
            c.Calibrator(method).fit(*calibrated(rows, seed)).predict_proba(test),
            truth,
            input="probabilities",
        )
        for seed in range(8)
    ]
    assert np.mean(losses) < c.nll(test, truth) + harm


def test_certainty_is_told():
    z, _ = sample(5)
    with pytest.warns(UserWarning, match="separable"):
        c.TemperatureScaling().fit(z, z.argmax(1))
    with pytest.warns(UserWarning, match="separable"):
        c.Calibrator("ensemble").fit(z, z.argmax(1))


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE)
def test_where_is_minus_infinity(method):
    z, labels = sample()
    there = np.random.default_rng(1).random(z.shape) < 0.7
    there[np.arange(400), labels] = True
    filled, gone = np.where(there, z, np.nan), np.where(there, z, -np.inf)
    masked = c.Calibrator(method).fit(filled, labels, where=there)
    plain = c.Calibrator(method).fit(gone, labels)
    p = masked.predict_proba(filled, where=there)
    np.testing.assert_array_equal(p, plain.predict_proba(gone))
    np.testing.assert_array_equal(masked.predict(filled, where=there), p.argmax(1))
    if method == "vector":
        both = [c.select(gone, labels), c.select(filled, labels, where=there)]
        assert both[0].candidates == both[1].candidates


def test_matrix_scaling_is_the_optimum():
    """Against the objective written out, minimised by another method from another start."""
    z, labels = sample(120, 3)
    parameters = c.Calibrator("matrix").fit(z, labels).parameters_
    heat = reference.temperature(z, labels)
    assert parameters["temperature"] == pytest.approx(heat, rel=1e-10)
    logs = np.log(reference.softmax(z, heat))
    logs -= logs.mean(1, keepdims=True)

    def objective(theta):
        v, m, b = theta[:3], theta[3:12].reshape(3, 3) * (1 - np.eye(3)), theta[12:]
        p = reference.softmax(logs @ (np.eye(3) + np.diag(v) + m).T + b)
        price = 3 * (v @ v) + 6 * (m**2).sum() + 3 * (b @ b)
        return -np.log(p[np.arange(120), labels]).mean() + price / 120

    ours = np.concatenate(
        [parameters["diagonal"], parameters["off_diagonal"].ravel(), parameters["bias"]]
    )
    start = np.random.default_rng(0).normal(size=15) * 0.1
    best = scipy.optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-8})
    assert objective(ours) <= best.fun + 1e-10
    mask = np.r_[np.ones(3), 1 - np.eye(3).ravel(), np.ones(3)] > 0
    np.testing.assert_allclose(ours[mask], best.x[mask], atol=2e-4)


def test_platt_and_beta_are_optima():
    z, labels = sample(300, 2)
    s = z[:, 1] - z[:, 0]
    many = labels.sum()
    target = np.where(labels == 1, (many + 1) / (many + 2), 1 / (300 - many + 2))

    def platt(theta):
        score = theta[0] * s + theta[1]
        return (np.logaddexp(0, score) - target * score).sum()

    def beta(theta):
        logs = np.log(reference.softmax(z))
        score = theta[0] * logs[:, 1] - theta[1] * logs[:, 0] + theta[2]
        price = ((theta - [1, 1, 0]) ** 2).sum()
        return (np.logaddexp(0, score) - labels * score).sum() + price

    for name, function in (("platt", platt), ("beta", beta)):
        ours = c.Calibrator(name).fit(z, labels).parameters_["line"]
        best = scipy.optimize.minimize(function, ours + 0.1, method="Nelder-Mead")
        assert function(ours) <= best.fun + 1e-6
    with pytest.raises(ValueError, match="two classes"):
        c.Calibrator("platt").fit(*sample())


def test_ensemble_is_the_optimum():
    z, labels = sample()
    parameters = c.Calibrator("ensemble", penalty=0.0).fit(z, labels).parameters_
    heat = reference.temperature(z, labels)
    parts = [reference.softmax(z, heat), reference.softmax(z), np.full(z.shape, 0.25)]
    label = np.stack([p[np.arange(len(z)), labels] for p in parts])

    def loss(shares):
        return -np.log(np.asarray(shares) @ label).mean()

    ours = loss(parameters["shares"])
    grid = np.linspace(0, 1, 101)
    best = min(loss([a, b, 1 - a - b]) for a in grid for b in grid if a + b <= 1 + 1e-12 and a > 0)
    assert ours <= best + 1e-8


def test_isotonic_rises_and_stays_off_the_ends():
    z, labels = sample()
    parameters = c.Calibrator("isotonic").fit(z, labels).parameters_
    for knots, values in zip(parameters["knots"], parameters["values"], strict=True):
        assert (np.diff(knots) > 0).all()
        assert (np.diff(values) >= 0).all()
        assert 0 < values.min() <= values.max() < 1


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE)
def test_absent_classes_and_unseen_labels(method):
    z, labels = sample()
    labels = np.where(labels == 3, 0, labels)  # never seen
    z[::5, 3] = -np.inf
    fitted = c.Calibrator(method).fit(z, labels)
    p = fitted.predict_proba(z)
    assert (p[::5, 3] == 0).all()
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE + TWO)
@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "row 1 holds nan"), (np.inf, r"row 1 holds \+inf"), (-np.inf, "row 1 .*no class")],
)
def test_rows_without_a_softmax_are_refused(method, value, words):
    z, labels = sample(classes=classes_of(method))
    fitted = c.Calibrator(method).fit(z, labels)
    for columns in (slice(None),) if value == -np.inf else (slice(None), slice(0, 1)):
        served = z[:3].copy()
        served[1, columns] = value
        with pytest.raises(ValueError, match=words):
            fitted.predict_proba(served)


@pytest.mark.parametrize("method", TWO)
def test_one_of_two_classes_is_absent(method):
    """Such a row is certain, and says nothing about the line: the fit is that without it."""
    z, labels = sample(300, 2)
    z[::5, 1], labels[::5] = -np.inf, 0
    fitted = c.Calibrator(method).fit(z, labels)
    np.testing.assert_array_equal(fitted.predict_proba([[0.0, -np.inf]]), [[1.0, 0.0]])
    np.testing.assert_array_equal(fitted.predict_proba([[-np.inf, 0.0]]), [[0.0, 1.0]])
    both = np.isfinite(z).all(1)
    without = c.Calibrator(method).fit(z[both], labels[both])
    np.testing.assert_allclose(fitted.parameters_["line"], without.parameters_["line"], rtol=1e-6)


@pytest.mark.parametrize("method", ["vector", "matrix", "dirichlet"])
def test_logits_far_apart(method):
    """A probability that underflows is still the smallest, and not an average one."""
    fitted = c.Calibrator(method).fit(*sample())
    p = fitted.predict_proba([[0.0, -1.7e308, 1.7e308, 0.0]])
    np.testing.assert_array_equal(p, [[0.0, 0.0, 1.0, 0.0]])


@pytest.mark.parametrize("method", MANY + ONE_BY_ONE + TWO)
def test_weights_and_ignored_rows(method):
    z, labels = sample(200, classes_of(method))
    times = np.random.default_rng(1).integers(0, 3, 200)
    weighted = c.Calibrator(method).fit(z, labels, times).predict_proba(z)
    repeated = c.Calibrator(method).fit(np.repeat(z, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(weighted, repeated.predict_proba(z), rtol=1e-3, atol=1e-5)
    marked = np.where(times > 0, labels, -1)
    ignored = c.Calibrator(method).fit(z, marked, ignore_index=-1).predict_proba(z)
    kept = c.Calibrator(method).fit(z[times > 0], labels[times > 0]).predict_proba(z)
    np.testing.assert_allclose(ignored, kept, rtol=1e-9)


# --- scikit-learn -----------------------------------------------------------------------------


def test_conventions():
    scaling = c.TemperatureScaling(input="probabilities")
    assert scaling.get_params() == {"input": "probabilities"}
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
