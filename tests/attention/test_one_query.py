"""One query of each head: the short way gives the bits of the general way, and its meaning."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from attention_cases import normal

import hotmax as hm
from hotmax._attention import one_query

SHAPES = {
    "matrix": ((1, 16), (40, 16), (40, 16)),
    "heads": ((8, 1, 64), (8, 700, 64), (8, 700, 64)),
    "one key": ((3, 1, 8), (3, 1, 8), (3, 1, 32)),
    "one tile": ((2, 1, 24), (2, 576, 24), (2, 576, 48)),
    "two tiles": ((2, 1, 24), (2, 577, 24), (2, 577, 16)),
    "groups": ((2, 6, 1, 32), (2, 2, 130, 32), (2, 2, 130, 16)),
    "many dimensions": ((1, 2, 1, 2, 3, 1, 8), (1, 2, 1, 2, 3, 33, 8), (1, 2, 1, 2, 3, 33, 16)),
}


def attend(q, k, v, **options):
    """(by the short way, by the general way, which a sink of no weight takes)."""
    with mock.patch.object(one_query, "share_rows", side_effect=one_query.share_rows) as shared:
        short = hm.attention(q, k, v, **options)
    assert shared.call_count == 1
    return short, hm.attention(q, k, v, sink=-math.inf, **options)


def inputs(shapes, size=1.0):
    return tuple(normal(*s, seed=i, dtype="float32", size=size) for i, s in enumerate(shapes))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SHAPES)
def test_the_short_way_gives_the_same_bits(name, threads):
    before = hm.get_threads()
    hm.set_threads(threads)
    try:
        for options in (
            {},
            {"temperature": -0.5, "causal": "lower_right"},
            {"scale": 3.0, "temperature": 1e-3},
            {"scale": 0.0},
        ):
            short, general = attend(*inputs(SHAPES[name], 3.0), **options)
            assert short.dtype == np.float32
            np.testing.assert_array_equal(short, general, strict=True)
    finally:
        hm.set_threads(before)


def test_against_the_formula():
    q, k, v = inputs(SHAPES["groups"])
    scores = q.astype(np.float64) @ np.repeat(k, 3, axis=1).swapaxes(-1, -2) / math.sqrt(32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    true = (weights / weights.sum(-1, keepdims=True)) @ np.repeat(v, 3, axis=1).astype(np.float64)
    np.testing.assert_allclose(hm.attention(q, k, v), true, rtol=0, atol=1e-6)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", ["q", "k", "v"])
def test_numbers_that_are_not_finite(place, number):
    """A value that is not finite counts where its weight is not 0."""
    q, k, v = inputs(SHAPES["heads"], 3.0)
    {"q": q, "k": k, "v": v}[place][1::3, -1, 2] = number
    k[1, -1, :] = -1e5 * q[1, 0]  # this head gives the last key no weight
    with np.errstate(invalid="ignore"):
        short = hm.attention(q, k, v)
        general = hm.attention(q, k, v, sink=-math.inf)
    np.testing.assert_array_equal(short, general, strict=True)
    assert np.isfinite(short[0]).all()


def test_what_takes_the_general_way():
    """Read-only arrays go the short way; whatever asks for more does not, and means the same."""
    q, k, v = inputs(SHAPES["heads"])
    true = hm.attention(q, k, v)
    for array in (q, k, v):
        array.flags.writeable = False
    short, _ = attend(q, k, v)
    np.testing.assert_array_equal(short, true)
    refused = mock.patch.object(one_query, "share_rows", side_effect=AssertionError)
    with refused:
        first_key = hm.attention(q, k, v, causal=True)
        np.testing.assert_allclose(first_key, v[:, :1], rtol=3e-7)
        hm.attention(q, k, v, temperature=np.float64(1.0) * np.ones((8, 1, 1)))
        hm.attention(q, k, v, temperature=0.0)
        np.testing.assert_array_equal(
            hm.attention(q, k[:, ::2], v[:, ::2]), hm.attention(q, k[:, ::2].copy(), v[:, ::2])
        )
        assert hm.attention(q.astype(np.float64), k, v).dtype == np.float64
        hm.attention(q, k, v, where=np.ones((1, 700), bool))
        assert hm.attention(q[0], k, v).shape == (8, 1, 64)
        with pytest.raises(ValueError, match="same length"):
            hm.attention(q, k, v[:, 1:])
        with pytest.raises(ValueError, match="number of heads"):
            hm.attention(q, k, v[1:])
        with pytest.raises(ValueError, match="must divide"):
            hm.attention(q[:7], k, v)
        with pytest.raises(ValueError, match="temperature"):
            hm.attention(q, k, v, temperature=math.nan)
        with pytest.raises(TypeError, match="causal"):
            hm.attention(q, k, v, causal=1.5)
