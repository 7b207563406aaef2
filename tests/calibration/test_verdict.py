"""The verdict: what is tested, at which level, and which words it gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from simulation.verdicts import false_share, real_share

from hotmax.calibration.chance import CalibrationTest, calibration_test
from hotmax.calibration.verdict import level_of, sentence_of, verdict_of


def outcome(gap, together, alone):
    return CalibrationTest(gap, together, alone, 1.0, (-0.01, 0.01), 0.02)


@pytest.mark.parametrize(
    ("gap", "together", "alone", "verdict"),
    [
        (0.1, 0.05, 0.05, "overconfident"),
        (-0.1, 0.05, 0.05, "underconfident"),
        (0.1, 0.051, 0.04, "no miscalibration found"),
        (-0.1, 0.001, 0.051, "miscalibrated in places"),
    ],
)
def test_the_verdict(gap, together, alone, verdict):
    """Both tests together must reject before the gap by itself decides on the words."""
    assert verdict_of(outcome(gap, together, alone)) == verdict


def test_the_sentence():
    assert (
        sentence_of("overconfident", 0.86, 0.731) == "overconfident: says 86.0 %, is right 73.1 %"
    )
    assert level_of(outcome(0.1, 0.001, 0.001)).startswith("p < 0.001; of 100 calibrated models")
    assert level_of(outcome(0.1, 0.2, 0.3)).startswith("p = 0.200; ")


def cells_of(rows, confidence, right):
    """Rows that all have one confidence, in the cell that holds it."""
    cells = np.zeros((480, 5))
    place = int(np.ceil(confidence * 480)) - 1
    cells[place] = rows, rows * confidence, right, rows, rows
    return cells


@pytest.mark.parametrize(("right", "rows"), [(30, 40), (38, 40), (25, 40), (97, 100), (500, 600)])
def test_the_p_value_is_that_of_the_binomial_distribution(right, rows):
    """Rows of one confidence: gap and ECE are one statistic, whose exact distribution is known."""
    test = calibration_test(cells_of(rows, 0.8, right), np.random.default_rng(0))
    hits = np.arange(rows + 1)
    chance = binom.pmf(hits, rows, 0.8)
    exact = chance[np.abs(hits - 0.8 * rows) >= abs(right - 0.8 * rows) - 1e-9].sum()
    assert test.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 999) + 0.001)
    assert test.p_value == test.gap_p_value == test.ece_p_value
    assert test.gap == pytest.approx(0.8 - right / rows)
    low, high = test.gap_by_chance
    assert low == pytest.approx(0.8 - binom.ppf(0.975, rows, 0.8) / rows, abs=1.1 / rows)
    assert high == pytest.approx(0.8 - binom.ppf(0.025, rows, 0.8) / rows, abs=1.1 / rows)


def test_no_mistakes_of_a_sure_model_are_no_fault():
    """25 right of 25 at 99.9 %: the sample variance of the gap is 0, and that proves nothing."""
    test = calibration_test(cells_of(25, 0.999, 25), np.random.default_rng(0))
    assert test.p_value > 0.5
    assert verdict_of(test) == "no miscalibration found"


@pytest.mark.parametrize("kind", ["sure", "ordinary", "flat", "one logit + 9"])
@pytest.mark.parametrize(("classes", "rows"), [(10, 25), (2, 100), (3, 400)])
def test_calibrated_models_are_seldom_found_wanting(kind, classes, rows):
    """A part of `make simulate`."""
    assert false_share(kind, classes, rows, 2000, seed=1) <= 0.065


def test_overconfident_models_are_found():
    assert false_share("ordinary", 10, 100, 400, seed=1, temperature=2.0) > 0.9


@pytest.mark.parametrize(("kind", "rows"), [("one logit + 9", 25), ("ordinary", 100)])
def test_the_function_agrees_with_the_simulation(kind, rows):
    """150 sets: four deviations of 5 % are 7 points."""
    assert real_share(kind, 10, rows, 150, seed=2) <= 0.12
    want = false_share(kind, 10, rows, 2000, seed=2, temperature=1.5)
    got = real_share(kind, 10, rows, 150, seed=3, temperature=1.5)
    assert got == pytest.approx(want, abs=4 * np.sqrt(want * (1 - want) / 150) + 0.02)
