"""Halves by their bits, against NumPy's float16 and ml_dtypes' bfloat16, which took other roads."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hotmax as hm
from hotmax._core.conversion import put

BITS = np.arange(1 << 16, dtype=np.uint16)
every = pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["float16", "brain"])


def same(a, b, kind):
    """The same bits, or nan in both."""
    bits = np.uint16 if np.dtype(kind).itemsize == 2 else np.uint32
    nan = b != b
    np.testing.assert_array_equal(a != a, nan)
    np.testing.assert_array_equal(a.view(bits)[~nan], b.view(bits)[~nan])


@every
def test_every_half(kind):
    x = BITS.view(kind)
    wide = np.empty(x.shape, np.float32)
    put(x, wide)
    with np.errstate(all="ignore"):  # signalling nans
        same(wide, x.astype(np.float32), np.float32)


@every
def test_rounding(kind, rng):
    """Halves, the middles between them, what lies next to both, and any bits at all."""
    with np.errstate(all="ignore"):
        halves = BITS.view(kind).astype(np.float32)
        halves = np.sort(halves[np.isfinite(halves)])
        middles = (halves[1:].astype(np.float64) + halves[:-1]) / 2
        x = np.concatenate([halves, middles.astype(np.float32), [65519.996, 65520, np.inf, np.nan]])
        x = x.astype(np.float32)
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, -x), -x])
        bits = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint64).astype(np.uint32)
        x = np.concatenate([x, bits.view(np.float32)])
        rounded = np.empty(x.shape, kind)
        put(x, rounded)
        same(rounded, x.astype(kind), kind)


@every
def test_layouts(kind, rng):
    """Rows that lie apart, a transposed array and the other byte order give the same."""
    x = rng.normal(size=(64, 130)).astype(kind)
    want = hm.softmax(x)
    apart = np.zeros((64, 260), kind)
    apart[:, ::2] = x
    assert hm.softmax(apart[:, ::2]).tobytes() == want.tobytes()
    assert hm.softmax(np.asfortranarray(x)).tobytes() == want.tobytes()
    assert hm.softmax(x.T.copy(), axis=0).T.tobytes() == want.tobytes()
    out = np.zeros((64, 260), kind)[:, ::2]
    assert hm.softmax(x, out=out).tobytes() == want.tobytes()
    if kind is np.float16:
        assert hm.softmax(x.astype(">f2")).tobytes() == want.tobytes()
