"""Rows on their way through a buffer: classes that lie apart in memory, and masks."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed, fence, of_row
from hotmax._kernels.simd.vectors import WIDTH, load, store, stream, turned_vectors


@inline
def turned_tile(source, i, j):
    """source[i : i + WIDTH, j : j + WIDTH].T as WIDTH vectors.

    Left to itself the compiler moves one entry at a time, which takes three times as long.
    """
    return turned_vectors(
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
def turn_tile(source, i, j, target):
    lines = turned_tile(source, i, j)
    for k in range(WIDTH):
        store(target[j + k], i, lines[k])


@inline
def stream_tiles(source, i, j, target):
    """Two tiles at once, past the caches, so that float32 lines of memory are written whole."""
    left, right = turned_tile(source, i, j), turned_tile(source, i + WIDTH, j)
    for k in range(WIDTH):
        stream(target[j + k], i, left[k])
        stream(target[j + k], i + WIDTH, right[k])


@kernel
def turned(source, target, streamed):
    """target[j, i] = source[i, j]; both hold the entries of their last dimension side by side.

    In tiles, and along the longer dimension first: the shorter is some cache lines wide, which are
    used up before they are lost. A target that is streamed lies at cache lines, row by row.
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
                turn_tile(source, i, j, target)
    else:
        for j in range(0, whole_columns, WIDTH):
            for i in range(0, whole_rows, WIDTH):
                turn_tile(source, i, j, target)
    for i in range(whole_rows, rows):
        for j in range(columns):
            target[j, i] = source[i, j]
    for i in range(whole_rows):
        for j in range(whole_columns, columns):
            target[j, i] = source[i, j]


@kernel
def hide(rows, mask, absent, present):
    """A masked entry becomes one that is not there; present[r]: is there one left in row r?"""
    rows, mask = borrowed(rows), borrowed(mask)
    for r in range(rows.shape[0]):
        nothing = of_row(absent, r)
        line, allowed = rows[r], mask[r]
        count = 0
        for i in range(line.size):
            line[i] = line[i] if allowed[i] else nothing
            count += 1 if allowed[i] else 0
        present[r] = count > 0
