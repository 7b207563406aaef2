"""One or two float32 queries past keys and values as they lie, with nothing packed.

Every sum adds one product after the other, as the tiles of products.py do, so the bits are the
same; but there is no second row of sums to share what was loaded.
"""

from __future__ import annotations

from hotmax._kernels.attention.online_softmax import DEPTH
from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed, prefetch
from hotmax._kernels.simd.vectors import WIDTH, fma, load, spread, store, turned_square

DIRECT = 2  # queries: for three, packing takes no longer
AHEAD = 64  # keys: rows read in blocks are no stream that a processor sees coming
LINE = 2 * WIDTH  # float32 numbers of a cache line


@inline
def add_products(q, own, keys, at, depth, total):
    """total + q . key, of WIDTH features from q[own] on and WIDTH keys from keys[at] on."""
    a, b, c, d, e, f, g, h = turned_square(keys, at, depth)
    total = fma(a, q[own], total)
    total = fma(b, q[own + 1], total)
    total = fma(c, q[own + 2], total)
    total = fma(d, q[own + 3], total)
    total = fma(e, q[own + 4], total)
    total = fma(f, q[own + 5], total)
    total = fma(g, q[own + 6], total)
    return fma(h, q[own + 7], total)


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
            even, odd = spread(zero), spread(zero)  # two sums: each waits for its last addition
            upcoming = (key + AHEAD) * depth
            for k in range(0, depth, WIDTH):
                at = key * depth + k
                for _ in range(WIDTH):
                    prefetch(keys, upcoming)
                    upcoming += LINE
                even = add_products(q, r * depth + k, keys, at, depth, even)
                odd = add_products(q, r * depth + k, keys, at + WIDTH * depth, depth, odd)
            store(line, r * width + key - first, even)
            store(line, r * width + key - first + WIDTH, odd)
        for key in range(whole, last):
            one = zero
            for k in range(depth):
                one = fma(q[r * depth + k], keys[key * depth + k], one)
            line[r * width + key - first] = one


@kernel
def add_values_directly(scores, count, depths, values, first, acc, factors):
    """acc = factor * acc + scores . values, for the keys from `first` on.

    Gives False, with acc as it was, if that is not finite: a weight of 0 may have met an inf.
    """
    features = values.shape[1]
    before = acc[:count].copy()
    rest = acc.dtype.type(0.0)
    scores, line = borrowed(scores), borrowed(values).reshape(-1)
    sums = borrowed(acc).reshape(-1)
    zero = acc.dtype.type(0.0)
    for r in range(count):
        for begin in range(0, depths[r], DEPTH):
            factor = factors[r] if begin == 0 else acc.dtype.type(1.0)
            end = min(begin + DEPTH, depths[r])
            upcoming = (first + begin + AHEAD) * features
            for j in range(0, features, 2 * WIDTH):
                even, odd = spread(zero), spread(zero)
                for k in range(begin, end):
                    at = (first + k) * features + j
                    prefetch(line, upcoming)
                    upcoming += LINE
                    even = fma(load(line, at), scores[r, k], even)
                    odd = fma(load(line, at + WIDTH), scores[r, k], odd)
                to = r * features + j
                store(sums, to, fma(load(sums, to), factor, even))
                store(sums, to + WIDTH, fma(load(sums, to + WIDTH), factor, odd))
        for j in range(features):
            rest += acc[r, j] * zero
    if rest == 0.0:
        return True
    for r in range(count):
        for j in range(features):
            acc[r, j] = before[r, j]
    return False
