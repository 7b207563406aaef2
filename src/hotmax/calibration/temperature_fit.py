"""What `fit_temperature` has found, to read and to look at."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Any

SEPARABLE = "separable"
ANTI_CORRELATED = "anti-correlated"
NO_INFORMATION = "no information"
EXPLAINED = {
    SEPARABLE: "every label has the largest logit of its row: the lower T, the likelier",
    ANTI_CORRELATED: "the labels lie no higher than the average logit: uniform is likelier",
    NO_INFORMATION: "all logits of each row are equal: every temperature is the same",
}
REMEDY = "no temperature to use: take more rows, or a prior (prior=1, --prior 1)"


def is_limit(temperature: object) -> bool:
    """Whether a fitted temperature is 0 or inf: a limit, which is never advised nor selected."""
    return temperature is not None and float(temperature) in (0.0, math.inf)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TemperatureFit:
    """The result of `fit_temperature`.

    Attributes:
        temperature: The minimiser of the negative log-likelihood: above 0, and finite, unless
            `diagnosis` says why not.
        interval: Its 95 % interval by profile likelihood, (low, high).
        interval_by_information: The same from the observed information, symmetric in log T.
        nll: The mean negative log-likelihood at `temperature`, in nats.
        nll_before: The same at temperature 1.
        gradient: d nll / d log T at `temperature`, from the last evaluation, a step of less than
            1e-6 away: 0 but for rounding.
        iterations: Evaluations of the likelihood on all rows.
        converged: Whether the minimum was found; also True at a limit that has a diagnosis.
        diagnosis: None, "separable" (T = 0), "anti-correlated" (T = inf) or "no information"
            (T = 1 as good as any).
        rows: The weight of all rows: their number, if they have no weights.
        curve: (temperature, mean nll) at rising temperatures, if they were asked for.
    """

    temperature: float
    interval: tuple[float, float]
    interval_by_information: tuple[float, float]
    nll: float
    nll_before: float
    gradient: float
    iterations: int
    converged: bool
    diagnosis: str | None
    rows: float
    curve: tuple[tuple[float, float], ...] = field(repr=False, default=())

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"temperature {self.temperature:.6g} (95 %: {low:.6g} to {high:.6g})",
            f"nll {self.nll_before:.6g} at temperature 1, {self.nll:.6g} now",
            f"{self.rows:g} rows, {self.iterations} iterations"
            + ("" if self.converged else ", NOT CONVERGED"),
        ]
        if self.diagnosis:
            lines.append(f"{self.diagnosis}: {EXPLAINED[self.diagnosis]}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the nll over temperature, its minimum and interval, on a matplotlib Axes.

        Needs a fit with `curve=True`. The Axes is returned.
        """
        from hotmax.plots import plot_temperature

        return plot_temperature(self, ax=ax)
