"""The calibrators: optima by independent means."""

from __future__ import annotations

import numpy as np
import pytest
import reference_calibration as reference
import scipy.optimize
from calibration_samples import MANY, ONE_BY_ONE, TWO, classes_of, sample

from hotmax import calibration as c


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
    temperature = c.fit_temperature(z, labels).temperature
    assert c.nll(p, truth, input="probabilities") < c.nll(test, truth, temperature=temperature)


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
    unsure = c.Calibrator("ensemble").fit(z, z.argmax(1))  # has a prior, so no warning is due
    assert 0.0 < unsure.parameters_["temperature"] < np.inf
    assert unsure.predict_proba(z).max() < 1.0


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

    def loss(shares, temperature):
        parts = [reference.softmax(z, temperature), reference.softmax(z), np.full(z.shape, 0.25)]
        label = np.stack([p[np.arange(len(z)), labels] for p in parts])
        return -np.log(np.asarray(shares) @ label).mean()

    ours = loss(parameters["shares"], parameters["temperature"])
    grid = np.linspace(0, 1, 21)
    best = min(
        loss([a, b, 1 - a - b], t)
        for t in parameters["temperature"] * np.array([0.7, 0.9, 0.98, 1.0, 1.02, 1.1, 1.4])
        for a in grid
        for b in grid
        if a + b <= 1 + 1e-12 and a > 0
    )
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


@pytest.mark.parametrize("method", ["platt", "beta"])
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
    """A probability that underflows counts as that of the share of the uniform distribution."""
    fitted = c.Calibrator(method).fit(*sample())
    p = fitted.predict_proba([[0.0, -1.7e308, 1.7e308, 0.0]])
    assert p[0, 2] > 0.9
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)


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
