"""The tree of the source, from the first lines of its docstrings: make tree.

CONTRIBUTING.md has the packages, docs/modules.md every module.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hotmax"
BEGIN, END = "<!-- tree:begin -->", "<!-- tree:end -->"
COLUMN = 28  # where the descriptions begin


def first_line(path: Path) -> str:
    """The first sentence of a module's docstring, or its first line if that is shorter."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].partition(". ")[0].rstrip(".")


def lines(folder: Path, all_modules: bool, depth: int = 1) -> Iterator[str]:
    """A folder's modules (those of packages only if all are wanted), then the folders in it."""
    indent = "  " * depth
    if all_modules or depth == 1:
        for path in sorted(folder.glob("*.py")):
            if path.name != "__init__.py":
                yield f"{indent}{path.name:<{COLUMN - len(indent)}}{first_line(path)}"
    for path in sorted(path for path in folder.iterdir() if (path / "__init__.py").exists()):
        name = f"{path.name}/"
        yield f"{indent}{name:<{COLUMN - len(indent)}}{first_line(path / '__init__.py')}"
        yield from lines(path, all_modules, depth + 1)


def tree(all_modules: bool) -> str:
    return "\n".join(["```text", "src/hotmax/", *lines(SOURCE, all_modules), "```"])


def pages() -> dict[Path, str]:
    """The pages that have a tree, as they should be."""
    found = {}
    for name, all_modules in (("CONTRIBUTING.md", False), ("docs/modules.md", True)):
        before, rest = (ROOT / name).read_text(encoding="utf-8").split(BEGIN, 1)
        after = rest.split(END, 1)[1]
        found[ROOT / name] = f"{before}{BEGIN}\n{tree(all_modules)}\n{END}{after}"
    return found


def main() -> None:
    for page, text in pages().items():
        draft = page.with_suffix(".tmp")
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, page)


if __name__ == "__main__":
    main()
