"""Softmax over ragged groups: float64 rows, in the order of their groups."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import sign_of
from hotmax._kernels.softmax.rows import logsumexp_of, row_sums, softmax_block


@kernel
def count_segments(ids, starts):
    """starts[s] : starts[s + 1] is the range of group s in the sorted entries."""
    starts[:] = 0
    for i in range(ids.size):
        starts[ids[i] + 1] += 1
    for s in range(starts.size - 1):
        starts[s + 1] += starts[s]


@kernel
def order_segments(ids, starts, order):
    """order[j] is the index of the j-th entry, sorted by group; the sort is stable."""
    target = starts.copy()
    for i in range(ids.size):
        order[target[ids[i]]] = i
        target[ids[i]] += 1


@kernel
def segment_softmax_rows(x, order, starts, out, temperature):
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        row = np.empty(x.shape[1])
        for j in range(order.size):
            row[j] = x[r, order[j]]
        result = np.empty(x.shape[1])
        for s in range(starts.size - 1):
            group = row[starts[s] : starts[s + 1]]
            if group.size:
                m = row_maximum(group, sign_of(group, t))
                sums = row_sums(group, None, m, t, group)
                softmax_block(group, result[starts[s] : starts[s + 1]], None, m, t, sums, False)
        for j in range(order.size):
            out[r, order[j]] = result[j]


@kernel
def segment_logsumexp_rows(x, order, starts, out, temperature):
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        row = np.empty(x.shape[1])
        for j in range(order.size):
            row[j] = x[r, order[j]]
        for s in range(starts.size - 1):
            group = row[starts[s] : starts[s + 1]]
            if group.size:
                m = row_maximum(group, sign_of(group, t))
                out[r, s] = logsumexp_of(m, t, row_sums(group, None, m, t, group))
            else:
                out[r, s] = -np.inf
