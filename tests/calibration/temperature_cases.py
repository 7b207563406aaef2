"""What the tests of fit_temperature share."""

from __future__ import annotations

import numpy as np


def sample(rows, classes, seed=0, scale=3.0, heat=2.0, kind=np.float64):
    """Logits, and labels drawn at temperature `heat`."""
    rng = np.random.default_rng(seed)
    z = (rng.standard_normal((rows, classes)) * scale).astype(kind)
    labels = (z / heat + rng.gumbel(size=z.shape)).argmax(1)
    return z, labels
