"""The steps between logits and a draw: their names, their numbers, and the orders in the field."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from hotmax._backends.protocol import to_numpy
from hotmax._core.arrays import Array, as_temperature, is_integer, is_real, refuse_masked
from hotmax._core.checks import as_real
from hotmax._core.rows import RowPlan
from hotmax._kernels.sampling import filters

INF = math.inf
MOST_DRAWS = 2.0**32  # the counter of the random numbers is that long
MOST_STEPS = 2.0**53


@dataclass(frozen=True)
class Number:
    """One number of a step, the range that it must lie in, and what turns the step off."""

    name: str
    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    whole: bool = False
    default: float | None = None
    off: tuple[float, ...] = ()

    def range(self) -> str:
        if self.whole:
            start = f"an int of at least {self.low:g}"
            return start if self.high == INF else f"{start} and at most {int(self.high)}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"a number in {left}{self.low:g}, {self.high:g}{right}"

    def accepted(self) -> str:
        return (
            self.range()
            + "".join(f", or {value:g}" for value in self.off)
            + " for off" * bool(self.off)
        )

    def check(self, value: object, place: str = "") -> float:
        """The number; OFF for what turns the step off."""
        if type(value) is float and not self.whole:
            number = value
        elif is_integer(value) if self.whole else is_real(value):
            number = as_real(value, self.name)  # an int beyond float64 is inf, if that is allowed
        else:
            raise TypeError(f"{self.name} must be {self.accepted()}, got {value!r}{place}")
        if number in self.off:
            return filters.OFF
        inside = self.low <= number <= self.high
        at_end = (self.open_low and number == self.low) or (self.open_high and number == self.high)
        if not inside or at_end:
            raise ValueError(f"{self.name} must be {self.accepted()}, got {value!r}{place}")
        return number

    def check_each(self, value: object) -> float | Array:
        """The number, or an array with one for each row: OFF for None and what turns it off."""
        if value is None:
            return filters.OFF
        if not hasattr(value, "__len__") or isinstance(value, str | bytes | Mapping):
            return self.check(value)
        refuse_masked(value, self.name)
        array = to_numpy(value, self.name)
        if not isinstance(array, np.ndarray):
            try:
                array = np.array(array, dtype=object)
            except ValueError:
                raise ValueError(
                    f"{self.name} must be a number or one for each row, got a ragged list"
                ) from None
        if array.dtype.kind in "iuf" and not (self.whole and array.dtype.kind == "f"):
            numbers: Array = array.astype(np.float64)
            numbers[np.isin(numbers, self.off)] = filters.OFF
            known = np.isnan(numbers) & ~np.isnan(array)  # off, not nan as it came
            wrong = ~known & ~((numbers >= self.low) & (numbers <= self.high))
            wrong |= (numbers == self.low) & self.open_low
            wrong |= (numbers == self.high) & self.open_high
            if not wrong.any():
                return numbers
        if not array.ndim:
            return self.check(array[()])
        each = np.empty(array.shape)
        for at in np.ndindex(array.shape):  # which one is wrong, or some are None
            row = at[0] if array.ndim == 1 or array.shape[1:] == (1,) else at
            one = array[at]
            each[at] = filters.OFF if one is None else self.check(one, f" in row {row}")
        return each


TEMPERATURE = Number("temperature", -INF, INF)


def as_temperatures(given: object) -> Array:
    """As `as_temperature`, but None in the place of a row's is 1, and an error names the row."""
    try:
        return as_temperature(given)
    except (TypeError, ValueError):
        if not isinstance(given, list | tuple | np.ndarray):
            raise
    each = np.asarray(TEMPERATURE.check_each(given))
    return np.where(np.isnan(each), 1.0, each)


STEPS: dict[str, tuple[int, tuple[Number, ...]]] = {
    "top_k": (filters.TOP_K, (Number("top_k", 1, INF, whole=True, off=(0, -1)),)),
    "top_p": (filters.TOP_P, (Number("top_p", 0, 1, open_low=True, off=(1,)),)),
    "min_p": (filters.MIN_P, (Number("min_p", 0, 1, open_low=True, off=(0,)),)),
    "typical_p": (filters.TYPICAL_P, (Number("typical_p", 0, 1, open_low=True, off=(1,)),)),
    "epsilon": (
        filters.EPSILON,
        (Number("epsilon", 0, 1, open_low=True, open_high=True, off=(0,)),),
    ),
    "eta": (filters.ETA, (Number("eta", 0, 1, open_low=True, open_high=True, off=(0,)),)),
    "top_n_sigma": (
        filters.TOP_N_SIGMA,
        (Number("top_n_sigma", 0, INF, open_low=True, open_high=True, off=(0, -1)),),
    ),
    "top_a": (filters.TOP_A, (Number("top_a", 0, 1, open_low=True, off=(0,)),)),
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

# The first names of each are that library's own; the steps that it lacks follow where they fit.
ORDERS: dict[str, tuple[str, ...]] = {
    "hf": (
        *("temperature", "dynamic_temperature", "top_n_sigma", "top_k", "top_p", "min_p"),
        *("top_a", "typical_p", "epsilon", "eta", "xtc", "mirostat"),
    ),
    "vllm": (
        *("temperature", "dynamic_temperature", "min_p", "top_n_sigma", "top_k", "top_p"),
        *("top_a", "typical_p", "epsilon", "eta", "xtc", "mirostat"),
    ),
    "llama.cpp": (
        *("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "top_a", "xtc"),
        *("epsilon", "eta", "dynamic_temperature", "temperature", "mirostat"),
    ),
}


@dataclass(frozen=True)
class Step:
    """A step as it was given: each number for all rows, or an array with one for each."""

    name: str
    numbers: tuple[float | Array, ...]

    @property
    def is_off(self) -> bool:
        first = self.numbers[0] if self.numbers else 0.0
        return bool(np.isnan(first).all()) if isinstance(first, np.ndarray) else first != first


@dataclass(frozen=True)
class Program:
    """Steps in order, with the tie rules of llama.cpp or else those of hf and vllm."""

    steps: tuple[Step, ...]
    llama: bool = False

    @property
    def is_plain(self) -> bool:
        """Nothing but a temperature?"""
        return all(step.name == "temperature" for step in self.steps)

    def for_rows(self, plan: RowPlan) -> filters.Steps:
        """The steps as the kernels read them."""
        codes = [STEPS[s.name][0] if s.name in STEPS else filters.TEMPERATURE for s in self.steps]
        several = any(isinstance(n, np.ndarray) for step in self.steps for n in step.numbers)
        table = np.zeros((plan.count if several else 1, len(self.steps), 4))
        for s, step in enumerate(self.steps):
            for i, number in enumerate(step.numbers):
                table[:, s, i] = one_for_each_row(number, plan, step.name)
            rule = filters.LAST if step.name == "top_p" else filters.ALL
            table[:, s, 3] = filters.FIRST if self.llama else rule
        return filters.Steps(np.array(codes, np.int64), table)


def one_for_each_row(number: float | Array, plan: RowPlan, name: str) -> float | Array:
    """A number, or an array with one for each row of the plan, in one line."""
    if not isinstance(number, np.ndarray):
        return number
    if number.shape == plan.row_shape:
        return number.reshape(-1)
    try:
        broadcast = np.broadcast_to(number, plan.reduced_shape)
    except ValueError:
        raise ValueError(
            f"{name} must be a number or have shape {plan.row_shape} or {plan.reduced_shape} (one "
            f"for each row), got shape {number.shape}"
        ) from None
    return np.ascontiguousarray(plan.grid(broadcast, 1)).reshape(-1)


def check_step(name: str, value: object) -> Step:
    """A step, its one number given bare and several as a tuple; None for off."""
    if name == "temperature":
        return Step(name, ())
    if name not in STEPS:
        known = ", ".join(("temperature", *STEPS, "repetition", "frequency", "presence", "bias"))
        raise ValueError(f"steps must be of {known}; got {name!r}")
    wanted = STEPS[name][1]
    if value is None:
        return Step(name, (filters.OFF,))
    if len(wanted) == 1:
        return Step(name, (wanted[0].check_each(value),))
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    least = sum(number.default is None for number in wanted)
    if not least <= len(given) <= len(wanted):
        names = ", ".join(number.name for number in wanted)
        raise ValueError(f"{name} takes {least} to {len(wanted)} numbers ({names}), got {value!r}")
    checked = [number.check_each(v) for number, v in zip(wanted, given, strict=False)]
    defaults = (number.default for number in wanted[len(checked) :])
    return Step(name, (*checked, *(float(number) for number in defaults if number is not None)))


def program(steps: Iterable[Step], order: str | None) -> Program:
    """Those that are not off, in an order of the field; None for the order in which they come."""
    given = [step for step in steps if not step.is_off]
    if order is not None:
        given.sort(key=lambda step: ORDERS[order].index(step.name))
    return Program(tuple(given), order == "llama.cpp")
