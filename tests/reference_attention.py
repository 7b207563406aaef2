"""Attention, its gradient and its saturation: in mpmath for one head, and naively in NumPy.

Imports nothing from hotmax.
"""

from __future__ import annotations

import math

import numpy as np
from reference import mp


def visible(i: int, queries: int, keys: int, causal: bool | str) -> int:
    """How many keys query i sees."""
    if causal is False:
        return keys
    shift = keys - queries if causal == "lower_right" else 0
    return min(max(i + shift + 1, 0), keys)


def exactly(array) -> list:
    """The rows of an array in mpf."""
    return [[mp.mpf(value) for value in row] for row in array.astype(np.float64).tolist()]


def logits(q, k, where=None, causal=False, scale=None, temperature=1.0, bias=None) -> list:
    """z[i][j] in mpmath for one head, None where there is no key. The temperature is not 0."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    rows, keys = [], exactly(k)
    for i, query in enumerate(exactly(q)):
        row = []
        for j, key in enumerate(keys):
            seen = j < visible(i, len(q), len(k), causal)
            if not seen or (where is not None and not where[i, j]):
                row.append(None)
                continue
            z = mp.fdot(query, key) * mp.mpf(scale)
            z = z / mp.mpf(temperature)
            if bias is not None:
                z += mp.mpf(float(bias[i, j]))
            row.append(None if z == -mp.inf else z)
        rows.append(row)
    return rows


def weights(q, k, sink=None, **options) -> tuple[list, list]:
    """(weights, logsumexp) of one head."""
    all_weights, sums = [], []
    for row in logits(q, k, **options):
        terms = [mp.mpf(0) if z is None else mp.exp(z) for z in row]
        total = mp.fsum(terms) + (0 if sink is None else mp.exp(mp.mpf(sink)))
        all_weights.append([t / total if total else mp.mpf(0) for t in terms])
        sums.append(mp.log(total) if total else -mp.inf)
    return all_weights, sums


def attention(q, k, v, **options) -> np.ndarray:
    """(queries, features) of mpf, for one head."""
    return weighted(weights(q, k, **options)[0], v)


def weighted(rows, v) -> np.ndarray:
    """The values, by rows of weights."""
    out, columns = np.empty((len(rows), v.shape[-1]), object), exactly(v.T)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            out[i, j] = mp.fdot(row, column)
    return out


def naive_attention(q, k, v, where=None, scale=None, bias=0.0):
    """The formula in NumPy, over (..., heads, length, features)."""
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    z = q @ np.swapaxes(k, -1, -2) * scale + bias
    if where is not None:
        z = np.where(where, z, -np.inf)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
