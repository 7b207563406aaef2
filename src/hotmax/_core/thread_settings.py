"""How many threads there are, and how long they spin for, by the environment."""

from __future__ import annotations

import operator
import os

from hotmax._core.arrays import is_integer

VARIABLE = "HOTMAX_NUM_THREADS"
SPIN_VARIABLE = "HOTMAX_SPIN"
SPIN = 400  # microseconds that a helper spins for, if the environment does not say
PAUSES = 20  # turns of a helper's loop in a microsecond, roughly


def check_count(count: object, name: str) -> int:
    if not is_integer(count):
        raise TypeError(f"{name} must be an int, got {count!r}")
    number = operator.index(count)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def number_from(variable: str) -> int | None:
    """The whole number in an environment variable; None if it is not set."""
    text = os.environ.get(variable, "")
    if text and not text.isdecimal():
        raise ValueError(f"the environment variable {variable} takes a number, got {text!r}")
    return int(text) if text else None


def processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_count() -> int:
    count = number_from(VARIABLE)
    if count is None:
        return processors()
    return check_count(count, f"the environment variable {VARIABLE}")


def patience_of(count: int) -> int:
    """How many turns of its loop a helper spins for, among `count` threads."""
    microseconds = number_from(SPIN_VARIABLE)
    if count > processors():
        return 0
    return PAUSES * (SPIN if microseconds is None else microseconds)
