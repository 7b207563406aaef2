"""Short rows, WIDTH of them at a time, transposed: a vector holds one class of each row."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.numeric.arithmetic import LOG2E
from hotmax._kernels.simd.vectors import (
    WIDTH,
    store,
    store_partial,
    transposed_square,
)

SHORT = 64  # classes


@inline
def beta_of(temperature):
    """log2(e) / T. At 1e300 the exponential of any nonzero difference of float32 numbers is 0."""
    beta = min(LOG2E / abs(np.float64(temperature)), 1e300)
    return math.copysign(beta, temperature)


@inline
def is_finite_nonzero(temperature):
    """Whether a temperature is not at one of its limits."""
    return 0.0 < abs(temperature) < np.inf


@inline
def transpose_in(source, at, n, tile):
    """tile[c, r] = source[at + r * n + c], WIDTH classes at a time; reads past the last class."""
    for c in range(0, n, WIDTH):
        columns = transposed_square(source, at + c, n)
        for k in range(WIDTH):
            store(tile, (c + k) * WIDTH, columns[k])


@inline
def transpose_out(tile, n, target, at):
    """target[at + r * n + c] = tile[c, r].

    A row is also written past its end, over the beginning of the next row, which is written later:
    the last classes come first. Only the last row is cut at its end.
    """
    for c in range((n - 1) // WIDTH * WIDTH, -1, -WIDTH):
        rows = transposed_square(tile, c * WIDTH, WIDTH)
        for r in range(WIDTH - 1):
            store(target, at + r * n + c, rows[r])
        last = at + (WIDTH - 1) * n + c
        if n - c < WIDTH:
            store_partial(target, last, n - c, rows[WIDTH - 1])
        else:
            store(target, last, rows[WIDTH - 1])


@inline
def load_group(source, first, width, n, copied, tile):
    """Up to WIDTH rows from `first` on. `copied`: scratch for them and for a vector more."""
    if width == WIDTH and (first + WIDTH) * n + WIDTH <= source.size:
        transpose_in(source, first * n, n, tile)
    else:  # at the end of x: through a copy, past whose end it is safe to read
        for i in range(width * n):
            copied[i] = source[first * n + i]
        for i in range(width * n, WIDTH * n):  # absent rows: arithmetic on whatever lies in
            copied[i] = 0.0  # scratch memory is 20 times as slow where it is subnormal
        transpose_in(copied, 0, n, tile)


@inline
def store_group(tile, n, copied, target, first, width):
    if width == WIDTH and n >= WIDTH - 1:
        transpose_out(tile, n, target, first * n)
    else:  # writing past a row's end would go beyond the next row, or beyond out
        transpose_out(tile, n, copied, 0)
        for i in range(width * n):
            target[first * n + i] = copied[i]


@inline
def group_buffers(n):
    """Scratch for a tile of WIDTH rows of n classes, and for a copy of the rows."""
    padded = -(-n // WIDTH) * WIDTH
    return np.empty(padded * WIDTH, np.float32), np.zeros((padded + n) * WIDTH, np.float32)
