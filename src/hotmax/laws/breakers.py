"""Who breaks which law: what `make laws` found, kept in breakers.json beside this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from hotmax.laws.scorecard import Comparison

# The formulas that people write by hand, and the libraries.
TRIED = ("naive", "max-shifted", "divide-by-sum", "scipy", "torch", "jax", "hotmax")
FILE = "breakers.json"


@dataclass(frozen=True)
class Breakers:
    """Of those that were tried, who breaks each law.

    Args:
        versions: Who was tried, with the version of the library, or None.
        counterexamples: For the number of each law that somebody breaks, by name, what came back.
    """

    versions: Mapping[str, str | None]
    counterexamples: Mapping[int, Mapping[str, str]]

    def of(self, number: int) -> Mapping[str, str]:
        """Who breaks a law, with a counterexample in words."""
        return self.counterexamples.get(number, {})

    def tried(self) -> str:
        """Who was tried, in words."""
        named = [f"{name} {version or ''}".strip() for name, version in self.versions.items()]
        return ", ".join(named)

    def to_json(self) -> str:
        data = {"versions": self.versions, "counterexamples": self.counterexamples}
        return json.dumps(data, indent=1) + "\n"


def breakers_of(comparison: Comparison) -> Breakers:
    """Who breaks which law in a comparison; of hotmax itself the version is left out."""
    versions = {n: None if n == "hotmax" else c.version for n, c in comparison.cards.items()}
    found: dict[int, dict[str, str]] = {}
    for name, card in comparison.cards.items():
        for result in card.failures:
            found.setdefault(result.law.number, {})[name] = result.detail
    return Breakers(versions, dict(sorted(found.items())))


def known_breakers() -> Breakers:
    """What `make laws` found and wrote."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    data = json.loads(text)
    examples = {int(number): names for number, names in data["counterexamples"].items()}
    return Breakers(data["versions"], examples)
