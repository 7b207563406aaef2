"""Attention of one float32 query of each head over all keys, without a mask: decoding.

The steps and the bits are those of `forward`, for a single query that reads keys and values as they
lie. Nothing is packed, and no workspace but the scores of one tile is needed.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.attention.direct import add_values_directly, score_directly
from hotmax._kernels.attention.forward import (
    clear_vanished_rows,
    finish,
    pad_queries,
    update_softmax,
)
from hotmax._kernels.attention.scores import TILE_KEYS, DoubleDouble, QueryTile, set_query_betas
from hotmax._kernels.compiler.compiling import Entry, kernel
from hotmax._kernels.pool.atomic import array_at
from hotmax._kernels.pool.jobs import (
    CLASSES,
    OTHERS,
    OUT,
    ROWS,
    X,
    compute_ranges,
    fields_of,
)
from hotmax._kernels.simd.memory import stack_array
from hotmax._kernels.simd.vectors import float64_of

# What a job has beside queries and results: addresses, sizes, the bits of the scale.
KEYS, VALUES, LENGTH, FEATURES, GROUP, SCALE, NOT_FINITE = range(OTHERS, OTHERS + 7)


@kernel
def attend_one_query(inputs, out, temperature, start, stop, streamed):
    """Heads start..stop. Where values are not finite, the flag is set, and a row is not written."""
    queries, keys, values, scale, flag = inputs
    length, features = keys.shape[1], values.shape[2]
    group = queries.shape[0] // keys.shape[0]
    scores = stack_array(TILE_KEYS, np.float32).reshape(1, TILE_KEYS)
    beta = DoubleDouble(stack_array(1, np.float64), stack_array(1, np.float64))
    m, numbers = stack_array(3, np.float64).reshape(3, 1), stack_array(3, np.float64).reshape(1, 3)
    sink, visible = stack_array(1, np.float64), stack_array(1, np.int64)
    factors, depths = stack_array(1, np.float32), stack_array(1, np.int64)
    no_bias = stack_array(1, np.float32)[:0].reshape(0, 0)
    q, acc = np.empty((1, queries.shape[1]), np.float32), np.empty((1, features), np.float32)
    sink[0], visible[0] = -np.inf, length
    for head in range(start, stop):
        own_keys, own_values = keys[head // group], values[head // group]
        set_query_betas(scale, temperature, beta.hi, beta.lo)
        pad_queries(queries[head : head + 1], q, beta.hi, beta.lo)
        tile = QueryTile(q, beta, no_bias, False, visible)
        acc[:], m[0, 0], m[1, 0], m[2, 0] = 0.0, -np.inf, 0.0, 0.0
        is_finite = True
        for first in range(0, length, TILE_KEYS):
            last = min(first + TILE_KEYS, length)
            score_directly(q, 1, own_keys, first, last, scores)
            update_softmax(1, first, last, tile, scores, None, m, depths, factors)
            clear_vanished_rows(factors, acc, None)
            if not add_values_directly(scores, 1, depths, own_values, first, acc, factors):
                is_finite = False
                break
        if is_finite:
            row = out[head : head + 1]
            finish(acc, None, m, False, beta, sink, row, numbers)
        else:
            flag[0] = 1


@Entry
def one_query_job(job):
    fields = fields_of(job)
    queries = array_at(fields[X], (fields[ROWS], fields[CLASSES]), np.float32)
    out = array_at(fields[OUT], (fields[ROWS], fields[FEATURES]), np.float32)
    heads, length = fields[ROWS] // fields[GROUP], fields[LENGTH]
    keys = array_at(fields[KEYS], (heads, length, fields[CLASSES]), np.float32)
    values = array_at(fields[VALUES], (heads, length, fields[FEATURES]), np.float32)
    flag = array_at(fields[NOT_FINITE], (1,), np.int64)
    inputs = queries, keys, values, float64_of(fields[SCALE]), flag
    row_work = length * (fields[CLASSES] + fields[FEATURES])
    compute_ranges(attend_one_query, fields, inputs, out, row_work)
