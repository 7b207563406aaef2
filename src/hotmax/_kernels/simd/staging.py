"""Copies of rows in a buffer: transposition of strided classes, and masks."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import LINE_BYTES, address_of, borrowed, fence, of_row, prefetch
from hotmax._kernels.simd.vectors import (
    LINE,
    WIDTH,
    load,
    load_partial,
    store,
    store_partial,
    stream,
    transposed_square,
    transposed_vectors,
)

AHEAD = 2 * WIDTH  # classes


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


@inline
def square_of_columns(source, at, stride, count):
    """Columns of up to WIDTH classes, `stride` apart, as rows; the last class stands for others."""
    last = count - 1
    return transposed_vectors(
        load(source, at),
        load(source, at + min(1, last) * stride),
        load(source, at + min(2, last) * stride),
        load(source, at + min(3, last) * stride),
        load(source, at + min(4, last) * stride),
        load(source, at + min(5, last) * stride),
        load(source, at + min(6, last) * stride),
        load(source, at + min(7, last) * stride),
    )


@kernel
def gather_columns(source, start, stride, width, classes, buffer):
    """buffer[r * classes + c] = source[start + c * stride + r] for `width` adjoining columns."""
    whole = width - width % WIDTH
    for c in range(0, classes, WIDTH):
        count = classes - c
        for r in range(0, whole, WIDTH):
            at = start + c * stride + r
            if count >= WIDTH:
                rows = transposed_square(source, at, stride)
                for k in range(WIDTH):
                    store(buffer, (r + k) * classes + c, rows[k])
            else:
                rows = square_of_columns(source, at, stride, count)
                for k in range(WIDTH):
                    store_partial(buffer, (r + k) * classes + c, count, rows[k])
    for c in range(classes):
        for r in range(whole, width):
            buffer[r * classes + c] = source[start + c * stride + r]


@inline
def square_of_rows(buffer, at, classes, count):
    """The first `count` classes of WIDTH rows as columns; nothing is read past a row's end."""
    none = buffer.dtype.type(0.0)
    return transposed_vectors(
        load_partial(buffer, at, count, none),
        load_partial(buffer, at + classes, count, none),
        load_partial(buffer, at + 2 * classes, count, none),
        load_partial(buffer, at + 3 * classes, count, none),
        load_partial(buffer, at + 4 * classes, count, none),
        load_partial(buffer, at + 5 * classes, count, none),
        load_partial(buffer, at + 6 * classes, count, none),
        load_partial(buffer, at + 7 * classes, count, none),
    )


@kernel
def scatter_columns(buffer, width, classes, target, start, stride, streamed):
    """target[start + c * stride + r] = buffer[r * classes + c] for `width` adjoining columns.

    If streamed and aligned, two squares at a time past the caches: a whole cache line of float32.
    """
    whole, paired = width - width % WIDTH, 0
    if streamed and is_lined_up(target, start, stride):
        paired = width - width % LINE
    for c in range(0, classes, WIDTH):
        count = classes - c
        for r in range(0, paired, LINE):
            left = square_of_rows(buffer, r * classes + c, classes, count)
            right = square_of_rows(buffer, (r + WIDTH) * classes + c, classes, count)
            at = start + c * stride + r
            for k in range(WIDTH):
                if k < count:
                    stream(target, at + k * stride, left[k])
                    stream(target, at + k * stride + WIDTH, right[k])
        for r in range(paired, whole, WIDTH):
            if r % LINE == 0:  # no processor prefetches stores that are a stride apart
                for k in range(AHEAD, AHEAD + WIDTH):
                    if c + k < classes:
                        prefetch(target, start + (c + k) * stride + r)
            if count >= WIDTH:
                columns = transposed_square(buffer, r * classes + c, classes)
            else:
                columns = square_of_rows(buffer, r * classes + c, classes, count)
            for k in range(WIDTH):
                if k < count:
                    store(target, start + (c + k) * stride + r, columns[k])
    for c in range(classes):
        for r in range(whole, width):
            target[start + c * stride + r] = buffer[r * classes + c]
    if paired:
        fence()


@inline
def is_lined_up(target, start, stride):
    """Does the column at `start` begin at a cache line, and so that of every class?"""
    itemsize = target.itemsize
    begins = (address_of(target) + start * itemsize) % LINE_BYTES == 0
    return begins and stride * itemsize % LINE_BYTES == 0


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
