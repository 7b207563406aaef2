"""Which classes each filter keeps, by its definition, in mpmath. Imports nothing of hotmax.

A filter takes the logits of one row as numbers of mpmath, and a temperature that may be inf. At inf
all probabilities are equal: there the order is that of the logits, as at every temperature below.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np

mp = mpmath.mp.clone()
mp.prec = 4500  # enough for 1e308 beside 5e-324, and their squares


class Row:
    """One row of logits: its gaps below the maximum, and its probabilities up to a factor."""

    def __init__(self, x: np.ndarray, temperature: float) -> None:
        sign = -1 if np.signbit(temperature) else 1
        self.x = [sign * mp.mpf(float(v)) for v in x]
        self.t = abs(mp.mpf(float(temperature)))
        self.top = max(self.x)
        self.gaps = [self.top - v for v in self.x]
        self.weights = [
            mp.exp(-(gap / self.t)) if gap / self.t < 4000 else mp.mpf(0) for gap in self.gaps
        ]
        self.total = mp.fsum(self.weights)

    def entropy(self) -> mpmath.mpf:
        pairs = zip(self.weights, self.gaps, strict=True)
        return mp.log(self.total) + mp.fsum(w * (g / self.t) for w, g in pairs) / self.total

    def at_least(self, bound: mpmath.mpf) -> list[bool]:
        """Those of that probability or more, and the maximum."""
        pairs = zip(self.weights, self.gaps, strict=True)
        return [g == 0 or w >= bound * self.total for w, g in pairs]

    def fewest(self, keys: list[mpmath.mpf], share: float) -> tuple[mpmath.mpf, int]:
        """(cut, needed): the smallest keys until they have that share of the mass."""
        order = sorted(range(len(keys)), key=lambda i: keys[i])
        mass = mp.mpf(0)
        for place, i in enumerate(order):
            mass += self.weights[i]
            if mass >= mp.mpf(share) * self.total:
                return keys[i], sum(keys[j] == keys[i] for j in order[: place + 1])
        raise AssertionError("the whole row has all the mass")


def top_k(row: Row, k: int) -> list[bool]:
    bound = sorted(row.x, reverse=True)[min(k, len(row.x)) - 1]
    return [v >= bound for v in row.x]


def top_p(row: Row, p: float) -> list[bool]:
    cut, needed = row.fewest(row.gaps, p)
    ties = [i for i, gap in enumerate(row.gaps) if gap == cut][-needed:]
    return [gap < cut or i in ties for i, gap in enumerate(row.gaps)]


def min_p(row: Row, p: float) -> list[bool]:
    return [w >= mp.mpf(p) for w in row.weights]


def typical_p(row: Row, p: float) -> list[bool]:
    mean = mp.fsum(w * g for w, g in zip(row.weights, row.gaps, strict=True)) / row.total
    distances = [abs(gap - mean) for gap in row.gaps]
    cut, _ = row.fewest(distances, p)
    return [distance <= cut for distance in distances]


def epsilon(row: Row, bound: float) -> list[bool]:
    return row.at_least(mp.mpf(bound))


def eta(row: Row, bound: float) -> list[bool]:
    return row.at_least(min(mp.mpf(bound), mp.sqrt(bound) * mp.exp(-row.entropy())))


def top_n_sigma(row: Row, count: float) -> list[bool]:
    mean = mp.fsum(row.gaps) / len(row.gaps)
    variance = mp.fsum((gap - mean) ** 2 for gap in row.gaps) / len(row.gaps)
    return [gap**2 <= mp.mpf(count) ** 2 * variance for gap in row.gaps]


def xtc(row: Row, given: tuple[float, float]) -> list[bool]:
    """With certainty, drop all of at least the threshold but the last of the least likely."""
    above = [i for i, w in enumerate(row.weights) if w >= mp.mpf(given[1]) * row.total]
    spared = max((i for i in above), key=lambda i: (row.gaps[i], i), default=-1)
    return [i not in above or i == spared for i in range(len(row.x))]


def mirostat(row: Row, given: tuple[float]) -> list[bool]:
    """The first call: mu is twice the target."""
    return row.at_least(mp.mpf(2) ** (-2 * mp.mpf(given[0])))


KEPT: dict[str, Callable[..., list[bool]]] = {
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typical_p": typical_p,
    "epsilon": epsilon,
    "eta": eta,
    "top_n_sigma": top_n_sigma,
    "xtc": xtc,
    "mirostat": mirostat,
}


def kept(name: str, value: object, x: np.ndarray, temperature: float) -> list[bool]:
    return KEPT[name](Row(x, temperature), value)
