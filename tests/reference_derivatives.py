"""Derivatives of softmax and its family in mpmath, one row at a time. Imports nothing from hotmax.

For T that is neither 0 nor infinite; 2500 bits, so that 1e308 beside 1e-308 cancels nothing.
Classes that are not there (-inf, below T = 0 inf, or masked) have 0 everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import mpmath

mp = mpmath.MPContext()
mp.prec = 2500
FAR = -2000  # exp of anything below is 0 in every type


@dataclass
class Row:
    """z = x / T and p of the classes that are there; 0 for the others."""

    x: list[float]
    temperature: float
    allowed: list[bool]
    present: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        t = self.t = mp.mpf(self.temperature)
        absent = -math.copysign(math.inf, self.temperature)
        self.present = [a and v != absent for a, v in zip(self.allowed, self.x, strict=True)]
        z = [
            mp.mpf(v) / t if there else None for v, there in zip(self.x, self.present, strict=True)
        ]
        self.top = max((v for v in z if v is not None), default=mp.mpf(0))
        gaps = [None if v is None else v - self.top for v in z]
        e = [mp.exp(v) if v is not None and v > FAR else mp.mpf(0) for v in gaps]
        total = mp.fsum(e)
        self.p = [v / total if total else v for v in e]
        self.z = [mp.mpf(0) if v is None else v for v in gaps]  # less the largest
        self.log_sum = mp.log(total) if total else -mp.inf

    def mean(self, values) -> mpmath.mpf:
        return mp.fsum(p * v for p, v in zip(self.p, values, strict=True))

    def entropy(self) -> mpmath.mpf:
        return self.log_sum - self.mean(self.z) if any(self.present) else mp.mpf(0)

    def deviations(self, values) -> list[mpmath.mpf]:
        """p (v - mean of v)."""
        mean = self.mean(values)
        return [p * (v - mean) for p, v in zip(self.p, values, strict=True)]


def by_z(name: str, row: Row, g: list[float]) -> list[mpmath.mpf]:
    """The derivatives of sum(g f) by z, or of g[0] f for a function with one value."""
    weights = [mp.mpf(v) if there else mp.mpf(0) for v, there in zip(g, row.present, strict=True)]
    first = mp.mpf(g[0])
    if name == "softmax":
        return row.deviations(weights)
    if name == "log_softmax":
        total = mp.fsum(weights)
        return [v - p * total for v, p in zip(weights, row.p, strict=True)]
    if name in ("logsumexp", "smoothmax"):
        return [first * p for p in row.p]
    if name == "entropy":
        return [-first * v for v in row.deviations(row.z)]
    assert name == "softargmax"
    return [first * v for v in row.deviations([mp.mpf(i) for i in range(len(row.x))])]


def gradient(name: str, row: Row, g: list[float]) -> tuple[list[mpmath.mpf], mpmath.mpf]:
    """The derivatives of sum(g f) by x and by T."""
    by = by_z(name, row, g)
    if name == "smoothmax":
        return by, mp.mpf(g[0]) * row.entropy()
    change = -mp.fsum(b * z for b, z in zip(by, row.z, strict=True)) / row.t
    if name == "logsumexp":  # the one that changes with a shift
        change -= mp.fsum(by) * row.top / row.t
    return [b / row.t for b in by], change


def temperature_derivative(row: Row) -> list[mpmath.mpf]:
    return [-v / row.t for v in row.deviations(row.z)]


def entropy_temperature_derivative(row: Row) -> mpmath.mpf:
    mean = row.mean(row.z)
    return row.mean([(z - mean) ** 2 for z in row.z]) / row.t


def jvp(row: Row, v: list[float]) -> list[mpmath.mpf]:
    return [d / row.t for d in row.deviations([mp.mpf(a) for a in v])]


def jacobian(row: Row) -> list[list[mpmath.mpf]]:
    n = len(row.p)
    return [jvp(row, [1.0 if j == i else 0.0 for j in range(n)]) for i in range(n)]


def hessian(row: Row) -> list[list[list[mpmath.mpf]]]:
    n, p = len(row.p), row.p

    def entry(i: int, j: int, k: int) -> mpmath.mpf:
        first = ((i == j) - p[j]) * ((i == k) - p[k])
        return p[i] * (first - p[j] * ((j == k) - p[k])) / row.t**2

    return [[[entry(i, j, k) for k in range(n)] for j in range(n)] for i in range(n)]


# --- losses against one label, and against other logits ------------------------------------------


def loss_by_z(name: str, row: Row, label: int) -> list[mpmath.mpf]:
    """The derivatives of a loss by z; 1 - p is added up from the other classes."""
    p = row.p
    others = mp.fsum([*p[:label], *p[label + 1 :]])
    apart = [others if c == label else -v for c, v in enumerate(p)]  # 1 - p or -p
    if name == "cross_entropy":
        return [-v for v in apart]
    if name == "mae_loss":
        return [-p[label] * v for v in apart]
    if name == "brier_loss":
        return row.deviations([-2 * others if c == label else 2 * v for c, v in enumerate(p)])
    assert name == "focal_loss"
    log_p = row.z[label] - row.log_sum
    factor = 2 * others * p[label] * log_p - others**2
    return [factor * v for v in apart]


def log_ratios(row: Row, other: Row) -> list[mpmath.mpf]:
    return [(a - row.log_sum) - (b - other.log_sum) for a, b in zip(row.z, other.z, strict=True)]


def kl_by_z(row: Row, other: Row) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """The derivatives of KL(row, other) by the z of either."""
    apart = [q - p for p, q in zip(row.p, other.p, strict=True)]
    return row.deviations(log_ratios(row, other)), apart


def by_temperature(row: Row, derivatives: list[mpmath.mpf]) -> mpmath.mpf:
    """Of something that does not change with a shift."""
    return -mp.fsum(d * z for d, z in zip(derivatives, row.z, strict=True)) / row.t
