"""Batches of rows for a function, drawn from a seed and their number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuzz.function import Extras, Function
from fuzz.functions import FUNCTIONS
from fuzz.hard_rows import (
    TYPES,
    Array,
    Generator,
    Shape,
    draw_length,
    draw_mask,
    draw_memory,
    draw_rows,
    draw_shape,
    draw_temperature,
    draw_values,
)

SAME = Shape("last", -1, lambda x: x, lambda y, n: y)
OTHERS = ("torch", "torch, generic", "dask", "strict")


@dataclass(frozen=True)
class Batch:
    """Rows for one function, and how they lie in memory."""

    function: Function
    library: str
    type_name: str
    x: Array  # (rows, classes)
    temperature: Array  # (rows, 1)
    where: Array | None
    extras: dict[str, Array]
    shared: Extras  # the same for all rows
    shape: Shape
    memory: str
    threads: int
    place: tuple[int, int]  # the seed and the number of the batch

    def rows(self, those: Any) -> Batch:
        """Some of the rows, contiguous."""
        return replace(
            self,
            x=self.x[those],
            temperature=self.temperature[those],
            where=None if self.where is None else self.where[those],
            extras={name: array[those] for name, array in self.extras.items()},
            shape=SAME,
            memory="C",
            threads=1,
        )

    def classes(self, those: Array) -> Batch:
        """Some of the classes; only where no extra counts them."""
        return replace(
            self,
            x=self.x[:, those],
            where=None if self.where is None else self.where[:, those],
            extras={name: array[:, those] for name, array in self.extras.items()},
        )


def draw_batch(seed: int, number: int, only: tuple[str, ...] = ()) -> Batch:
    rng = np.random.default_rng([seed, number])
    function = FUNCTIONS[str(rng.choice(only or list(FUNCTIONS)))]
    library = str(rng.choice(OTHERS)) if function.libraries and rng.random() < 0.05 else "numpy"
    types = list(TYPES) if library == "numpy" else ["float32", "float64"]
    type_name = str(rng.choice(types))
    n = min(draw_length(rng), function.longest)
    rows = draw_rows(rng, n**function.order)
    x = (function.values or draw_values)(rng, (rows, n), type_name)
    if not function.limits:
        x[np.isinf(x.astype(float))] = 0
    temperature = np.zeros((rows, 1))
    if function.temperature:
        temperature = draw_temperature(rng, rows, function.limits)
    if function.values is not None:  # rows that can be drawn from: below 0 a -inf has all the mass
        x[np.isinf(x.astype(float)) & np.signbit(temperature)] = 0
    where = draw_mask(rng, x.shape) if function.masks else None
    if where is not None and not function.limits:  # a nan under the mask only
        x[where & np.isnan(x.astype(float))] = 0
    extras = {name: draw_extra(rng, name, x, type_name) for name in function.extras}
    shared = function.shared(rng, x, type_name) if function.shared else {}
    numpy = library == "numpy"
    shape = draw_shape(rng, rows, n, function.axes) if numpy else SAME
    memory = draw_memory(rng) if numpy else "C"
    threads = int(rng.choice([1, 2])) if numpy else 1
    return Batch(
        *(function, library, type_name, x, temperature, where, extras, shared),
        *(shape, memory, threads, (seed, number)),
    )


def draw_extra(rng: Generator, name: str, x: Array, type_name: str) -> Array:
    if name == "labels":
        return rng.integers(0, x.shape[1], x.shape[0])
    if name == "vector":
        return (rng.standard_normal(x.shape) * rng.choice([1.0, 1e3])).astype(x.dtype)
    if name == "weights":
        signs = rng.choice([-1.0, 1.0], x.shape) if rng.random() < 0.5 else 1.0
        size = np.clip(rng.standard_normal(x.shape) * rng.choice([0.0, 1.0, 200.0]), -700, 700)
        weights = signs * np.exp(size)
        return np.where(rng.random(x.shape) < 0.1, 0.0, weights)
    if name == "targets":
        return draw_targets(rng, x)
    near = x.astype(float) + rng.standard_normal(x.shape) * rng.choice([1e-6, 1.0])
    other = near if rng.random() < 0.5 else draw_values(rng, x.shape, type_name).astype(float)
    with np.errstate(over="ignore"):
        other = other.astype(x.dtype)
    other[~np.isfinite(other.astype(float))] = 0
    return other


def draw_targets(rng: Generator, x: Array) -> Array:
    """Rows of probabilities, some of them 0."""
    y = rng.random(x.shape) ** rng.choice([1.0, 30.0])
    y[rng.random(x.shape) < rng.choice([0.0, 0.5])] = 0.0
    y[np.arange(len(y)), rng.integers(0, x.shape[1], len(y))] = 1.0
    return np.asarray(y / y.sum(-1, keepdims=True))
