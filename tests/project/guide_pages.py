"""Pages of the guide: their code cells, what these print, and their links."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import hotmax

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


class Ran(NamedTuple):
    """A page that was run: what it printed, its names at the end, its calls of hotmax."""

    printed: str
    names: dict[str, Any]
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]]


def run(source: str, pattern: re.Pattern[str] = CELL, **given: Any) -> str:
    """Run all code of a page in one namespace, as a notebook does; what it prints.

    `given` are names that the page takes for granted.
    """
    printed, names = io.StringIO(), {"__name__": "__page__", **given}
    _run(source, pattern, printed, names)
    return printed.getvalue()


def run_recorded(source: str, functions: tuple[str, ...]) -> Ran:
    """Run a page of the guide, and keep each call that it makes of these functions of hotmax."""
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            result = function(*arguments, **keywords)
            calls.append((name, arguments, keywords, result))
            return result

        return wrapper

    printed, names = io.StringIO(), {"__name__": "__page__"}
    with contextlib.ExitStack() as stack:
        for name in functions:
            wrapper = recorded(name, getattr(hotmax, name))
            stack.enter_context(mock.patch.object(hotmax, name, wrapper))
        _run(source, CELL, printed, names)
    return Ran(printed.getvalue(), names, calls)


def _run(
    source: str, pattern: re.Pattern[str], printed: io.StringIO, names: dict[str, Any]
) -> None:
    with contextlib.redirect_stdout(printed):
        for number, code in enumerate(pattern.findall(source), 1):
            exec(compile(textwrap.dedent(code), f"<cell {number}>", "exec"), names)
