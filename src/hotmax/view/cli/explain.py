"""explain: a page of the guide on the terminal, with its code run here and now."""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

import hotmax as hm
from hotmax.view.cli.options import COMMON, Common, Flag
from hotmax.view.cli.output import say, say_json, screen_width
from hotmax.view.cli.plain_math import plain_math

WIDTH = 88  # columns of text where no terminal says otherwise
CELL = re.compile(
    r"^```\{code-cell\}\n(?:---\n(?P<head>.*?)^---\n)?(?P<code>.*?)^```\n", re.M | re.S
)
ANSWER = re.compile(r"^<details>\n<summary>Answer</summary>\n(.*?)^</details>\n", re.M | re.S)

# Bold and italic words; code and formulas, in which a star means something else, match as they are.
EMPHASIS = re.compile(r"`[^`]*`|\$\$.+?\$\$|\$[^$]+\$|\*\*(.+?)\*\*|(?<!\*)\*(?!\*)(.+?)\*", re.S)

# Words by which a page is asked for, beside those of its name and title.
IDEAS = {
    "01": "softmax, logits, classification, one-hot, definition",
    "02": "additivity, normalisation, events, ensemble, independence of irrelevant alternatives",
    "03": "invariance, shift, scale, order, permutation, sensitivity, contour",
    "04": "overflow, underflow, nan, max trick, double-double, log_softmax, precision",
    "05": "log-sum-exp, lse, smoothmax, softargmax, argmax, bounds",
    "06": "entropy, softmin, hardmax, base, limits, annealing",
    "07": "sample, top-k, top-p, nucleus, min-p, typical, beam search, decoding",
    "08": "jacobian, hessian, gradient, sigmoid, saturation, vanishing gradients",
    "09": "cross-entropy, cross entropy, label smoothing, distillation, perplexity, nll, mae",
    "10": "transformer, online softmax, 1 / sqrt(d)",
    "11": "ece, reliability, overconfidence, temperature scaling, conformal, brier",
    "12": "logistic regression, maximum likelihood, imbalance, class weights, outliers",
}


@dataclass(frozen=True)
class Page:
    """A page of the guide: its number and name, its title and its text as Markdown."""

    name: str
    title: str
    text: str

    def matches(self, idea: str) -> int:
        """How well an idea fits: 3 the number or name, 2 one of IDEAS, 1 a part of any of them."""
        asked, number = idea.lower().strip(), self.name[:2]
        ideas = IDEAS.get(number, "")
        if asked in (number, number.lstrip("0"), self.name, self.name[3:]):
            return 3
        if asked in ideas.split(", "):
            return 2
        return int(bool(asked) and asked in f"{self.title.lower()}, {self.name}, {ideas}")


def pages() -> list[Page]:
    """The pages: those of the checkout that it is installed from, or of the installed package."""
    packaged = importlib.resources.files("hotmax.view").joinpath("guide")
    checkout = Path(hm.__file__).parents[2] / "docs" / "guide"
    for folder in (checkout, packaged):
        if folder.is_dir():
            found = sorted(
                (entry for entry in folder.iterdir() if re.match(r"\d\d-.*\.md$", entry.name)),
                key=lambda entry: entry.name,
            )
            texts = [(entry.name[:-3], entry.read_text(encoding="utf-8")) for entry in found]
            return [Page(name, title_of(text), text) for name, text in texts]
    raise ValueError("the guide is not part of this installation: see docs/guide of the repository")


def title_of(text: str) -> str:
    found = re.search(r"^# (?:\d+\. )?(.*)$", text, re.M)
    return found[1] if found else ""


def page_of(idea: str, known: list[Page]) -> Page:
    best = max(known, key=lambda page: page.matches(idea))
    if not best.matches(idea):
        names = ", ".join(page.name[3:] for page in known)
        raise ValueError(f"IDEA must be a page of the guide or a word of it, got {idea!r}: {names}")
    return best


def explain(
    idea: str | None = None,
    /,
    *,
    answers: Flag = False,
    common: Common = COMMON,
) -> None:
    """Print a page of the guide, with its code run here; without IDEA, the list of pages.

    Example: hotmax explain temperature

    Example: hotmax explain 4 --answers

    Parameters
    ----------
    idea
        A page by its number or name, or an idea: overflow, entropy, top-p, jacobian, ece.
    answers
        Also print the answer of the exercise.
    """
    known = pages()
    if idea is None:
        if common.json:
            say_json([{"page": page.name, "title": page.title} for page in known])
            return
        say(*(f"{page.name[:2]}  {page.name[3:]:26}{page.title}" for page in known))
        say("", "hotmax explain IDEA prints one of them; make docs-open shows all with pictures.")
        return
    page = page_of(idea, known)
    text = rendered(page.text, answers, min(screen_width() or WIDTH, WIDTH))
    if common.json:
        say_json({"page": page.name, "title": page.title, "text": text})
        return
    say(*map(Text, text.splitlines()))


def rendered(source: str, answers: bool, width: int) -> str:
    """A page as plain text: formulas typed out, code with what it prints, pictures by a line."""
    body = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.S)
    body = ANSWER.sub(r"*Answer.* \1" if answers else "*(--answers shows it.)*\n", body)
    names: dict[str, Any] = {"__name__": "__page__"}
    out: list[str] = []
    place = 0
    for cell in CELL.finditer(body):
        out.append(prose(body[place : cell.start()], width))
        place = cell.end()
        if alt := re.search(r"^ +alt: (.*)$", cell["head"] or "", re.M):
            out.append(textwrap.fill(f"[picture: {alt[1]}]", width))
        else:
            out.append(shown_cell(cell["code"], names))
    out.append(prose(body[place:], width))
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(out)).strip()


def shown_cell(code: str, names: dict[str, Any]) -> str:
    """A block of code, and what it prints."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<the guide>", "exec"), names)
    except ImportError as error:
        printed.write(f"({error})\n")
    parts = [textwrap.indent(code.rstrip(), "    ")]
    if text := printed.getvalue().rstrip():
        parts.append(textwrap.indent(text, "  | "))
    return "\n\n".join(parts)


def formula(line: str, width: int) -> str:
    """A formula in lines of at most `width`, broken after commas and before signs of relation."""
    held = re.sub(r"(?<!,) (?!(?:=|>=|<=|!=|->) )", "\N{NO-BREAK SPACE}", line)
    broken = textwrap.fill(
        held, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return broken.replace("\N{NO-BREAK SPACE}", " ")


def prose(text: str, width: int) -> str:
    """Markdown as plain text: headings underlined, formulas typed out, links by their words."""
    text = EMPHASIS.sub(lambda m: m[1] or m[2] or m[0], text)
    text = re.sub(
        r"^\$\$\n(.*?)\n\$\$", lambda m: "\0" + plain_math(m[1]).replace("\n", "\0"), text,
        flags=re.M | re.S,
    )  # fmt: skip
    text = re.sub(r"\$([^$]+)\$", lambda m: plain_math(m[1]), text)
    text = re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", text)
    parts = []
    for block in re.split(r"\n\s*\n", text):
        block = block.strip("\n")
        if heading := re.match(r"#+ (.*)", block):
            parts.append(f"{heading[1]}\n{'-' * len(heading[1])}")
        elif block.startswith("\0"):
            lines = (formula(line, width - 4) for line in block.strip("\0").split("\0"))
            parts.append(textwrap.indent("\n".join(lines), "    "))
        elif block.startswith("- "):
            items = re.split(r"^- ", block, flags=re.M)[1:]
            parts.append("\n".join(
                textwrap.fill(" ".join(item.split()), width, initial_indent="- ",
                              subsequent_indent="  ") for item in items))  # fmt: skip
        elif block.strip():
            parts.append(textwrap.fill(" ".join(block.split()), width))
    return "\n\n".join(parts)
