"""Formulas of the guide as plain text: TeX in, what one would type in an e-mail out."""

from __future__ import annotations

import re

WORDS = {
    r"\ge": ">=",
    r"\le": "<=",
    r"\ne": "!=",
    r"\iff": "<=>",
    r"\approx": "~",
    r"\in": "in",
    r"\cdot": "*",
    r"\odot": "*",
    r"\to": "->",
    r"\infty": "inf",
    r"\propto": "~",
    r"\cup": "or",
    r"\partial": "d",
    r"\top": "T",
    r"\mid": "|",
    r"\dots": "...",
    r"\square": "[]",
    r"\lceil": "ceil(",
    r"\rceil": ")",
    r"\quad": "   ",
    r"\qquad": "   ",
    r"\hat": "",
    r"\{": "{",
    r"\}": "}",
    r"\,": " ",
    r"\;": " ",
    r"\ ": " ",
    r"\!": "",
    r"\\": "\n",
}
BARE = re.compile(r"\w+|[-+]?[\d.]+")


def grouped(text: str) -> str:
    """In brackets, unless it is one word or number."""
    text = text.strip()
    return text if BARE.fullmatch(text) else f"({text})"


def plain_math(tex: str) -> str:
    """A formula as text: fractions with /, powers with ^, names for Greek letters."""
    text = re.sub(r"\\(?:begin|end)\{\w+\}|\\(?:left|right|[bB]igg?)(?![a-z])|(?<!\\)&", " ", tex)
    text = re.sub(r"\\(?:operatorname|mathrm|text|mathbf)\{([^{}]*)\}", r"\1", text)
    for _ in range(8):  # from the innermost braces outwards
        before = text
        text = re.sub(
            r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\w))",
            lambda m: f"{grouped(m[1] or m[2])} / {grouped(m[3] or m[4])}",
            text,
        )
        text = re.sub(r"\\sqrt\s*(?:\{([^{}]*)\}|(\w))", lambda m: f"sqrt({m[1] or m[2]})", text)
        text = re.sub(r"([\^_])\{([^{}]*)\}", lambda m: m[1] + grouped(m[2]), text)
        if text == before:
            break
    text = text.replace("{,}", ",")
    text = re.sub(r"\\(?:[a-zA-Z]+|[^a-zA-Z])", lambda m: WORDS.get(m[0], f"{m[0][1:]} "), text)
    text = re.sub(r" +([_^])", r"\1", text)
    lines = (re.sub(r"\s+", " ", re.sub(r"[{}]", "", line)).strip() for line in text.splitlines())
    joined = "\n".join(line for line in lines if line)
    return re.sub(r" ([,.;)])", r"\1", re.sub(r"\( ", "(", joined))
