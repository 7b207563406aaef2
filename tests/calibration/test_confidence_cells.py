"""How far KS and AURC of many rows, from sums over cells of confidence, may be off."""

from __future__ import annotations

import numpy as np
import pytest

import hotmax as hm
from hotmax.calibration import request
from hotmax.calibration.ranks import aurc_doubt

ROWS = 20_000
U = (np.arange(ROWS) + 0.5) / ROWS
CROWDED = {  # confidences, and how often they are right
    "spread": (0.5 + 0.5 * U, 0.5 + 0.4 * U),
    "towards 1": (1 - 10.0 ** -(2 + 7 * U), 0.99 - 0.5 * U),
    "one bin": (0.93 + 0.01 * U, 0.5 + 0.5 * U),
    "a few cells": (0.8 + 1e-3 * U, 0.6 + 0.3 * U),
    "one cell": (0.9001 + 1e-5 * U, 0.5 + 0.5 * U),
    "one cell, reversed": (0.9001 + 1e-5 * U, 1.0 - 0.5 * U),
    "two values": (np.where(U < 0.5, 0.6, 0.7), 0.65 + 0.0 * U),
}


def drawn(name):
    confidence, right = CROWDED[name]
    wrong = np.random.default_rng(0).random(ROWS) > right
    return np.stack([confidence, 1 - confidence], 1), wrong.astype(int)


@pytest.mark.parametrize("name", CROWDED)
def test_cells_are_as_near_as_they_say(monkeypatch, name):
    p, y = drawn(name)
    options = {"input": "probabilities"}
    exact = {
        kind: getattr(hm.calibration, kind)(p, y, **options)
        for kind in ("smooth_ece", "ks", "aurc")
    }
    monkeypatch.setattr(request, "MOST_SCORED", 1)
    cells = {kind: getattr(hm.calibration, kind)(p, y, **options) for kind in exact}
    curve = hm.calibration.risk_coverage(p, y, **options)
    fullest = np.diff(curve.coverage, prepend=0.0).max()
    assert cells["smooth_ece"] == pytest.approx(exact["smooth_ece"], abs=1e-5)
    assert abs(cells["ks"] - exact["ks"]) <= fullest / 4 + 1e-12
    doubt = aurc_doubt(curve.coverage, curve.risk)
    assert abs(cells["aurc"] - exact["aurc"]) <= doubt + 1e-12
    if name == "spread":
        assert doubt < 1e-3
    if name == "one cell":  # where four digits were claimed before
        assert abs(cells["aurc"] - exact["aurc"]) > 0.1
