"""The arguments of attention as heads, and tiles of queries.

Queries are (..., heads, length, features); keys and values may have fewer heads, each of which then
serves a group of query heads. Only the current tile and the packed keys and values are copied, so
any strides, byte order and float type will do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from hotmax._attention.packing import contiguous, ready
from hotmax._attention.shapes import Index, Shapes
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
from hotmax._kernels.attention.gemm import ROWS32, ROWS64, lanes_of
from hotmax._kernels.attention.scores import (
    TILE_QUERIES,
    DoubleDouble,
    QueryTile,
    set_query_betas,
)

# Multiplications for one kernel call: fewer take less time than waking a thread, and more delay
# Ctrl-C.
LEAST_WORK, MOST_WORK = 1 << 19, 1 << 32
LARGEST_BETA32 = 2.0**64  # beyond this a score with a bias may overflow float32


class Heads(Shapes):
    """q, k and v (v may be None) with everything that makes their logits."""

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
        self.temperature = self._broadcast(as_temperature(temperature), "temperature", True)
        self.sink = self._sink(sink)
        self.where = None if where is None else self._broadcast(as_mask(where), "where", False)
        self.bias = None if bias is None else self._bias(bias)
        self.kind = compute_type(self.dtype)
        if self.bias is not None and self.largest_beta > LARGEST_BETA32:
            self.kind = np.dtype(np.float64)
        self.is_float32 = self.kind == FLOAT32
        self.lanes = lanes_of(self.kind)

    def _broadcast(self, array: Array, name: str, per_query: bool) -> Array:
        return np.broadcast_to(array, self.check_broadcast(array.shape, name, per_query))

    def _bias(self, bias: object) -> Array:
        """The bias, -inf at the masked entries of a masked array."""
        return self._broadcast(fill_masked(bias, "bias", -np.inf), "bias", False)

    def _sink(self, sink: object) -> Array:
        if sink is None:
            return self._broadcast(np.array(-np.inf), "sink", True)
        array = as_array(sink, "sink").astype(np.float64)
        if np.isnan(array).any():
            raise ValueError("sink must not be nan; -inf is no sink")
        return self._broadcast(array, "sink", True)

    # --- heads and tiles

    def index(self, head: int) -> Index:
        return tuple(int(i) for i in np.unravel_index(head, self.lead)) if self.lead else ()

    def kv_index(self, head: int) -> Index:
        return tuple(int(i) for i in np.unravel_index(head, self.kv_lead)) if self.kv_lead else ()

    @cached_property
    def together(self) -> tuple[int, int]:
        """Tiles of queries for one kernel call, at least and at most.

        One if each tile has its own rows of bias or mask.
        """
        if any(a.strides[-2] for a in (self.bias, self.where) if a is not None):
            return 1, 1
        size = min(self.queries, TILE_QUERIES) * self.keys * (self.features + self.value_features)
        least = -(-LEAST_WORK // max(size, 1)) if self.are_alike else 1
        return least, max(MOST_WORK // max(size, 1), least)

    @cached_property
    def are_alike(self) -> bool:
        """Do heads differ in q, k and v only, so that a kernel can loop over them itself?"""
        same = self.bias is None and self.where is None and not self.has_infinite_beta
        uniform = not any(self.temperature.strides) and not any(self.sink.strides)
        return same and uniform and self.sink.size > 0 and ready(self.q, self.kind)

    @cached_property
    def has_infinite_beta(self) -> bool:
        """Is a beta infinite: the limit of temperature 0?"""
        return self.largest_beta == math.inf

    @cached_property
    def largest_beta(self) -> float:
        """The largest abs(scale / T) of all queries."""
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
        """Ranges of key heads; `copies` packed arrays of each range fill about 16 MB."""
        size = copies * self.keys * max(self.features, self.value_features) * self.kind.itemsize
        step = max((1 << 24) // max(size, 1), 1)
        for first in range(0, self.kv_heads, step):
            yield range(first, min(first + step, self.kv_heads))

    def matrices(self, array: Array, own: range) -> Array:
        """The keys or values of a range of heads, as one contiguous array."""
        shape = array.shape[-2:]
        if ready(array, self.kind):
            return array.reshape(self.kv_heads, *shape)[own.start : own.stop]
        stack = np.empty((len(own), *shape), self.kind)
        with np.errstate(all="ignore"):
            for i, head in enumerate(own):
                stack[i] = array[self.kv_index(head)]
        return stack

    def per_query(self, array: Array, index: Index, part: slice) -> Array:
        """One number for each query of a part, or one for all if they are equal."""
        if not any(array.strides):
            return np.array([array.flat[0]])
        return np.ascontiguousarray(array[index][part, 0])

    def tile(self, head: int, first: int, size: int) -> Tile:
        return Tile(self, head, first, min(first + size, self.queries))

    def padded(self, rows: int) -> int:
        """The number of rows, rounded up to whole rows of a register tile."""
        step = ROWS32 if self.is_float32 else ROWS64
        return -(-rows // step) * step

    def low(self, *shape: int) -> Array | None:
        """Workspace for the lo parts of double-doubles; None for float32."""
        return None if self.is_float32 else np.empty(shape, self.kind)


class Tile:
    """A range of queries of one head; `count` is their number with padding."""

    def __init__(self, heads: Heads, head: int, first: int, last: int) -> None:
        self.heads, self.index = heads, heads.index(head)
        self.part = slice(first, last)
        self.rows = last - first
        self.count = heads.padded(self.rows)
        self.has_bias = heads.bias is not None

    @cached_property
    def visible(self) -> Array:
        """How many keys each query sees, by `causal`."""
        numbers = np.minimum(np.arange(self.count), self.rows - 1) + self.first_visible
        return np.asarray(np.clip(numbers, 0, self.heads.keys))

    @property
    def first_visible(self) -> int:
        return int(self.part.start + 1 + self.heads.shift)

    @cached_property
    def betas(self) -> DoubleDouble:
        """scale / temperature of each query, with its sign."""
        beta, beta_lo = np.empty(self.count), np.empty(self.count)
        set_query_betas(self.heads.scale, self.number(self.heads.temperature, 1.0), beta, beta_lo)
        return DoubleDouble(beta, beta_lo)

    def number(self, array: Array, padding: float) -> Array:
        """One number for each query."""
        out = np.full(self.count, padding)
        out[: self.rows] = array[self.index][self.part, 0]
        return out

    def own_rows(self, array: Array) -> Array:
        """The rows of this tile in (heads, queries, features), copied only if they must be."""
        return contiguous(array[self.index][self.part], self.heads.kind)

    def rows_of(self, array: Array) -> Array:
        """A copy of the same rows, padded with 0."""
        out = np.zeros((self.count, array.shape[-1]), self.heads.kind)
        with np.errstate(all="ignore"):
            out[: self.rows] = array[self.index][self.part]
        return out

    def query_tile(self) -> QueryTile:
        """The queries as the kernels take them: negated where beta is negative."""
        beta = DoubleDouble(self.betas.hi.copy(), self.betas.lo.copy())
        q = np.empty((self.count, self.heads.features), self.heads.kind)
        pad_queries(self.own_rows(self.heads.q), q, *beta)
        return QueryTile(q, beta, self.bias, self.has_bias, self.visible)

    @cached_property
    def bias(self) -> Array:
        """The bias of each key, -inf where `where` is False: one row if it is the same for all.

        No rows without bias and mask.
        """
        heads = self.heads
        lines = [
            array[self.index][self.part] for array in (heads.bias, heads.where) if array is not None
        ]
        if not lines:
            return np.empty((0, 0), heads.kind)
        if self.rows == 1 or all(line.strides[0] == 0 for line in lines):
            lines = [line[:1] for line in lines]
        shape = (len(lines[0]) if len(lines[0]) == 1 else self.count, heads.keys)
        bias = np.zeros(shape, heads.kind)
        rows = bias[: len(lines[0])]
        with np.errstate(all="ignore"):
            if heads.bias is not None:
                rows[...] = lines[0]
            if heads.where is not None:
                np.copyto(rows, -np.inf, where=~lines[-1])
        return bias


def with_lead(array: Array, lead: Index) -> Array:
    """Broadcast to all heads; unchanged if it has them, since broadcast arrays are read-only."""
    shape = lead + array.shape[-2:]
    return array if array.shape == shape else np.broadcast_to(array, shape)
