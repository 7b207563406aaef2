"""Fits of a temperature to rows of any number where they are hard: against those in memory."""

from __future__ import annotations

import numpy as np
import pytest

from hotmax.calibration import ladder, temperature

MEMORY = temperature.MOST_IN_MEMORY


def hard_rows(seed):
    """Few rows that count for much: (logits, labels, weights or None)."""
    rng = np.random.default_rng(seed)
    rows, classes = rng.integers(3, 300), rng.integers(2, 5)
    z = rng.normal(size=(rows, classes)) * 10.0 ** rng.uniform(-3, 3, (rows, 1))
    kind = seed % 4
    if kind == 1:
        z[rng.random(rows) > 0.02] = 0.0
    if kind == 2:
        z[0] *= 10.0 ** rng.uniform(0, 12)
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    if kind == 3:
        labels = z.argmax(1)
        labels[rng.integers(0, rows, 2)] = rng.integers(0, classes, 2)
    weights = 10.0 ** rng.uniform(-4, 4, rows) if rng.random() < 0.5 else None
    return z, labels, weights


def fits(monkeypatch, z, labels, weights):
    """(In few passes, from a poor subsample; in memory.)"""
    monkeypatch.setattr(temperature, "SUBSAMPLE_ENTRIES", 64)
    monkeypatch.setattr(temperature, "LEAST_ROWS", 32)
    found = []
    for most in (0, MEMORY):
        monkeypatch.setattr(temperature, "MOST_IN_MEMORY", most)
        rows = temperature.row_parts(z, labels, sample_weight=weights, any_weight=True)
        found.append(temperature.fit_rows(rows))
    return found


def agree(few, exact):
    assert few.converged
    assert few.diagnosis == exact.diagnosis
    assert few.temperature == pytest.approx(exact.temperature, rel=1e-12)
    assert few.interval == pytest.approx(exact.interval, rel=1e-3)
    assert few.nll_before == pytest.approx(exact.nll_before, rel=1e-13)


# The first two crashed; intervals of the next four and temperatures of two were wrong; the last
# needs interpolated values to obey convexity.
@pytest.mark.parametrize("seed", [1, 9, 21, 56, 94, 98, 46, 177, 4019])
def test_fits_that_were_wrong_are_those_in_memory(monkeypatch, seed):
    agree(*fits(monkeypatch, *hard_rows(seed)))


def test_a_gain_that_shows_nothing_ends_the_search(monkeypatch):
    """The interval of a separable fit reaches from 0 to inf: no end to look for."""
    z = np.tile([1.0, 0.0], (1000, 1))
    few, exact = fits(monkeypatch, z, np.zeros(1000, int), np.full(1000, 1e-3))
    assert (few.temperature, few.interval, few.converged) == (0.0, (0.0, np.inf), True)
    assert few == exact


def test_points_that_nearly_coincide_are_evaluated_once():
    """The first counts: 1 / T = 1 is among the first, since the nll there is a result."""
    seen = []

    def evaluate(inverses):
        seen.append(inverses)
        return [temperature.Point(inverse, 1.0, 1.0, 0.0, 1.0) for inverse in inverses], 1

    found = ladder.Ladder(evaluate)
    assert found.look([0.0, 1.0, 1e9, 1.0 - 1e-6, 2.0, 2.0 + 1e-6, np.inf])
    assert not found.look([0.0, 1.0 + 1e-6])
    assert found.look([0.5])
    assert seen == [(0.0, 1.0, 2.0, 1e9), (0.5,)]
