"""What gets through softmax when something is learnt: derivatives, losses, smoothed labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.checks import as_integer
from hotmax.plots.probabilities import at_temperature, names_of, one_row
from hotmax.plots.style import (
    BLUE,
    COLORS,
    DASHES,
    INK,
    MUTED,
    SKY,
    VERMILION,
    axes_of,
    figure_of,
    shortened,
    styled,
)

NUMBERED = 8  # classes up to which a heat map has its numbers written in


@dataclass(frozen=True, eq=False)
class JacobianMap:
    """The derivatives of one row's softmax: `jacobian[i, j]` is that of p[i] by logit j."""

    logits: Array
    probabilities: Array
    jacobian: Array
    temperature: float
    class_names: tuple[str, ...]


def jacobian_map(
    logits: object, *, temperature: float = 1.0, class_names: Sequence[object] | None = None
) -> JacobianMap:
    """The Jacobian of one row, to be drawn.

    Example:
        >>> from hotmax import plots
        >>> plots.jacobian_map([0.0, 0.0]).jacobian
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
    """
    x = one_row(logits)
    return JacobianMap(
        x,
        hm.softmax(x, temperature=temperature),
        hm.softmax_jacobian(x, temperature=temperature),
        float(temperature),
        names_of(class_names, x.size),
    )


def draw_matrix(ax: Any, matrix: Array, size: float, class_names: tuple[str, ...]) -> Any:
    """A square matrix as a heat map from -size to size, its numbers written in if they are few."""
    image = ax.imshow(matrix, cmap="PuOr_r", vmin=-size, vmax=size)
    if matrix.shape[0] <= NUMBERED:
        for row, column in np.ndindex(*matrix.shape):
            dark = abs(matrix[row, column]) > 0.6 * size
            value = float(matrix[row, column])
            text = f"{round(value, 3) + 0.0:.3f}" if size >= 0.01 else f"{value:.1e}"
            ax.text(column, row, text, ha="center", va="center", fontsize=7,
                    color="white" if dark else "#1b1b1e")  # fmt: skip
    if matrix.shape[0] <= 12:
        names = [shortened(name, 8) for name in class_names]
        ax.set_xticks(range(len(names)), names)
        ax.set_yticks(range(len(names)), names)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return image


@styled
def plot_jacobian(result: JacobianMap, *, ax: Any = None) -> Any:
    """The Jacobian as a heat map: what a logit gives its own class, it takes from the others."""
    ax = axes_of(ax, 4.4, 3.8)
    j = result.jacobian
    image = draw_matrix(ax, j, max(float(np.abs(j).max()), 1e-300), result.class_names)
    ax.set_xlabel("by the logit of class")
    ax.set_ylabel("derivative of p of class")
    ax.set_title(f"How each p responds to each logit{at_temperature(result.temperature)}")
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.05)
    bar.outline.set_visible(False)
    return ax


@dataclass(frozen=True, eq=False)
class HessianMap:
    """Second derivatives of one row's softmax: `hessian[i, j, k]` is d2 p[i] / dx[j] dx[k]."""

    logits: Array
    probabilities: Array
    hessian: Array
    temperature: float
    class_names: tuple[str, ...]


def hessian_map(
    logits: object, *, temperature: float = 1.0, class_names: Sequence[object] | None = None
) -> HessianMap:
    """The second derivatives of one row of two to six classes, to be drawn.

    Example:
        >>> from hotmax import plots
        >>> plots.hessian_map([0.0, 1.0]).hessian[0].round(4)
        array([[ 0.0909, -0.0909],
               [-0.0909,  0.0909]])
    """
    x = one_row(logits)
    if not 2 <= x.size <= 6:
        raise ValueError(f"logits must be of two to six classes, got {x.size}")
    return HessianMap(
        x,
        hm.softmax(x, temperature=temperature),
        hm.softmax_hessian(x, temperature=temperature),
        float(temperature),
        names_of(class_names, x.size),
    )


@styled
def plot_hessian(result: HessianMap, *, figure: Any = None) -> Any:
    """The Hessian as a heat map for each class: how its probability bends with two logits."""
    count = result.logits.size
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = figure_of(figure, 2.1 * columns + 0.6, 2.3 * rows + 0.3)
    grid = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for spare in grid[count:]:
        spare.remove()
    panels = grid[:count]
    size = max(float(np.abs(result.hessian).max()), 1e-300)
    for panel, matrix, name in zip(panels, result.hessian, result.class_names, strict=True):
        image = draw_matrix(panel, matrix, size, result.class_names)
        panel.set_title(f"p of class {shortened(name, 8)}")
        panel.set_xlabel("by the logit of class")
    for panel in panels[::columns]:
        panel.set_ylabel("and by that of class")
    at = at_temperature(result.temperature)
    figure.suptitle(f"Second derivatives of each p by two logits{at}")
    bar = figure.colorbar(image, ax=list(panels), fraction=0.05)
    bar.outline.set_visible(False)
    return figure


@dataclass(frozen=True, eq=False)
class Residuals:
    """p - y: the gradient of cross entropy by the logits of one row.

    Attributes:
        probabilities: softmax of the logits.
        targets: One-hot, or smoothed.
        gradient: That of the loss at temperature 1, which is the first minus the second.
        class_names: Names.
    """

    probabilities: Array
    targets: Array
    gradient: Array
    class_names: tuple[str, ...]


def residuals(
    logits: object,
    label: int,
    *,
    label_smoothing: float = 0.0,
    class_names: Sequence[object] | None = None,
) -> Residuals:
    """The gradient of cross entropy for one row and its label, to be drawn.

    Example:
        >>> from hotmax import plots
        >>> plots.residuals([0.0, 0.0], 1).gradient
        array([ 0.5, -0.5])
    """
    x = one_row(logits)
    if not 0 <= as_integer(label, "label") < x.size:
        raise ValueError(f"label must be a class from 0 to {x.size - 1}, got {label}")
    _, gradient = hm.cross_entropy(x, label, label_smoothing=label_smoothing, return_grad=True)
    targets = hm.smooth_labels(label, label_smoothing, num_classes=x.size)
    return Residuals(hm.softmax(x), targets, gradient, names_of(class_names, x.size))


@styled
def plot_residuals(result: Residuals, *, figure: Any = None) -> Any:
    """Above, probabilities beside targets; below, their difference, which is the gradient."""
    count = result.probabilities.size
    figure = figure_of(figure, 4.6, 4.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    place = np.arange(count)
    upper.bar(place - 0.2, result.probabilities, 0.4, color=SKY, label="p, predicted")
    upper.bar(place + 0.2, result.targets, 0.4, color="white", edgecolor=INK, hatch="///",
              label="y, the target")  # fmt: skip
    upper.set_title("Predicted, wanted, and their difference")
    upper.set_ylim(0, 1.45)
    upper.set_yticks([0, 0.5, 1])
    upper.set_ylabel("probability")
    upper.legend(loc="upper right", ncols=2)
    colors = [VERMILION if g < 0 else BLUE for g in result.gradient]
    lower.bar(place, result.gradient, 0.6, color=colors)
    for at, g in zip(place, result.gradient, strict=True):
        if count <= 12:
            lower.annotate(f"{g:+.2f}", (at, g), (0, 3 if g >= 0 else -3), ha="center",
                           va="bottom" if g >= 0 else "top", textcoords="offset points",
                           fontsize=8)  # fmt: skip
    lower.axhline(0, color=INK, linewidth=0.8)
    lower.set_ylim(-1.35, 1.35)
    lower.set_ylabel("p - y")
    lower.set_xlabel("class")
    if count <= 12:
        lower.set_xticks(place, [shortened(name, 10) for name in result.class_names])
    for panel in (upper, lower):
        panel.grid(False, axis="x")
    return figure


@dataclass(frozen=True, eq=False)
class Slope:
    """p (1 - p), the `slope` of a probability by its own logit, against the `probability`."""

    probability: Array
    slope: Array


def slope(points: int = 201) -> Slope:
    """The derivative of p by its own logit, from the Jacobian of two classes.

    Example:
        >>> from hotmax import plots
        >>> plots.slope(3).slope
        array([0.  , 0.25, 0.  ])
    """
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    p = np.linspace(0.0, 1.0, points)
    with np.errstate(divide="ignore"):
        logits = np.stack([np.log(p), np.log1p(-p)], axis=1)
    return Slope(p, hm.softmax_jacobian(logits)[:, 0, 0])


@styled
def plot_slope(result: Slope, *, ax: Any = None) -> Any:
    """p (1 - p) against p: a sure softmax passes no gradient on."""
    ax = axes_of(ax)
    ax.plot(result.probability, result.slope, color=BLUE)
    best = int(np.argmax(result.slope))
    top = result.probability[best], result.slope[best]
    ax.plot(*top, "o", color=BLUE)
    ax.annotate(f"{top[1]:g} at p = {top[0]:g}", top, (0, 5), textcoords="offset points",
                ha="center", fontsize=8)  # fmt: skip
    for side, align in ((0.01, "left"), (0.99, "right")):
        at = float(np.interp(side, result.probability, result.slope))
        ax.plot(side, at, "D", color=VERMILION)
        ax.annotate(f"{at:.2g} at p = {side:g}", (side, at), (14 if side < 0.5 else -14, 10),
                    textcoords="offset points", ha=align, fontsize=8, color=VERMILION)  # fmt: skip
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(0, 0.29)
    ax.set_xlabel("probability p")
    ax.set_ylabel("derivative by its own logit, p (1 - p)")
    ax.set_title("A sure softmax passes no gradient on")
    return ax


@dataclass(frozen=True, eq=False)
class LossGradients:
    """How hard two losses pull at the right class's logit, against its `probability`.

    Attributes:
        probability: That of the right class.
        cross_entropy, mae: Minus the derivative of each loss by the right class's logit.
    """

    probability: Array
    cross_entropy: Array
    mae: Array


def loss_gradients(points: int = 199) -> LossGradients:
    """Gradients of cross entropy and of the mean absolute error, for two classes.

    Example:
        >>> from hotmax import plots
        >>> found = plots.loss_gradients(3)
        >>> found.probability, found.cross_entropy, found.mae
        (array([0.25, 0.5 , 0.75]), array([0.75, 0.5 , 0.25]), array([0.1875, 0.25  , 0.1875]))
    """
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    p = np.arange(1, points + 1) / (points + 1)
    logits = np.stack([np.log(p) - np.log1p(-p), np.zeros_like(p)], axis=1)
    right = np.zeros(points, np.int64)
    pulls = [
        -loss(logits, right, reduction="none", return_grad=True)[1][:, 0]
        for loss in (hm.cross_entropy, hm.mae_loss)
    ]
    return LossGradients(p, *pulls)


@styled
def plot_loss_gradients(result: LossGradients, *, ax: Any = None) -> Any:
    """Cross entropy against the absolute error, which hardly learns from a confident mistake."""
    ax = axes_of(ax)
    ax.plot(result.probability, result.cross_entropy, color=BLUE, label="cross entropy: 1 - p")
    ax.plot(
        result.probability, result.mae, color=VERMILION, linestyle=DASHES[1],
        label="absolute error: p (1 - p)",
    )  # fmt: skip
    ax.annotate(
        "confidently wrong:\nabsolute error has\nno gradient left",
        (result.probability[0], result.mae[0]),
        (0.16, 0.42),
        arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.8},
        fontsize=8,
        color=INK,
        va="center",
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("p of the right class")
    ax.set_ylabel("pull: -(derivative by its logit)")
    ax.set_title("How hard each loss pulls at the right logit")
    ax.legend(loc="upper right")
    return ax


@dataclass(frozen=True, eq=False)
class Smoothing:
    """Cross entropy against the margin of the right class, for amounts of label smoothing.

    Attributes:
        margin: The right logit above all others, which are equal.
        amounts: Of label smoothing.
        losses: (amounts, margins).
        minima: The margin at which each is least; inf without smoothing.
        num_classes: How many there are.
    """

    margin: Array
    amounts: Array
    losses: Array
    minima: Array
    num_classes: int


def smoothing(
    amounts: Sequence[float] = (0.0, 0.05, 0.1, 0.2), *, num_classes: int = 10, points: int = 181
) -> Smoothing:
    """The loss with smoothed labels: least at a finite margin, log((1 - s) n / s + 1).

    Example:
        >>> from hotmax import plots
        >>> plots.smoothing([0.0, 0.1]).minima.round(3)
        array([  inf, 4.511])
    """
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    refuse_masked(amounts, "amounts")
    amount = np.asarray(amounts, np.float64)
    if amount.ndim != 1 or not ((amount >= 0) & (amount < 1)).all():
        raise ValueError(f"amounts must be a list of numbers from 0 to below 1, got {amounts!r}")
    margin = np.linspace(-4.0, 14.0, points)
    logits = np.zeros((points, num_classes))
    logits[:, 0] = margin
    right = np.zeros(points, np.int64)
    losses = [
        hm.cross_entropy(logits, right, label_smoothing=float(s), reduction="none") for s in amount
    ]
    with np.errstate(divide="ignore"):
        minima = np.log((1 - amount) * num_classes / amount + 1)
    return Smoothing(margin, amount, np.array(losses), minima, int(num_classes))


@styled
def plot_smoothing(result: Smoothing, *, ax: Any = None) -> Any:
    """Label smoothing's effect on the loss: more certainty is punished beyond the minimum."""
    ax = axes_of(ax)
    for i, (s, losses) in enumerate(zip(result.amounts, result.losses, strict=True)):
        color = COLORS[i % len(COLORS)]
        label = f"smoothing {s:g}" if s else "no smoothing"
        ax.plot(result.margin, losses, color=color, linestyle=DASHES[i % len(DASHES)], label=label)
        if result.minima[i] < result.margin[-1]:
            at = float(np.interp(result.minima[i], result.margin, losses))
            ax.plot(result.minima[i], at, "o", color=color)
    ax.plot([], [], "o", color=MUTED, label="minimum")
    ax.set_xlim(result.margin[0], result.margin[-1])
    ax.set_ylim(0, None)
    ax.set_xlabel(f"margin: the right logit above the other {result.num_classes - 1}")
    ax.set_ylabel("cross entropy, nats")
    ax.set_title("With label smoothing, more certainty costs in the end")
    ax.legend(loc="upper right")
    return ax
