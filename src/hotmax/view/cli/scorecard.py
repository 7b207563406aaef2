"""laws: what a softmax must obey, tried on those that are installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.text import Text

import hotmax as hm
from hotmax.view.cli.options import COMMON, Common, Flag
from hotmax.view.cli.output import progress, say, say_cut, say_json


def laws(
    *,
    of: str | None = None,
    only: str | None = None,
    axis: int = -1,
    seed: int = 0,
    explain: Flag = False,
    common: Common = COMMON,
) -> None:
    """Try on any softmax what a softmax must obey.

    Example: hotmax laws --of scipy,torch

    Example: hotmax laws --of naive --only 8

    Example: hotmax laws --explain --only 5

    Parameters
    ----------
    of
        Whose softmax: names between commas, such as hotmax,scipy,torch,jax,naive,max-shifted. By
        default hotmax; with --explain nobody is tried, and what was found before is shown.
    only
        Numbers or names of laws between commas.
    axis
        Where the classes lie: -1, 0, 1 or -2.
    seed
        Of the search.
    explain
        Say what each law is, why it matters and who breaks it; with --of those named are tried.
    """
    if explain:
        explain_laws(of, only, axis, seed, common.json)
        return
    names = [name.strip() for name in (of or "hotmax").split(",")]
    if len(set(names)) != len(names):
        raise ValueError(f"--of must name each once, got {of!r}")
    cards = tried(names, chosen_laws(only), axis, seed)
    name, card = next(iter(cards.items()))
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
        say("", f"For code that shows one fail: hotmax laws --of {name} --only {first}")


def chosen_laws(only: str | None) -> Sequence[hm.laws.Law]:
    return hm.laws._chosen(None if only is None else [law_of(key) for key in only.split(",")])


def tried(
    names: Sequence[str], chosen: Sequence[hm.laws.Law], axis: int, seed: int
) -> dict[str, hm.laws.Scorecard]:
    """The scorecard of each that is installed, with progress on the terminal."""
    subjects = {name: hm.laws.subjects.subject_of(name) for name in names}
    for name, subject in list(subjects.items()):
        try:
            subject.function("softmax")
        except ImportError as error:
            if len(subjects) == 1:
                raise
            print(f"hotmax: {name} is left out: {error}", file=sys.stderr)
            del subjects[name]
    cards = {}
    with progress("trying the laws") as update:
        steps = len(subjects) * len(chosen)
        for number, (name, subject) in enumerate(subjects.items()):
            results: list[hm.laws.LawResult] = []
            for place, law in enumerate(chosen):
                update(f"{name}: {law.name}", (number * len(chosen) + place) / steps)
                card = hm.laws.check(subject, only=[law.number], axis=axis, seed=seed)
                results.extend(card.results)
            cards[name] = hm.laws.Scorecard(name, subject.version, axis, seed, tuple(results))
    return cards


def explain_laws(of: str | None, only: str | None, axis: int, seed: int, json: bool) -> None:
    """Each law with its statement, why it matters, and who breaks it.

    Those that are named are tried here and now; otherwise what `make laws` found is shown.
    """
    from hotmax.laws.breakers import breakers_of, known_breakers

    chosen = chosen_laws(only)
    if of is None:
        found = known_breakers()
    else:
        names = [name.strip() for name in of.split(",")]
        found = breakers_of(hm.laws.Comparison(tried(names, chosen, axis, seed)))
    if json:
        say_json([
            {"law": law.number, "name": law.name, "statement": law.statement, "why": law.why,
             "broken_by": list(found.of(law.number)), "counterexamples": found.of(law.number),
             "tried": found.versions}
            for law in chosen
        ])  # fmt: skip
        return
    for law in chosen:
        say(f"{law.number}. {law.name}: {law.statement}", f"    Why: {law.why}")
        said = [f"    {name} breaks it: {how}" for name, how in found.of(law.number).items()]
        say(*(said or ["    Nobody of these breaks it."]), "")
    say(f"Tried: {found.tried()}.")
    if of is None:
        say("To try others, or what is installed here: hotmax laws --explain --of scipy,torch")


def law_of(key: str) -> str | int:
    key = key.strip()
    return int(key) if key.isdecimal() else key
