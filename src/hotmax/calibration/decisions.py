"""From probabilities to decisions: the cheapest one for a matrix of costs."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax.calibration.conformal import unlabelled
from hotmax.calibration.examples import one_temperature, read_rows, shape_of
from hotmax.calibration.scores import row_probabilities


@dataclass(frozen=True, eq=False)
class Decisions:
    """The result of `decide`.

    Attributes:
        decisions: The number of the cheapest decision of each row: a column of `costs`.
        expected_cost: What it costs on average, if the probabilities are right.
        expected_costs: The same for every decision: (rows, decisions).
        costs: As they were given: (classes, decisions).
    """

    decisions: Array
    expected_cost: Array
    expected_costs: Array = field(repr=False)
    costs: Array = field(repr=False)

    def __str__(self) -> str:
        counts = np.bincount(self.decisions.reshape(-1), minlength=self.costs.shape[1])
        shares = counts / max(self.decisions.size, 1)
        lines = [f"decision {d}: {share:.1%} of rows" for d, share in enumerate(shares)]
        mean = self.expected_cost.mean() if self.decisions.size else np.nan
        return "\n".join([*lines, f"expected cost {mean:.6g} a row"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def as_costs(costs: object, classes: int) -> Array:
    """A matrix of costs, (classes, decisions), checked."""
    refuse_masked(costs, "costs")
    try:
        matrix = np.array(costs, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"costs must be numbers of shape (classes, decisions), got {costs!r}"
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != classes or matrix.shape[1] == 0:
        raise ValueError(
            f"costs must have shape ({classes}, decisions): a row for each class that may be true, "
            f"a column for each decision; got shape {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise ValueError("costs must be finite")
    return matrix


def decide(
    probabilities: object,
    costs: object,
    *,
    where: object = None,
    input: str = "probabilities",
    temperature: object = 1.0,
) -> Decisions:
    """The decision of least expected cost for each row, and it: min over d of sum_k p_k C_kd.

    Args:
        probabilities: (..., classes), calibrated; with input="logits", logits.
        costs: (classes, decisions): what each decision costs if a class is true. Decisions need not
            be classes: one of them may be to ask a person. Gains are negative costs.
        where: Bools that broadcast against logits; classes at False are not there.
        input: "probabilities" or "logits".
        temperature: Of the logits.

    Of decisions that cost the same, the first is taken.

    Example:
        >>> import hotmax as hm
        >>> costs = [[0.0, 1.0, 0.2], [10.0, 0.0, 0.2]]     # ill costs 10 if missed; asking 0.2
        >>> hm.calibration.decide([[0.99, 0.01], [0.7, 0.3], [0.1, 0.9]], costs).decisions
        array([0, 2, 1])
    """
    x, mask = read_rows(probabilities, where=where, input=input, suspicious=False)
    matrix = as_costs(costs, x.shape[1])
    examples = unlabelled(x, mask, input)
    p = row_probabilities(examples, one_temperature(temperature), 0, examples.rows)
    if np.isnan(p).any():
        row = int(np.argmax(np.isnan(p).any(1)))
        raise ValueError(f"{examples.name}: row {row} holds nan, or nothing but -inf")
    # einsum, unlike BLAS, gives a row the same bits in any batch.
    each = np.einsum("rk,kd->rd", p, matrix)
    best = each.argmin(1)
    shape = shape_of(probabilities)[:-1]
    return Decisions(
        decisions=best.reshape(shape),
        expected_cost=each[np.arange(len(best)), best].reshape(shape),
        expected_costs=each.reshape(*shape, matrix.shape[1]),
        costs=matrix,
    )
