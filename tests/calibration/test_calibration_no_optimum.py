"""fit_temperature: cases without an optimum, intervals, real networks, and bad input."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import reference_calibration as reference
from temperature_cases import sample

import hotmax as hm
from hotmax.calibration import fit_temperature
from hotmax.calibration.temperature import QUANTILE

# --- no optimum -------------------------------------------------------------------------------


def test_separable():
    z, _ = sample(50, 4)
    fit = fit_temperature(z, z.argmax(1))
    assert fit.diagnosis == "separable"
    assert fit.temperature == 0.0
    assert fit.nll == 0.0
    assert fit.interval[0] == 0.0
    assert "separable" in str(fit)
    # at the upper end the log-likelihood has fallen by 1.92
    p = reference.softmax(z / fit.interval[1])
    assert -np.log(p.max(1)).sum() == pytest.approx(QUANTILE / 2, rel=1e-8)


def test_anti_correlated():
    z, _ = sample(50, 4)
    fit = fit_temperature(z, z.argmin(1))
    assert fit.diagnosis == "anti-correlated"
    assert fit.temperature == math.inf
    assert fit.nll == pytest.approx(math.log(4), rel=1e-14)
    p = reference.softmax(z / fit.interval[0])
    loss = -np.log(p[np.arange(50), z.argmin(1)]).sum() - 50 * math.log(4)
    assert loss == pytest.approx(QUANTILE / 2, rel=1e-8)
    assert fit.interval[1] == math.inf


@pytest.mark.parametrize("repeats", [1, 1000])
def test_labels_of_no_correlation_at_all(repeats):
    """Each label once for the same row: the slope at 1 / T = 0 is 0, and rounds to either side."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        row = rng.integers(-9, 9, rng.integers(3, 9)).astype(float)
        row[0] = 10.0
        labels = np.repeat(np.arange(row.size), repeats)
        assert reference.slope_at(
            row[None], np.full((1, row.size), 1 / row.size), [1], mpmath.mpf(0)
        )[1] == pytest.approx(0.0, abs=1e-14)
        fit = fit_temperature(np.tile(row, (labels.size, 1)), labels)
        assert fit.diagnosis == "anti-correlated"
        assert fit.temperature == math.inf
        assert fit.converged
        assert 0.0 < fit.interval[0] < fit.interval[1] == math.inf


def test_a_faint_correlation_is_still_one():
    """The slope at 1 / T = 0 is 1e-6 of what it could be: far above rounding."""
    z = np.tile([1.0, 0.0], (2_000_000, 1))
    labels = np.arange(2_000_000) % 2
    labels[1] = 0
    fit = fit_temperature(z, labels)
    assert fit.diagnosis is None
    assert fit.temperature == pytest.approx(1 / math.log(1_000_001 / 999_999), rel=1e-9)


def test_no_information():
    fit = fit_temperature(np.full((9, 3), 7.0), [0, 1, 2] * 3)
    assert fit.diagnosis == "no information"
    assert fit.temperature == 1.0
    assert fit.interval == (0.0, math.inf)


def test_large_samples_have_their_diagnoses_too():
    """Through the subsample as well."""
    z, _ = sample(9000, 300, kind=np.float32)
    assert fit_temperature(z, z.argmax(1)).diagnosis == "separable"
    assert fit_temperature(z, z.argmin(1)).diagnosis == "anti-correlated"


def test_ties_at_the_limit():
    """Labels that share the maximum with another class: half the mass, however low T."""
    fit = fit_temperature([[5.0, 5.0, 0.0]] * 4, [0, 1, 0, 1])
    assert fit.diagnosis == "separable"
    assert fit.nll == pytest.approx(math.log(2), rel=1e-15)


# --- intervals --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [30, 300, 20_000])
def test_the_profile_interval(rows):
    """Its ends are where twice the log-likelihood has fallen by 3.84; also in the series."""
    z, labels = sample(rows, 5)
    fit = fit_temperature(z, labels)
    at = np.arange(rows)

    def excess(temperature):
        return 2 * (-np.log(reference.softmax(z / temperature)[at, labels]).sum() - fit.nll * rows)

    for end in fit.interval:
        assert excess(end) == pytest.approx(QUANTILE, rel=1e-3 if rows == 20_000 else 1e-6)
    if rows == 20_000:
        assert fit.interval == pytest.approx(fit.interval_by_information, rel=2e-3)


def test_both_intervals_hold_the_truth_in_95_percent():
    rng = np.random.default_rng(0)
    held, by_information, sets = 0, 0, 1000
    for _ in range(sets):
        z = rng.standard_normal((200, 4)) * 3
        labels = (z / 1.7 + rng.gumbel(size=z.shape)).argmax(1)
        fit = fit_temperature(z, labels)
        held += fit.interval[0] <= 1.7 <= fit.interval[1]
        low, high = fit.interval_by_information
        by_information += low <= 1.7 <= high
    assert 0.93 <= held / sets <= 0.97
    assert 0.93 <= by_information / sets <= 0.97


# --- real networks ----------------------------------------------------------------------------


def test_densenet_on_cifar_100():
    z, labels = reference.real_network("densenet-bc-100-cifar-100")
    assert fit_temperature(z, labels).temperature == pytest.approx(2.1176094921, abs=6e-11)
    before, after = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(z))
        fit, test = order[: len(z) // 2], order[len(z) // 2 :]
        temperature = fit_temperature(z[fit], labels[fit]).temperature
        before.append(hm.calibration.ece(z[test], labels[test]))
        after.append(hm.calibration.ece(z[test], labels[test], temperature=temperature))
    assert np.mean(before) == pytest.approx(0.140, abs=0.004)
    assert np.mean(after) == pytest.approx(0.014, abs=0.003)


# --- bad input --------------------------------------------------------------------------------


GOOD = (np.array([[1.0, 2.0, 0.5], [0.0, 3.0, 1.0]]), np.array([0, 1]))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda z, y: (z.astype(complex), y), TypeError, "logits must hold"),
        (lambda z, y: (z[0], y[0]), ValueError, "shape"),
        (lambda z, y: (z[:, :0], y), ValueError, "at least one class"),
        (lambda z, y: (z[:0], y[:0]), ValueError, "at least one row"),
        (lambda z, y: (z, y[:1]), ValueError, "targets must have shape"),
        (lambda z, y: (z, y.astype(float)), TypeError, "targets must be integers"),
        (lambda z, y: (z, y + 2), ValueError, "got 3 in row 1"),
        (lambda z, y: (z, y - 1), ValueError, "got -1 in row 0"),
        (
            lambda z, y: (z, np.full((2, 3), 0.9)),
            ValueError,
            "add up to 1 over axis, got 2.7 in row 0",
        ),
        (lambda z, y: (np.where(z == 3, np.nan, z), y), ValueError, "row 1 holds nan"),
        (lambda z, y: (np.where(z == 3, np.inf, z), y), ValueError, r"row 1 holds \+inf"),
        (lambda z, y: (np.where(z == 3, -np.inf, z), y), ValueError, "row 1 has its label"),
        (lambda z, y: (np.stack([z[0], z[1] - np.inf]), y), ValueError, "row 1 holds nothing"),
    ],
)
@pytest.mark.parametrize("repeat", [1, 30])
def test_bad_input_is_named(change, error, words, repeat):
    z, labels = change(*GOOD)
    if repeat > 1 and z.ndim == 2 and z.shape[1] == 3:  # beyond short rows
        z = np.concatenate([z] + [z - 9] * repeat, axis=1)
        if labels.ndim == 2 or 3 in labels:
            return
    with pytest.raises(error, match=words):
        fit_temperature(z, labels)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sample_weight": [1.0]}, ValueError, "sample_weight must have shape"),
        ({"sample_weight": [1.0, -1.0]}, ValueError, "not negative"),
        ({"sample_weight": [0.0, 0.0]}, ValueError, "no row is left"),
        ({"ignore_index": 1.5}, TypeError, "ignore_index"),
        ({"where": [[1, 0, 1]]}, TypeError, "where must hold bools"),
        ({"where": [[True, False]]}, ValueError, "where must broadcast"),
        ({"input": "logit"}, ValueError, "input must be"),
    ],
)
def test_bad_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        fit_temperature(*GOOD, **options)


def test_all_rows_ignored():
    with pytest.raises(ValueError, match="no row is left"):
        fit_temperature(GOOD[0], [-1, -1], ignore_index=-1)


def test_one_weighted_row():
    """A single row keeps its weight."""
    assert fit_temperature([[2.0, 0.0, 1.0]], [2], sample_weight=[3.0]).rows == 3.0


@pytest.mark.parametrize("weight", [1e-8, 1e-300, 1e300])
def test_next_to_no_information(weight):
    """Weights so small that the interval is as wide as the numbers are, or beyond all measure."""
    z, labels = sample(6, 3)
    fit = fit_temperature(z, labels, sample_weight=np.full(6, weight))
    assert fit.temperature == pytest.approx(fit_temperature(z, labels).temperature, rel=1e-11)
    assert fit.interval[0] <= fit.temperature <= fit.interval[1]
    if weight < 1:
        assert fit.interval[1] == math.inf


def test_the_text_and_html():
    fit = fit_temperature(*sample(50, 4))
    assert str(fit).startswith("temperature ")
    assert "95 %" in str(fit)
    assert fit._repr_html_().startswith("<pre>")


def test_an_ensemble_of_separable_rows_is_never_certain():
    """Few rows without an error have the temperature 0; mixed, they must not give a class 0."""
    x = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0]] * 4)
    assert fit_temperature(x, x.argmax(1)).temperature == 0.0
    fitted = hm.calibration.Calibrator("ensemble").fit(x, x.argmax(1))
    assert 0.0 < fitted.parameters_["temperature"] < np.inf
    assert (fitted.predict_proba(x) > 0.0).all()
