"""Pages of the guide: their code cells, what these print, and their links."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
CELL = re.compile(r"^```\{code-cell\}\n(?:---\n.*?^---\n)?(.*?)^```$", re.M | re.S)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
EXPLORER = re.compile(r"\(explorer:([^)\s]*)\)")


def numbered() -> list[str]:
    """The names of the numbered pages, in order."""
    return sorted(path.stem for path in GUIDE.glob("[0-9][0-9]-*.md"))


def text_of(name: str) -> str:
    return (GUIDE / f"{name}.md").read_text(encoding="utf-8")


def run(source: str, pattern: re.Pattern[str] = CELL) -> str:
    """Run all code of a page in one namespace, as a notebook does; what it prints."""
    printed, names = io.StringIO(), {"__name__": "__page__"}
    with contextlib.redirect_stdout(printed):
        for number, code in enumerate(pattern.findall(source), 1):
            exec(compile(textwrap.dedent(code), f"<cell {number}>", "exec"), names)
    return printed.getvalue()
