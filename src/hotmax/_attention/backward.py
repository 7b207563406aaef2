"""The backward pass of attention, by making its tiles again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._attention.heads import Heads, Tile, packed_columns, packed_rows
from hotmax._core import threads
from hotmax._core.arrays import Array, result_type
from hotmax._kernels.attention.backward import (
    add_gradient_of_keys,
    gradient_of_queries,
    gradient_tile,
)
from hotmax._kernels.attention.online_softmax import KEYS, QUERIES


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


def like(gradient: Array, argument: Array) -> Any:
    """Summed over what was broadcast, in the shape and float type of the argument."""
    extra = gradient.ndim - argument.ndim
    if extra:
        gradient = gradient.sum(axis=tuple(range(extra)))
    spread = tuple(a for a, n in enumerate(argument.shape) if n == 1 and gradient.shape[a] != 1)
    if spread:
        gradient = gradient.sum(axis=spread, keepdims=True)
    with np.errstate(all="ignore"):
        result = gradient.astype(result_type(argument.dtype), copy=False)
    return result if result.ndim else result[()]


def finite(array: Array) -> Array:
    """Inf and nan as 0: where they are seen, the logits are nan already."""
    with np.errstate(all="ignore"):
        # np.nan_to_num leaves bfloat16 as it is.
        return np.where(np.isfinite(array), array, array.dtype.type(0))


class Query:
    """A tile of queries with all that its gradients need."""

    def __init__(self, tile: Tile, dout: Array, numbers: Array, delta: Array) -> None:
        self.tile = tile
        self.dout = tile.rows_of(dout)
        self.q, self.slope, self.slope_low = tile.turned()
        self.peak = tile.number(numbers[..., 1:2], 0.0)
        self.peak[np.isneginf(self.peak)] = 0.0  # no key: no weight, since the total is inf
        self.total = tile.number(numbers[..., 2:], np.inf)
        self.delta = tile.number(delta[..., None], 0.0)

    def columns(self) -> tuple[Array, Array]:
        kind = self.tile.heads.kind
        q = finite(self.tile.rows_of(self.tile.heads.q))
        return packed_columns(q, kind), packed_columns(self.dout, kind)


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
            if by_logsumexp is not None:  # whose derivative by a logit is that logit's weight
                self.delta -= by_logsumexp

    def query(self, head: int, number: int) -> Query:
        tile = self.heads.tile(head, number * QUERIES, QUERIES)
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
        tiles, blocks = -(-heads.queries // QUERIES), -(-heads.keys // KEYS)
        keys: list[Any] = [None] * len(wave)
        values: list[Any] = [None] * len(wave)
        columns: list[Any] = [None] * len(wave)
        queries: list[Any] = [None] * (len(wave) * heads.group * tiles)
        turned: list[Any] = [None] * len(queries)

        def pack(start: int, stop: int) -> None:
            for i in range(start, stop):
                index = heads.kv_index(wave[i])
                keys[i] = packed_rows(heads.k[index], heads.kind)
                values[i] = packed_rows(self.v[index], heads.kind)
                columns[i] = packed_columns(finite(heads.k[index]), heads.kind)

        def to_queries(start: int, stop: int) -> None:
            for unit in range(start, stop):
                head, number = divmod(unit, tiles)
                i = head // heads.group
                query = self.query(wave[0] * heads.group + head, number)
                queries[unit], turned[unit] = query, query.columns()
                tile = query.tile
                dq[tile.index][tile.part] = self.of_queries(query, keys[i], values[i], columns[i])

        def to_keys(start: int, stop: int) -> None:
            for unit in range(start, stop):
                i, block = divmod(unit, blocks)
                first, last = block * KEYS, min((block + 1) * KEYS, heads.keys)
                own = slice(i * heads.group * tiles, (i + 1) * heads.group * tiles)
                pairs = zip(queries[own], turned[own], strict=True)
                index = heads.kv_index(wave[i])
                dk[index][first:last], dv[index][first:last] = self.of_keys(
                    pairs, keys[i], values[i], first, last
                )

        threads.for_ranges(pack, len(wave), 1)
        threads.for_ranges(to_queries, len(queries), 1)
        threads.for_ranges(to_keys, len(wave) * blocks, 1)

    def room(self, rows: int, width: int) -> tuple[Array, Array | None, Array, Array | None]:
        heads = self.heads
        return (
            np.empty((rows, width), heads.kind),
            heads.low(rows, width),
            np.empty((rows, width), heads.kind),
            heads.low(rows, width),
        )

    def sums(self, rows: int, features: int) -> tuple[Array, Array | None]:
        """Sums of 0, in two words if need be."""
        width = -(-features // self.heads.lanes) * self.heads.lanes
        total, low = np.zeros((rows, width), self.heads.kind), self.heads.low(rows, width)
        if low is not None:
            low[:] = 0.0
        return total, low

    def of_queries(self, query: Query, keys: Array, values: Array, columns: Array) -> Array:
        heads, tile = self.heads, query.tile
        dq, dq_low = self.sums(tile.count, heads.features)
        gradient_of_queries(
            query.q,
            query.dout,
            keys,
            values,
            columns,
            tile.extra,
            tile.biased,
            query.slope,
            query.slope_low,
            tile.slopes[0],
            tile.visible,
            query.peak,
            query.total,
            query.delta,
            *self.room(tile.count, KEYS),
            dq,
            dq_low,
        )
        return dq[: tile.rows, : heads.features]

    def of_keys(
        self, queries: Any, keys: Array, values: Array, first: int, last: int
    ) -> tuple[Array, Array]:
        """dk and dv of the keys first..last, from all queries of their group."""
        heads = self.heads
        dk, dk_low = self.sums(KEYS, heads.features)
        dv, dv_low = self.sums(KEYS, heads.value_features)
        for query, (q_columns, dout_columns) in queries:
            tile = query.tile
            if tile.visible[-1] <= first:
                continue
            add_gradient_of_keys(
                query.q,
                query.dout,
                keys,
                values,
                q_columns,
                dout_columns,
                tile.extra,
                tile.biased,
                query.slope,
                query.slope_low,
                tile.slopes[0],
                tile.visible,
                query.peak,
                query.total,
                query.delta,
                first,
                last,
                *self.room(tile.count, KEYS),
                dk,
                dk_low,
                dv,
                dv_low,
            )
        size = last - first
        return dk[:size, : heads.features], dv[:size, : heads.value_features]

    def sink(self) -> Array:
        """The gradient of the sink, for each query."""
        logsumexp = self.numbers[..., 0]
        with np.errstate(all="ignore"):
            share = np.exp(self.heads.sink[..., 0] - logsumexp)  # the weight that it takes
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
            index = heads.kv_index(kv_head)
            keys = packed_rows(heads.k[index], heads.kind)
            values = packed_rows(self.v[index], heads.kind)
            for head in range(kv_head * heads.group, (kv_head + 1) * heads.group):
                for number in range(-(-heads.queries // QUERIES)):
                    query = self.query(head, number)
                    tile = query.tile
                    scores, low, grads, grads_low = self.room(tile.count, width)
                    gradient_tile(
                        query.q,
                        query.dout,
                        keys,
                        values,
                        tile.extra,
                        tile.biased,
                        query.slope,
                        query.slope_low,
                        np.ones(tile.count),
                        tile.visible,
                        query.peak,
                        query.total,
                        query.delta,
                        0,
                        heads.keys,
                        scores,
                        low,
                        grads,
                        grads_low,
                    )
                    change = grads[: tile.rows, : heads.keys].astype(np.float64)
                    place = tuple(
                        i if n > 1 else 0 for i, n in zip(tile.index, shape, strict=False)
                    )
                    rows = tile.part if shape[-2] > 1 else slice(0, 1)
                    if shape[-2] == 1:
                        change = change.sum(0, keepdims=True)
                    if shape[-1] == 1:
                        change = change.sum(1, keepdims=True)
                    total[place][rows] += change
        return like(total.reshape(bias.shape), bias)
