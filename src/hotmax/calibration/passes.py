"""Passes over rows: a job on the examples of each block, in threads or on a cluster.

Jobs are plain objects that can be sent to another process. Their results have `merge`, which is
associative and commutative to the last bit, so that blocks and workers do not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from hotmax.calibration.examples import Examples

Tell = Callable[[int, int, int], None]  # parts done, all parts, rows done


class State(Protocol):
    """What a job returns."""

    def merge(self, other: Self) -> Self: ...


class Job(Protocol):
    """What is computed from the rows of a block.

    A job with `add(state, examples)` adds to a state what other jobs return and merge.
    """

    def __call__(self, examples: Examples) -> Any: ...


class RowPart(Protocol):
    """A part of the rows; `examples` are those of its blocks."""

    @property
    def offset(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def examples(self) -> Iterator[Examples]: ...


class Runner(Protocol):
    """What computes parts and merges the results: threads here, or what a source brings.

    One that sends parts elsewhere asks a part for `recipe()`: a function that makes the part, and
    its arguments, which may be lazy.
    """

    def __call__(
        self, work: Callable[[RowPart], Any], parts: Sequence[RowPart], tell: Tell | None
    ) -> Any: ...


@dataclass(frozen=True)
class Together:
    """Several jobs in one pass."""

    jobs: tuple[Any, ...]

    def __call__(self, examples: Examples) -> States:
        return States([job(examples) for job in self.jobs])

    def add(self, total: States, examples: Examples) -> States:
        for number, job in enumerate(self.jobs):
            state, add = total.states[number], getattr(job, "add", None)
            new = state.merge(job(examples)) if add is None else add(state, examples)
            total.states[number] = new
        return total


class States:
    """What several jobs have returned."""

    def __init__(self, states: list[Any]) -> None:
        self.states = states

    def merge(self, other: States) -> States:
        pairs = zip(self.states, other.states, strict=True)
        self.states = [mine.merge(theirs) for mine, theirs in pairs]
        return self


def run_part(job: Job, part: RowPart) -> Any:
    """The job on all blocks of one part; None if it has no rows."""
    total: Any = None
    add = getattr(job, "add", None)
    for examples in part.examples():
        if total is None:
            total = job(examples)
        else:
            total = total.merge(job(examples)) if add is None else add(total, examples)
    return total
