"""The one-standard-error rule: the simplest method that is not clearly worse than the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array


@dataclass(frozen=True)
class LossComparison:
    """Losses of several methods on the same rows.

    Attributes:
        chosen: The first method whose excess is at most one standard error.
        best: The method with the least mean loss.
        excess: For each method, the mean over rows of its loss above that of the best, and the
            standard error of this mean.
    """

    chosen: str
    best: str
    excess: dict[str, tuple[float, float]]


def differences(after: Array, before: Array) -> Array:
    """after - before; 0 where both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(after == before, 0.0, after - before)


def mean_and_error(values: Array, shares: Array) -> tuple[float, float]:
    """The weighted mean of rows and its standard error; `shares` are weights that sum to 1."""
    mean = float(shares @ values)
    with np.errstate(over="ignore", invalid="ignore"):
        return mean, float(np.sqrt((shares**2) @ (values - mean) ** 2))


def compare_losses(losses: Mapping[str, Array], shares: Array) -> LossComparison:
    """Compare losses of rows; methods come from the simplest on.

    The error is that of the differences in each row. It is much smaller than that of the losses
    themselves, since rows that are hard for one method are hard for all.
    """
    best = min(losses, key=lambda method: float(shares @ losses[method]))
    excess = {
        method: mean_and_error(differences(values, losses[best]), shares)
        for method, values in losses.items()
    }
    chosen = next(method for method, (mean, error) in excess.items() if mean <= error)
    return LossComparison(chosen, best, excess)
