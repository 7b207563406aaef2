"""Intervals of calibration errors: they cover, contain their estimate, and begin at 0 in doubt."""

from __future__ import annotations

import numpy as np
import pytest
from simulation.intervals import coverage

import hotmax as hm
from hotmax.calibration.smooth import deposit, responses, smoothed, spectrum

c = hm.calibration


@pytest.mark.parametrize("shape", ["one sign", "sure"])
@pytest.mark.parametrize("error", [0.0, 0.015, 0.13])
def test_the_interval_of_ece_covers(shape, error):
    """A part of `make simulate`. The basic bootstrap covered 54 % where the error is 0."""
    held, own, _ = coverage(c.ece, shape, error, 200, 200, seed=1)
    assert held >= 0.93
    assert own == 1.0


@pytest.mark.parametrize("error", [0.0, 0.05])
def test_the_interval_of_smooth_ece_covers(error):
    held, own, _ = coverage(c.smooth_ece, "one sign", error, 200, 30, seed=1)
    assert held >= 0.9  # 27 of 30
    assert own == 1.0


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "l2"}, {"norm": "max"}, {"norm": "l2", "debiased": True}, {"binning": "mass"}],
)
def test_intervals_contain_their_estimates(options):
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = rng.normal(size=(60, 3)) * 3
        labels = (z / 1.5 + rng.gumbel(size=z.shape)).argmax(1)
        one = c.ece(z, labels, interval=True, **options)
        assert 0.0 <= one.interval[0] <= one.value <= one.interval[1] <= 1.0
        assert one.value == c.ece(z, labels, **options)


def test_equal_weights_change_nothing():
    """Weights of 2 are as many rows of equal weight: the interval does not shrink."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(400, 3)) * 3
    labels = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    one = c.ece(z, labels, interval=True)
    two = c.ece(z, labels, interval=True, sample_weight=np.full(400, 2.0))
    assert two.interval == pytest.approx(one.interval, abs=1e-12)


def test_more_rows_than_are_scored_one_by_one(monkeypatch):
    """From the sums of cells: the same as from the rows."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(3000, 3)) * 3
    labels = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    small = [f(z, labels, interval=True) for f in (c.ece, c.smooth_ece)]
    monkeypatch.setattr("hotmax.calibration.request.MOST_SCORED", 1000)
    large = [f(z, labels, interval=True) for f in (c.ece, c.smooth_ece)]
    for one, other in zip(small, large, strict=True):
        assert other.value == pytest.approx(one.value, abs=1e-4)
        assert other.interval == pytest.approx(one.interval, abs=0.003)


@pytest.mark.parametrize("width", [0.3, 0.05, 0.004])
def test_responses_are_what_smoothing_gives(width):
    positions = np.array([0.0, 0.0013, 0.31, 0.5, 0.99, 1.0])
    got = responses(positions, width)
    nodes = got.shape[1] - 1
    for position, row in zip(positions, got, strict=True):
        grid = spectrum(deposit(np.array([position]), np.ones(1)))
        want = smoothed(grid, width, nodes)
        assert row == pytest.approx(want, abs=2e-3 * want.max())
        assert row.sum() - (row[0] + row[-1]) / 2 == pytest.approx(1.0, abs=1e-9)
