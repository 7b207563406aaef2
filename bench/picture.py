"""The README's picture, for light and dark screens: `make picture` writes docs/_static/*.svg."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

import hotmax as hm
from hotmax.plots.style import FAINT, INK, MUTED, STYLE

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "_static"
# What the text, lines and grid of plots become on a dark screen; Okabe and Ito's colours stay.
DARK = {INK: "#e6e6ea", MUTED: "#a0a0aa", FAINT: "#3a3a42", "#0072b2": "#56b4e9"}


def drawn() -> str:
    """Probabilities of four classes over temperature, as SVG on no ground."""
    own = {"svg.fonttype": "path", "svg.hashsalt": "hotmax"}
    with matplotlib.rc_context({**STYLE, **own}):
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        names = ["cat", "dog", "fox", "owl"]
        hm.plots.plot_sweep(hm.plots.sweep([3.0, 2.0, 1.5, -1.0], class_names=names), figure=figure)
        figure.axes[0].set_title("The same scores at every temperature: from certain to undecided")
        path = FOLDER / "sweep-light.svg"
        nobody = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(path, format="svg", transparent=True, metadata=nobody)
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    return re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)


def main() -> None:
    light = drawn()
    dark = light
    for color, other in DARK.items():
        dark = re.sub(re.escape(color) + r"\b", other, dark, flags=re.I)
    for name, text in (("light", light), ("dark", dark)):
        path = FOLDER / f"sweep-{name}.svg"
        path.write_text(text, encoding="utf-8")
        print(f"written: docs/_static/{path.name}, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
