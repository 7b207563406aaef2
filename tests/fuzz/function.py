"""What the sweep knows of a function: how to call it, its truth, its bound and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hotmax as hm
from fuzz import wide

Array = np.ndarray
Extras = dict[str, Any]
Generator = np.random.Generator

HALF = {"float16": 1.0, "bfloat16": 1.0}
TWO_ULP = {**HALF, "float32": 2.0, "float64": 2.0}
THREE_ULP = {"float16": 2.0, "bfloat16": 2.0, "float32": 3.0, "float64": 3.0}
FOUR_ULP = dict.fromkeys(TWO_ULP, 4.0)
EIGHT_ULP = dict.fromkeys(TWO_ULP, 8.0)
THIRTY_TWO_ULP = dict.fromkeys(TWO_ULP, 32.0)
EXACT = dict.fromkeys(TWO_ULP, 0.0)
# One rounding, of a number that float64 holds: to the type of the result, and before that to 53
# bits, by less than 0.01 ULP of the type; as float64 is no wider, there may be one more.
ROUNDED = {"float16": 0.51, "bfloat16": 0.51, "float32": 0.51, "float64": 1.0}


@dataclass(frozen=True)
class Function:
    """One function of rows of logits.

    `truth(rows, extras)` gives the true values, and what a ULP is taken at (None: at them).
    `extras` are drawn for each row, `shared` once for all rows; `truth` and `call` see both. A
    function whose results are not one number for each row or entry has `errors` instead of `truth`.
    """

    name: str
    truth: Callable[[wide.Rows, Extras], tuple[Array, Array | None]] | None = None
    bound: dict[str, float] = field(default_factory=lambda: TWO_ULP)
    call: Callable[..., Any] | None = None  # (x, extras, **options); by default the first alone
    exact: Callable[..., Any] | None = None  # (row, temperature, where, extras) in mpmath
    exact_scale: Callable[..., Any] | None = None
    errors: Callable[[wide.Rows, Extras, Any], Array] | None = None  # of each row, in ULP
    per_row: bool = False  # one number for each row, or one for each entry
    draws: bool = False  # class numbers, those of a row last
    order: int = 1  # dimensions of classes: 2 for a Jacobian
    width: Callable[[Extras], int] | None = None  # entries of a result's row; by default as in x
    extras: tuple[str, ...] = ()
    shared: Callable[[Generator, Array, str], Extras] | None = None
    values: Callable[[Generator, tuple[int, int], str], Array] | None = None  # rather than hard
    limits: bool = True  # temperatures 0 and infinity, entries of +inf
    masks: bool = True
    temperature: bool = True
    axes: str = "any"  # "one": an int; "last": no axis
    libraries: bool = False  # the sweep also calls it on arrays of other libraries
    same_bits: bool = True  # in every memory layout
    longest: int = 1 << 20

    @property
    def subject(self) -> str:
        """The public name: "brier_loss" of "brier_loss: gradient"."""
        return self.name.partition(":")[0]

    def run(self, x: Any, extras: Extras, **options: Any) -> Any:
        if self.call is not None:
            return self.call(x, extras, **options)
        return getattr(hm, self.subject)(x, **options)


def plain(truth: Callable[[wide.Rows], Array]) -> Callable[[wide.Rows, Extras], Any]:
    return lambda rows, extras: (truth(rows), None)


def in_mpmath(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda row, t, where, extras: function(row, t, where)


def derivative(truth: Callable[[wide.Rows], tuple[Array, Array]]) -> Callable[..., Any]:
    return lambda rows, extras: truth(rows)
