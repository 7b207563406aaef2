"""What the tests of fit_temperature share."""

from __future__ import annotations

import numpy as np


def sample(rows, classes, seed=0, scale=3.0, temperature=2.0, kind=np.float64):
    """Logits, and labels drawn at temperature `temperature`."""
    rng = np.random.default_rng(seed)
    z = (rng.standard_normal((rows, classes)) * scale).astype(kind)
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(1)
    return z, labels
