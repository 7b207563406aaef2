"""What the mask of a masked array can mean: the call without it that gives the same.

And the arrays that the calls are tried on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arguments = dict[str, Any]
Meaning = Callable[[Arguments, str, np.ndarray], Arguments]


def left_out(arguments: Arguments, name: str, mask: np.ndarray) -> Arguments:
    """As with `where`."""
    return {**arguments, "where": ~mask}


def filled(value: float) -> Meaning:
    def meaning(arguments: Arguments, name: str, mask: np.ndarray) -> Arguments:
        return {**arguments, name: np.where(mask, value, arguments[name])}

    return meaning


ABSENT, ZERO, PADDING = filled(-np.inf), filled(0), filled(-1)


def ignored(arguments: Arguments, name: str, mask: np.ndarray) -> Arguments:
    """Labels that count for nothing."""
    return {**arguments, name: np.where(mask, -100, arguments[name]), "ignore_index": -100}


def disallowed(arguments: Arguments, name: str, mask: np.ndarray) -> Arguments:
    """False, in `where` itself."""
    return {**arguments, name: arguments[name] & ~mask}


def refused(arguments: Arguments, name: str, mask: np.ndarray) -> Arguments:
    raise AssertionError("never called")


@dataclass(frozen=True)
class Entry:
    """A call that works, and what a mask means in each of its arguments that may be an array."""

    call: Callable[..., Any]
    arguments: Arguments
    masks: dict[str, Meaning]
    also: Arguments = field(default_factory=dict)  # values of arguments that are not in the call


RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3))
OTHER = RNG.normal(size=(4, 3))
LABELS = np.array([0, 2, 1, 1])
MANY = RNG.normal(size=(60, 3)) * 3
MANY_LABELS = RNG.integers(0, 3, 60)
FEATURES = RNG.normal(size=(60, 2))
TRUE = np.ones((4, 3), bool)
