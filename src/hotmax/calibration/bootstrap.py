"""The bootstrap: the 95 % interval of a statistic of rows, from resampled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.estimate import Estimate

REPLICATES = 400


def resampled_counts(counts: Array, rng: np.random.Generator) -> Iterator[Array]:
    """How often each group is drawn in REPLICATES samples, with replacement, of all rows.

    `counts` holds the number of rows in each group. Groups of one row are drawn by their number:
    of 1e6 groups a multinomial takes ten times as long.
    """
    groups, rows = counts.size, int(counts.sum())
    single = bool((counts == 1).all())
    for _ in range(REPLICATES):
        if single:
            yield np.bincount(rng.integers(0, groups, groups), minlength=groups)
        else:
            yield rng.multinomial(rows, counts / rows)


def basic_bootstrap(
    value: float,
    counts: Array,
    statistic: Callable[[Array], float],
    rng: np.random.Generator,
    bounds: tuple[float, float] = (0.0, math.inf),
) -> Estimate:
    """`value` with its 95 % interval by the basic bootstrap over rows.

    Args:
        value: The statistic of the rows as they are.
        counts: The number of rows in each group; rows of one group are interchangeable.
        statistic: Its value where group i is drawn drawn[i] times.
        rng: Draws the samples.
        bounds: Of the statistic; the interval is clipped to them, and contains the value.
    """
    if not math.isfinite(value):
        return Estimate(value, (value, value))
    resampled = np.array([statistic(drawn) for drawn in resampled_counts(counts, rng)])
    bottom, top = np.quantile(resampled, [0.025, 0.975])
    low, high = np.clip([2 * value - top, 2 * value - bottom], *bounds)
    return Estimate(value, (min(float(low), value), max(float(high), value)))
