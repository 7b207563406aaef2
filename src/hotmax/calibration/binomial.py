"""The binomial distribution's tail and exact (Clopper-Pearson) bounds, without SciPy."""

from __future__ import annotations

import math

MOST_BISECTIONS = 100_000  # of the continued fraction, which takes about sqrt(n) of them


def beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, MOST_BISECTIONS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1.0) < 1e-14:
            break
    return value


def beta_share(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * beta_fraction(a, b, x) / a
    return 1.0 - front * beta_fraction(b, a, 1.0 - x) / b


def binomial_tail(hits: int, rows: int, share: float) -> float:
    """P(X <= hits) for X ~ Binomial(rows, share)."""
    if hits >= rows:
        return 1.0
    return beta_share(rows - hits, hits + 1, 1.0 - share)


def upper_bound(hits: int, rows: int, level: float) -> float:
    """The exact upper bound of a share: no larger share gives so few hits in `level` of samples."""
    if hits >= rows:
        return 1.0
    low, high = hits / rows, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(hits, rows, middle) > level else (low, middle)
    return high
