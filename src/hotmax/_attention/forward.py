"""The forward pass of attention: tiles of queries, in parallel over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._attention.heads import Heads, Tile
from hotmax._attention.packing import packed_columns, packed_rows, ready
from hotmax._core import threads
from hotmax._core.arrays import Array
from hotmax._kernels.attention.forward import (
    LogitTerms,
    LowParts,
    attend_heads,
    attend_tiles,
    attention_weights_tile,
    pack_heads,
)
from hotmax._kernels.attention.scores import TILE_KEYS, TILE_QUERIES, KeysAndValues
from hotmax._kernels.attention.values import add_values

UNPACKED_TILES = 2  # up to so many tiles of queries, each packs the keys for itself
WEIGHT_QUERIES = 24  # queries whose weights are computed at a time
Work = Callable[[int, int], None]


def for_weights(heads: Heads, look: Any) -> None:
    """Call look(tile, weights) for WEIGHT_QUERIES queries at a time, over threads."""
    tiles = -(-heads.queries // WEIGHT_QUERIES)
    for wave in heads.waves(1):
        keys: list[Any] = [None] * len(wave)

        def pack(start: int, stop: int, wave: range = wave, keys: list[Any] = keys) -> None:
            for i in range(start, stop):
                keys[i] = packed_rows(heads.k[heads.kv_index(wave[i])], heads.kind)

        def work(start: int, stop: int, wave: range = wave, keys: list[Any] = keys) -> None:
            for unit in range(start, stop):
                head, number = divmod(unit, tiles)
                tile = heads.tile(
                    wave[0] * heads.group + head, number * WEIGHT_QUERIES, WEIGHT_QUERIES
                )
                weights = tile_weights(tile, keys[head // heads.group])[0]
                look(tile, weights[: tile.rows, : heads.keys])

        threads.for_ranges(pack, len(wave), 1)
        threads.for_ranges(work, len(wave) * heads.group * tiles, 1)


def tile_weights(tile: Tile, keys: Array) -> tuple[Array, Array]:
    """All weights of the queries of one tile, padded, and their logsumexp."""
    heads, columns = tile.heads, keys.shape[0] * tile.heads.lanes
    weights, lo = np.empty((tile.count, columns), heads.kind), heads.low(tile.count, columns)
    logsumexp = np.empty(tile.count)
    sink = tile.number(heads.sink, -np.inf)
    attention_weights_tile(tile.query_tile(), keys, sink, weights, lo, logsumexp)
    return weights, logsumexp


def attention_forward(heads: Heads) -> tuple[Array, Array]:
    """(out, numbers): out in the type of the computation; three float64 numbers for each query.

    The logarithm of the denominator; the largest logit (or score, without a bias) and the
    denominator relative to it, from which the gradient recomputes the weights.
    """
    out = np.empty((*heads.lead, heads.queries, heads.value_features), heads.kind)
    numbers = np.empty((*heads.lead, heads.queries, 3))
    tiles = -(-heads.queries // TILE_QUERIES)
    unpacked = tiles * heads.group <= UNPACKED_TILES and not heads.has_infinite_beta
    for wave in heads.waves(2):
        packed = pack(heads, wave, unpacked)
        own = range(wave.start * heads.group, wave.stop * heads.group)
        work = (by_heads if heads.are_alike else by_tiles)(heads, own, tiles, packed, out, numbers)
        threads.for_cuts(work, threads.shrinking(len(own) * tiles, *heads.together))
    return out, numbers


def pack(heads: Heads, wave: range, unpacked: bool) -> KeysAndValues:
    """Keys and values of a range of heads, in panels or as matrices."""
    size, lanes = len(wave), heads.lanes
    finite = np.ones((size, -(-heads.keys // TILE_KEYS)), np.bool_)
    if unpacked:
        matrices = heads.matrices(heads.k, wave), heads.matrices(heads.values, wave)
        return KeysAndValues(*matrices, finite)
    panels = (
        (size, -(-heads.keys // lanes), heads.features, lanes),
        (size, -(-heads.value_features // lanes), heads.keys, lanes),
    )
    cut = math.prod(panels[0])
    # One allocation: two of half the size would be fresh pages at every call.
    workspace = np.empty(cut + math.prod(panels[1]), heads.kind)
    keys, values = workspace[:cut].reshape(panels[0]), workspace[cut:].reshape(panels[1])
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
                finite[part],
            )
            return
        for i in range(start, stop):
            index = heads.kv_index(wave[i])
            packed_rows(k[index], heads.kind, keys[i])
            packed_columns(v[index], heads.kind, values[i], finite[i])

    threads.for_ranges(work, size, -(-size // (4 * threads.get_threads())))
    return KeysAndValues(keys, values, finite)


def by_heads(
    heads: Heads, own: range, tiles: int, packed: KeysAndValues, out: Array, numbers: Array
) -> Work:
    """Work on tiles of heads that differ in q, k and v only."""
    part, count = slice(own.start, own.stop), math.prod(heads.lead)
    q, results, sums = (a.reshape(count, *a.shape[-2:])[part] for a in (heads.q, out, numbers))
    temperature, sink = (np.array([a.flat[0]]) for a in (heads.temperature, heads.sink))
    logits = LogitTerms(heads.scale, temperature, sink, np.empty((0, 0), heads.kind), False)

    def work(start: int, stop: int) -> None:
        low = low_parts(heads, min(heads.padded(heads.queries), TILE_QUERIES))
        attend_heads(start, stop, heads.group, q, packed, logits, heads.shift, results, sums, low)

    return work


def low_parts(heads: Heads, rows: int) -> LowParts:
    """Workspace of one kernel call for double-doubles."""
    width = -(-heads.value_features // heads.lanes) * heads.lanes
    return LowParts(heads.low(rows, TILE_KEYS), heads.low(rows, width))


def by_tiles(
    heads: Heads, own: range, tiles: int, packed: KeysAndValues, out: Array, numbers: Array
) -> Work:
    """Work on tiles of any heads, one head after the other."""

    def work(start: int, stop: int) -> None:
        unit = start
        while unit < stop:
            head, number = divmod(unit, tiles)
            i = head // heads.group
            more = min(stop - unit, tiles - number)  # of the same head
            unit += more
            tile = heads.tile(own[head], number * TILE_QUERIES, more * TILE_QUERIES)
            own_packed = KeysAndValues(*(array[i] for array in packed))
            results = out[tile.index][tile.part], numbers[tile.index][tile.part]
            attend_queries(tile, own_packed, *results)

    return work


def attend_queries(tile: Tile, packed: KeysAndValues, out: Array, numbers: Array) -> None:
    """Attention of the queries of one tile."""
    heads = tile.heads
    logits = LogitTerms(
        heads.scale,
        heads.per_query(heads.temperature, tile.index, tile.part),
        heads.per_query(heads.sink, tile.index, tile.part),
        tile.bias,
        tile.has_bias,
    )
    low = low_parts(heads, min(tile.count, TILE_QUERIES))
    queries = tile.own_rows(heads.q)
    attend_tiles(queries, packed, logits, tile.first_visible, heads.keys, out, numbers, low)
    if heads.has_infinite_beta:
        attend_by_weights(tile, packed, out, numbers)


def attend_by_weights(tile: Tile, packed: KeysAndValues, out: Array, numbers: Array) -> None:
    """Recompute the queries at the limit of temperature 0, which need all their scores at once."""
    at_limit = np.isinf(tile.betas.hi[: tile.rows])
    if not at_limit.any():
        return
    heads, count = tile.heads, tile.count
    width = packed.values.shape[0] * heads.lanes
    acc, acc_lo = np.zeros((count, width), heads.kind), heads.low(count, width)
    if acc_lo is not None:
        acc_lo[:] = 0.0
    weights, logsumexp = tile_weights(tile, packed.keys)
    finite, factors = packed.finite.all(), np.zeros(count, heads.kind)
    add_values(weights, 0, tile.visible, packed.values, finite, acc, acc_lo, factors)
    out[at_limit] = acc[: tile.rows, : heads.value_features][at_limit]
    numbers[at_limit, 0] = logsumexp[: tile.rows][at_limit]
