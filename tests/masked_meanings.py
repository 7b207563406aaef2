"""What the mask of a masked array can mean: the call without it that gives the same."""

from __future__ import annotations

from collections.abc import Callable
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
