"""Separation: data whose likelihood has no maximum, since some coefficients grow without bound.

A direction D of the coefficients separates if no row has a class that D makes likelier than the
row's own, and some row has one that it makes less likely: along D the likelihood rises for ever. A
linear program finds one or shows that there is none (Konis 2007; R's detectseparation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from hotmax._core.arrays import Array
from hotmax._regression.objective import Data

MOST_ENTRIES = 1 << 22  # of the linear program
NEARLY_CERTAIN = 0.02  # 1 - p of separated rows is far less, where the gradient is small
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
    top = scores.max(1, keepdims=True)
    p = np.exp((scores - top) / data.temperature)
    doubt = np.where(targets, 0.0, p).sum(1) / p.sum(1)
    if not complete and not (doubt < NEARLY_CERTAIN).any():
        return None
    if not complete and 2 * x.nnz * (data.classes - 1) > MOST_ENTRIES:
        return None
    scale = np.maximum(np.abs(x).max(0).toarray().reshape(-1), 1e-300)
    if complete:
        direction: Any = theta * scale
    else:
        direction = widest_direction(x @ sparse.diags(1.0 / scale), targets)
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
