"""The sampling experiment: how often each class comes up at each temperature."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, as_temperature, split_mask
from hotmax._sampling.sample import sample
from hotmax._sampling.steps import MOST_DRAWS, Number
from hotmax._softmax.functions import softmax

DRAWS = Number("draws", 1, MOST_DRAWS, whole=True)


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Counts of the classes at each temperature, beside the probabilities.

    Attributes:
        logits: The logits, (classes,).
        temperatures: The temperatures, (temperatures,).
        draws: How many draws at each.
        counts: How often each class came, (temperatures, classes).
        probabilities: softmax(logits / T), (temperatures, classes).
    """

    logits: Array = field(repr=False)
    temperatures: Array
    draws: int
    counts: Array = field(repr=False)
    probabilities: Array = field(repr=False)

    @property
    def frequencies(self) -> Array:
        """The counts over the number of draws."""
        return self.counts / self.draws

    @property
    def standard_errors(self) -> Array:
        """What a right sampler's frequencies deviate by: sqrt(p (1 - p) / draws)."""
        return np.sqrt(self.probabilities * (1.0 - self.probabilities) / self.draws)

    def _lines(self) -> list[list[str]]:
        header = ["class", *(f"T = {t:g}" for t in self.temperatures)]
        lines = [header]
        for c in range(self.logits.size):
            pairs = zip(self.frequencies[:, c], self.probabilities[:, c], strict=True)
            lines.append([str(c), *(f"{f:.3f} ({p:.3f})" for f, p in pairs)])
        return lines

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        title = f"{self.draws} draws at each temperature: frequency (probability)"
        table = ("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([title, *table])

    def _repr_html_(self) -> str:
        header, *lines = self._lines()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>"
            for line in lines
        )
        caption = f"{self.draws} draws at each temperature: frequency (probability)"
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"

    def plot(self, figure: Any = None) -> Any:
        """Bars of the frequencies, a dot at each probability; one panel for each temperature.

        Draws on a matplotlib Figure, which is returned.
        """
        from hotmax.plots import plot_frequencies

        return plot_frequencies(self, figure=figure)


def frequencies(
    logits: object,
    temperatures: Sequence[float] = (0.1, 0.5, 1.0, 10.0),
    draws: int = 1000,
    seed: object = None,
) -> Frequencies:
    """How often each class comes up in `draws` draws at each temperature.

    Args:
        logits: Logits of one row.
        temperatures: Some temperatures; 0 and inf are among them.
        draws: How many draws at each temperature.
        seed: As in `sample`: temperature i is row i.

    Returns:
        A result with counts, frequencies, probabilities and their standard errors; it prints as a
        table, and has a `plot`.

    Example:
        >>> import hotmax as hm
        >>> print(hm.frequencies([2, 1, 3, 5, 4], temperatures=[0.1, 1, 10], seed=0))
        1000 draws at each temperature: frequency (probability)
        class        T = 0.1          T = 1         T = 10
            0  0.000 (0.000)  0.030 (0.032)  0.177 (0.179)
            1  0.000 (0.000)  0.009 (0.012)  0.163 (0.162)
            2  0.000 (0.000)  0.089 (0.086)  0.206 (0.198)
            3  1.000 (1.000)  0.638 (0.636)  0.234 (0.242)
            4  0.000 (0.000)  0.234 (0.234)  0.220 (0.219)
    """
    x, present = split_mask(to_numpy(logits, "logits"), "logits")
    if x.ndim != 1:
        raise ValueError(f"logits must be one row, got shape {x.shape}")
    temperature = np.atleast_1d(as_temperature(temperatures, "temperatures"))
    if temperature.ndim != 1:
        raise ValueError(f"temperatures must be one list of numbers, got shape {temperature.shape}")
    count = int(DRAWS.check(draws))
    rows = np.broadcast_to(x.astype(np.float64), (temperature.size, x.size))
    drawn = sample(rows, temperature=temperature[:, None], size=count, seed=seed, where=present)
    counts = np.array([np.bincount(line, minlength=x.size) for line in drawn])
    probabilities = softmax(rows, temperature=temperature[:, None], where=present)
    row = np.array(x) if present is None else np.where(present, x, -np.inf)
    return Frequencies(row, temperature, count, counts, probabilities)
