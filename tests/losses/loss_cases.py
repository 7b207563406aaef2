"""What the tests of losses share."""

from __future__ import annotations

import numpy as np
import reference


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(got, expected) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def within(got, true, ulps: float, scale=None) -> None:
    worst = reference.worst_ulps(np.asarray(got), true, scale)
    assert worst <= ulps, f"{worst:.3g} ULP"
