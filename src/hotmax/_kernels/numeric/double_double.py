"""Double-double arithmetic: a value as the unevaluated sum hi + lo, with |lo| at most an ULP of hi.

The functions take numbers or vectors, of float64 or float32.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.simd.vectors import fma


@inline
def two_sum(a, b):
    """(s, e): s = a + b rounded, and s + e = a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inline
def two_diff(a, b):
    """(d, e): d = a - b rounded, and d + e = a - b exactly."""
    d = a - b
    t = d - a
    return d, (a - (d - t)) - (b + t)


@inline
def dd_mul(a, a_lo, b, b_lo):
    """(a + a_lo) * (b + b_lo)."""
    hi = a * b
    return hi, fma(a_lo, b, fma(a, b_lo, fma(a, b, -hi)))


@inline
def dd_div(a, a_lo, divisor):
    """(a + a_lo) / divisor."""
    quotient = a / divisor
    return quotient, (fma(-quotient, divisor, a) + a_lo) / divisor


@inline
def dd_reciprocal(hi, lo):
    """1 / (hi + lo)."""
    inverse = 1.0 / hi
    return inverse, inverse * (fma(-hi, inverse, 1.0) - lo * inverse)


@inline
def dd_one_plus(power, t):
    """power * (1 + t)."""
    hi = fma(power, t, power)
    return hi, fma(power, t, power - hi)


@inline
def float32_pair(x):
    """A float64 as hi + lo in float32."""
    hi = np.float32(x)
    return hi, np.float32(x - np.float64(hi))
