"""Classes that lie apart in memory, turned into rows and back."""

from __future__ import annotations

from hotmax._kernels.compiling import inline, kernel
from hotmax._kernels.vectors import WIDTH, load, store, turned_vectors


@inline
def turn_tile(source, i, j, target):
    """target[j : j + WIDTH, i : i + WIDTH] = source[i : i + WIDTH, j : j + WIDTH].T

    Left to itself the compiler moves one entry at a time, which takes three times as long.
    """
    lines = turned_vectors(
        load(source[i], j),
        load(source[i + 1], j),
        load(source[i + 2], j),
        load(source[i + 3], j),
        load(source[i + 4], j),
        load(source[i + 5], j),
        load(source[i + 6], j),
        load(source[i + 7], j),
    )
    store(target[j], i, lines[0])
    store(target[j + 1], i, lines[1])
    store(target[j + 2], i, lines[2])
    store(target[j + 3], i, lines[3])
    store(target[j + 4], i, lines[4])
    store(target[j + 5], i, lines[5])
    store(target[j + 6], i, lines[6])
    store(target[j + 7], i, lines[7])


@kernel
def turned(source, target):
    """target[j, i] = source[i, j]; both hold the entries of their last dimension side by side.

    In tiles, and along the longer dimension first: the shorter is some cache lines wide, which are
    used up before they are lost.
    """
    rows, columns = source.shape
    whole_rows, whole_columns = rows - rows % WIDTH, columns - columns % WIDTH
    if rows >= columns:
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
