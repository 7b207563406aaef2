"""The backward pass of attention, which recomputes the weights tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._attention.heads import Heads, Tile
from hotmax._attention.packing import packed_columns, packed_rows
from hotmax._core import threads
from hotmax._core.arrays import Array, result_type
from hotmax._kernels.attention.backward import (
    GradientTile,
    Products,
    add_gradient_of_keys,
    gradient_of_queries,
    gradient_tile,
)
from hotmax._kernels.attention.scores import TILE_KEYS, TILE_QUERIES, DoubleDouble


@dataclass(frozen=True)
class AttentionGradients:
    """The gradient of sum(gradient * attention(q, k, v)), each in the shape of its argument.

    `bias` and `sink` are None if they were not given.
    """

    q: Any
    k: Any
    v: Any
    bias: Any = None
    sink: Any = None


def sum_to_shape(gradient: Array, argument: Array) -> Any:
    """The gradient summed over broadcast axes, in the shape and float type of the argument."""
    extra = gradient.ndim - argument.ndim
    if extra:
        gradient = gradient.sum(axis=tuple(range(extra)))
    axes = tuple(a for a, n in enumerate(argument.shape) if n == 1 and gradient.shape[a] != 1)
    if axes:
        gradient = gradient.sum(axis=axes, keepdims=True)
    with np.errstate(all="ignore"):
        result = gradient.astype(result_type(argument.dtype), copy=False)
    return result if result.ndim else result[()]


def zero_nonfinite(array: Array) -> Array:
    """inf and nan replaced by 0: where they are visible, the logits are nan already."""
    with np.errstate(all="ignore"):
        # np.nan_to_num leaves bfloat16 as it is.
        return np.where(np.isfinite(array), array, array.dtype.type(0))


class Query:
    """A tile of queries with all that its gradients need."""

    def __init__(self, tile: Tile, dout: Array, numbers: Array, delta: Array) -> None:
        self.tile = tile
        peak = tile.number(numbers[..., 1:2], 0.0)
        peak[np.isneginf(peak)] = 0.0  # no visible key: all weights are 0, since the total is inf
        self.fields = GradientTile(
            queries=tile.query_tile(),
            dout=tile.rows_of(dout),
            factor=tile.betas.hi,
            peak=peak,
            total=tile.number(numbers[..., 2:], np.inf),
            delta=tile.number(delta[..., None], 0.0),
        )

    def columns(self) -> tuple[Array, Array]:
        """The queries and the gradients of their outputs, packed by columns."""
        kind = self.tile.heads.kind
        q = zero_nonfinite(self.tile.rows_of(self.tile.heads.q))
        return packed_columns(q, kind), packed_columns(self.fields.dout, kind)


class Backward:
    """From the gradient of attention's result, and of its logsumexp, to those of its arguments."""

    def __init__(
        self,
        heads: Heads,
        dout: Array,
        out: Array,
        numbers: Array,
        by_logsumexp: Array | None = None,
    ) -> None:
        self.heads, self.dout, self.numbers = heads, dout, numbers
        self.v = heads.values
        with np.errstate(all="ignore"):
            self.delta = (dout.astype(np.float64) * out.astype(np.float64)).sum(-1)
            if by_logsumexp is not None:  # its derivative by a logit is the weight of that logit
                self.delta -= by_logsumexp

    def query(self, head: int, number: int) -> Query:
        tile = self.heads.tile(head, number * TILE_QUERIES, TILE_QUERIES)
        return Query(tile, self.dout, self.numbers, self.delta)

    def run(self) -> tuple[Array, Array, Array]:
        heads = self.heads
        dq = np.empty(heads.q.shape, heads.kind)
        dk = np.empty(heads.k.shape, heads.kind)
        dv = np.empty(self.v.shape, heads.kind)
        for wave in heads.waves(3 + 4 * heads.group):
            self.run_wave(wave, dq, dk, dv)
        return dq, dk, dv

    def run_wave(self, wave: range, dq: Array, dk: Array, dv: Array) -> None:
        heads = self.heads
        tiles, blocks = -(-heads.queries // TILE_QUERIES), -(-heads.keys // TILE_KEYS)
        keys: list[Any] = [None] * len(wave)
        values: list[Any] = [None] * len(wave)
        columns: list[Any] = [None] * len(wave)
        queries: list[Any] = [None] * (len(wave) * heads.group * tiles)
        query_columns: list[Any] = [None] * len(queries)

        def pack(start: int, stop: int) -> None:
            for i in range(start, stop):
                index = heads.kv_index(wave[i])
                keys[i] = packed_rows(heads.k[index], heads.kind)
                values[i] = packed_rows(self.v[index], heads.kind)
                columns[i] = packed_columns(zero_nonfinite(heads.k[index]), heads.kind)

        def to_queries(start: int, stop: int) -> None:
            for unit in range(start, stop):
                head, number = divmod(unit, tiles)
                i = head // heads.group
                query = self.query(wave[0] * heads.group + head, number)
                queries[unit], query_columns[unit] = query, query.columns()
                tile = query.tile
                dq[tile.index][tile.part] = self.of_queries(query, keys[i], values[i], columns[i])

        def to_keys(start: int, stop: int) -> None:
            for unit in range(start, stop):
                i, block = divmod(unit, blocks)
                first, last = block * TILE_KEYS, min((block + 1) * TILE_KEYS, heads.keys)
                own = slice(i * heads.group * tiles, (i + 1) * heads.group * tiles)
                pairs = zip(queries[own], query_columns[own], strict=True)
                index = heads.kv_index(wave[i])
                dk[index][first:last], dv[index][first:last] = self.of_keys(
                    pairs, keys[i], values[i], first, last
                )

        threads.for_ranges(pack, len(wave), 1)
        threads.for_ranges(to_queries, len(queries), 1)
        threads.for_ranges(to_keys, len(wave) * blocks, 1)

    def workspace(self, rows: int, width: int) -> Products:
        heads = self.heads
        return Products(
            np.empty((rows, width), heads.kind),
            heads.low(rows, width),
            np.empty((rows, width), heads.kind),
            heads.low(rows, width),
        )

    def sums(self, rows: int, features: int) -> DoubleDouble:
        """Sums of 0, to be added to."""
        width = -(-features // self.heads.lanes) * self.heads.lanes
        hi, lo = np.zeros((rows, width), self.heads.kind), self.heads.low(rows, width)
        if lo is not None:
            lo[:] = 0.0
        return DoubleDouble(hi, lo)

    def of_queries(self, query: Query, keys: Array, values: Array, columns: Array) -> Array:
        """dq of one tile of queries."""
        heads, tile = self.heads, query.tile
        dq = self.sums(tile.count, heads.features)
        work = self.workspace(tile.count, TILE_KEYS)
        gradient_of_queries(query.fields, keys, values, columns, work, dq)
        return np.asarray(dq.hi[: tile.rows, : heads.features])

    def of_keys(
        self, queries: Any, keys: Array, values: Array, first: int, last: int
    ) -> tuple[Array, Array]:
        """dk and dv of the keys first..last, from all queries of their group."""
        heads = self.heads
        dk = self.sums(TILE_KEYS, heads.features)
        dv = self.sums(TILE_KEYS, heads.value_features)
        for query, columns in queries:
            if query.tile.visible[-1] > first:
                work = self.workspace(query.tile.count, TILE_KEYS)
                add_gradient_of_keys(
                    query.fields, keys, values, *columns, first, last, work, dk, dv
                )
        size = last - first
        return dk.hi[:size, : heads.features], dv.hi[:size, : heads.value_features]

    def sink(self) -> Array:
        """The gradient of the sink, for each query."""
        logsumexp = self.numbers[..., 0]
        with np.errstate(all="ignore"):
            share = np.exp(self.heads.sink[..., 0] - logsumexp)  # the weight of the sink
            change = np.where(share > 0.0, -share * self.delta, 0.0)
        return np.asarray(np.where(np.isnan(logsumexp), np.nan, change)[..., None])

    def temperature(self, dq: Array) -> Array:
        """The gradient of the temperature, for each query: only q . dq depends on it."""
        with np.errstate(all="ignore"):
            terms = np.where(dq == 0.0, 0.0, dq.astype(np.float64) * self.heads.q)
            return np.asarray(-terms.sum(-1, keepdims=True) / self.heads.temperature)

    def bias(self, bias: Array) -> Any:
        """The gradient of the bias: tile after tile on one thread, since tiles may share it."""
        heads = self.heads
        shape = (1,) * (len(heads.lead) + 2 - bias.ndim) + bias.shape
        total = np.zeros(shape)
        width = -(-heads.keys // heads.lanes) * heads.lanes
        for kv_head in range(heads.kv_heads):
            own = heads.kv_index(kv_head)
            keys = packed_rows(heads.k[own], heads.kind)
            values = packed_rows(self.v[own], heads.kind)
            for head in range(kv_head * heads.group, (kv_head + 1) * heads.group):
                for number in range(-(-heads.queries // TILE_QUERIES)):
                    query = self.query(head, number)
                    tile = query.tile
                    work = self.workspace(tile.count, width)
                    fields = query.fields._replace(factor=np.ones(tile.count))
                    gradient_tile(fields, keys, values, 0, heads.keys, work)
                    change = work.grads[: tile.rows, : heads.keys].astype(np.float64)
                    index = tuple(
                        i if n > 1 else 0 for i, n in zip(tile.index, shape, strict=False)
                    )
                    rows = tile.part if shape[-2] > 1 else slice(0, 1)
                    if shape[-2] == 1:
                        change = change.sum(0, keepdims=True)
                    if shape[-1] == 1:
                        change = change.sum(1, keepdims=True)
                    total[index][rows] += change
        return sum_to_shape(total.reshape(bias.shape), bias)
