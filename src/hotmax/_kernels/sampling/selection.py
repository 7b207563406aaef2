"""Where a cut falls in an unsorted row: from the largest key down, until enough weight is reached.

The keys are put into BUCKETS by value, and the weight of each bucket is summed. Only the bucket in
which the target is reached is looked at again, until few keys are left to sort, or all are equal.
Buckets are cut by a rounded difference, which never turns two keys round, so the cut is exact. Ties
fall into one bucket however fine it is: they are walked through in their order.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.vectors import maximum

BUCKETS = 1024
FEW = 48  # keys that are sorted
GROUP = 128  # keys whose maximum stands for them when few are wanted of many


@inline
def weight_at(weights, i):
    return 1.0 if weights is None else weights[i]


@inline
def reached(weight, target, strict):
    return weight > target if strict else weight >= target


@kernel
def extremes(keys):
    low, high = keys[0], keys[0]
    for i in range(keys.size):
        low = -maximum(-low, -keys[i])
        high = maximum(high, keys[i])
    return low, high


@inline
def bucket_of(key, high, size, scale):
    """0 for the largest key to BUCKETS - 1 for the smallest."""
    return min(np.int64((high * size - key * size) * scale), BUCKETS - 1)


@kernel
def fill_buckets(keys, weights, high, size, scale, sums):
    for b in range(BUCKETS):
        sums[b] = 0.0
    for i in range(keys.size):
        sums[bucket_of(keys[i], high, size, scale)] += weight_at(weights, i)


@kernel
def bucket_reached(sums, above, target, strict):
    """(bucket, weight above it): the last one that is not empty, should rounding reach none."""
    running, last, before = above, 0, above
    for b in range(BUCKETS):
        if sums[b] == 0.0:
            continue
        last, before = b, running
        running += sums[b]
        if reached(running, target, strict):
            break
    return last, before


@kernel
def take_bucket(keys, weights, bucket, high, size, scale, some_keys, some_weights):
    """The keys of one bucket, in their order."""
    count = 0
    for i in range(keys.size):
        if bucket_of(keys[i], high, size, scale) == bucket:
            some_keys[count] = keys[i]
            if weights is not None:
                some_weights[count] = weights[i]
            count += 1
    return count


@kernel
def take_top(keys, wanted, some_keys, some_weights):
    """Keys that hold the `wanted` largest: those of groups with a large maximum.

    At least `wanted` groups reach the bound, so the largest keys do too.
    """
    groups = keys.size // GROUP
    maxima = np.empty(groups)
    for g in range(groups):
        high = keys[g * GROUP]
        for i in range(g * GROUP, (g + 1) * GROUP):
            high = maximum(high, keys[i])
        maxima[g] = high
    bound = narrow_down(maxima, None, wanted, False, some_keys, some_weights)[0]
    count = 0
    for g in range(groups + 1):
        if g == groups or maxima[g] >= bound:
            for i in range(g * GROUP, min((g + 1) * GROUP, keys.size)):
                if keys[i] >= bound:
                    some_keys[count] = keys[i]
                    count += 1
    return count


@kernel
def walk(keys, weights, above, target, strict):
    """(cut, needed) of a few keys, sorted by insertion; equal ones stay in their order."""
    order = np.arange(keys.size)
    for j in range(1, keys.size):
        i = j
        while i > 0 and keys[order[i - 1]] < keys[j]:
            order[i] = order[i - 1]
            i -= 1
        order[i] = j
    running, needed = above, 0
    for j in range(order.size):
        needed = needed + 1 if j > 0 and keys[order[j]] == keys[order[j - 1]] else 1
        running += weight_at(weights, order[j])
        if reached(running, target, strict):
            return keys[order[j]], needed
    return keys[order[-1]], needed


@kernel
def walk_ties(weights, count, above, target, strict):
    """How many of `count` equal keys are needed, the first ones first."""
    running = above
    for i in range(count):
        running += weight_at(weights, i)
        if reached(running, target, strict):
            return i + 1
    return count


@kernel
def narrow_down(keys, weights, target, strict, some_keys, some_weights):
    """find_cut by buckets alone.

    Without keys, or with one that is not finite, there is no cut: nan has no bucket, and the loop
    would not end.
    """
    count, above = keys.size, 0.0
    if count == 0:
        return np.nan, 0
    sums = np.empty(BUCKETS)
    while True:
        low, high = extremes(keys)
        if not (low > -np.inf and high < np.inf):
            return np.nan, 0
        if low == high:
            return high, walk_ties(weights, count, above, target, strict)
        if count <= FEW:
            return walk(keys, weights, above, target, strict)
        # The difference of large keys overflows, and that of the smallest cannot be inverted.
        size = 2.0**500 if high - low < 2.0**-500 else 0.5
        scale = BUCKETS / (high * size - low * size)
        fill_buckets(keys, weights, high, size, scale, sums)
        bucket, above = bucket_reached(sums, above, target, strict)
        count = take_bucket(keys, weights, bucket, high, size, scale, some_keys, some_weights)
        keys = some_keys[:count]
        if weights is not None:
            weights = some_weights[:count]


@kernel
def find_cut(keys, weights, target, strict, some_keys, some_weights):
    """(cut, needed): the largest keys down to `cut`, and `needed` of those equal to it.

    They are the fewest whose weights sum to `target`, or past it if `strict`. `weights` are None
    where every key counts 1, and then the target is how many. some_* are room for as many. Keys
    must be finite and at least one; else the cut is nan, which no key reaches.
    """
    if weights is None and keys.size > 16 * GROUP and target * 8 * GROUP < keys.size:
        count = take_top(keys, target, some_keys, some_weights)
        keys = some_keys[:count]
    return narrow_down(keys, weights, target, strict, some_keys, some_weights)
