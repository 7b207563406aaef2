"""The steps between logits and a draw: their names, their numbers, and the orders in the field."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, is_integer, is_real
from hotmax._core.checks import as_real
from hotmax._kernels.sampling import filters

INF = math.inf
MOST_DRAWS = 2.0**32  # the counter of the random numbers is that long
MOST_STEPS = 2.0**53


@dataclass(frozen=True)
class Number:
    """One number of a step, and the range that it must lie in."""

    name: str
    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    whole: bool = False
    default: float | None = None

    def range(self) -> str:
        if self.whole:
            start = f"an int of at least {self.low:g}"
            return start if self.high == INF else f"{start} and at most {int(self.high)}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"a number in {left}{self.low:g}, {self.high:g}{right}"

    def check(self, value: object) -> float:
        if type(value) is float and not self.whole:
            number = value
        elif is_integer(value) if self.whole else is_real(value):
            number = as_real(value, self.name)  # an int beyond float64 is inf, if that is allowed
        else:
            raise TypeError(f"{self.name} must be {self.range()}, got {value!r}")
        inside = self.low <= number <= self.high
        at_end = (self.open_low and number == self.low) or (self.open_high and number == self.high)
        if not inside or at_end:
            raise ValueError(f"{self.name} must be {self.range()}, got {value!r}")
        return number


STEPS: dict[str, tuple[int, tuple[Number, ...]]] = {
    "top_k": (filters.TOP_K, (Number("top_k", 1, INF, whole=True),)),
    "top_p": (filters.TOP_P, (Number("top_p", 0, 1, open_low=True),)),
    "min_p": (filters.MIN_P, (Number("min_p", 0, 1, open_low=True),)),
    "typical_p": (filters.TYPICAL_P, (Number("typical_p", 0, 1, open_low=True),)),
    "epsilon": (filters.EPSILON, (Number("epsilon", 0, 1, open_low=True, open_high=True),)),
    "eta": (filters.ETA, (Number("eta", 0, 1, open_low=True, open_high=True),)),
    "top_n_sigma": (
        filters.TOP_N_SIGMA,
        (Number("top_n_sigma", 0, INF, open_low=True, open_high=True),),
    ),
    "xtc": (
        filters.XTC,
        (
            Number("the probability of xtc", 0, 1),
            Number("the threshold of xtc", 0, 1, open_low=True),
        ),
    ),
    "mirostat": (
        filters.MIROSTAT,
        (
            Number("the target surprise of mirostat", 0, INF, open_low=True, open_high=True),
            Number("the rate of mirostat", 0, INF, open_high=True, default=0.1),
        ),
    ),
    "dynamic_temperature": (
        filters.DYNAMIC_TEMPERATURE,
        (
            Number("the lower end of dynamic_temperature", 0, INF, open_high=True),
            Number("the upper end of dynamic_temperature", 0, INF, open_low=True, open_high=True),
            Number(
                "the exponent of dynamic_temperature",
                0,
                INF,
                open_low=True,
                open_high=True,
                default=1.0,
            ),
        ),
    ),
}
NO_EFFECT_AT_1 = ("top_p", "typical_p")

# The first names of each are that library's own; the steps that it lacks follow where they fit.
ORDERS: dict[str, tuple[str, ...]] = {
    "hf": (
        *("temperature", "dynamic_temperature", "top_n_sigma", "top_k", "top_p", "min_p"),
        *("typical_p", "epsilon", "eta", "xtc", "mirostat"),
    ),
    "vllm": (
        *("temperature", "dynamic_temperature", "min_p", "top_n_sigma", "top_k", "top_p"),
        *("typical_p", "epsilon", "eta", "xtc", "mirostat"),
    ),
    "llama.cpp": (
        *("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "epsilon", "eta"),
        *("dynamic_temperature", "temperature", "mirostat"),
    ),
}


@dataclass(frozen=True)
class Program:
    """Steps as the kernels read them."""

    codes: Array
    numbers: Array  # (steps, 4)

    def has(self, code: int) -> bool:
        return bool((self.codes == code).any())


def check_step(name: str, value: object) -> tuple[float, ...]:
    """The numbers of a step, one given bare and several as a tuple."""
    if name not in STEPS:
        known = ", ".join(("temperature", *STEPS, "repetition", "frequency", "presence"))
        raise ValueError(f"steps must be of {known}; got {name!r}")
    wanted = STEPS[name][1]
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    least = sum(number.default is None for number in wanted)
    if not least <= len(given) <= len(wanted):
        names = ", ".join(number.name for number in wanted)
        raise ValueError(f"{name} takes {least} to {len(wanted)} numbers ({names}), got {value!r}")
    checked = [number.check(v) for number, v in zip(wanted, given, strict=False)]
    defaults = (number.default for number in wanted[len(checked) :])
    return (*checked, *(float(number) for number in defaults if number is not None))


def program(steps: Iterable[tuple[str, Any]], llama: bool = False) -> Program:
    """Steps in order, with the tie rules of llama.cpp or else those of hf and vllm."""
    codes, lines = [], []
    for name, value in steps:
        line = [0.0] * 4
        if name == "temperature":
            codes.append(filters.TEMPERATURE)
            lines.append(line)
            continue
        values = check_step(name, value)
        if name in NO_EFFECT_AT_1 and values[0] == 1.0:
            continue
        line[: len(values)] = values
        line[3] = filters.FIRST if llama else filters.LAST if name == "top_p" else filters.ALL
        codes.append(STEPS[name][0])
        lines.append(line)
    return Program(np.array(codes, np.int64), np.array(lines, np.float64).reshape(-1, 4))


def in_order(steps: dict[str, Any], order: str) -> list[tuple[str, Any]]:
    return [(name, steps[name]) for name in ORDERS[order] if name in steps]
