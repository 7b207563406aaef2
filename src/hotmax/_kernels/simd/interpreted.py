"""The functions of `vectors` and `memory` in plain Python: without Numba or its compiler.

Kernels can then be stepped through in a debugger. A vector is a NumPy array.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from hotmax._kernels.simd import LINE, WIDTH


def bits64(x: Any) -> Any:
    return np.float64(x).view(np.int64)


def float64_of(bits: Any) -> Any:
    return np.int64(bits).view(np.float64)


def bits32(x: Any) -> Any:
    return np.float32(x).view(np.uint32)


def float32_of(bits: Any) -> Any:
    return np.uint32(bits).view(np.float32)


def _fma(a: Any, b: Any, c: Any) -> Any:
    kind = np.float32 if isinstance(a, np.float32) else np.float64
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return kind(a * b + c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if kind is np.float64:
        try:
            return np.float64(float(exact))
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)
    near = np.float32(float(exact))  # rounded twice: correct a wrong tie
    if math.isfinite(near):
        for other in (np.nextafter(near, -math.inf), np.nextafter(near, math.inf)):
            if abs(Fraction(float(other)) - exact) < abs(Fraction(float(near)) - exact):
                near = other
    return near


def fma(a: Any, b: Any, c: Any) -> Any:
    vectors = [v for v in (a, b, c) if isinstance(v, np.ndarray)]
    if not vectors:
        return _fma(a, b, c)
    kind = vectors[0].dtype
    terms = (np.broadcast_to(np.asarray(v, kind), vectors[0].size) for v in (a, b, c))
    return np.array([_fma(*entries) for entries in zip(*terms, strict=True)], kind)


def scaled_by(q: Any, shifted: Any) -> Any:
    kind, shift = (np.int32, 23) if q.dtype == np.float32 else (np.int64, 52)
    power = np.left_shift(np.asarray(shifted).view(kind), shift, dtype=kind)
    return (np.asarray(q).view(kind) + power).view(q.dtype)[()]


def ulps_above(a: Any, b: Any) -> Any:
    return np.asarray(a).view(np.uint32) - np.asarray(b).view(np.uint32)


def add_in_any_order(a: Any, b: Any) -> Any:
    return a + b


def maximum(a: Any, b: Any) -> Any:
    return np.maximum(a, b)


def choose(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)[()]


def splat(x: Any) -> Any:
    return np.full(WIDTH, x)


def splat_line(x: Any) -> Any:
    return np.full(LINE, x)


def load(array: Any, i: Any) -> Any:
    return array[i : i + WIDTH].copy()


def load_line(array: Any, i: Any) -> Any:
    return array[i : i + LINE].copy()


def load_partial(array: Any, i: Any, count: Any, fill: Any) -> Any:
    vector = np.full(WIDTH, fill, array.dtype)
    entries = array[i : i + min(count, WIDTH)]
    vector[: entries.size] = entries
    return vector


def store(array: Any, i: Any, vector: Any) -> None:
    array[i : i + vector.size] = vector


def store_partial(array: Any, i: Any, count: Any, vector: Any) -> None:
    count = min(count, WIDTH)
    array[i : i + count] = vector[:count]


stream = store


def to_float64(vector: Any) -> Any:
    return vector.astype(np.float64)


def halves(line: Any) -> Any:
    return line[:WIDTH], line[WIDTH:]


def entry(vector: Any, i: Any) -> Any:
    return vector[i]


def any_of(condition: Any) -> Any:
    return bool(condition.any())


def transposed_vectors(*vectors: Any) -> Any:
    return tuple(np.stack(vectors).T.copy())


def prefetch(array: Any, index: Any) -> None: ...


def fence() -> None: ...


def borrowed(array: Any) -> Any:
    return array


def address_of(array: Any) -> Any:
    return array.ctypes.data


def stack_array(count: int, kind: Any) -> Any:
    return np.empty(count, kind)
