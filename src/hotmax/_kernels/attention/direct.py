"""Attention of one or two float32 queries with keys and values as matrices, without packing.

Each sum adds one product after the other, as the tiles of gemm.py do, so the bits are the same;
but there are no further rows of sums that could share what was loaded.
"""

from __future__ import annotations

from hotmax._kernels.attention.values import DEPTH
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed, prefetch
from hotmax._kernels.simd.vectors import WIDTH, fma, load, splat, store, transposed_square

DIRECT_QUERIES = 2  # with three queries packing takes no longer
PREFETCH_KEYS = 64  # how far ahead: the hardware does not prefetch rows that are read in blocks
CACHE_LINE = 2 * WIDTH  # float32 numbers in a cache line


@inline
def add_products(q, start, keys, at, depth, total):
    """total + q . key, for WIDTH features from q[start] and WIDTH keys from keys[at] on."""
    a, b, c, d, e, f, g, h = transposed_square(keys, at, depth)
    total = fma(a, q[start], total)
    total = fma(b, q[start + 1], total)
    total = fma(c, q[start + 2], total)
    total = fma(d, q[start + 3], total)
    total = fma(e, q[start + 4], total)
    total = fma(f, q[start + 5], total)
    total = fma(g, q[start + 6], total)
    return fma(h, q[start + 7], total)


@kernel
def score_directly(q, count, keys, first, last, scores):
    """scores[r, key - first] = q[r] . key; the features are whole vectors."""
    depth, width = q.shape[1], scores.shape[1]
    q, keys, line = (
        borrowed(q).reshape(-1),
        borrowed(keys).reshape(-1),
        borrowed(scores).reshape(-1),
    )
    zero = line.dtype.type(0.0)
    whole = first + (last - first) // (2 * WIDTH) * (2 * WIDTH)
    for r in range(count):
        for key in range(first, whole, 2 * WIDTH):
            even, odd = (
                splat(zero),
                splat(zero),
            )  # two sums, since each addition waits for the one before
            upcoming = (key + PREFETCH_KEYS) * depth
            for k in range(0, depth, WIDTH):
                at = key * depth + k
                for _ in range(WIDTH):
                    prefetch(keys, upcoming)
                    upcoming += CACHE_LINE
                even = add_products(q, r * depth + k, keys, at, depth, even)
                odd = add_products(q, r * depth + k, keys, at + WIDTH * depth, depth, odd)
            store(line, r * width + key - first, even)
            store(line, r * width + key - first + WIDTH, odd)
        for key in range(whole, last):
            total = zero
            for k in range(depth):
                total = fma(q[r * depth + k], keys[key * depth + k], total)
            line[r * width + key - first] = total


@kernel
def add_values_directly(weights, count, depths, values, first, acc, factors):
    """acc = factor * acc + weights . values, for the keys from `first` on.

    Returns False, with acc unchanged, if the result is not finite: 0 * inf may have occurred.
    """
    features = values.shape[1]
    before = acc[:count].copy()
    check = acc.dtype.type(0.0)
    weights, line = borrowed(weights), borrowed(values).reshape(-1)
    sums = borrowed(acc).reshape(-1)
    zero = acc.dtype.type(0.0)
    for r in range(count):
        for begin in range(0, depths[r], DEPTH):
            factor = factors[r] if begin == 0 else acc.dtype.type(1.0)
            end = min(begin + DEPTH, depths[r])
            upcoming = (first + begin + PREFETCH_KEYS) * features
            for j in range(0, features, 2 * WIDTH):
                even, odd = splat(zero), splat(zero)
                for k in range(begin, end):
                    at = (first + k) * features + j
                    prefetch(line, upcoming)
                    upcoming += CACHE_LINE
                    even = fma(load(line, at), weights[r, k], even)
                    odd = fma(load(line, at + WIDTH), weights[r, k], odd)
                to = r * features + j
                store(sums, to, fma(load(sums, to), factor, even))
                store(sums, to + WIDTH, fma(load(sums, to + WIDTH), factor, odd))
        for j in range(features):
            check += acc[r, j] * zero
    if check == 0.0:
        return True
    for r in range(count):
        for j in range(features):
            acc[r, j] = before[r, j]
    return False
