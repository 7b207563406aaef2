"""Probabilities of one row, and what temperature does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, as_array, as_temperature
from hotmax.plots.style import (
    COLORS,
    DASHES,
    INK,
    MARKERS,
    MUTED,
    SKY,
    VERMILION,
    axes_of,
    figure_of,
    legend_above,
    percent,
    percent_ticks,
    row_text,
    shortened,
    styled,
)

COLOURED = len(COLORS)  # classes with a line of their own; the others are thin and grey


def one_row(logits: object, name: str = "logits") -> Array:
    x = as_array(to_numpy(logits, name), name).astype(np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be one row of at least one class, got shape {x.shape}")
    return x


def names_of(class_names: Sequence[object] | None, count: int) -> tuple[str, ...]:
    """The names of classes; their numbers if they have none."""
    if class_names is None:
        return tuple(map(str, range(count)))
    if isinstance(class_names, str) or len(class_names) != count:
        raise ValueError(f"class_names must be a list of {count} names, got {class_names!r}")
    return tuple(map(str, class_names))


def at_temperature(temperature: float) -> str:
    """The end of a title: nothing at temperature 1, which is softmax as it is defined."""
    return "" if temperature == 1.0 else f" at T = {temperature:g}"


# --- one row ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Probabilities:
    """softmax of one row: `logits`, `probabilities`, the `temperature`, and `class_names`."""

    logits: Array
    probabilities: Array
    temperature: float
    class_names: tuple[str, ...]


def probabilities(
    logits: object, *, temperature: float = 1.0, class_names: Sequence[object] | None = None
) -> Probabilities:
    """softmax of one row at one temperature, to be drawn.

    Example:
        >>> from hotmax import plots
        >>> plots.probabilities([0.0, 0.0]).probabilities
        array([0.5, 0.5])
    """
    x = one_row(logits)
    p = hm.softmax(x, temperature=temperature)
    return Probabilities(x, p, float(temperature), names_of(class_names, x.size))


@styled
def plot_probabilities(result: Probabilities, *, ax: Any = None) -> Any:
    """Probabilities as bars, with the line of the uniform distribution."""
    p = result.probabilities
    ax = axes_of(ax)
    positions = np.arange(p.size)
    ax.bar(positions, p, color=SKY, width=0.8 if p.size <= 40 else 1.0)
    uniform = 1.0 / p.size
    label = f"uniform (all equal): {percent(uniform)}"
    top = 1.12 * max(float(p.max()), uniform)
    ax.axhline(uniform, color=VERMILION, linewidth=1.2, dashes=(5, 2), label=label)
    if p.size <= 12:
        for place, value in enumerate(p):
            # A label that the line would strike through goes into the bar, or above the line.
            struck = 0.0 < uniform - value < 0.09 * top
            inside = struck and value > 0.12 * top
            at, above = (uniform, 6) if struck and not inside else (value, 3)
            ax.annotate(percent(value), (place, at), (0, -3 if inside else above), ha="center",
                        va="top" if inside else "bottom", textcoords="offset points",
                        fontsize=8)  # fmt: skip
        ax.set_xticks(positions, [shortened(name, 10) for name in result.class_names])
    ax.set_ylim(0, top)
    ax.set_xlim(-0.6, p.size - 0.4)
    ax.set_xlabel("class")
    ax.set_ylabel("probability")
    ax.set_title(f"Softmax of {row_text(result.logits)}{at_temperature(result.temperature)}")
    legend_above(ax)
    ax.grid(False, axis="x")
    return ax


# --- shifted and scaled -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ShiftAndScale:
    """softmax of one row, of the row with a number added, and of a multiple of the row.

    Attributes:
        logits, shift, scale: The row, what is added and what it is multiplied by.
        probabilities: (3, classes): as they are, shifted, scaled.
        class_names: Names.
    """

    logits: Array
    shift: float
    scale: float
    probabilities: Array
    class_names: tuple[str, ...]


def shift_and_scale(
    logits: object,
    *,
    shift: float = 5.0,
    scale: float = 2.0,
    class_names: Sequence[object] | None = None,
) -> ShiftAndScale:
    """softmax of x, of x + shift and of scale * x, to be drawn: the first two are the same.

    Example:
        >>> from hotmax import plots
        >>> plots.shift_and_scale([0.0, 1.0], shift=7.0, scale=0.0).probabilities.round(3)
        array([[0.269, 0.731],
               [0.269, 0.731],
               [0.5  , 0.5  ]])
    """
    x = one_row(logits)
    for name, value in (("shift", shift), ("scale", scale)):
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")
    p = hm.softmax(np.stack([x, x + shift, scale * x]))
    return ShiftAndScale(x, float(shift), float(scale), p, names_of(class_names, x.size))


@styled
def plot_shift_and_scale(result: ShiftAndScale, *, figure: Any = None) -> Any:
    """Three rows of bars: a shift changes nothing, a scale does."""
    figure = figure_of(figure, 6.4, 2.7)
    panels = figure.subplots(1, 3, sharey=True)
    count = result.logits.size
    titles = "x", f"x {result.shift:+g}".replace("+", "+ "), f"{result.scale:g} x"
    for panel, p, title in zip(panels, result.probabilities, titles, strict=True):
        panel.bar(np.arange(count), p, color=SKY)
        if count <= 6:
            for at, value in enumerate(p):
                panel.annotate(percent(value), (at, value), (0, 3), ha="center",
                               textcoords="offset points", fontsize=8)  # fmt: skip
        if count <= 12:
            panel.set_xticks(range(count), [shortened(name, 8) for name in result.class_names])
        panel.set_ylim(0, 1.12)
        panel.set_title(f"softmax of {title}")
        panel.set_xlabel("class")
        panel.grid(False, axis="x")
    panels[0].set_ylabel("probability")
    figure.suptitle("A shift changes nothing, a scale does")
    return figure


# --- over temperatures ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sweep:
    """softmax of one row over temperatures.

    Attributes:
        logits: The row.
        temperatures: In the order given; 0 and inf may be among them.
        probabilities: (temperatures, classes).
        entropy: At each temperature, in nats.
        class_names: Names.
    """

    logits: Array
    temperatures: Array
    probabilities: Array
    entropy: Array
    class_names: tuple[str, ...]


def sweep(
    logits: object,
    temperatures: Sequence[float] | Array | None = None,
    *,
    class_names: Sequence[object] | None = None,
) -> Sweep:
    """softmax of one row over temperatures: by default 0, 121 from 0.01 to 100, and inf.

    Example:
        >>> from hotmax import plots
        >>> plots.sweep([1.0, 2.0], [0.0, 1.0, float("inf")]).probabilities.round(3)
        array([[0.   , 1.   ],
               [0.269, 0.731],
               [0.5  , 0.5  ]])
    """
    x = one_row(logits)
    if temperatures is None:
        t = np.concatenate([[0.0], np.geomspace(0.01, 100.0, 121), [np.inf]])
    else:
        t = np.atleast_1d(as_temperature(temperatures, "temperatures"))
        if t.ndim != 1 or t.size == 0:
            raise ValueError(f"temperatures must be one list of numbers, got shape {t.shape}")
    rows = np.broadcast_to(x, (t.size, x.size))
    return Sweep(
        x,
        t,
        hm.softmax(rows, temperature=t[:, None]),
        hm.entropy(rows, temperature=t[:, None]),
        names_of(class_names, x.size),
    )


def tied_dashes(x: Array) -> list[Any]:
    """How to draw each class's line: those that coincide take turns, so that all are seen."""
    dashes: list[Any] = []
    for c in range(x.size):
        same = np.flatnonzero(x == x[c])
        turn = int(np.searchsorted(same, c))
        if same.size == 1:
            dashes.append(DASHES[c % len(DASHES)])
        else:
            dashes.append((5.0 * turn, (5.0, 5.0 * (same.size - 1))))
    return dashes


@styled
def plot_sweep(result: Sweep, *, figure: Any = None) -> Any:
    """Probabilities over temperature on a log axis, with the limits 0 and inf at its ends.

    Below, the entropy. Classes with equal logits share one line, in dashes of their colours.
    """
    t = result.temperatures
    if (t < 0.0).any():
        raise ValueError(f"plot_sweep draws temperatures from 0 up, got {t[t < 0][0]:g}")
    order = np.argsort(t, kind="stable")
    t, p, h = t[order], result.probabilities[order], result.entropy[order]
    inner = (t > 0.0) & (t < np.inf)
    inside = t[inner] if inner.any() else np.array([0.1, 10.0])
    low, high = float(inside.min()), float(inside.max())
    if low == high:
        low, high = low / 3, high * 3
    margin = (high / low) ** 0.12
    ends = low / margin, high * margin
    place = np.where(t == 0.0, ends[0], np.where(t == np.inf, ends[1], t))
    figure = figure_of(figure, 4.6, 4.4)
    upper, lower = figure.subplots(2, 1, height_ratios=(2.6, 1.0))
    dashes = tied_dashes(result.logits)
    leading = np.argsort(-result.logits, kind="stable")[:COLOURED]
    rank = {int(c): i for i, c in enumerate(leading)}
    for c in range(result.logits.size):
        if c not in rank:
            upper.plot(t[inner], p[inner, c], color=MUTED, linewidth=0.7, alpha=0.5, zorder=1)
    few = int(inner.sum()) <= 15
    for c, i in rank.items():
        color, marker = COLORS[i], MARKERS[i]
        name = shortened(result.class_names[c], 12)
        label = f"{'class ' if name.isdigit() else ''}{name}, score {result.logits[c]:.4g}"
        upper.plot(
            t[inner], p[inner, c], color=color, linestyle=dashes[c], label=label,
            marker=marker if few else "", markersize=3,
        )  # fmt: skip
        upper.plot(
            place[~inner], p[~inner, c], color=color, marker=marker, linestyle="", clip_on=False,
            markersize=8.0 - i,
        )  # fmt: skip
    lower.plot(t[inner], h[inner], color=INK)
    lower.plot(place[~inner], h[~inner], "o", color=INK, clip_on=False)
    for panel in (upper, lower):
        panel.set_xscale("log")
        has = t[0] == 0.0, t[-1] == np.inf
        panel.set_xlim(
            ends[0] / margin**0.3 if has[0] else low / margin**0.3,
            ends[1] * margin**0.3 if has[1] else high * margin**0.3,
        )
        panel.minorticks_off()
        powers = 10.0 ** np.arange(np.ceil(np.log10(low) - 1e-9), np.floor(np.log10(high)) + 1)
        inner_ticks = list(powers) if powers.size > 1 else sorted(set(inside.tolist()))
        every = -(-len(inner_ticks) // 6)
        inner_ticks = inner_ticks[::every]
        names = {tick: f"{tick:.3g}" for tick in inner_ticks}
        for end, there, name in zip(ends, has, ("0", "\N{INFINITY}"), strict=True):
            if there:
                names[end] = name
                panel.axvline(end, color=MUTED, linewidth=0.8, dashes=(1, 2), zorder=0)
        panel.set_xticks(list(names), list(names.values()))
    upper.tick_params(labelbottom=False)
    upper.set_ylim(-0.02, 1.02)
    upper.set_ylabel("probability")
    upper.set_title("The same scores at every temperature")
    upper.legend(loc="upper right", labelspacing=0.25,
                 bbox_to_anchor=(0.93 if has[1] else 1.0, 1.0))  # fmt: skip
    most = float(np.log(result.logits.size))
    lower.set_ylim(0, max(1.4 * most, 0.1))
    lower.axhline(most, color=MUTED, linewidth=0.8, dashes=(4, 3))
    lower.annotate(
        f"log {result.logits.size}: all equal", (0.13, most), (0, 2), fontsize=8, color=INK,
        xycoords=lower.get_yaxis_transform(), textcoords="offset points",
    )  # fmt: skip
    lower.set_ylabel("entropy (nats)")
    apart = " and ".join(n for n, there in zip(("0", "\N{INFINITY}"), has, strict=True) if there)
    lower.set_xlabel(f"temperature (log scale{f'; {apart} set apart' if apart else ''})")
    return figure


# --- two classes ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Contour:
    """softmax of two logits: `x` and `y` are the logits, `probability[i, j]` that of y[i]."""

    x: Array
    y: Array
    probability: Array
    temperature: float


def contour(*, temperature: float = 1.0, extent: float = 5.0, points: int = 81) -> Contour:
    """The probability of the second of two classes, over a square of logits.

    Example:
        >>> from hotmax import plots
        >>> plots.contour(points=3).probability.round(2)
        array([[0.5 , 0.01, 0.  ],
               [0.99, 0.5 , 0.01],
               [1.  , 0.99, 0.5 ]])
    """
    if not 0.0 < extent < np.inf:
        raise ValueError(f"extent must be above 0 and finite, got {extent}")
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    line = np.linspace(-extent, extent, points)
    x, y = np.meshgrid(line, line)
    p = hm.softmax(np.stack([x, y], axis=-1), temperature=temperature)[..., 1]
    return Contour(line, line, p, float(temperature))


@styled
def plot_contour(result: Contour, *, ax: Any = None) -> Any:
    """The two-class contour: straight lines, since only the difference of logits counts."""
    ax = axes_of(ax, 4.4, 3.8)
    levels = np.linspace(0, 1, 11)
    filled = ax.contourf(result.x, result.y, result.probability, levels, cmap="cividis")
    marks = [0.01, 0.1, 0.5, 0.9, 0.99]
    widths = [0.8, 0.8, 1.6, 0.8, 0.8]
    shades = ["white", "white", "white", "black", "black"]
    lines = ax.contour(
        result.x, result.y, result.probability, marks, colors=shades, linewidths=widths
    )
    ax.clabel(lines, fmt=lambda level: f"{100 * level:.0f} %", fontsize=7)
    ax.set_aspect("equal")
    ax.grid(False)
    ax.set_xlabel("score of class 0")
    ax.set_ylabel("score of class 1")
    ax.set_title(f"Probability of class 1 from two scores{at_temperature(result.temperature)}")
    bar = ax.figure.colorbar(filled, ax=ax, fraction=0.05, ticks=levels)
    bar.outline.set_visible(False)
    percent_ticks(bar.ax.yaxis)
    return ax
