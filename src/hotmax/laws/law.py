"""A law: what a softmax must obey, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hotmax.laws.libraries import FULL_FLOATS
from hotmax.laws.trial import Case, Trial

Cases = Callable[[np.random.Generator, str], Iterator[Case]]


@dataclass(frozen=True)
class Law:
    """A law of softmax.

    Args:
        number: Its place in the list.
        name: What it says, in a few words.
        statement: The law, with its formula.
        why: Why it matters.
        search: How a counterexample is sought, in words.
        cases: The inputs tried, for a source of random numbers and a type: known hard ones first.
        domain: Is the law meant for this input? A counterexample is only shrunk to such.
        check: The calls, and what must be true of their results.
        needs: The function of the subject that it is about.
        dtypes: The types that it is tried in.
        refusable: May a subject refuse these types? It is then not applicable.
        attempts: How many smaller inputs to try once one has been found that breaks it.
        teaches: Does this input show what is wrong with a softmax that fails on it? Others are
            tried last, and a counterexample that teaches is not shrunk to one that does not.
            None: every input does.
    """

    number: int
    name: str
    statement: str
    why: str
    search: str
    cases: Cases
    domain: Callable[[Case], bool]
    check: Callable[[Trial, Case], None]
    needs: str = "softmax"
    dtypes: tuple[str, ...] = FULL_FLOATS
    refusable: bool = False
    attempts: int = 300
    teaches: Callable[[Case], bool] | None = None

    def __str__(self) -> str:
        return f"{self.number}. {self.name}: {self.statement}"
