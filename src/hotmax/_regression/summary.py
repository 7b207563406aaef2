"""What a fitted softmax regression says about its coefficients, and how surely."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.stats import norm

from hotmax._core.arrays import Array
from hotmax._regression.objective import Data, Objective

SINGULAR = 1e-13  # relative to its diagonal: an information matrix that says nothing in a direction


@dataclass(frozen=True, eq=False)
class Inference:
    """What standard errors are made of: of theta[1:] - theta[0], row after row.

    Attributes:
        covariance: (free, free), or None if the information is singular.
        log_likelihood: Of the targets under the model.
        null_log_likelihood: Of the targets under their own frequencies.
        rows: The weight of all rows.
    """

    covariance: Array | None
    log_likelihood: float
    null_log_likelihood: float
    rows: float


def infer(data: Data, theta: Array, price: Array) -> Inference:
    """The inverse of the Hessian of the penalised likelihood at theta.

    The penalty of centred coefficients, seen from their differences d to the first class, is
    that of d^T (1 - 1/k) d.
    """
    objective = Objective(data, np.zeros(data.shape[1]))
    information = objective.passes.information(theta)
    free = data.classes - 1
    link = np.eye(free) - 1.0 / data.classes
    information += np.kron(link, np.diag(price * data.total))
    inverse = None
    scale = np.sqrt(np.diag(information))
    if (scale > 0.0).all():
        try:
            factor = cho_factor(information / np.outer(scale, scale), lower=True)
        except LinAlgError:
            factor = None
        if factor is not None and np.diag(factor[0]).min() ** 2 > SINGULAR * scale.size:
            inverse = cho_solve(factor, np.eye(scale.size)) / np.outer(scale, scale)
    loss = objective.at(theta)[0] * data.total
    share = data.shares
    null = float(share[share > 0.0] @ np.log(share[share > 0.0])) * data.total
    return Inference(inverse, -loss, null, data.total)


@dataclass(frozen=True, eq=False)
class RegressionSummary:
    """Coefficients with their uncertainty; made by `SoftmaxRegression.summary`.

    All arrays are (classes shown, features and intercept).

    Attributes:
        classes: The classes shown: all but `base`, or all if it is None.
        base: The class that coefficients are differences to; None if they are centred, differences
            to the mean over all classes.
        names: Of the features; the intercept, if there is one, is the last.
        coefficients: Of the logits, before they are divided by the temperature.
        standard_errors: From the inverse of the Hessian of the (penalised) likelihood; nan if that
            has no inverse.
        z, p: The coefficient over its standard error, and the probability of one as far from 0.
        low, high: The interval at `level`.
        odds_ratios, odds_low, odds_high: exp(coefficient / T) and its interval: the factor by which
            the odds of a class against the base change, if the feature grows by 1.
        log_likelihood, null_log_likelihood: Of the model, and of the frequencies of the classes.
        note: What to bear in mind: a penalty, a search that did not converge, a singular matrix.
    """

    classes: tuple[Any, ...]
    base: Any
    names: tuple[str, ...]
    coefficients: Array
    standard_errors: Array
    z: Array
    p: Array
    low: Array
    high: Array
    odds_ratios: Array
    odds_low: Array
    odds_high: Array
    level: float
    rows: float
    log_likelihood: float
    null_log_likelihood: float
    note: str

    @property
    def pseudo_r2(self) -> float:
        """McFadden's: 1 - log-likelihood / that of the frequencies."""
        return 1.0 - self.log_likelihood / self.null_log_likelihood

    def header(self) -> list[str]:
        return ["", "coef", "std err", "z", "P>|z|", *self._ends("{} %"), "odds ratio"]

    def _ends(self, form: str) -> list[str]:
        half = (1.0 - self.level) / 2.0 * 100.0
        return [form.format(f"{half:g}"), form.format(f"{100.0 - half:g}")]

    def title(self, number: int) -> str:
        against = "the mean of all" if self.base is None else str(self.base)
        return f"{self.classes[number]} against {against}"

    def cells(self, number: int) -> list[list[str]]:
        """The rows of the table of one class."""
        columns = (self.coefficients, self.standard_errors, self.z, self.p, self.low, self.high)
        forms = ("{:.4f}", "{:.4f}", "{:.3f}", "{:.3f}", "{:.4f}", "{:.4f}")
        found = []
        for place, name in enumerate(self.names):
            numbers = [f.format(c[number, place]) for f, c in zip(forms, columns, strict=True)]
            found.append([name, *numbers, f"{self.odds_ratios[number, place]:.4g}"])
        return found

    def facts(self) -> list[str]:
        text = (
            f"{self.rows:g} rows, log-likelihood {self.log_likelihood:.6g} (of the frequencies "
            f"{self.null_log_likelihood:.6g}), pseudo R2 {self.pseudo_r2:.4g}"
        )
        return [text, self.note] if self.note else [text]

    def __str__(self) -> str:
        tables = [self.cells(number) for number in range(len(self.classes))]
        lines = [self.header(), *(row for table in tables for row in table)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

        def line(cells: list[str]) -> str:
            first, *others = cells
            padded = [c.rjust(w) for c, w in zip(others, widths[1:], strict=True)]
            return "  ".join([first.ljust(widths[0]), *padded])

        text = self.facts()
        for number, table in enumerate(tables):
            head = line(self.header())
            text += ["", self.title(number), head, "-" * len(head), *map(line, table)]
        return "\n".join(text)

    def _repr_html_(self) -> str:
        def row(cells: list[str], kind: str) -> str:
            inner = "".join(f"<{kind}>{html.escape(c)}</{kind}>" for c in cells)
            return f"<tr>{inner}</tr>"

        parts = [f"<p>{html.escape(fact)}</p>" for fact in self.facts()]
        for number in range(len(self.classes)):
            body = "".join(row(cells, "td") for cells in self.cells(number))
            caption = f"<caption>{html.escape(self.title(number))}</caption>"
            parts.append(f"<table>{caption}{row(self.header(), 'th')}{body}</table>")
        return "".join(parts)

    def plot(self, ax: Any = None, *, intercept: bool = False) -> Any:
        """Draw the coefficients with their intervals on a matplotlib Axes, which is returned.

        The intercept is on another scale than the features, and is left out unless asked for.
        """
        from hotmax.plots import plot_coefficients

        return plot_coefficients(self, ax=ax, intercept=intercept)


INTERCEPT = "intercept"


def summarise(
    inference: Inference,
    theta: Array,
    classes: Array,
    names: list[str],
    base: int | None,
    level: float,
    temperature: float,
    notes: list[str],
) -> RegressionSummary:
    """Coefficients by the class number `base`, or centred."""
    count, width = theta.shape
    shown = [c for c in range(count) if c != base]
    # Each shown row is a combination of the rows of theta, and so of the differences to the first.
    combine = np.eye(count)[shown] - (1.0 / count if base is None else np.eye(count)[base])
    coefficients = combine @ theta
    errors = np.full(coefficients.shape, np.nan)
    if inference.covariance is None:
        notes = [
            *notes,
            "no standard errors: the information matrix is singular (a column that is constant or "
            "a combination of others, classes that a plane separates)",
        ]
    else:
        blocks = inference.covariance.reshape(count - 1, width, count - 1, width)
        own = np.einsum("ajbj->abj", blocks)
        mix = combine[:, 1:]
        errors = np.sqrt(np.einsum("sa,abj,sb->sj", mix, own, mix))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = coefficients / errors
        reach = norm.ppf(0.5 + level / 2.0) * errors
        odds = [np.exp((coefficients + r) / temperature) for r in (0.0, -reach, reach)]
    return RegressionSummary(
        classes=tuple(classes[shown].tolist()),
        base=None if base is None else classes[base : base + 1].tolist()[0],
        names=tuple(names),
        coefficients=coefficients,
        standard_errors=errors,
        z=z,
        p=2.0 * norm.sf(np.abs(z)),
        low=coefficients - reach,
        high=coefficients + reach,
        odds_ratios=odds[0],
        odds_low=odds[1],
        odds_high=odds[2],
        level=level,
        rows=inference.rows,
        log_likelihood=inference.log_likelihood,
        null_log_likelihood=inference.null_log_likelihood,
        note="; ".join(notes),
    )
