"""Copies of rows in a buffer: transposition of strided classes, and masks."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed, fence, of_row
from hotmax._kernels.simd.vectors import WIDTH, load, store, stream, transposed_vectors


@inline
def transposed_tile(source, i, j):
    """source[i : i + WIDTH, j : j + WIDTH].T as WIDTH vectors.

    Without vectors the compiler moves one entry at a time, which takes three times as long.
    """
    return transposed_vectors(
        load(source[i], j),
        load(source[i + 1], j),
        load(source[i + 2], j),
        load(source[i + 3], j),
        load(source[i + 4], j),
        load(source[i + 5], j),
        load(source[i + 6], j),
        load(source[i + 7], j),
    )


@inline
def transpose_tile(source, i, j, target):
    lines = transposed_tile(source, i, j)
    for k in range(WIDTH):
        store(target[j + k], i, lines[k])


@inline
def stream_tiles(source, i, j, target):
    """Two tiles with non-temporal stores, so that whole cache lines of float32 are written."""
    left, right = transposed_tile(source, i, j), transposed_tile(source, i + WIDTH, j)
    for k in range(WIDTH):
        stream(target[j + k], i, left[k])
        stream(target[j + k], i + WIDTH, right[k])


@kernel
def transpose(source, target, streamed):
    """target[j, i] = source[i, j]; both are contiguous along their last dimension.

    It works in tiles, along the longer dimension first: the cache lines across the shorter one are
    used up before they are evicted. If streamed, each row of the target is aligned to a cache line.
    """
    source, target = borrowed(source), borrowed(target)
    rows, columns = source.shape
    whole_rows, whole_columns = rows - rows % WIDTH, columns - columns % WIDTH
    if streamed:
        whole_rows = rows - rows % (2 * WIDTH)
        for j in range(0, whole_columns, WIDTH):
            for i in range(0, whole_rows, 2 * WIDTH):
                stream_tiles(source, i, j, target)
        fence()
    elif rows >= columns:
        for i in range(0, whole_rows, WIDTH):
            for j in range(0, whole_columns, WIDTH):
                transpose_tile(source, i, j, target)
    else:
        for j in range(0, whole_columns, WIDTH):
            for i in range(0, whole_rows, WIDTH):
                transpose_tile(source, i, j, target)
    for i in range(whole_rows, rows):
        for j in range(columns):
            target[j, i] = source[i, j]
    for i in range(whole_rows):
        for j in range(whole_columns, columns):
            target[j, i] = source[i, j]


@kernel
def mask_rows(rows, mask, absent, present):
    """Set masked entries to `absent`; present[r] tells whether any entry of row r is left."""
    rows, mask = borrowed(rows), borrowed(mask)
    for r in range(rows.shape[0]):
        fill = of_row(absent, r)
        row, allowed = rows[r], mask[r]
        count = 0
        for i in range(row.size):
            row[i] = row[i] if allowed[i] else fill
            count += 1 if allowed[i] else 0
        present[r] = count > 0
