"""Random numbers without a state: Philox 4x32-10, a bijection of counters for every key.

The key is the seed. The counter is (row, index, stream): which row, which draw or class in it, and
what for. So a number depends on nothing else, and any of them can be made at any time.

Reference: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import of_row

# What a number is for. A caller's own count of calls goes above these, in steps of STREAMS.
DRAW, NOISE, CHANCE, STREAMS = 0, 1, 2, 4

# All in uint64: Numba makes a float of a uint64 and an int.
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_32, _21, _20, _11 = np.uint64(32), np.uint64(21), np.uint64(20), np.uint64(11)
_LOW_11 = np.uint64(0x7FF)
_HALF, _WHOLE = 2.0**-53, 2.0**-64


@inline
def philox(c0, c1, c2, c3, k0, k1):
    """Four random words of 32 bits from a counter of four and a key of two, all in uint64."""
    for _ in range(10):
        p0, p1 = _MULTIPLY_0 * c0, _MULTIPLY_1 * c2
        c0, c1 = (p1 >> _32) ^ c1 ^ k0, p1 & _MASK
        c2, c3 = (p0 >> _32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


@inline
def words(key, row, index, stream):
    """The four words at a place; all arguments are uint64, index and stream below 2**32."""
    return philox(row & _MASK, row >> _32, index, stream, key & _MASK, key >> _32)


@kernel
def uniform(key, row, index, stream):
    """A uniform number in (0, 1) in two float64 words: an odd multiple of 2**-106.

    The first word is a multiple of 2**-53, the second lies between 0 and 2**-53. Neither 0 nor 1
    can come, and even a class of probability 1e-28 is hit as often as it should be.
    """
    a, b, c, d = words(np.uint64(key), np.uint64(row), np.uint64(index), np.uint64(stream))
    high = (a << _21) | (b >> _11)  # 53 bits
    low = ((((b & _LOW_11) << _32) | c) << np.uint64(9)) | (d >> np.uint64(23))  # 52 bits
    return np.float64(high) * _HALF, (np.float64(low) + 0.5) * 2.0**-105


@kernel
def gumbel(key, row, index, stream):
    """Gumbel noise: -log(E), E exponential; E = -log(1 - v) is right however small v is."""
    a, b, _, _ = words(np.uint64(key), np.uint64(row), np.uint64(index), np.uint64(stream))
    v = (np.float64((a << _32) | b) + 0.5) * _WHOLE
    return -math.log(-math.log1p(-min(v, 1.0 - _HALF)))


@kernel
def gumbel_rows(out, keys, rows, stream, start, stop):
    """Noise for every class of rows start..stop; `rows` are their numbers."""
    for r in range(start, stop):
        key = of_row(keys, r)
        for c in range(out.shape[1]):
            out[r, c] = gumbel(key, rows[r], c, stream)
