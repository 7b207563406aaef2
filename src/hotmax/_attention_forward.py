"""The forward pass of attention: tiles of queries past all keys, over threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax import _threads
from hotmax._boundary import Array
from hotmax._heads import QUERIES, Heads, Tile, packed_columns, packed_rows
from hotmax._kernels.attention import KEYS, add_values, attend, finish, weigh

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
        tile.sink,
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
            for unit in range(start, stop):
                head, number = divmod(unit, tiles)
                i = head // heads.group
                tile = heads.tile(wave[0] * heads.group + head, number * QUERIES, QUERIES)
                acc, numbers = attend_tile(tile, keys[i], values[i], clean[i])
                out[tile.index][tile.part] = acc[: tile.rows, : heads.value_features]
                logsumexp[tile.index][tile.part] = numbers[: tile.rows]

        _threads.for_ranges(pack, len(wave), 1)
        _threads.for_ranges(work, len(wave) * heads.group * tiles, 1)
    return out, logsumexp


def attend_tile(tile: Tile, keys: Array, values: Array, clean: Array) -> tuple[Array, Array]:
    """The output of one tile, padded, and its logsumexp."""
    heads, count = tile.heads, tile.count
    width = values.shape[0] * heads.lanes
    acc, acc_low = np.empty((count, width), heads.kind), heads.low(count, width)
    if np.isinf(tile.slope).any():  # the limit of temperature 0 needs a second look at the scores
        weights, numbers = weights_of(tile, keys)
        acc[:] = 0.0
        if acc_low is not None:
            acc_low[:] = 0.0
        nothing = np.zeros(count, heads.kind)
        add_values(weights, 0, tile.visible, values, clean.all(), acc, acc_low, nothing)
        return acc, numbers
    q, slope, slope_low = tile.turned()
    scores, low = np.empty((count, KEYS), heads.kind), heads.low(count, KEYS)
    state, numbers = np.empty((3, count)), np.empty(count)
    attend(
        q,
        keys,
        values,
        clean,
        tile.extra,
        tile.biased,
        slope,
        slope_low,
        tile.visible,
        scores,
        low,
        acc,
        acc_low,
        state,
    )
    finish(acc, acc_low, state, tile.biased, slope, slope_low, tile.sink, numbers)
    return acc, numbers
