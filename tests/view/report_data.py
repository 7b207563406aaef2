"""Predictions for the tests of the report."""

from __future__ import annotations

import numpy as np
import reference_calibration as reference

from hotmax.calibration.row_hash import held_out


def sample(rows=3000, classes=4, temperature=2.0, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes)) * 4
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


Z, Y = sample()


def halves(rows, seed=0):
    """The split, by the rule that the page states: in each twenty rows, half of them by hash."""
    scoring = held_out(seed, 0.5, rows, 0, rows)
    return ~scoring, scoring


FITTING, SCORING = halves(len(Z))


def rows_of(temperature=1.0):
    """(confidence, correct, nll, brier) of the scoring rows."""
    p, y = reference.softmax(Z[SCORING], temperature), Y[SCORING]
    at = np.arange(len(y))
    correct = (p.argmax(1) == y).astype(float)
    squares = (p**2).sum(1) - 2 * p[at, y] + 1
    return p.max(1), correct, -np.log(p[at, y]), squares
