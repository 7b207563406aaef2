"""What a page is made of: tables, figures, tiles, and numbers as text."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import Any

from hotmax.calibration.estimate import Estimate
from hotmax.view.vector import svg

LONGEST_NAME = 100  # characters of a class's name

Cell = str | tuple[str, str]


def escape(text: object) -> str:
    """Text for HTML; a number and its percent sign stay on one line."""
    return html.escape(str(text), quote=True).replace(" %", "&nbsp;%")


def table(
    head: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "", marked: int = -1
) -> str:
    """A table; a cell may be a pair, of which the second is small. Row `marked` stands out."""

    def cell(content: Cell, tag: str) -> str:
        if isinstance(content, tuple):
            return f"<{tag}>{escape(content[0])}<small>{escape(content[1])}</small></{tag}>"
        return f"<{tag}>{escape(content)}</{tag}>"

    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f"<tr{' class=advised' if number == marked else ''}>"
        + "".join(cell(content, "td") for content in line)
        + "</tr>"
        for number, line in enumerate(rows)
    )
    label = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table>{label}<thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure_block(
    name: str,
    title: str,
    how: str,
    draw: Callable[[Any], object],
    numbers: str,
    width: float = 4.4,
    height: float = 3.3,
) -> str:
    """A picture, how to read it, and the numbers behind it."""
    return (
        f"<figure><h3>{escape(title)}</h3>{svg(draw, name, title, how, width, height)}"
        f"<figcaption>{escape(how)}</figcaption>"
        f"<details><summary>The numbers</summary>{numbers}</details></figure>"
    )


def tile(value: str, label: str, note: str = "") -> str:
    small = f"<span>{escape(note)}</span>" if note else ""
    return f'<div class="tile"><span>{escape(label)}</span><b>{escape(value)}</b>{small}</div>'


def interval(estimate: Estimate, digits: int = 1, scale: float = 100.0, unit: str = " %") -> str:
    low, high = (end * scale for end in estimate.interval)
    return f"{low:.{digits}f} to {high:.{digits}f}{unit}"


def share(estimate: Estimate) -> tuple[str, str]:
    return percent(estimate.value), interval(estimate)


def number(estimate: Estimate) -> tuple[str, str]:
    return f"{estimate.value:.4f}", interval(estimate, 4, 1.0, "")


def shown_name(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return name[: LONGEST_NAME - 1] + "\N{HORIZONTAL ELLIPSIS}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %" if math.isfinite(share) else "-"
