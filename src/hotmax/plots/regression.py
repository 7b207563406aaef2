"""The coefficients of a softmax regression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hotmax.plots.style import COLORS, MUTED, axes_of, styled

if TYPE_CHECKING:  # which imports SciPy
    from hotmax._regression.summary import RegressionSummary


@styled
def plot_coefficients(result: RegressionSummary, *, ax: Any = None, intercept: bool = False) -> Any:
    """The coefficients of each class with their intervals.

    The intercept is on another scale than the features, and is left out unless asked for.
    """
    from hotmax._regression.summary import INTERCEPT

    height = 0.22 * len(result.names) * (0.6 + 0.4 * len(result.classes))
    ax = axes_of(ax, 6.4, max(1.6 + height, 2.4))
    shown = [i for i, name in enumerate(result.names) if intercept or name != INTERCEPT]
    positions = np.arange(len(shown))[::-1]
    gap = 0.8 / len(result.classes)
    for number in range(len(result.classes)):
        middle = result.coefficients[number, shown]
        reach = np.stack([middle - result.low[number, shown], result.high[number, shown] - middle])
        off = ((len(result.classes) - 1) / 2 - number) * gap
        style = {"fmt": "o", "markersize": 3.5, "linewidth": 1.2, "color": COLORS[number % 6]}
        ax.errorbar(
            middle, positions + off, xerr=reach, label=f"class {result.classes[number]}", **style
        )
    ax.axvline(0.0, color=MUTED, linewidth=1, zorder=0)
    ax.set_yticks(positions, [result.names[i] for i in shown])
    ax.set_ylim(-0.6, len(shown) - 0.4)
    ax.set_xlabel(f"coefficient, with its {100 * result.level:g} % interval")
    against = "the mean of all classes" if result.base is None else f"class {result.base}"
    ax.set_title(f"Coefficients against {against}")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax
