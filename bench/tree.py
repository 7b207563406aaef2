"""The tree of modules, each with the first line of its docstring, in CONTRIBUTING.md: make tree."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hotmax"
GUIDE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- tree:begin -->", "<!-- tree:end -->"


def first_line(path: Path) -> str:
    """Up to the end of its first sentence, or of the line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].partition(". ")[0].rstrip(".")


def lines(folder: Path, depth: int = 1) -> Iterator[str]:
    """A folder's modules, then the folders in it."""
    indent = "  " * depth
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    for path in modules:
        yield f"{indent}{path.name:<{28 - len(indent)}}{first_line(path)}"
    for path in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
        yield f"{indent}{path.name + '/':<{28 - len(indent)}}{first_line(path / '__init__.py')}"
        yield from lines(path, depth + 1)


def tree() -> str:
    return "\n".join(["```", "src/hotmax/", *lines(SOURCE), "```"])


def main() -> None:
    whole = GUIDE.read_text(encoding="utf-8")
    before, rest = whole.split(BEGIN, 1)
    draft = GUIDE.with_suffix(".tmp")
    draft.write_text(f"{before}{BEGIN}\n{tree()}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    os.replace(draft, GUIDE)


if __name__ == "__main__":
    main()
