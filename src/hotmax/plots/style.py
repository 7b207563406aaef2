"""How plots look: colours, sizes, and the axes to draw on. matplotlib is imported only to draw."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

# Okabe and Ito's colours, which stay apart for every kind of colour vision.
BLUE, VERMILION, GREEN, AMBER, PINK, SKY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#e69f00",
    "#cc79a7",
    "#56b4e9",
)
INK, MUTED, FAINT = "#1b1b1f", "#70707a", "#dcdce2"
COLORS = (BLUE, VERMILION, GREEN, PINK, AMBER, SKY)
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (8, 3)), (0, (3, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")

# Sizes in points for a figure some 300 points wide: at 400 pixels, text is 10 pixels high or more.
STYLE: Mapping[Any, Any] = MappingProxyType(
    {
        "figure.figsize": (4.4, 3.3),
        "figure.dpi": 144,
        "figure.constrained_layout.use": True,
        "font.size": 9,
        "font.family": "sans-serif",
        "axes.titlesize": 9,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "figure.titlesize": 9,
        "figure.titleweight": "bold",
        "axes.labelsize": 9,
        "axes.labelcolor": INK,
        "axes.edgecolor": MUTED,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "text.color": INK,
        "lines.linewidth": 1.6,
        "lines.markersize": 4,
        "hatch.linewidth": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "legend.handlelength": 2.4,
    }
)

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def style() -> Iterator[None]:
    """The style, for as long as something is drawn."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError('plots need matplotlib: pip install "hotmax[plot]"') from None
    with matplotlib.rc_context(dict(STYLE)):
        yield
        interactive = matplotlib.is_interactive()
    # The first figure loads the backend, and that of notebooks turns interactive mode on.
    # rc_context has turned it off again, and no later figure would be shown.
    matplotlib.interactive(interactive)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in this style, and leave matplotlib's own settings as they were."""

    @functools.wraps(draw)
    def in_style(*arguments: P.args, **options: P.kwargs) -> R:
        with style():
            return draw(*arguments, **options)

    return in_style


def axes_of(ax: Any, width: float = 4.4, height: float = 3.3) -> Any:
    """`ax`, or that of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def figure_of(figure: Any, width: float, height: float) -> Any:
    """`figure`, a Figure or SubFigure, or a new figure of this size in inches."""
    if figure is not None:
        return figure
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained")


def percent_ticks(axis: Any) -> None:
    """Label the ticks of an axis of shares in percent."""
    axis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def percent(share: float) -> str:
    """A share in percent, with one decimal; what would round to 0 without being 0 says so."""
    return "< 0.1 %" if 0.0 < share < 0.0005 else f"{100 * share:.1f} %"


def row_text(x: Iterable[float], most: int = 40) -> str:
    """A row as it is written in code, or how many scores it has if it does not fit in a title."""
    numbers = [f"{value:.4g}" for value in x]
    text = f"[{', '.join(numbers)}]"
    return text if len(text) <= most else f"{len(numbers)} scores"


def inline_picture(draw: Callable[..., object], title: str) -> str:
    """What `draw(ax=...)` draws, as an img element of a page."""
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.4, 4.4), layout="constrained")
        draw(ax=figure.subplots())
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=144)
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{title}" width="440" src="data:image/png;base64,{data}">'


def legend_above(ax: Any, columns: int = 2) -> None:
    """A legend between the title and the axes, where nothing is drawn; the title moves up."""
    rows = -(-len(ax.get_legend_handles_labels()[1]) // columns)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.1)
    ax.set_title(ax.get_title(loc="left"), pad=6.0 + 12.5 * rows)


def shortened(name: object, most: int = 14) -> str:
    """A name that fits beside an axis, with $ escaped, which matplotlib reads as mathematics."""
    text = " ".join(str(name).split())
    text = text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return text.replace("$", r"\$")
