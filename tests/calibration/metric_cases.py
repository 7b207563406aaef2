"""What the tests of metrics share."""

from __future__ import annotations

import numpy as np

from hotmax import calibration as c


def sample(rows=200, classes=5, seed=0, temperature=2.0, scale=3.0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * scale
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


def wild(seed):
    """Rows whose logits differ in size by thousands: the Brier score has several minima over T."""
    rng = np.random.default_rng(seed)
    rows, classes = rng.integers(3, 40), rng.integers(2, 5)
    z = rng.normal(size=(rows, classes)) * 10 ** rng.uniform(-3, 3, (rows, 1))
    return z, rng.integers(0, classes, rows)


HARD = {
    "best at 0": lambda: (np.array([[1.0, 0.0]] * 9 + [[100.0, 0.0]]), np.array([0] * 9 + [1])),
    "best at inf": lambda: (sample(50)[0], sample(50)[0].argmin(1)),
    **{f"wild {seed}": (lambda seed=seed: wild(seed)) for seed in range(12)},
}


def debiased(*arguments, **options):
    return c.ece(*arguments, norm="l2", debiased=True, **options)
