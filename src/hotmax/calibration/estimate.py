"""A number with its 95 % interval."""

from __future__ import annotations

import html
from dataclasses import dataclass

NORMAL = 1.959963984540054  # the 97.5 % point of the normal distribution


@dataclass(frozen=True)
class Estimate:
    """A metric and its 95 % interval.

    Those of ECE and smooth ECE cover the true error, also where it is 0 (`error_interval`); others
    are by the basic bootstrap over rows, which reflects the resampled values in the estimate.
    """

    value: float
    interval: tuple[float, float]

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.6g} (95 %: {low:.6g} to {high:.6g})"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
