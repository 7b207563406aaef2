"""Figures as SVG to put into a page: small, accessible, in the page's colours, and always alike."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from hotmax.plots.style import (
    AMBER,
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    PINK,
    SKY,
    VERMILION,
    style,
)

# The page has these as variables, each for a light and a dark background.
VARIABLES = {
    INK: "currentColor",
    MUTED: "var(--muted)",
    FAINT: "var(--line)",
    BLUE: "var(--blue)",
    VERMILION: "var(--vermilion)",
    GREEN: "var(--green)",
    AMBER: "var(--amber)",
    PINK: "var(--pink)",
    SKY: "var(--sky)",
}


def svg(
    draw: Callable[[Any], object], name: str, title: str, text: str, width: float, height: float
) -> str:
    """What `draw(figure)` draws, as an svg element whose ids begin with `name`."""
    with style():
        import matplotlib
        from matplotlib.figure import Figure

        # Text stays text: it can be read out, searched for, and is small.
        own = {"svg.fonttype": "none", "svg.hashsalt": name, "font.sans-serif": ["DejaVu Sans"]}
        nobody: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with matplotlib.rc_context(dict[Any, Any](own)), warnings.catch_warnings():
            # Of a script that DejaVu has not; the reader's own fonts may have it.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
            figure = Figure(figsize=(width, height), layout="constrained")
            draw(figure)
            out = io.StringIO()
            figure.savefig(out, format="svg", transparent=True, metadata=nobody)
    return cleaned(out.getvalue(), name, title, text)


def cleaned(source: str, name: str, title: str, text: str) -> str:
    """matplotlib's SVG without its head, its own style, and ids that nothing refers to."""
    body = source[source.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', body)
    assert box is not None
    inner = body[body.index(">") + 1 :]
    inner = re.sub(r"<metadata>.*?</metadata>", "", inner, flags=re.S)
    inner = re.sub(r"<style[^>]*>.*?</style>", "", inner, flags=re.S)
    inner = re.sub(r"<!--.*?-->", "", inner, flags=re.S)
    inner = inner.replace("xlink:href", "href")
    used = set(re.findall(r'href="#([^"]+)"', inner)) | set(re.findall(r"url\(#([^)]+)\)", inner))
    inner = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", inner
    )
    inner = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', inner)
    inner = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", inner)
    inner = re.sub(r"'DejaVu Sans'(, sans-serif)?", "var(--font)", inner)
    for color, variable in VARIABLES.items():
        inner = re.sub(re.escape(color) + r"\b", variable, inner, flags=re.I)
    inner = re.sub(r"<g>\s*</g>", "", inner)
    inner = re.sub(r"\s*\n\s*", "\n", inner)
    return (
        f'<svg viewBox="{box[1]}" role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-desc">{html.escape(text)}</desc>{inner}'
    ).rstrip()
