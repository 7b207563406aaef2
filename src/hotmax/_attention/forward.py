"""The forward pass of attention: tiles of queries past all keys, over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._attention.heads import Heads, Tile, packed_columns, packed_rows, ready
from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax._kernels.attention.forward import attend_heads, attend_tiles, pack_heads, weigh
from hotmax._kernels.attention.online_softmax import KEYS, QUERIES, add_values

FEW = 2  # tiles of queries that pack the keys as they pass, each for itself
Packed = tuple[Array, Array, Array]  # keys, values, and whether each tile of them is finite
Work = Callable[[int, int], None]
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

        threads.for_ranges(pack, len(wave), 1)
        threads.for_ranges(work, len(wave) * heads.group * tiles, 1)


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
    """(out, numbers): out in the type that is computed in; three float64 numbers for each query.

    The logarithm of the denominator; the largest logit (or score, without a bias) and the
    denominator relative to it, from which the gradient makes the weights again.
    """
    out = np.empty((*heads.lead, heads.queries, heads.value_features), heads.kind)
    numbers = np.empty((*heads.lead, heads.queries, 3))
    tiles = -(-heads.queries // QUERIES)
    few = tiles * heads.group <= FEW and not heads.is_steep
    for wave in heads.waves(2):
        packed = pack(heads, wave, few)
        own = range(wave.start * heads.group, wave.stop * heads.group)
        work = (by_heads if heads.are_alike else by_tiles)(heads, own, tiles, packed, out, numbers)
        threads.for_cuts(work, threads.shrinking(len(own) * tiles, *heads.together))
    return out, numbers


def pack(heads: Heads, wave: range, few: bool) -> Packed:
    """Keys and values of some heads in panels, or as they are if few queries ask for them."""
    size, lanes = len(wave), heads.lanes
    clean = np.ones((size, -(-heads.keys // KEYS)), np.bool_)
    if few:
        return heads.matrices(heads.k, wave), heads.matrices(heads.values, wave), clean
    panels = (
        (size, -(-heads.keys // lanes), heads.features, lanes),
        (size, -(-heads.value_features // lanes), heads.keys, lanes),
    )
    cut = math.prod(panels[0])
    room = np.empty(cut + math.prod(panels[1]), heads.kind)  # two halves would come as fresh pages
    keys, values = room[:cut].reshape(panels[0]), room[cut:].reshape(panels[1])
    k, v = heads.k, heads.values

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        if ready(k, heads.kind) and ready(v, heads.kind):
            own = wave[part]
            pack_heads(
                heads.matrices(k, own),
                heads.matrices(v, own),
                keys[part],
                values[part],
                clean[part],
            )
            return
        for i in range(start, stop):
            index = heads.kv_index(wave[i])
            packed_rows(k[index], heads.kind, keys[i])
            packed_columns(v[index], heads.kind, values[i], clean[i])

    threads.for_ranges(work, size, -(-size // (4 * threads.get_threads())))
    return keys, values, clean


def by_heads(
    heads: Heads, own: range, tiles: int, packed: Packed, out: Array, numbers: Array
) -> Work:
    """Work on any tiles of heads that differ in nothing but q, k and v."""
    part, count = slice(own.start, own.stop), math.prod(heads.lead)
    q, results, sums = (a.reshape(count, *a.shape[-2:])[part] for a in (heads.q, out, numbers))
    temperature, sink = (np.array([a.flat[0]]) for a in (heads.temperature, heads.sink))

    def work(start: int, stop: int) -> None:
        rows = min(heads.padded(heads.queries), QUERIES)
        attend_heads(
            start,
            stop,
            tiles,
            heads.group,
            q,
            *packed,
            heads.scale,
            temperature,
            sink,
            heads.shift,
            results,
            sums,
            heads.low(rows, KEYS),
            heads.low(rows, -(-heads.value_features // heads.lanes) * heads.lanes),
        )

    return work


def by_tiles(
    heads: Heads, own: range, tiles: int, packed: Packed, out: Array, numbers: Array
) -> Work:
    """The same, one head after the other."""
    keys, values, clean = packed

    def work(start: int, stop: int) -> None:
        unit = start
        while unit < stop:
            head, number = divmod(unit, tiles)
            i = head // heads.group
            more = min(stop - unit, tiles - number)  # of the same head
            unit += more
            tile = heads.tile(own[head], number * QUERIES, more * QUERIES)
            place = out[tile.index][tile.part], numbers[tile.index][tile.part]
            attend(tile, keys[i], values[i], clean[i], *place)

    return work


def attend(
    tile: Tile, keys: Array, values: Array, clean: Array, out: Array, numbers: Array
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
        numbers,
        heads.low(rows, KEYS),
        heads.low(rows, -(-heads.value_features // heads.lanes) * heads.lanes),
    )
    if heads.is_steep:
        attend_by_weights(tile, keys, values, clean, out, numbers)


def attend_by_weights(
    tile: Tile, keys: Array, values: Array, clean: Array, out: Array, numbers: Array
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
    weights, logsumexp = weights_of(tile, keys)
    nothing = np.zeros(count, heads.kind)
    add_values(weights, 0, tile.visible, values, clean.all(), acc, acc_low, nothing)
    out[steep] = acc[: tile.rows, : heads.value_features][steep]
    numbers[steep, 0] = logsumexp[: tile.rows][steep]
