"""laws: what a softmax must obey, tried on those that are installed."""

from __future__ import annotations

from rich.text import Text

import hotmax as hm
from hotmax.view.cli.options import COMMON, Common
from hotmax.view.cli.output import progress, say, say_cut


def laws(
    *,
    of: str = "hotmax",
    only: str | None = None,
    axis: int = -1,
    seed: int = 0,
    common: Common = COMMON,
) -> None:
    """Try on any softmax what a softmax must obey.

    Example: hotmax laws --of scipy,torch

    Example: hotmax laws --of naive --only 8

    Parameters
    ----------
    of
        Whose softmax: names between commas, such as hotmax,scipy,torch,jax,naive,max-shifted.
    only
        Numbers or names of laws between commas.
    axis
        Where the classes lie: -1, 0, 1 or -2.
    seed
        Of the search.
    """
    names = [name.strip() for name in of.split(",")]
    if len(set(names)) != len(names):
        raise ValueError(f"--of must name each once, got {of!r}")
    subjects = {name: hm.laws.subjects.subject_of(name) for name in names}
    chosen = hm.laws._chosen(None if only is None else [law_of(key) for key in only.split(",")])
    cards = {}
    with progress("trying the laws") as update:
        steps = len(subjects) * len(chosen)
        for number, (name, subject) in enumerate(subjects.items()):
            subject.function("softmax")  # which says what is not installed
            results: list[hm.laws.LawResult] = []
            for place, law in enumerate(chosen):
                update(f"{name}: {law.name}", (number * len(chosen) + place) / steps)
                card = hm.laws.check(subject, only=[law.number], axis=axis, seed=seed)
                results.extend(card.results)
            cards[name] = hm.laws.Scorecard(name, subject.version, axis, seed, tuple(results))
    card = cards[names[0]]
    shown = card if len(cards) == 1 else hm.laws.Comparison(cards)
    if common.json:
        print(shown.to_json())
        return
    say_cut(str(shown) if card is not shown else str(shown).partition("\n\nTo see one")[0])
    if len(cards) == 1 and only is not None:
        for result in card.failures:
            say("", f"{result.law.number}. {result.law.name}: {result.law.statement}", "")
            say(*map(Text, str(result.counterexample).splitlines()))
    elif len(cards) == 1 and card.failures:
        first = card.failures[0].law.number
        say("", f"For code that shows one fail: hotmax laws --of {names[0]} --only {first}")


def law_of(key: str) -> str | int:
    key = key.strip()
    return int(key) if key.isdecimal() else key
