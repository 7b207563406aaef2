"""How often a calibrated model of independent labels is found wanting."""

from __future__ import annotations

import numpy as np

from hotmax.calibration import by_label

KINDS = {"ordinary": (2.0, 0.0), "sure": (6.0, 0.0), "rare labels": (1.5, -3.0)}  # scale, mean


def found_share(
    labels: int,
    rows: int,
    sets: int,
    seed: int,
    *,
    kind: str = "ordinary",
    temperature: float = 1.0,
    shared: bool = False,
) -> float:
    """The share of models with a verdict against them; `shared`: one draw decides a row's labels.

    Targets are drawn from the probabilities at this temperature.
    """
    rng = np.random.default_rng(seed)
    scale, mean = KINDS[kind]
    found = 0
    for number in range(sets):
        z = scale * rng.normal(size=(rows, labels)) + mean
        noise = rng.logistic(size=(rows, 1 if shared else labels))
        result = by_label(z, z / temperature + noise > 0, seed=number)
        found += bool(result.found)
    return found / sets
