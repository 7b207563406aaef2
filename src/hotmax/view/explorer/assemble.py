"""Put the page's modules, style and data into one HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import re
from importlib.resources.abc import Traversable

MAIN = "main.js"
LARGEST_PAGE = 250_000  # bytes of the file

IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "(\.{1,2}/[\w./-]+\.js)";$', re.M)
EXPORT = re.compile(r"^export (async function|function|const|class) (\w+)", re.M)


def page_sources() -> Traversable:
    return importlib.resources.files("hotmax.view.explorer").joinpath("page")


def source_text(name: str) -> str:
    return page_sources().joinpath(name).read_text("utf-8")


def resolved(name: str, link: str) -> str:
    """The module that `link` names inside of module `name`, as a path below the sources."""
    parts = name.split("/")[:-1]
    for part in link.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def order(name: str, found: list[str]) -> list[str]:
    """A module behind those that it imports."""
    for link in IMPORT.findall(source_text(name)):
        if (other := resolved(name, link[1])) not in found:
            order(other, found)
    if name not in found:
        found.append(name)
    return found


def wrapped(name: str) -> str:
    """A module as a function that returns its exports: names in different modules stay apart."""
    text = source_text(name)
    names = ", ".join(name for _, name in EXPORT.findall(text))

    def bound(match: re.Match[str]) -> str:
        what = match[1].removeprefix("* as ").replace(" as ", ": ")
        return f'const {what} = modules["{resolved(name, match[2])}"];'

    body = EXPORT.sub(r"\1 \2", IMPORT.sub(bound, text))
    if left := re.search(r"^(import|export)\b.*", body, re.M):
        raise ValueError(f"{name}: {left[0]!r} is a form that assemble.py does not read")
    body = re.sub(r"^\s*//.*\n|^\s*/\*\*(?:[^*]|\*(?!/))*\*/\n", "", body, flags=re.M)
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {names} }};\n}})();'


def script(*names: str) -> str:
    """Modules, and all that they import, as one script; `modules` holds them by name."""
    found: list[str] = []
    for name in names:
        order(name, found)
    return "\n".join(['"use strict";', "const modules = {};", *map(wrapped, found)])


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def policy(script: str, style: str, served: bool) -> str:
    """The Content-Security-Policy: this script and style by their hashes, and nothing else."""
    connect = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; "
        f"style-src 'sha256-{digest(style)}'; connect-src {connect}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@functools.cache
def page_html(
    served: bool = False, guide: tuple[str, ...] = (), guide_base: str = ""
) -> tuple[str, str]:
    """(the page as one HTML text, its Content-Security-Policy).

    Args:
        served: Whether `hotmax explore` serves it, so that it may ask for rows of a file.
        guide: Names of the pages of the guide that exist; the page links to no others.
        guide_base: Where they lie, relative to this page, such as "guide/".
    """
    code, style = f"\n{script(MAIN)}\n", f"\n{source_text('style.css')}\n"
    rule = policy(code, style, served)
    values = {
        "SERVED": "served" if served else "file",
        "GUIDE": " ".join(guide),
        "GUIDE_BASE": guide_base,
        "POLICY": rule,
        "STYLE": style,
        "DIGITS": source_text("digits.json").strip(),
        "SCRIPT": code,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], source_text("index.html")), rule
