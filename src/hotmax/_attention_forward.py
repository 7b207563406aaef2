"""The forward pass of attention: tiles of queries past all keys, over threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax import _threads
from hotmax._boundary import Array
from hotmax._heads import Heads, Tile, packed_columns, packed_rows
from hotmax._kernels.attention import attend_tiles, weigh
from hotmax._kernels.running import KEYS, QUERIES, add_values

FEW = 2  # tiles of queries that pack the keys as they pass, each for itself
LOOK = 24  # queries whose weights are worked out at a time


def for_weights(heads: Heads, look: Any) -> None:
    """Call look(tile, weights) for a few queries at a time, over threads."""
    tiles = -(-heads.queries // LOOK)
    for wave in heads.waves(1):
        keys: list[Any] = [None] * len(wave)

        def pack(start: int, stop: int, wave: range = wave, keys: list[Any] = keys) -> None:
            for i in range(start, stop):
                keys[i] = packed_rows(heads.k[heads.kv_index(wave[i])], heads.kind)

        def work(start: int, stop: int, wave: range = wave, keys: list[Any] = keys) -> None:
            for unit in range(start, stop):
                head, number = divmod(unit, tiles)
                tile = heads.tile(wave[0] * heads.group + head, number * LOOK, LOOK)
                weights = weights_of(tile, keys[head // heads.group])[0]
                look(tile, weights[: tile.rows, : heads.keys])

        _threads.for_ranges(pack, len(wave), 1)
        _threads.for_ranges(work, len(wave) * heads.group * tiles, 1)


def weights_of(tile: Tile, keys: Array) -> tuple[Array, Array]:
    """All weights of the queries of one tile, padded, and their logsumexp."""
    heads, columns = tile.heads, keys.shape[0] * tile.heads.lanes
    weights, low = np.empty((tile.count, columns), heads.kind), heads.low(tile.count, columns)
    numbers = np.empty(tile.count)
    q, slope, slope_low = tile.turned()
    weigh(
        q,
        keys,
        tile.extra,
        tile.biased,
        slope,
        slope_low,
        tile.number(heads.sink, -np.inf),
        tile.visible,
        weights,
        low,
        numbers,
    )
    return weights, numbers


def run(heads: Heads) -> tuple[Array, Array]:
    """(out, logsumexp): out in the type that is computed in, logsumexp in float64."""
    out = np.empty((*heads.lead, heads.queries, heads.value_features), heads.kind)
    logsumexp = np.empty((*heads.lead, heads.queries))
    tiles = -(-heads.queries // QUERIES)
    v = heads.v
    assert v is not None
    few = tiles * heads.group <= FEW and not heads.is_steep
    for wave in heads.waves(2):
        keys: list[Any] = [None] * len(wave)
        values: list[Any] = [None] * len(wave)
        clean = np.ones((len(wave), -(-heads.keys // KEYS)), np.bool_)

        def pack(
            start: int,
            stop: int,
            wave: range = wave,
            keys: list[Any] = keys,
            values: list[Any] = values,
            clean: Array = clean,
        ) -> None:
            for i in range(start, stop):
                index = heads.kv_index(wave[i])
                if few:
                    keys[i], values[i] = heads.matrix(heads.k, index), heads.matrix(v, index)
                else:
                    keys[i] = packed_rows(heads.k[index], heads.kind)
                    values[i] = packed_columns(v[index], heads.kind, clean[i])

        def work(
            start: int,
            stop: int,
            wave: range = wave,
            keys: list[Any] = keys,
            values: list[Any] = values,
            clean: Array = clean,
        ) -> None:
            unit = start
            while unit < stop:
                head, number = divmod(unit, tiles)
                i = head // heads.group
                more = min(stop - unit, tiles - number)  # of the same head
                unit += more
                size = more * QUERIES
                tile = heads.tile(wave[0] * heads.group + head, number * QUERIES, size)
                attend(
                    tile,
                    keys[i],
                    values[i],
                    clean[i],
                    out[tile.index][tile.part],
                    logsumexp[tile.index][tile.part],
                )

        _threads.for_ranges(pack, len(wave), 1)
        _threads.for_ranges(work, len(wave) * heads.group * tiles, heads.together)
    return out, logsumexp


def attend(
    tile: Tile, keys: Array, values: Array, clean: Array, out: Array, logsumexp: Array
) -> None:
    heads = tile.heads
    rows = min(tile.count, QUERIES)
    attend_tiles(
        tile.own_rows(heads.q),
        keys,
        values,
        clean,
        tile.extra,
        tile.biased,
        heads.scale,
        heads.per_query(heads.temperature, tile.index, tile.part),
        heads.per_query(heads.sink, tile.index, tile.part),
        tile.first_visible,
        heads.keys,
        out,
        logsumexp,
        heads.low(rows, KEYS),
        heads.low(rows, -(-heads.value_features // heads.lanes) * heads.lanes),
    )
    if heads.is_steep:
        attend_by_weights(tile, keys, values, clean, out, logsumexp)


def attend_by_weights(
    tile: Tile, keys: Array, values: Array, clean: Array, out: Array, logsumexp: Array
) -> None:
    """Queries at the limit of temperature 0, which need a second look at their scores."""
    steep = np.isinf(tile.slopes[0][: tile.rows])
    if not steep.any():
        return
    heads, count = tile.heads, tile.count
    width = values.shape[0] * heads.lanes
    acc, acc_low = np.zeros((count, width), heads.kind), heads.low(count, width)
    if acc_low is not None:
        acc_low[:] = 0.0
    weights, numbers = weights_of(tile, keys)
    nothing = np.zeros(count, heads.kind)
    add_values(weights, 0, tile.visible, values, clean.all(), acc, acc_low, nothing)
    out[steep] = acc[: tile.rows, : heads.value_features][steep]
    logsumexp[steep] = numbers[: tile.rows][steep]
