"""softmax of float32 rows of medium length, ROW_GROUP rows at a time.

    maximum   the two largest entries of each row
    exp       the exponentials of each row, and their sum
    scale     the factors of each row
    write     the products

Each step depends on the last result of the previous one. To hide that latency, each step is done
for all rows of a group before the next: rows of 100 classes take 0.9 ns an entry, and 1.2 one by
one. The arithmetic, and so the bits, are those of `overlapped` for rows of one part.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.simd.memory import LINE_BYTES, address_of, borrowed, fence, of_row
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.simd.writing import write_mapped
from hotmax._kernels.softmax.float32 import (
    FACTORS,
    exp2_constants,
    exp_chunk,
    factors_of,
    fits_float32,
    load_factors,
    probability_of_exp,
    store_factors,
    ties_of,
    two_largest,
)
from hotmax._kernels.softmax.rows import sign_of, softmax_row

ROW_GROUP = 8  # rows computed together


@kernel
def softmax_grouped(x, out, temperature, start, stop, exps, streamed):
    """`exps`: scratch for ROW_GROUP rows of whole lines, and for one line more."""
    n = x.shape[1]
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    exps = exps[-address_of(exps) % LINE_BYTES // exps.itemsize :]  # aligned to a cache line
    step = -(-n // LINE) * LINE
    tops, seconds, sums = np.empty(ROW_GROUP), np.empty(ROW_GROUP), np.empty(ROW_GROUP)
    factors = np.empty((FACTORS, ROW_GROUP), np.float32)
    for first in range(start, stop, ROW_GROUP):
        count = min(ROW_GROUP, stop - first)
        for g in range(count):
            r, t = first + g, of_row(temperature, first + g)
            m, second = two_largest(x[r], sign_of(x, t))
            if not fits_float32(m, t):  # computed now, while exps is unused
                softmax_row(x[r], out[r], t, exps, x[r], streamed)
                m = np.nan
            tops[g], seconds[g] = m, second
        for g in range(count):
            r, m = first + g, tops[g]
            if m == m:
                line, upcoming = (
                    exp2_constants(m, of_row(temperature, r)),
                    x[min(r + ROW_GROUP, stop - 1)],
                )
                sums[g] = exp_chunk(x[r], exps[g * step :], 0, n, 0, line, upcoming)
        for g in range(count):
            r, m = first + g, tops[g]
            if m == m:
                t = of_row(temperature, r)
                ties = ties_of(x[r], m, seconds[g], t)
                store_factors(factors, g, factors_of(sums[g], m, ties, t))
        for g in range(count):
            if tops[g] == tops[g]:
                row = exps[g * step : g * step + n]
                write_mapped(
                    probability_of_exp, row, out[first + g], load_factors(factors, g), streamed
                )
    fence()
