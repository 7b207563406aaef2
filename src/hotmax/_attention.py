"""Scaled dot-product attention in memory that grows with the length, not with its square."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax import _threads
from hotmax._boundary import Array
from hotmax._heads import QUERIES, Heads, Tile, packed_columns, packed_rows
from hotmax._kernels.attention import KEYS, add_values, attend, finish, weigh

LOOK = 24  # queries whose weights are worked out at a time


def attention(
    q: object,
    k: object,
    v: object,
    *,
    where: object = None,
    causal: bool | str = False,
    scale: float | None = None,
    temperature: object = 1.0,
    bias: object = None,
    sink: object = None,
    return_logsumexp: bool = False,
) -> Any:
    """Scaled dot-product attention: softmax(q k^T * scale / T + bias) v.

    Keys pass by in tiles, so that memory grows with the length and not with its square.

    Args:
        q: Queries, (..., heads, length, features) or (length, features).
        k: Keys, the same with a length of their own. They may have fewer heads, if their number
            divides that of q: each then serves a group of query heads that lie side by side.
            Dimensions before the heads broadcast.
        v: Values, one for each key; their features may be any number.
        where: Bools that broadcast to (..., heads, queries, keys); a key at False is not there.
        causal: True or "upper_left": query i sees the keys up to i, as in PyTorch's `is_causal`.
            "lower_right": the last query sees the last key, as after a cache of keys.
        scale: The factor of the scores; 1 / sqrt(features) if not given.
        temperature: A number, or an array that broadcasts to (..., heads, queries, 1). It divides
            the scores, not the bias. 0 puts all weight on the largest scores, inf leaves only the
            bias.
        bias: Numbers to add, that broadcast to (..., heads, queries, keys). -inf: a key that is not
            there.
        sink: A logit of its own in the denominator, which takes weight and has no value: a number,
            or an array that broadcasts to (..., heads, queries, 1), such as (heads, 1, 1). 0 is
            "softmax off by one".
        return_logsumexp: Also return the logarithm of each query's denominator.

    Returns:
        An array (..., heads, queries, features of v) in the float type of the inputs. A query that
        sees no key gives 0. With `return_logsumexp` also (..., heads, queries), where such a query
        has -inf (or its sink).

    Example:
        >>> import numpy as np
        >>> import hotmax as hm
        >>> q, k, v = np.eye(3), np.eye(3), np.arange(6.0).reshape(3, 2)
        >>> hm.attention(q, k, v, causal=True).round(4)
        array([[0.    , 1.    ],
               [1.2809, 2.2809],
               [2.4132, 3.4132]])

    The same in NumPy, where nothing overflows:
        (e := np.exp(q @ k.T / np.sqrt(q.shape[-1]) / T)) / e.sum(-1, keepdims=True) @ v

    Reference:
        Vaswani et al., Attention is all you need, 2017; Dao et al., FlashAttention, 2022.
    """
    heads = Heads(
        q,
        k,
        v,
        where=where,
        causal=causal,
        scale=scale,
        temperature=temperature,
        bias=bias,
        sink=sink,
    )
    out, logsumexp = run(heads)
    return (out, logsumexp.astype(heads.dtype)) if return_logsumexp else out


def attention_weights(
    q: object,
    k: object,
    *,
    where: object = None,
    causal: bool | str = False,
    scale: float | None = None,
    temperature: object = 1.0,
    bias: object = None,
    sink: object = None,
) -> Any:
    """The weights of attention, to look at: softmax(q k^T * scale / T + bias).

    Args:
        q, k, where, causal, scale, temperature, bias, sink: As in `attention`.

    Returns:
        An array (..., heads, queries, keys). The weights of a query add up to 1; to less with a
        sink; to 0 if it sees no key.

    Example:
        >>> import numpy as np
        >>> import hotmax as hm
        >>> hm.attention_weights(np.eye(2), 2 * np.eye(2), scale=1.0).round(4)
        array([[0.8808, 0.1192],
               [0.1192, 0.8808]])

    The same in NumPy, where nothing overflows:
        (e := np.exp(q @ k.T / np.sqrt(q.shape[-1]) / T)) / e.sum(-1, keepdims=True)
    """
    heads = Heads(
        q,
        k,
        None,
        where=where,
        causal=causal,
        scale=scale,
        temperature=temperature,
        bias=bias,
        sink=sink,
    )
    out = np.empty((*heads.lead, heads.queries, heads.keys), heads.dtype)

    def look(tile: Tile, weights: Array) -> None:
        with np.errstate(all="ignore"):
            out[tile.index][tile.part] = weights

    for_weights(heads, look)
    return out


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
    """(out, logsumexp): out in the type of the result, logsumexp in float64."""
    out = np.empty((*heads.lead, heads.queries, heads.value_features), heads.dtype)
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
                with np.errstate(all="ignore"):
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
