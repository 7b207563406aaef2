"""Inputs: known hard rows, and random ones of many kinds, exact in their type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hotmax.laws.libraries import numpy_dtype
from hotmax.laws.trial import Case

LENGTHS = (2, 3, 1, 5, 8, 33)
MILD = 30.0  # exp of it, and of its negative, is far from the edges of float32
RANDOM = 60  # random inputs for each law and type

Hard = Sequence[list[float] | tuple[list[float], dict[str, float]]]
Draw = Callable[[np.random.Generator, str], Case]

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7976e308}

MILD_ROWS: tuple[list[float], ...] = (
    [0.0, 1.0],
    [1.0, 2.0, 3.0],
    [-1.0, 1.0],
    [0.0, 0.0],
    [0.0],
    [3.0, 1.0, 3.0, 3.0],
    [0.0, -20.0],
    [-30.0, 30.0],
    [-1.0, -2.0, -3.0],
    [0.1, 0.2, 0.3],
)


def round_to_type(values: Sequence[float], dtype: str) -> tuple[float, ...]:
    """The values rounded to a type: floats, or Python ints for an integer type."""
    if dtype.startswith(("int", "uint")):
        return tuple(int(v) for v in values)
    with np.errstate(over="ignore"):
        rounded = np.array(values, np.float64).astype(numpy_dtype(dtype))
    return tuple(rounded.astype(np.float64).tolist())


def mild(case: Case) -> bool:
    """At least one number, all of modest size."""
    return len(case.x) > 0 and all(abs(v) <= MILD for v in case.x)


def mild_row(rng: np.random.Generator, dtype: str, least: int = 1) -> tuple[float, ...]:
    """A row of one of many kinds, within the mild range."""
    n = max(least, int(rng.choice(LENGTHS)))
    kind = rng.integers(6)
    if kind == 0:
        x = rng.standard_normal(n)
    elif kind == 1:
        x = rng.standard_normal(n) * 10.0
    elif kind == 2:
        x = rng.integers(-5, 6, n).astype(np.float64)
    elif kind == 3:  # ties
        x = rng.choice(rng.standard_normal(2) * 3.0, n)
    elif kind == 4:  # near one-hot
        x = np.full(n, -rng.uniform(15.0, 30.0))
        x[rng.integers(n)] = 0.0
    else:
        x = rng.uniform(-MILD, MILD, n)
    return round_to_type(np.clip(x, -MILD, MILD).tolist(), dtype)


def round_row(rng: np.random.Generator, dtype: str, least: int = 1) -> tuple[float, ...]:
    """A mild row of multiples of 1/64: sums and differences of such are exact."""
    return tuple(round(v * 64.0) / 64.0 for v in mild_row(rng, dtype, least))


def is_round(case: Case) -> bool:
    return mild(case) and all(v * 64.0 == round(v * 64.0) for v in case.x)


def inputs(
    hard: Hard | Callable[[str], Hard], draw: Draw | None = None, count: int = RANDOM
) -> Callable[[np.random.Generator, str], Iterator[Case]]:
    """The hard rows, each alone or with what else the law needs; then random ones."""

    def make(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        for item in hard(dtype) if callable(hard) else hard:
            row, extra = item if isinstance(item, tuple) else (item, {})
            yield Case(round_to_type(row, dtype), dtype, extra)
        if draw is not None:
            for _ in range(count):
                yield draw(rng, dtype)

    return make


def draw_mild(rng: np.random.Generator, dtype: str) -> Case:
    return Case(mild_row(rng, dtype), dtype)


def finite(case: Case) -> bool:
    return len(case.x) > 0 and all(math.isfinite(v) for v in case.x)


def has_different_logits(case: Case) -> bool:
    """Whether not all logits are alike: there a nan stands where one class should win."""
    return len(set(case.x)) > 1
