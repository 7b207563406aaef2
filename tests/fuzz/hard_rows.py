"""Inputs for the sweep: lengths at the borders of kernels, layouts, hard values, temperatures."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fuzz.wide import FORMATS
from hotmax._kernels.sampling import inversion
from hotmax._kernels.simd import vectors
from hotmax._kernels.softmax import (
    float32,
    float64,
    grouped,
    lanes,
    overlapped,
    short,
    short_logs,
    tiles,
    tiles64,
)
from hotmax._kernels.softmax.rows import SUM_BLOCK

Array = np.ndarray
Generator = np.random.Generator
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {name: BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in FORMATS}

# A kernel changes its way at these lengths.
BORDERS = (
    vectors.WIDTH,
    vectors.LINE,
    lanes.LANES,
    short.SHORT,
    short_logs.SHORT_LOGS,
    tiles.LONGEST_TILED,
    tiles64.LONGEST_TILED64,
    float64.PARTIAL_SUMS,
    inversion.WEIGHT_BLOCK,
    float32.L1_CHUNK,
    grouped.LONGEST_GROUPED,
    overlapped.QUICK,
)
LONG_BORDERS = (overlapped.ROW_PART, SUM_BLOCK)
ROWS = (
    1,
    2,
    grouped.GROUP - 1,
    grouped.GROUP,
    grouped.GROUP + 1,
    31,
    33,
    64,
    513,
)
SMALL = 1 << 13  # entries of an ordinary batch


def draw_length(rng: Generator) -> int:
    chance = rng.random()
    if chance < 0.5:
        return int(rng.integers(1, 12))
    if chance < 0.995:
        return int(rng.choice(BORDERS)) + int(rng.integers(-1, 2))
    return int(rng.choice(LONG_BORDERS)) + int(rng.integers(-1, 2))


def draw_rows(rng: Generator, length: int) -> int:
    return int(max(1, min(rng.choice(ROWS), SMALL // length)))


# --- values --------------------------------------------------------------------------------------


def normal(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    return rng.standard_normal(shape) * rng.choice([1e-3, 1.0, 10.0, 100.0, 1e3])


def ties(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    return np.round(rng.standard_normal(shape) * rng.choice([0.5, 2.0, 5.0]))


def near_one_hot(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    x = np.full(shape, -rng.uniform(10, 120)) + rng.choice([0.0, 1.0]) * rng.standard_normal(shape)
    x[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = 0.0
    return x + rng.choice([0.0, 0.0, 1000.0, -50.0])


def neighbours(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    digits, _, greatest = FORMATS[name]
    exponent = rng.integers(-5, min(greatest - 2, 100))
    steps = rng.integers(-8, 9, shape)
    return rng.choice([-1.0, 1.0]) * np.ldexp(
        1.25 + np.ldexp(steps.astype(float), 2 - digits), exponent
    )


def every_size(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    digits, least, greatest = FORMATS[name]
    sizes = np.exp2(rng.uniform(least - digits + 1, greatest + 0.99, shape))
    return sizes * rng.choice([-1.0, 0.0, 1.0], shape)


def huge(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    greatest = FORMATS[name][2]
    return np.ldexp(rng.uniform(-1.9, 1.9, shape), greatest)


def tiny(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    digits, least, _ = FORMATS[name]
    return np.ldexp(rng.integers(-9, 10, shape).astype(float), least - digits + 1)


def subnormal_outcomes(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    digits, least, _ = FORMATS[name]
    x = rng.uniform((least - digits) * np.log(2) - 3, least * np.log(2) + 3, shape)
    x[:, 0] = 0.0
    return x


def cancels(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    """log sum exp is nearly 0: the maximum and the logarithm cancel."""
    x = rng.standard_normal(shape) * rng.choice([0.0, 1e-3, 1.0])
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def equal(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    return np.full(shape, rng.standard_normal() * rng.choice([1.0, 100.0]))


VALUES = (
    *(normal, normal, normal, ties, near_one_hot, neighbours, every_size, huge, tiny),
    *(subnormal_outcomes, cancels, equal),
)
SPECIAL = (np.inf, -np.inf, -np.inf, np.nan, 0.0, -0.0)


def draw_values(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    with np.errstate(all="ignore"):
        x = rng.choice(VALUES)(rng, shape, name)
        top = float(ml_dtypes.finfo(TYPES[name]).max)
        x = np.clip(x, -top, top).astype(TYPES[name])
    if rng.random() < 0.3:  # some entries of some rows
        hit = rng.random(shape) < rng.choice([0.02, 0.2, 0.8])
        hit &= rng.random((shape[0], 1)) < 0.5
        x[hit] = rng.choice(SPECIAL, shape)[hit].astype(x.dtype)
    if rng.random() < 0.03:
        x[rng.integers(shape[0])] = -np.inf
    return x


MILD = (1.0, 1.0, 1.0, 0.7, 2.0, 0.1, 10.0, 1e-3, 1e3, -1.0, -0.7)
LIMITS = (0.0, -0.0, np.inf, -np.inf)
EXTREME = (5e-324, 1e-310, 1e-300, 1e-39, 1e-30, 1e30, 1e39, 1e300, 1.7e308, -1e-310, -1e300)


def draw_temperature(rng: Generator, rows: int, limits: bool) -> Array:
    """(rows, 1): one for all rows, or one for each."""
    pool = rng.choice([0, 0, 0, 1, 2])
    choices = [MILD, LIMITS if limits else MILD, EXTREME][pool]
    if rng.random() < 0.8:
        return np.full((rows, 1), rng.choice(choices))
    return rng.choice((*choices, *MILD), (rows, 1))


def draw_mask(rng: Generator, shape: tuple[int, int]) -> Array | None:
    if rng.random() < 0.75:
        return None
    mask = rng.random(shape) < rng.choice([0.1, 0.5, 0.9])
    if rng.random() < 0.3:
        mask[rng.integers(shape[0])] = False
    return mask


# --- shapes and memory ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """(rows, classes) in more or other dimensions, and the axis of the classes."""

    name: str
    axis: Any
    put: Callable[[Array], Array]  # (rows, n) -> the shape; n may be 1
    back: Callable[[Array, int], Array]  # results for each entry -> (rows, n)


def factors(n: int) -> tuple[int, int]:
    small = next((f for f in (2, 3, 5, 7) if n % f == 0), 1)
    return small, n // small


def draw_shape(rng: Generator, rows: int, n: int, axes: str = "any") -> Shape:
    """`axes`: "any", "one" for an axis that is an int, "last" for none but the last."""
    a, b = factors(n)
    r, s = factors(rows)

    def apart(x: Array) -> Array:
        wide = x.reshape(rows, a, b) if x.shape[1] == n else x.reshape(rows, 1, 1)
        return wide.transpose(1, 0, 2)

    shapes = [
        Shape("last", -1, lambda x: x, lambda y, n: y),
        Shape("first", 0, lambda x: x.T, lambda y, n: y.T),
        Shape(
            "middle",
            1,
            lambda x: x.reshape(r, s, -1).swapaxes(1, 2),
            lambda y, n: y.swapaxes(1, 2).reshape(rows, n),
        ),
        Shape(
            "two axes",
            (1, -1),
            lambda x: x.reshape(rows, a, b) if x.shape[1] == n else x[:, :, None],
            lambda y, n: y.reshape(rows, n),
        ),
        Shape("apart", (0, 2), apart, lambda y, n: y.transpose(1, 0, 2).reshape(rows, n)),
    ]
    if axes != "any":
        shapes = shapes[:3] if axes == "one" else shapes[:1]
    elif rows == 1:
        shapes.append(Shape("all", None, lambda x: x.reshape(-1), lambda y, n: y.reshape(1, n)))
    return shapes[0] if rng.random() < 0.5 else shapes[rng.integers(len(shapes))]


def strided(x: Array) -> Array:
    wide = np.full(tuple(2 * n + 1 for n in x.shape), 77, x.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in x.shape)]
    view[...] = x
    return view


def backwards(x: Array) -> Array:
    turn = (slice(None, None, -1),) * x.ndim
    return np.ascontiguousarray(x[turn])[turn]


def read_only(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x


def swapped(x: Array) -> Array:
    return x if x.dtype == BFLOAT16 else x.astype(x.dtype.newbyteorder())


def unaligned(x: Array) -> Array:
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    view = raw.view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def pickled(x: Array) -> Array:
    """An array whose dtype equals NumPy's, and is another object."""
    other: Array = pickle.loads(pickle.dumps(x))
    return other


MEMORY = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "backwards": backwards,
    "read-only": read_only,
    "byte-swapped": swapped,
    "unaligned": unaligned,
    "pickled": pickled,
}


def draw_memory(rng: Generator) -> str:
    return "C" if rng.random() < 0.4 else str(rng.choice(list(MEMORY)))
