"""Separation: data whose likelihood has no maximum, since some coefficients grow without bound.

A direction D of the coefficients separates if no row has a class that D makes likelier than the
row's own, and some row has one that it makes less likely: along D the likelihood rises for ever. A
linear program finds one or shows that there is none (Konis 2007; R's detectseparation).

Where the search has found a minimum, a bound shows it without the program. Let g and H be gradient
and curvature at the coefficients, and B the largest change of a difference of two scores of a row
by a step of length 1 in the norm of H. The third derivative is at most B times the second, so that
a step of length t changes the objective by (exp(-B t) + B t - 1) / B^2 - |g| t at least, with |g|
in the norm of the inverse of H (Bach 2010, Self-concordant analysis for logistic regression). With
B |g| < 1 it rises in all directions without bound, and none separates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from hotmax._core.arrays import Array
from hotmax._regression.objective import Data

MOST_PROGRAM_ENTRIES = 1 << 22  # of the linear program
MOST_FREE = 1000  # coefficients, of the bound
LARGEST_PRODUCT = 0.5  # B |g|: below 1, with allowance for rounding
WORST_CONDITION = 1e10  # of the curvature, for columns of one scale
SMALLEST_MARGIN = 1e-5  # of scaled columns: the program holds its constraints to 1e-7


@dataclass(frozen=True, eq=False)
class Separation:
    """What a direction separates.

    Attributes:
        complete: Whether all rows are predicted right, and not only some are beyond doubt.
        columns: The columns of X whose coefficients grow; -1 is the intercept.
    """

    complete: bool
    columns: tuple[int, ...]

    def __str__(self) -> str:
        kind = "separable" if self.complete else "quasi-separable"
        named = ["the intercept" if c < 0 else str(c) for c in self.columns[:5]]
        more = f" and {len(self.columns) - len(named)} more" if len(self.columns) > 5 else ""
        return (
            f"the classes are {kind} by X (columns {', '.join(named)}{more}): the likelihood has "
            "no maximum, and coefficients and standard errors grow without bound; choose a finite "
            "C, more rows or fewer columns"
        )


def separation_of(data: Data, theta: Array) -> Separation | None:
    """A separation of the data; None if there is none, or if the program would be too large."""
    if data.smoothing > 0.0:
        return None
    x = sparse.csr_matrix(data.x, dtype=np.float64)
    counted = np.arange(x.shape[0]) if data.weights is None else np.flatnonzero(data.weights > 0)
    x = x[counted]
    if data.intercept:
        x = sparse.hstack([x, np.ones((x.shape[0], 1))], format="csr")
    targets = supports(data, counted)
    scores = np.asarray(x @ theta.T)
    own = np.where(targets, scores, np.inf).min(1)
    best = np.where(targets, -np.inf, scores).max(1)
    hard = bool((targets.sum(1) == 1).all())
    complete = hard and bool((own > best).all())
    if not complete and 2 * x.nnz * (data.classes - 1) > MOST_PROGRAM_ENTRIES:
        return None
    scale = np.maximum(np.abs(x).max(0).toarray().reshape(-1), 1e-300)
    if complete:
        direction: Any = theta * scale
    else:
        x = x @ sparse.diags(1.0 / scale)
        if has_minimum(x, scores / data.temperature, *weighted_targets(data, counted, targets)):
            return None
        direction = widest_direction(x, targets)
        if direction is None:
            return None
    size = np.abs(direction - direction.mean(0)).max(0)
    grows = np.flatnonzero(size > 1e-6 * size.max())
    columns = tuple(-1 if data.intercept and c == x.shape[1] - 1 else int(c) for c in grows)
    return Separation(complete, columns)


def supports(data: Data, rows: Array) -> Array:
    """Which classes have a part in the target of each row."""
    if data.labels is None:
        assert data.probabilities is not None
        return np.asarray(data.probabilities[rows] > 0.0)
    found = np.zeros((rows.size, data.classes), np.bool_)
    found[np.arange(rows.size), data.labels[rows]] = True
    return found


def weighted_targets(data: Data, rows: Array, targets: Array) -> tuple[Array, Array]:
    """The probabilities of the classes in the target of each row, and its weight."""
    weights = np.ones(rows.size) if data.weights is None else data.weights[rows]
    if data.labels is not None:
        return targets.astype(np.float64), weights
    assert data.probabilities is not None
    return np.asarray(data.probabilities[rows], np.float64), weights


def has_minimum(x: Any, scores: Array, q: Array, weights: Array) -> bool:
    """Whether the bound shows a minimum; if not, there may be one nevertheless.

    The last class has coefficients 0.
    """
    columns, free = x.shape[1], scores.shape[1] - 1
    if columns * free > MOST_FREE:
        return False
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    gradient = np.asarray(x.T @ (weights[:, None] * (p - q))).T[:free].reshape(-1)
    dense = x.toarray()
    curvature = np.empty((free, columns, free, columns))
    for a in range(free):
        for b in range(a + 1):
            share = weights * p[:, a] * ((a == b) - p[:, b])
            block = dense.T @ (share[:, None] * dense)
            curvature[a, :, b] = block
            curvature[b, :, a] = block.T
    whole = curvature.reshape(free * columns, free * columns)
    values, vectors = np.linalg.eigh(whole)
    if not values[0] > values[-1] / WORST_CONDITION:
        return False
    length = np.sqrt((((gradient @ vectors) ** 2) / values).sum())
    inverse = ((vectors / values) @ vectors.T).reshape(free, columns, free, columns)
    largest = 0.0
    for a in range(free + 1):
        for b in range(a):  # the scores of b and a; the last class has none
            change = inverse[b, :, b]
            if a < free:
                change = change + inverse[a, :, a] - inverse[a, :, b] - inverse[b, :, a]
            largest = max(largest, float(((dense @ change) * dense).sum(1).max()))
    return bool(np.sqrt(largest) * length < LARGEST_PRODUCT)


def widest_direction(x: Any, targets: Array) -> Array | None:
    """The direction in -1..1 with the largest sum of margins, none below 0; None if that is 0.

    Classes that share the target of a row must stay equal. The last class has coefficients 0.
    """
    rows, columns = x.shape
    classes = targets.shape[1]
    first = targets.argmax(1)
    blocks: dict[bool, list[Any]] = {False: [], True: []}
    for c in range(classes):
        for shared in (False, True):
            chosen = np.flatnonzero((targets[:, c] == shared) & (first != c))
            if chosen.size:
                blocks[shared].append(margins(x[chosen], first[chosen], c, classes))
    if not blocks[False]:
        return None
    above = sparse.vstack(blocks[False], format="csr")
    equal = sparse.vstack(blocks[True], format="csr") if blocks[True] else None
    found = linprog(
        -np.asarray(above.sum(0)).reshape(-1) / rows,
        A_ub=-above,
        b_ub=np.zeros(above.shape[0]),
        A_eq=equal,
        b_eq=None if equal is None else np.zeros(equal.shape[0]),
        bounds=(-1.0, 1.0),
        method="highs",
    )
    if found.x is None or not (above @ found.x > SMALLEST_MARGIN).any():
        return None
    free = found.x.reshape(classes - 1, columns)
    return np.concatenate([free, np.zeros((1, columns))])


def margins(x: Any, own: Array, other: int, classes: int) -> Any:
    """(D_own - D_other) . x for each row, as rows of coefficients of D but for its last class."""
    parts = []
    for c in range(classes - 1):
        sign = (own == c).astype(np.float64) - (other == c)
        parts.append(sparse.diags(sign) @ x)
    return sparse.hstack(parts, format="csr") if parts else sparse.csr_matrix((x.shape[0], 0))
