"""softmax of float32 rows of not many classes, a few rows at a time.

    top      the maximum of each row
    exp      the exponentials of each row, and their sum
    scale    what each row is to be multiplied by
    write    the products

Each step needs the last number of the step before. One row would wait for it; here each step is
done for all rows of a group before the next: 100 classes take 0.9 ns an entry, one by one 1.2. The
arithmetic, and so the bits, are those of `overlapped`, up to a PART.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.simd.memory import LINE_BYTES, address_of, borrowed, fence, of_row
from hotmax._kernels.simd.vectors import LINE
from hotmax._kernels.simd.writing import write
from hotmax._kernels.softmax.float32 import (
    FACTORS,
    exp_narrow,
    factors_of,
    is_narrow,
    keep_factors,
    kept_factors,
    line32,
    scaled,
    ties_of,
    top_two,
)
from hotmax._kernels.softmax.rows import sign_of, softmax_row

GROUP = 8  # rows


@kernel
def softmax_grouped(x, out, temperature, start, stop, exps, streamed):
    """`exps` is room for GROUP rows of whole lines, and for a line more."""
    n = x.shape[1]
    x, out, exps = borrowed(x), borrowed(out), borrowed(exps)
    exps = exps[-address_of(exps) % LINE_BYTES // exps.itemsize :]  # no vector lies across lines
    step = -(-n // LINE) * LINE
    tops, seconds, sums = np.empty(GROUP), np.empty(GROUP), np.empty(GROUP)
    factors = np.empty((FACTORS, GROUP), np.float32)
    for first in range(start, stop, GROUP):
        count = min(GROUP, stop - first)
        for g in range(count):
            r, t = first + g, of_row(temperature, first + g)
            m, second = top_two(x[r], sign_of(x, t))
            if not is_narrow(m, t):  # done with now, while exps holds nothing
                softmax_row(x[r], out[r], t, exps, x[r], streamed)
                m = np.nan
            tops[g], seconds[g] = m, second
        for g in range(count):
            r, m = first + g, tops[g]
            if m == m:
                line, upcoming = line32(m, of_row(temperature, r)), x[min(r + GROUP, stop - 1)]
                sums[g] = exp_narrow(x[r], exps[g * step :], 0, n, 0, line, upcoming)
        for g in range(count):
            r, m = first + g, tops[g]
            if m == m:
                t = of_row(temperature, r)
                ties = ties_of(x[r], m, seconds[g], t)
                keep_factors(factors, g, factors_of(sums[g], m, ties, t))
        for g in range(count):
            if tops[g] == tops[g]:
                row = exps[g * step : g * step + n]
                write(scaled, row, out[first + g], kept_factors(factors, g), streamed)
    fence()
