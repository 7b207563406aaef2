"""Classes that lie apart in memory, turned into rows and back."""

from __future__ import annotations

from hotmax._kernels.arithmetic import TILE, kernel, turn_tile


@kernel
def turned(source, target):
    """target[j, i] = source[i, j]; both hold the entries of their last dimension side by side.

    In tiles, and along the longer dimension first: the shorter is some cache lines wide, which are
    used up before they are lost.
    """
    rows, columns = source.shape
    whole_rows, whole_columns = rows - rows % TILE, columns - columns % TILE
    if rows >= columns:
        for i in range(0, whole_rows, TILE):
            for j in range(0, whole_columns, TILE):
                turn_tile(source, i, j, target)
    else:
        for j in range(0, whole_columns, TILE):
            for i in range(0, whole_rows, TILE):
                turn_tile(source, i, j, target)
    for i in range(whole_rows, rows):
        for j in range(columns):
            target[j, i] = source[i, j]
    for i in range(whole_rows):
        for j in range(whole_columns, columns):
            target[j, i] = source[i, j]
