"""Rows ranked by their confidence: what needs no bins.

Sums over groups of rows have the columns of `binning`: weight, confidence, correctness, rows.
"""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.scores import Scores


def harmonic(x: Array) -> Array:
    """H(x), the harmonic numbers, for real x >= 0: digamma(x + 1) + Euler's constant."""
    shift = np.zeros_like(x)
    for k in range(1, 17):
        shift += 1.0 / (x + k)
    y = x + 17.0
    inverse = 1.0 / (y * y)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    return np.log(y) - 0.5 / y - series + np.euler_gamma - shift


def groups_ks(sums: Array) -> float:
    """The KS error of groups of rows, in the order of their confidence."""
    gap = np.cumsum(sums[:, 2] - sums[:, 1])
    return float(np.abs(gap).max() / sums[:, 0].sum())


def groups_risk(sums: Array) -> tuple[Array, Array]:
    """(coverage, risk) at the end of each group, from the most confident one down."""
    weight = np.cumsum(sums[::-1, 0])
    wrong = np.cumsum((sums[:, 0] - sums[:, 2])[::-1])
    with np.errstate(invalid="ignore"):
        return weight / weight[-1], np.maximum(wrong, 0.0) / weight


def groups_aurc(sums: Array) -> float:
    """The area under the risk-coverage curve of groups of ties; within one, the mean over orders.

    A group of m rows that weigh v, with an error of e, after N that weigh with an error of E: the
    mean risk over its rows is the sum over j of (E + e j / m) / (N + v j / m), in closed form.
    """
    sums = sums[sums[:, 0] > 0][::-1]
    v, m = sums[:, 0], np.maximum(sums[:, 3], 1.0)
    e = v - sums[:, 2]
    before = np.cumsum(v) - v
    wrong = np.cumsum(e) - e
    a = before * m / v
    h = np.where(m == 1.0, 1.0 / (a + 1.0), harmonic(a + m) - harmonic(a))
    area = (e / m) * (m - a * h) + wrong * h
    return float(max(area.sum(), 0.0) / v.sum())


def aurc_doubt(coverage: Array, risk: Array) -> float:
    """How far the area may be from that of rows that are ranked within groups, too.

    Sorting the rows of a group of share s and error e moves the errors up to any coverage by
    s e (1 - e) at most; in the first group, the area by that of all its errors first, or last.
    """
    starts = np.append(0.0, coverage[:-1])
    shares, wrong = coverage - starts, np.diff(risk * coverage, prepend=0.0)
    e = np.clip(wrong / shares, 0.0, 1.0)
    later = (wrong * (1.0 - e))[1:] * np.log(coverage[1:] / starts[1:])
    ends = np.array([e[0], 1.0 - e[0]])
    ends = ends[ends > 0.0]
    return float(shares[0] * -(ends * np.log(ends)).min() + np.maximum(later, 0.0).sum())


class Ranked:
    """Rows in the order of their confidence, with ties as one group."""

    def __init__(self, rows: Scores) -> None:
        there = np.flatnonzero(np.broadcast_to(rows.weights, rows.confidence.shape) > 0)
        self.order = there[np.argsort(rows.confidence[there], kind="stable")]
        self.confidence, self.correct = rows.confidence[self.order], rows.correct[self.order]
        new = np.diff(self.confidence, prepend=-1.0) > 0
        self.starts = np.flatnonzero(new)
        self.group = np.cumsum(new) - 1

    def sums(self, weights: Array) -> Array:
        w = np.ones(self.order.size) if weights.size == 1 else weights[self.order]
        columns = [w, w * self.confidence, w * self.correct, np.where(w > 0, 1.0, 0.0)]
        sums = np.stack([np.add.reduceat(column, self.starts) for column in columns], axis=1)
        return sums[sums[:, 0] > 0]

    def ks(self, weights: Array) -> float:
        return groups_ks(self.sums(weights))

    def aurc(self, weights: Array) -> float:
        return groups_aurc(self.sums(weights))
