"""Kernels that compute eight rows at a time, on fewer rows than that."""

from __future__ import annotations

import timeit

import numpy as np
import pytest

import hotmax as hm


@pytest.mark.parametrize("classes", [10, 40, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "smoothmax"])
def test_one_row_takes_no_longer_than_eight(rng, name, dtype, classes):
    """What lies in the scratch memory of absent rows may be subnormal, and slow to compute with."""
    function = getattr(hm, name)
    rows = rng.standard_normal((8, classes)).astype(dtype)

    def time_of(x):
        return timeit.timeit(lambda: function(x), number=20)

    time_of(rows[:1])
    # In turn, until it is shown: what else the machine does meets both, and the minima hardly.
    one, eight = np.inf, np.inf
    for _ in range(300):
        for _ in range(10):
            one, eight = min(one, time_of(rows[:1])), min(eight, time_of(rows))
        if one < 3 * eight:
            break
    assert one < 3 * eight
