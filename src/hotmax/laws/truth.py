"""What is true of a row, from mpmath with 60 digits, rounded once to float64."""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any

import numpy as np

from hotmax._core.arrays import Array

Row = tuple[float, ...]

FAR = -1500  # exp of anything below is 0 in float64, beside a sum of 1 or more

# bits of the significand, least exponent of a normal number
FORMATS = {
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float32": (24, -126),
    "float64": (53, -1022),
}


@functools.cache
def arithmetic() -> Any:
    """A context of mpmath of our own: nobody else's precision reaches it."""
    try:
        import mpmath
    except ImportError:
        raise ImportError('hotmax.laws needs mpmath: pip install "hotmax[laws]"') from None
    mp = mpmath.MPContext()
    mp.dps = 60
    return mp


class _Row:
    """A row sorted out: for each distinct value its gap, (x - max) / T, and exp of that.

    The gap is its limit at a temperature of 0 or infinity, and below +inf.
    """

    def __init__(self, x: Row, temperature: float) -> None:
        mp = arithmetic()
        self.x = x
        top = max(x)
        self.gaps: dict[float, Any] = {}
        for v in sorted(set(x)):
            if v == top:
                gap = mp.mpf(0)
            elif v == -math.inf or top == math.inf or temperature == 0.0:
                gap = -mp.inf
            elif temperature == math.inf:
                gap = mp.mpf(0)
            else:
                gap = (mp.mpf(v) - mp.mpf(top)) / mp.mpf(temperature)
            self.gaps[v] = gap
        self.terms = {v: mp.exp(g) if g > FAR else mp.mpf(0) for v, g in self.gaps.items()}
        counts = Counter(x)
        beside = mp.fsum(self.terms[v] * (n - (v == top)) for v, n in counts.items())
        self.total = 1 + beside
        self.log_total = mp.log1p(beside)  # keeps what lies beside a largest term


@functools.lru_cache(maxsize=2048)
def _row(x: Row, temperature: float) -> _Row:
    return _Row(x, temperature)


@functools.lru_cache(maxsize=2048)
def _softmax(x: Row, temperature: float) -> Array:
    row = _row(x, temperature)
    p = {v: float(term / row.total) for v, term in row.terms.items()}
    return np.array([p[v] for v in x])


def softmax(x: Row, temperature: float = 1.0) -> Array:
    """For rows without nan and with something above -inf, at temperatures from 0 to inf."""
    return _softmax(x, temperature).copy()


def softmax_error(found: Array, x: Row, dtype: str) -> float:
    """The largest distance of `found` from softmax(x), in units in the last place of the truth."""
    if not np.isfinite(found).all():
        return math.inf
    row, mp = _row(x, 1.0), arithmetic()
    units = spacing(softmax(x), dtype)
    return max(
        float(abs(mp.mpf(float(p)) - row.terms[v] / row.total) / float(unit))
        for p, v, unit in zip(found, x, units, strict=True)
    )


def log_softmax(x: Row) -> Array:
    row = _row(x, 1.0)
    return np.array([float(row.gaps[v] - row.log_total) for v in x])


def logsumexp(x: Row) -> float:
    return float(arithmetic().mpf(max(x)) + _row(x, 1.0).log_total)


def jacobian(x: Row) -> Array:
    """diag(p) - p p^T, each entry rounded once."""
    row = _row(x, 1.0)
    p = [row.terms[v] / row.total for v in x]
    return np.array(
        [[float((a if i == j else 0) - a * b) for j, b in enumerate(p)] for i, a in enumerate(p)]
    )


def cross_entropy_gradient(x: Row, label: int) -> Array:
    """p - y, each entry rounded once."""
    row = _row(x, 1.0)
    p = [row.terms[v] / row.total for v in x]
    return np.array([float(a - (i == label)) for i, a in enumerate(p)])


def epsilon(dtype: str) -> float:
    """The spacing of a float type at 1."""
    return 2.0 ** (1 - FORMATS[dtype][0])


def spacing(values: Array, dtype: str) -> Array:
    """The gap between neighbours of a float type at each value; that of subnormals is constant."""
    bits, least = FORMATS[dtype]
    exponents = np.frexp(np.abs(values))[1] - 1
    exponents = np.where(values == 0, least, np.maximum(exponents, least))
    gaps: Array = np.ldexp(1.0, exponents - bits + 1)
    return gaps
