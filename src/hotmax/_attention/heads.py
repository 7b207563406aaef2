"""What comes into attention: q, k, v, mask, bias -> heads, and tiles of queries and keys.

Queries are (..., heads, length, features); keys and values may have fewer heads, each of which then
serves a group of query heads. Nothing is copied but the tile at work and the packed keys and
values, so any strides, byte order and float type will do.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from hotmax._core.arrays import (
    FLOAT32,
    Array,
    as_array,
    as_mask,
    as_temperature,
    compute_type,
    fill_masked,
    result_type,
)
from hotmax._kernels.attention.forward import pad_queries
from hotmax._kernels.attention.gemm import (
    ROWS32,
    ROWS64,
    are_finite,
    lanes_of,
    pack_columns,
    pack_rows,
)
from hotmax._kernels.attention.online_softmax import KEYS, QUERIES, slopes_of

# Multiplications for one call: fewer take less time than to wake a thread for them, and more keep
# Ctrl-C waiting.
SMALL, LARGE = 1 << 19, 1 << 32
STEEP = 2.0**64  # slopes beyond which a score with a bias may be too large for float32
CAUSAL = (False, True, "upper_left", "lower_right")
Index = tuple[int, ...]


class Shapes:
    """What the shapes of q, k and v (None: no v) say, and the numbers that depend on them."""

    v: Any

    def __init__(self, q: Index, k: Index, v: Index | None) -> None:
        self.shapes = {"q": q, "k": k} if v is None else {"q": q, "k": k, "v": v}
        v = k if v is None else v
        if min(len(q), len(k), len(v)) < 2:
            raise self._mismatch("each needs at least (length, features)")
        if q[-1] != k[-1]:
            raise self._mismatch("q and k must have the same number of features")
        if v[-2] != k[-2]:
            raise self._mismatch("k and v must have the same length")
        if v[-3:-2] != k[-3:-2]:
            raise self._mismatch("k and v must have the same number of heads")
        self.queries, self.features = q[-2:]
        self.keys, self.value_features = v[-2:]
        q_heads, k_heads = (q[-3:-2] or (1,))[0], (k[-3:-2] or (1,))[0]
        heads = max(q_heads, k_heads) if q_heads == 1 else q_heads
        if heads % max(k_heads, 1) or (heads and not k_heads):
            raise self._mismatch("the heads of k and v must divide those of q")
        self.group = heads // max(k_heads, 1)
        batch = q[:-3]
        if not batch == k[:-3] == v[:-3]:
            try:
                batch = np.broadcast_shapes(batch, k[:-3], v[:-3])
            except ValueError:
                raise self._mismatch("the dimensions before the heads must broadcast") from None
        flat = len(q) == len(k) == len(v) == 2
        self.lead: Index = () if flat else (*batch, heads)
        self.kv_lead: Index = () if flat else (*batch, k_heads)

    @property
    def values(self) -> Any:
        """v, where it cannot be left out."""
        if self.v is None:
            raise TypeError("v must be an array, got None")
        return self.v

    def _mismatch(self, reason: str) -> ValueError:
        came = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return ValueError(
            f"q, k and v must be (..., heads, length, features): {reason}, got {came}"
        )

    def check_spread(self, shape: Index, name: str, per_query: bool) -> Index:
        """The shape that an argument broadcasts to, if it does."""
        target = (*self.lead, self.queries, 1 if per_query else self.keys)
        if not shape:
            return target
        try:
            if np.broadcast_shapes(shape, target) == target:
                return target
        except ValueError:
            pass
        what = "1" if per_query else "keys"
        raise ValueError(
            f"{name} must broadcast to {target} (heads, queries, {what}), got shape {shape}"
        )

    def shift_of(self, causal: object) -> int:
        """Query i sees the keys up to i + shift."""
        if isinstance(causal, np.bool_):
            causal = bool(causal)
        if not isinstance(causal, bool | str):
            raise TypeError(f"causal must be a bool or a str, got {causal!r}")
        if causal not in CAUSAL:
            raise ValueError(
                f"causal must be one of {', '.join(map(repr, CAUSAL))}, got {causal!r}"
            )
        if causal is False:
            return self.keys
        return self.keys - self.queries if causal == "lower_right" else 0

    def scale_of(self, scale: object) -> float:
        if scale is None:
            return 1.0 / math.sqrt(self.features) if self.features else 1.0
        if isinstance(scale, bool) or not isinstance(scale, numbers.Real | np.number):
            raise TypeError(f"scale must be a real number or None, got {scale!r}")
        try:
            number = float(scale)
        except OverflowError:  # an int of hundreds of digits
            number = math.inf
        if not math.isfinite(number):
            raise ValueError(f"scale must be finite, got {scale!r}")
        return number

    def check_gradient(self, shape: Index, steep: bool) -> None:
        """`steep`: is there an infinite slope, the limit of temperature 0?"""
        result = (*self.lead, self.queries, self.value_features)
        if shape != result:
            raise ValueError(
                f"gradient must have the shape of the result, {result}, got shape {shape}"
            )
        if steep:
            raise ValueError(
                "temperature must not be 0, nor so small that scale / temperature is infinite: "
                "attention has no gradient there"
            )


class Heads(Shapes):
    """q, k and v (v may be left out) with all that goes into their scores."""

    def __init__(
        self,
        q: object,
        k: object,
        v: object,
        *,
        where: object = None,
        causal: object = False,
        scale: object = None,
        temperature: object = 1.0,
        bias: object = None,
        sink: object = None,
    ) -> None:
        self.q, self.k = as_array(q, "q"), as_array(k, "k")
        self.v = None if v is None else as_array(v, "v")
        super().__init__(self.q.shape, self.k.shape, None if self.v is None else self.v.shape)
        arrays = [a for a in (self.q, self.k, self.v) if a is not None]
        self.dtype = np.result_type(*(result_type(a.dtype) for a in arrays))
        self.q = with_lead(self.q, self.lead)
        self.k = with_lead(self.k, self.kv_lead)
        self.v = None if self.v is None else with_lead(self.v, self.kv_lead)
        self.shift = self.shift_of(causal)
        self.scale = self.scale_of(scale)
        self.temperature = self._spread(as_temperature(temperature), "temperature", True)
        self.sink = self._sink(sink)
        self.where = None if where is None else self._spread(as_mask(where), "where", False)
        self.bias = None if bias is None else self._bias(bias)
        self.kind = compute_type(self.dtype)
        if self.bias is not None and self.steepest > STEEP:
            self.kind = np.dtype(np.float64)
        self.narrow = self.kind == FLOAT32
        self.lanes = lanes_of(self.kind)

    def _spread(self, array: Array, name: str, per_query: bool) -> Array:
        return np.broadcast_to(array, self.check_spread(array.shape, name, per_query))

    def _bias(self, bias: object) -> Array:
        """A masked entry is a key that is not there."""
        return self._spread(fill_masked(bias, "bias", -np.inf), "bias", False)

    def _sink(self, sink: object) -> Array:
        if sink is None:
            return self._spread(np.array(-np.inf), "sink", True)
        array = as_array(sink, "sink").astype(np.float64)
        if np.isnan(array).any():
            raise ValueError("sink must not be nan; -inf is no sink")
        return self._spread(array, "sink", True)

    # --- heads and tiles

    def index(self, head: int) -> Index:
        return tuple(int(i) for i in np.unravel_index(head, self.lead)) if self.lead else ()

    def kv_index(self, head: int) -> Index:
        return tuple(int(i) for i in np.unravel_index(head, self.kv_lead)) if self.kv_lead else ()

    @cached_property
    def together(self) -> tuple[int, int]:
        """Tiles of queries for one call, at least and at most.

        One, if each needs its own rows of bias or mask.
        """
        if any(a.strides[-2] for a in (self.bias, self.where) if a is not None):
            return 1, 1
        size = min(self.queries, QUERIES) * self.keys * (self.features + self.value_features)
        least = -(-SMALL // max(size, 1)) if self.are_alike else 1
        return least, max(LARGE // max(size, 1), least)

    @cached_property
    def are_alike(self) -> bool:
        """Can a kernel go from head to head by itself, since they differ in q, k and v alone?"""
        same = self.bias is None and self.where is None and not self.is_steep
        uniform = not any(self.temperature.strides) and not any(self.sink.strides)
        return same and uniform and self.sink.size > 0 and ready(self.q, self.kind)

    @cached_property
    def is_steep(self) -> bool:
        """Is a slope infinite?"""
        return self.steepest == math.inf

    @cached_property
    def steepest(self) -> float:
        """The largest slope of all queries, whatever its sign."""
        if self.scale == 0.0 or self.temperature.size == 0:
            return 0.0
        coldest = abs(self.temperature.flat[0])
        if any(self.temperature.strides):
            coldest = np.abs(self.temperature).min()
        return abs(self.scale) / float(coldest) if coldest else math.inf

    @property
    def kv_heads(self) -> int:
        return math.prod(self.kv_lead)

    def waves(self, copies: int) -> Iterator[range]:
        """Key heads, as many at a time as `copies` packed arrays of each fill 16 MB."""
        size = copies * self.keys * max(self.features, self.value_features) * self.kind.itemsize
        step = max((1 << 24) // max(size, 1), 1)
        for first in range(0, self.kv_heads, step):
            yield range(first, min(first + step, self.kv_heads))

    def matrices(self, array: Array, own: range) -> Array:
        """The keys or values of some heads, as the kernels take them."""
        shape = array.shape[-2:]
        if ready(array, self.kind):
            return array.reshape(self.kv_heads, *shape)[own.start : own.stop]
        stack = np.empty((len(own), *shape), self.kind)
        with np.errstate(all="ignore"):
            for i, head in enumerate(own):
                stack[i] = array[self.kv_index(head)]
        return stack

    def per_query(self, array: Array, index: Index, part: slice) -> Array:
        """One number for each query of a part, or one for all if they are the same."""
        if not any(array.strides):
            return np.array([array.flat[0]])
        return np.ascontiguousarray(array[index][part, 0])

    def tile(self, head: int, first: int, size: int) -> Tile:
        return Tile(self, head, first, min(first + size, self.queries))

    def padded(self, rows: int) -> int:
        """That many queries, in whole rows of registers."""
        step = ROWS32 if self.narrow else ROWS64
        return -(-rows // step) * step

    def low(self, *shape: int) -> Array | None:
        """Room for second words, which only float64 has."""
        return None if self.narrow else np.empty(shape, self.kind)


class Tile:
    """Some queries of one head; what is padded is padded to whole rows of registers."""

    def __init__(self, heads: Heads, head: int, first: int, last: int) -> None:
        self.heads, self.index = heads, heads.index(head)
        self.part = slice(first, last)
        self.rows = last - first
        self.count = heads.padded(self.rows)
        self.biased = heads.bias is not None

    @cached_property
    def visible(self) -> Array:
        """How many keys each query sees."""
        numbers = np.minimum(np.arange(self.count), self.rows - 1) + self.first_visible
        return np.asarray(np.clip(numbers, 0, self.heads.keys))

    @property
    def first_visible(self) -> int:
        return int(self.part.start + 1 + self.heads.shift)

    @cached_property
    def slopes(self) -> tuple[Array, Array]:
        """scale / temperature of each query, in two words."""
        slope, slope_low = np.empty(self.count), np.empty(self.count)
        slopes_of(self.heads.scale, self.number(self.heads.temperature, 1.0), slope, slope_low)
        return slope, slope_low

    def number(self, array: Array, padding: float) -> Array:
        """One number for each query."""
        out = np.full(self.count, padding)
        out[: self.rows] = array[self.index][self.part, 0]
        return out

    def own_rows(self, array: Array) -> Array:
        """The rows of this tile in (heads, queries, features), as they are if they can be."""
        return contiguous(array[self.index][self.part], self.heads.kind)

    def rows_of(self, array: Array) -> Array:
        """The same, padded with 0."""
        out = np.zeros((self.count, array.shape[-1]), self.heads.kind)
        with np.errstate(all="ignore"):
            out[: self.rows] = array[self.index][self.part]
        return out

    def turned(self) -> tuple[Array, Array, Array]:
        """(queries, slope, low word): queries of a negative slope are turned round, exactly."""
        slope, slope_low = (part.copy() for part in self.slopes)
        q = np.empty((self.count, self.heads.features), self.heads.kind)
        pad_queries(self.own_rows(self.heads.q), q, slope, slope_low)
        return q, slope, slope_low

    @cached_property
    def extra(self) -> Array:
        """The bias of each key, -inf where it is masked: one row if it is the same for all."""
        heads = self.heads
        lines = [
            array[self.index][self.part] for array in (heads.bias, heads.where) if array is not None
        ]
        if not lines:
            return np.empty((0, 0), heads.kind)
        if self.rows == 1 or all(line.strides[0] == 0 for line in lines):
            lines = [line[:1] for line in lines]
        shape = (len(lines[0]) if len(lines[0]) == 1 else self.count, heads.keys)
        extra = np.zeros(shape, heads.kind)
        rows = extra[: len(lines[0])]
        with np.errstate(all="ignore"):
            if heads.bias is not None:
                rows[...] = lines[0]
            if heads.where is not None:
                np.copyto(rows, -np.inf, where=~lines[-1])
        return extra


def with_lead(array: Array, lead: Index) -> Array:
    """With all its heads; as it is if it has them, since what NumPy broadcasts is read-only."""
    shape = lead + array.shape[-2:]
    return array if array.shape == shape else np.broadcast_to(array, shape)


def ready(array: Array, kind: np.dtype[Any]) -> bool:
    """Can a kernel read it as it is?"""
    return bool(array.dtype == kind and array.flags.carray)


def contiguous(array: Array, kind: np.dtype[Any]) -> Array:
    """As it is, if a kernel can read it."""
    if ready(array, kind):
        return array
    with np.errstate(all="ignore"):
        return np.array(array, kind, order="C")


def in_parts(array: Array, kind: np.dtype[Any]) -> Iterator[tuple[slice, Array]]:
    """The rows of a matrix as the kernels take them: all of it, or a copy of some at a time."""
    if ready(array, kind):
        yield slice(0, len(array)), array
        return
    for first in range(0, len(array), KEYS):
        part = slice(first, min(first + KEYS, len(array)))
        yield part, contiguous(array[part], kind)


def packed_rows(array: Array, kind: np.dtype[Any], panels: Array | None = None) -> Array:
    """A (length, features) matrix, transposed, in panels."""
    length, features = array.shape
    lanes = lanes_of(kind)
    if panels is None:
        panels = np.empty((-(-length // lanes), features, lanes), kind)
    for part, rows in in_parts(array, kind):
        pack_rows(rows, panels[part.start // lanes : -(-part.stop // lanes)])
    return panels


def packed_columns(
    array: Array, kind: np.dtype[Any], panels: Array | None = None, clean: Array | None = None
) -> Array:
    """A (length, features) matrix in panels; `clean` tells which tiles of keys are all finite."""
    length, features = array.shape
    lanes = lanes_of(kind)
    if panels is None:
        panels = np.empty((-(-features // lanes), length, lanes), kind)
    for part, rows in in_parts(array, kind):
        pack_columns(rows, panels, part.start)
        if clean is not None:
            are_finite(rows, KEYS, clean[part.start // KEYS :])
    return panels
