"""Counter-based random numbers: Philox 4x32-10, a bijection of counters for each key.

The key is the seed. The counter is (row, index, stream): which row, which draw or class in it, and
which use. A number depends on nothing else, so any of them can be computed at any time.

Reference: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import of_row

# Uses of a number. COIN decides whether XTC acts; VERIFY is for speculative decoding, apart from
# the draws of the draft. A request's position, or a caller's count of calls, is added in steps of
# STREAMS.
DRAW, NOISE, COIN, VERIFY, STREAMS = 0, 1, 2, 3, 4

# All in uint64: Numba promotes uint64 with int to float64.
_MULTIPLY_0, _MULTIPLY_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_32, _21, _20, _11 = np.uint64(32), np.uint64(21), np.uint64(20), np.uint64(11)
_LOW_11 = np.uint64(0x7FF)
_HALF, _WHOLE = 2.0**-53, 2.0**-64


@inline
def philox(c0, c1, c2, c3, k0, k1):
    """Four random 32-bit integers from a counter of four and a key of two, all held in uint64."""
    for _ in range(10):
        p0, p1 = _MULTIPLY_0 * c0, _MULTIPLY_1 * c2
        c0, c1 = (p1 >> _32) ^ c1 ^ k0, p1 & _MASK
        c2, c3 = (p0 >> _32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


@inline
def philox_at(key, row, index, stream):
    """Philox at the counter (row, index, stream), all uint64, index and stream below 2**32."""
    return philox(row & _MASK, row >> _32, index, stream, key & _MASK, key >> _32)


@kernel
def uniform(key, row, index, stream):
    """A uniform number in (0, 1) as a double-double: an odd multiple of 2**-106.

    hi is a multiple of 2**-53, lo lies between 0 and 2**-53. It is never 0 nor 1, and even a class
    of probability 1e-28 is drawn at its own rate.
    """
    a, b, c, d = philox_at(np.uint64(key), np.uint64(row), np.uint64(index), np.uint64(stream))
    hi = (a << _21) | (b >> _11)  # 53 bits
    lo = ((((b & _LOW_11) << _32) | c) << np.uint64(9)) | (d >> np.uint64(23))  # 52 bits
    return np.float64(hi) * _HALF, (np.float64(lo) + 0.5) * 2.0**-105


@kernel
def gumbel(key, row, index, stream):
    """Gumbel noise: -log(E) with E exponential. E = -log1p(-v) is accurate for small v."""
    a, b, _, _ = philox_at(np.uint64(key), np.uint64(row), np.uint64(index), np.uint64(stream))
    v = (np.float64((a << _32) | b) + 0.5) * _WHOLE
    return -math.log(-math.log1p(-min(v, 1.0 - _HALF)))


@kernel
def gumbel_rows(out, keys, rows, stream, start, stop):
    """Gumbel noise for every class of rows start..stop; `rows` are their row numbers."""
    for r in range(start, stop):
        key = of_row(keys, r)
        for c in range(out.shape[1]):
            out[r, c] = gumbel(key, rows[r], c, stream)
