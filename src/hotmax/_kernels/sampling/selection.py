"""The cut of an unsorted row: the largest keys, down to where their weights reach a target.

Keys are put into BUCKETS by value, and the weight of each bucket is summed. Only the bucket in
which the target is reached is searched further, until few keys are left to sort, or all are equal.
A key's bucket comes from a rounded difference, which is monotonic, so the cut is exact. Ties always
fall into one bucket: they are counted in order of their index.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.vectors import maximum

BUCKETS = 1024
INSERTION_SORT = 48  # up to so many keys are sorted
MANY_KEYS = 4096  # from so many on, those that cannot be needed are left out of the buckets
MAXIMA_GROUP = 128  # keys that share one maximum, where few are wanted of many


@inline
def weight_at(weights, i):
    return 1.0 if weights is None else weights[i]


@inline
def reached(weight, target, strict):
    return weight > target if strict else weight >= target


@kernel
def min_and_max(keys):
    lowest, highest = keys[0], keys[0]
    for i in range(keys.size):
        lowest = -maximum(-lowest, -keys[i])
        highest = maximum(highest, keys[i])
    return lowest, highest


@inline
def depth_of(key, highest, size, scale):
    """0 for the largest key to BUCKETS for the smallest, not rounded."""
    return (highest * size - key * size) * scale


@inline
def bucket_of(key, highest, size, scale):
    """0 for the largest key to BUCKETS - 1 for the smallest."""
    return min(np.int64(depth_of(key, highest, size, scale)), BUCKETS - 1)


@kernel
def fill_buckets(keys, weights, highest, size, scale, sums):
    for b in range(BUCKETS):
        sums[b] = 0.0
    for i in range(keys.size):
        sums[bucket_of(keys[i], highest, size, scale)] += weight_at(weights, i)


@kernel
def bucket_reached(sums, above, target, strict):
    """(bucket, weight above it); the last bucket that is not empty if rounding reaches none."""
    cumulated, last, before = above, 0, above
    for b in range(BUCKETS):
        if sums[b] == 0.0:
            continue
        last, before = b, cumulated
        cumulated += sums[b]
        if reached(cumulated, target, strict):
            break
    return last, before


@kernel
def take_bucket(keys, weights, bucket, highest, size, scale, scratch_keys, scratch_weights):
    """Copy the keys of one bucket, in order. Returns their number."""
    count = 0
    for i in range(keys.size):
        if bucket_of(keys[i], highest, size, scale) == bucket:
            scratch_keys[count] = keys[i]
            if weights is not None:
                scratch_weights[count] = weights[i]
            count += 1
    return count


@kernel
def take_upper(keys, weights, depth, highest, size, scale, scratch_keys, scratch_weights):
    """Copy the keys of the buckets above `depth`, in order. Returns their number.

    All are written and only those count: a branch would often be mispredicted.
    """
    count = 0
    for i in range(keys.size):
        scratch_keys[count] = keys[i]
        scratch_weights[count] = weights[i]
        count += 1 if depth_of(keys[i], highest, size, scale) < depth else 0
    return count


@kernel
def take_largest(keys, wanted, scratch_keys, scratch_weights):
    """Copy keys that include the `wanted` largest. Returns their number.

    The bound is the `wanted`-th largest maximum of a group: at least `wanted` keys reach it.
    """
    groups = keys.size // MAXIMA_GROUP
    maxima = np.empty(groups)
    for g in range(groups):
        highest = keys[g * MAXIMA_GROUP]
        for i in range(g * MAXIMA_GROUP, (g + 1) * MAXIMA_GROUP):
            highest = maximum(highest, keys[i])
        maxima[g] = highest
    bound = cut_by_buckets(maxima, None, wanted, False, scratch_keys, scratch_weights, -np.inf)[0]
    count = 0
    for g in range(groups + 1):
        if g == groups or maxima[g] >= bound:
            for i in range(g * MAXIMA_GROUP, min((g + 1) * MAXIMA_GROUP, keys.size)):
                if keys[i] >= bound:
                    scratch_keys[count] = keys[i]
                    count += 1
    return count


@kernel
def cut_by_sorting(keys, weights, above, target, strict):
    """(cut, needed) of a few keys, by a stable insertion sort."""
    order = np.arange(keys.size)
    for j in range(1, keys.size):
        i = j
        while i > 0 and keys[order[i - 1]] < keys[j]:
            order[i] = order[i - 1]
            i -= 1
        order[i] = j
    cumulated, needed = above, 0
    for j in range(order.size):
        needed = needed + 1 if j > 0 and keys[order[j]] == keys[order[j - 1]] else 1
        cumulated += weight_at(weights, order[j])
        if reached(cumulated, target, strict):
            return keys[order[j]], needed
    return keys[order[-1]], needed


@kernel
def ties_needed(weights, count, above, target, strict):
    """How many of `count` equal keys are needed, counted from the first."""
    cumulated = above
    for i in range(count):
        cumulated += weight_at(weights, i)
        if reached(cumulated, target, strict):
            return i + 1
    return count


@kernel
def cut_by_buckets(keys, weights, target, strict, scratch_keys, scratch_weights, bound):
    """find_cut without the shortcut for few of many. The cut must be above `bound`, maybe -inf.

    Without keys, or with one that is not finite, the cut is nan: nan has no bucket, and the loop
    would not end.
    """
    count, above = keys.size, 0.0
    if count == 0:
        return np.nan, 0
    sums = np.empty(BUCKETS)
    while True:
        lowest, highest = min_and_max(keys)
        if not (lowest > -np.inf and highest < np.inf):
            return np.nan, 0
        if lowest == highest:
            return highest, ties_needed(weights, count, above, target, strict)
        if count <= INSERTION_SORT:
            return cut_by_sorting(keys, weights, above, target, strict)
        # The difference of large keys overflows, and the inverse of a tiny one does.
        size = 2.0**500 if highest - lowest < 2.0**-500 else 0.5
        scale = BUCKETS / (highest * size - lowest * size)
        if weights is not None:
            depth = depth_of(bound, highest, size, scale)
            if count > MANY_KEYS and depth < BUCKETS - 1:  # whole buckets, for the same sums
                depth = np.floor(depth) + 1.0
                count = take_upper(
                    keys, weights, depth, highest, size, scale, scratch_keys, scratch_weights
                )
                keys, weights = scratch_keys[:count], scratch_weights[:count]
        fill_buckets(keys, weights, highest, size, scale, sums)
        bucket, above = bucket_reached(sums, above, target, strict)
        count = take_bucket(
            keys, weights, bucket, highest, size, scale, scratch_keys, scratch_weights
        )
        keys = scratch_keys[:count]
        if weights is not None:
            weights = scratch_weights[:count]


@kernel
def find_cut(keys, weights, target, strict, scratch_keys, scratch_weights):
    """(cut, needed): the largest keys down to `cut`, and `needed` of those equal to it.

    They are the fewest whose weights sum to at least `target`, or to more if `strict`. With
    weights None every key counts 1, and the target is how many. scratch_* are workspace of the
    same size. There must be a key and all must be finite; else the cut is nan, which no key
    reaches.
    """
    if weights is None and keys.size > 16 * MAXIMA_GROUP and target * 8 * MAXIMA_GROUP < keys.size:
        count = take_largest(keys, target, scratch_keys, scratch_weights)
        keys = scratch_keys[:count]
    return cut_by_buckets(keys, weights, target, strict, scratch_keys, scratch_weights, -np.inf)
