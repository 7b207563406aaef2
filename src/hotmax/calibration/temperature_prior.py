"""The temperature with a prior: the likelihood, and a penalty (log T)**2 / (2 prior**2).

The penalty is that of a normal distribution of log T around 0, with the standard deviation `prior`.
It makes a number of the limits T = 0 and T = inf, to which few rows may lead.
"""

from __future__ import annotations

import math

from hotmax._core.checks import as_real
from hotmax.calibration.estimate import NORMAL
from hotmax.calibration.likelihood import Evaluated, Point
from hotmax.calibration.search import mean_nll
from hotmax.calibration.temperature_fit import TemperatureFit

CLOSE = 1e-12  # in log T
STEPS = 100


def as_prior(prior: object) -> float | None:
    if prior is None:
        return None
    value = as_real(prior, "prior")
    if not 0.0 < value < math.inf:
        raise ValueError(f"prior must be above 0 and finite, got {prior!r}")
    return value


def fit_with_prior(likelihood: Evaluated, prior: float) -> TemperatureFit:
    """The stationary point nearest to T = 1, by false position in u = log(1 / T)."""
    weight = 1.0 / prior**2
    evaluations = 0

    def slope(u: float) -> tuple[Point, float]:
        nonlocal evaluations
        evaluations += 1
        point = likelihood.at(math.exp(u))
        return point, point.gradient + weight * u

    point, here = slope(0.0)
    u, low, high = 0.0, 0.0, 0.0
    below = above = here
    direction = -math.copysign(1.0, here)
    step = 1.0
    while here * direction < 0.0 and step < 700.0:  # until the slope has the other sign
        low, below = u, here
        u = direction * step
        point, here = slope(u)
        step *= 2.0
    high, above = u, here
    last = 0
    for _ in range(STEPS):
        if here == 0.0 or abs(high - low) <= CLOSE:
            break
        u = (low * above - high * below) / (above - below)
        point, here = slope(u)
        if (here > 0.0) == (above > 0.0):  # an end that stays counts half the next time
            high, above = u, here
            below = below / 2 if last > 0 else below
            last = 1
        else:
            low, below = u, here
            above = above / 2 if last < 0 else above
            last = -1
        if abs(here) <= 1e-13 * (abs(point.gradient) + weight):
            break
    temperature = math.exp(-u)
    curvature = max(point.curvature + point.gradient + weight, 1e-300)
    factor = math.exp(min(NORMAL / math.sqrt(curvature), 700.0))
    interval = (temperature / factor, temperature * factor)
    return TemperatureFit(
        temperature=temperature,
        interval=interval,
        interval_by_information=interval,
        nll=point.nll / point.weight,
        nll_before=mean_nll(likelihood, 1.0),
        gradient=-here / point.weight,
        iterations=evaluations,
        converged=True,
        diagnosis=None,
        rows=point.weight,
    )
