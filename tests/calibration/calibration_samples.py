"""The methods of calibration, and samples that calibrators are fitted to."""

from __future__ import annotations

import numpy as np

CURVES = ["class_temperature", "softplus", "spline", "quadratic"]
MANY = ["identity", "temperature", "ensemble", "vector", "matrix", "dirichlet", *CURVES]
ONE_BY_ONE = ["isotonic", "histogram"]
TWO = ["platt", "beta", "venn_abers"]


def classes_of(method):
    return 2 if method in TWO else 4


def sample(rows=400, classes=4, seed=0):
    """Overconfident logits, with a class that is too rare among the predictions."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 4
    return z, (z / 2 + (np.arange(classes) == 1) * 1.5 + rng.gumbel(size=z.shape)).argmax(1)
