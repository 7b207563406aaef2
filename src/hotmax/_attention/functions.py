"""Scaled dot-product attention in memory that grows with the length, not with its square."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._attention import generic
from hotmax._attention.forward import attention_forward, for_weights
from hotmax._attention.heads import Heads, Tile
from hotmax._attention.kernel_gradient import ATTENTION_GRADIENT
from hotmax._attention.one_query import attend_one_query
from hotmax._backends.operation import NATIVE, NOT_DASK, dispatch, operation
from hotmax._core.arrays import Array
from hotmax._core.checks import as_bool


@operation(
    NOT_DASK,
    generic.attention,
    kernel_gradient=ATTENTION_GRADIENT,
    typed_by=("q", "k", "v"),
)
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

    The same in NumPy, as long as nothing overflows:
        (e := np.exp(q @ k.T / np.sqrt(q.shape[-1]) / T)) / e.sum(-1, keepdims=True) @ v

    Reference:
        Vaswani et al., Attention is all you need, 2017; Dao et al., FlashAttention, 2022.
    """
    if type(q) not in NATIVE:
        return dispatch(attention, locals())
    if where is None and bias is None and sink is None and return_logsumexp is False:
        result = attend_one_query(q, k, v, causal, scale, temperature)
        if result is not None:
            return result
    return_logsumexp = as_bool(return_logsumexp, "return_logsumexp")
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
    out, numbers = attention_forward(heads)
    with np.errstate(all="ignore"):
        out = out.astype(heads.dtype, copy=False)
        return (out, numbers[..., 0].astype(heads.dtype)) if return_logsumexp else out


@operation(NOT_DASK, generic.attention_weights, typed_by=("q", "k"))
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

    The same in NumPy, as long as nothing overflows:
        (e := np.exp(q @ k.T / np.sqrt(q.shape[-1]) / T)) / e.sum(-1, keepdims=True)
    """
    if type(q) not in NATIVE:
        return dispatch(attention_weights, locals())
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
