"""Results to read: a Scorecard for one subject, a Comparison of several."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotmax.laws.search import LawResult

WORDS = {True: "holds", False: "fails", None: "-"}
COLOURS = {True: "#2e7d32", False: "#c62828", None: "#757575"}
# The mark, colour and word of a result in a picture: told apart without colour too.
CARD_WIDTH = 100


@dataclass(frozen=True)
class Scorecard:
    """Law by law, what holds for one subject.

    It prints as a table; a law is picked by its name or number, as in `card["sums to 1"]`.

    Args:
        subject: Its name.
        version: The version of the package that it comes from, or None.
        axis: The axis that the laws were tried along.
        seed: The seed of the search.
        results: One LawResult for each law.
    """

    subject: str
    version: str | None
    axis: int
    seed: int
    results: tuple[LawResult, ...]

    def __iter__(self) -> Iterator[LawResult]:
        return iter(self.results)

    def __getitem__(self, law: str | int) -> LawResult:
        for result in self.results:
            if law in (result.law.name, result.law.number):
                return result
        raise KeyError(law)

    @property
    def failures(self) -> tuple[LawResult, ...]:
        return tuple(result for result in self.results if result.holds is False)

    @property
    def title(self) -> str:
        return f"{self.subject} {self.version}" if self.version else self.subject

    def tally(self) -> str:
        """How many laws hold, fail and do not apply."""
        count = {holds: sum(r.holds is holds for r in self.results) for holds in WORDS}
        return f"{count[True]} hold, {count[False]} fail, {count[None]} not applicable"

    def __str__(self) -> str:
        rows = [(str(r.law.number), r.law.name, WORDS[r.holds], r.detail) for r in self.results]
        lines = [f"{self.title}, axis {self.axis}: {self.tally()}", "", *_columns(rows)]
        if self.failures:
            name = self.failures[0].law.name
            lines += [
                "",
                f"To see one fail, paste what this prints: print(card[{name!r}].counterexample)",
            ]
        return "\n".join(lines)

    def to_markdown(self) -> str:
        """A table, and below it the code of each counterexample."""
        lines = [f"**{self.title}**, axis {self.axis}: {self.tally()}.", ""]
        rows = [
            (str(r.law.number), r.law.name, r.law.statement, WORDS[r.holds], _cut(r.detail))
            for r in self.results
        ]
        lines += _markdown(("", "law", "statement", "", "detail"), rows)
        for r in self.failures:
            lines += [
                "",
                f"{r.law.number}. {r.law.name}:",
                "",
                "```python",
                f"{r.counterexample}".rstrip(),
                "```",
            ]
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """All of it, numbers as they are printed, for other programs."""
        return json.dumps(self._as_data(), indent=2)

    def _as_data(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "version": self.version,
            "axis": self.axis,
            "seed": self.seed,
            "results": [_as_data(result) for result in self.results],
        }

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><td>{r.law.number}</td><td title={_quoted(r.law.why)}>"
            f"{html.escape(r.law.name)}</td><td>{html.escape(r.law.statement)}</td>{_mark(r)}<td>{_html_detail(r)}</td></tr>"
            for r in self.results
        ]
        head = "<tr><th></th><th>law</th><th>statement</th><th></th><th>detail</th></tr>"
        title = html.escape(f"{self.title}, axis {self.axis}: {self.tally()}")
        return _html_table(title, head, rows)

    def plot(self, ax: Any = None) -> Any:
        """Draw the laws as one column of marks on a matplotlib Axes, which is returned."""
        return Comparison({self.title: self}).plot(ax)


@dataclass(frozen=True)
class Comparison:
    """Law by law, what holds for each of several subjects.

    It prints as a table of laws by subjects; `cards` holds the Scorecard of each.
    """

    cards: Mapping[str, Scorecard]

    def __getitem__(self, name: str) -> Scorecard:
        return self.cards[name]

    def by_law(self) -> list[tuple[LawResult, ...]]:
        """For each law, the result of every subject."""
        return list(zip(*(card.results for card in self.cards.values()), strict=True))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (str(results[0].law.number), results[0].law.name, *(WORDS[r.holds] for r in results))
            for results in self.by_law()
        ]

    def __str__(self) -> str:
        fails = [str(len(card.failures)) for card in self.cards.values()]
        head, foot = ("", "law", *self.cards), ("", "laws that fail", *fails)
        return "\n".join(_columns([head, *self._rows(), foot]))

    def to_markdown(self) -> str:
        """A table of laws by subjects."""
        return "\n".join(_markdown(("", "law", *self.cards), self._rows())) + "\n"

    def to_json(self) -> str:
        """All of it, numbers as they are printed, for other programs."""
        data = {name: card._as_data() for name, card in self.cards.items()}
        return json.dumps(data, indent=2)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(card.title)}</th>" for card in self.cards.values())
        rows = []
        for results in self.by_law():
            law = results[0].law
            marks = "".join(_mark(r) for r in results)
            rows.append(
                f"<tr><td>{law.number}</td><td title={_quoted(law.statement)}>"
                f"{html.escape(law.name)}</td>{marks}</tr>"
            )
        return _html_table("", f"<tr><th></th><th>law</th>{head}</tr>", rows)

    def plot(self, ax: Any = None) -> Any:
        """Draw laws by subjects, a mark for each, on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_laws

        return plot_laws(self, ax=ax)


def _as_data(result: LawResult) -> dict[str, Any]:
    example = result.counterexample
    return {
        "law": result.law.number,
        "name": result.law.name,
        "statement": result.law.statement,
        "holds": result.holds,
        "detail": result.detail,
        "counterexample": example
        and {
            "x": [repr(v) for v in example.x],
            "dtype": example.dtype,
            "arguments": {name: repr(v) for name, v in example.arguments.items()},
            "code": example.code,
        },
    }


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows in aligned columns, the last one cut at the edge of the page."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        cells[0] = row[0].rjust(widths[0])
        line = "  ".join([*cells, row[-1]]).rstrip()
        lines.append(_cut(line, CARD_WIDTH))
    return lines


def _cut(text: str, width: int = CARD_WIDTH) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _markdown(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines]


def _quoted(text: str) -> str:
    return f'"{html.escape(text)}"'


def _mark(result: LawResult) -> str:
    colour, word = COLOURS[result.holds], WORDS[result.holds]
    return f'<td style="color: {colour}" title={_quoted(_cut(result.detail))}>{word}</td>'


def _html_detail(result: LawResult) -> str:
    if result.counterexample is None:
        return html.escape(result.detail)
    code = html.escape(result.counterexample.code)
    summary = html.escape(_cut(result.detail))
    return f"<details><summary>{summary}</summary><pre>{code}</pre></details>"


def _html_table(title: str, head: str, rows: Sequence[str]) -> str:
    caption = f"<caption>{title}</caption>" if title else ""
    style = "<style>.hotmax-laws td, .hotmax-laws th { text-align: left }</style>"
    body = "\n".join(rows)
    return (
        f'{style}<table class="hotmax-laws">{caption}<thead>{head}</thead>'
        f"<tbody>\n{body}\n</tbody></table>"
    )
