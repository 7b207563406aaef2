"""Tables on the terminal, the same tables in docs/tables/, and progress while they are made."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import figures

T = TypeVar("T")

PAGES = Path(__file__).resolve().parent.parent / "docs" / "tables"


def plain(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns side by side: the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            c.rjust(w) if i else c.ljust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join([first, *others]).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(header), rule, *map(line, lines[1:])])


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = ["---", *("--:" for _ in header[1:])]
    return "\n".join(map(line, [header, rule, *rows]))


def publish(name: str, text: str, page: Path | None = None) -> None:
    """Put `text` between <!-- name:begin --> and <!-- name:end --> in `page`, the table's own."""
    page = PAGES / f"{name}.md" if page is None else page
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    whole = page.read_text(encoding="utf-8")
    if begin not in whole or end not in whole:
        raise SystemExit(f"{page.name} lacks the markers {begin} and {end}")
    before, rest = whole.split(begin, 1)
    after = rest.split(end, 1)[1]
    draft = page.with_suffix(".tmp")
    draft.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    os.replace(draft, page)
    figures.main()  # those of the README are taken from the tables


def versions(*packages: str) -> str:
    found = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    return ", ".join([*found, f"Python {platform.python_version()}"])


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, with a bar on the standard error if a terminal watches."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, what, console=Console(stderr=True), transient=True)
