"""The minimum of a penalised likelihood whose scores are linear in the numbers that are sought.

Newton's method with line search. Each step is solved by conjugate gradients, which need products
with the Hessian only: two matrix products for a method with a number for each pair of classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.designs import Parts

LOWEST = -1e300  # for the logarithm of a probability that has underflowed
MOST_NEWTON_STEPS = 50
SMALLEST_STEP = 1e-6  # of the line search


@dataclass(frozen=True)
class Precision:
    """When a fit ends, and each of its steps."""

    fall: float  # of the mean loss that a Newton step must promise to be taken
    rest: float  # of the squared residual, in the preconditioner's norm, that a step leaves
    most_products: int  # with the Hessian, in a step


EXACT = Precision(1e-11, 0.01, 60)
NEARLY_EXACT = Precision(1e-8, 0.01, 60)  # of many rows, where nobody sees more
LOOSE = Precision(1e-4, 0.1, 12)
FEW_LOGITS = 50_000  # up to which a fit is exact


@dataclass(frozen=True)
class Problem:
    """The likelihood of rows: their losses, and the derivatives of the mean loss."""

    z: Array
    present: Array | None  # None: all classes are there in all rows
    q: Array
    w: Array  # weights that sum to 1
    parts: Parts

    @property
    def prices(self) -> Array:
        return np.concatenate([part.prices for part in self.parts.values()])

    def split(self, theta: Array) -> list[Array]:
        """The numbers of each part."""
        ends = np.cumsum([len(part.prices) for part in self.parts.values()])
        return np.split(theta, ends[:-1])

    def forward(self, theta: Array) -> Array:
        """What the numbers add to the scores."""
        pieces = self.split(theta.astype(self.z.dtype, copy=False))
        added = [
            part.scores(piece) for part, piece in zip(self.parts.values(), pieces, strict=True)
        ]
        total = added[0]
        for piece in added[1:]:
            total += piece
        return total

    def adjoint(self, g: Array) -> Array:
        pieces = [part.adjoint(g) for part in self.parts.values()]
        return np.concatenate(pieces).astype(np.float64, copy=False)

    def evaluated(self, theta: Array) -> tuple[Array, Array]:
        """(losses, probabilities) of rows."""
        scores = self.forward(theta)
        scores += self.z
        if self.present is not None:
            scores[~self.present] = -np.inf
        scores -= scores.max(1, keepdims=True)
        own = np.einsum(
            "nk,nk->n", self.q, scores if self.present is None else finite_or_zero(scores)
        )
        p = np.exp(scores, out=scores)
        total = p.sum(1)
        p /= total[:, None]
        return np.log(total) * self.q.sum(1) - own, p

    def curvature(self, p: Array, pw: Array, d: Array) -> Array:
        """The Hessian at probabilities p, which times the weights are pw, times d."""
        s = self.forward(d)
        s -= np.einsum("nk,nk->n", p, s)[:, None]
        s *= pw
        return self.adjoint(s)

    def diagonal(self, p: Array) -> Array:
        """That of the Hessian."""
        v = (p - p * p) * self.w[:, None]
        pieces = [part.squares(v) for part in self.parts.values()]
        return np.concatenate(pieces).astype(np.float64, copy=False)


def finite_or_zero(scores: Array) -> Array:
    return np.where(np.isfinite(scores), scores, 0.0)


def minimum(problem: Problem, cost: Array, theta: Array | None, precision: Precision) -> Array:
    """The numbers with the least mean loss + cost @ theta**2, from a start or from 0."""
    theta = np.zeros(cost.size) if theta is None else theta
    losses, p = problem.evaluated(theta)
    value = float(problem.w @ losses) + float(cost @ theta**2)
    for _ in range(MOST_NEWTON_STEPS):
        slope = problem.adjoint((p - problem.q) * problem.w[:, None]) + 2.0 * cost * theta
        step = conjugate_gradients(problem, p, cost, slope, precision)
        promise = -float(slope @ step)  # twice the fall of a quadratic function
        if promise <= 2.0 * precision.fall:
            break
        length = 1.0
        while True:
            there = theta + length * step
            losses, q = problem.evaluated(there)
            new = float(problem.w @ losses) + float(cost @ there**2)
            if new <= value - 1e-4 * length * promise or length < SMALLEST_STEP:
                break
            length *= 0.5
        if not new < value:
            break
        theta, value, p = there, new, q
    return theta


def conjugate_gradients(
    problem: Problem, p: Array, cost: Array, slope: Array, precision: Precision
) -> Array:
    """A step that solves Hessian @ step = -slope nearly."""
    inverse = 1.0 / (problem.diagonal(p) + 2.0 * cost + 1e-12)
    step = np.zeros_like(slope)
    rest = -slope
    y = inverse * rest
    direction = y
    size = first = float(rest @ y)
    pw = p * problem.w[:, None]
    for _ in range(precision.most_products):
        if not size > precision.rest * first:
            break
        product = problem.curvature(p, pw, direction) + 2.0 * cost * direction
        along = size / float(direction @ product)
        step = step + along * direction
        rest = rest - along * product
        y = inverse * rest
        before, size = size, float(rest @ y)
        direction = y + (size / before) * direction
    return step
