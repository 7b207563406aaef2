"""exp2 and log1p in float64 and float32, with their constants and polynomials.

The functions take numbers or vectors; only log1p_parts, which branches, takes numbers alone.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.simd.vectors import bits64, choose, float64_of, fma, scaled_by, ulps_above

LOG2E = 1.4426950408889634  # log2(e), rounded
LOG2E_LO = 2.0355273740931033e-17  # log2(e) - LOG2E
LN2 = 0.6931471805599453
LN2_LO = 2.3190468138462996e-17  # ln 2 - LN2
LN2_HEAD = 0.6931471803691238  # ln 2 to 33 bits: its product with an exponent is exact
LN2_TAIL = 1.9082149292705877e-10  # ln 2 - LN2_HEAD
LARGEST_FLOAT64 = 1.7976931348623157e308
ROUND64 = 6755399441055744.0  # 1.5 * 2**52: adding it rounds a float64 to an integer
ROUND32 = np.float32(12582912.0)  # 1.5 * 2**23: the same for float32

# Results of exp2 carry a factor 2**BIAS until the last multiplication: a subnormal result is then
# rounded only once.
BIAS64 = 200
BIAS32 = 64
UNBIAS64 = 2.0**-BIAS64
_ONE64 = np.float64(2.0**BIAS64)
UNBIAS32 = 2.0**-BIAS32
LOWEST64 = -1140.0  # 2**LOWEST64 is 0 in the output type, for any number of classes
LOWEST32 = -185.0
_FLOOR64 = ROUND64 + LOWEST64


# Of (2**f - 1 - f ln 2) / f**2 on [-1/2, 1/2]: with ln 2 the minimax fit of (2**f - 1) / f, within
# 2**-56.
EXP2_COEFFICIENTS = (
    0.24022650695910097,
    0.05550410866482166,
    0.009618129107606887,
    0.0013333558146395995,
    0.00015403530441738291,
    1.5252733853289477e-05,
    1.3215442586728665e-06,
    1.0178051724308302e-07,
    7.072586161230777e-09,
    4.456676030826705e-10,
)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9 = EXP2_COEFFICIENTS


@inline
def add_double_double(a, a_lo, b, b_lo):
    """(a + a_lo) + (b + b_lo)."""
    total, carry = two_sum(a, b)
    return two_sum(total, carry + (a_lo + b_lo))


@inline
def power_of_two(k):
    """2**k for an integer k <= 0, and 2**-1000 below that. (math.ldexp would be a call.)"""
    return float64_of((1023 + np.int64(max(k, -1000.0))) << 52)


@inline
def exp2_remainder(f):
    """2**f - 1 - f ln 2 for -1/2 <= f <= 1/2.

    Even and odd powers are summed apart: half the latency of one chain.
    """
    g = f * f
    odd = fma(_C9, g, _C7)
    even = fma(_C8, g, _C6)
    odd = fma(odd, g, _C5)
    even = fma(even, g, _C4)
    odd = fma(odd, g, _C3)
    even = fma(even, g, _C2)
    odd = fma(odd, g, _C1)
    even = fma(even, g, _C0)
    return g * fma(odd, f, even)


@inline
def exp2_parts(y, y_lo):
    """(t, power): 2**(y + y_lo + BIAS64) = power * (1 + t), for -1140 <= y <= 1.

    t is not added to 1, so that no rounding of 1 + t enters a sum.
    """
    shifted = y + ROUND64
    f = (y - (shifted - ROUND64)) + y_lo
    t = fma(f, LN2, fma(f, LN2_LO, exp2_remainder(f)))
    return t, scaled_by(_ONE64, shifted)


@inline
def exp2_biased64(x, beta, beta_lo, origin):
    """2**(x * (beta + beta_lo) - k + BIAS64), or 0 below 2**LOWEST64, with origin = ROUND64 - k.

    k is an integer below 2**31, so that the fma that forms f has no rounding error but its own.
    """
    shifted = fma(x, beta, origin)
    f = fma(x, beta_lo, fma(x, beta, origin - shifted))
    t = fma(f, LN2, fma(f, LN2_LO, exp2_remainder(f)))
    e = scaled_by(fma(t, _ONE64, _ONE64), shifted)
    return choose(shifted < _FLOOR64, 0.0, e)


@inline
def exp2_33_bits(y):
    """2**y in float64 for y <= 1, within 2**-33 relative: enough for a float32 result."""
    y = choose(y < -1000.0, -1000.0, y)
    shifted = y + ROUND64
    f = y - (shifted - ROUND64)
    q = fma(1.5310083098701274e-05, f, 0.0001546144716266846)
    q = fma(q, f, 0.001333345453960721)
    q = fma(q, f, 0.009618056670823336)
    q = fma(q, f, 0.055504109287642774)
    q = fma(q, f, 0.24022650922336908)
    q = fma(q, f, 0.6931471805537158)
    q = fma(q, f, 1.0)
    return scaled_by(q, shifted)


# The same fit to degree 5, within 2**-28.
_FIT32 = (
    0.6931471880289413,
    0.24022651084212637,
    0.0555035710549399,
    0.00961803077074393,
    0.0013390866859796194,
    0.00015469735156466413,
)
_P0, _P1, _P2, _P3, _P4, _P5 = (np.float32(c) for c in _FIT32)
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5 = (np.float32(c) * np.float32(2.0**BIAS32) for c in _FIT32)
_UNIT32 = np.float32(1.0)
_ZERO32 = np.float32(0.0)
_NORMAL32 = np.float32(-126.0)
_ONE32 = np.float32(2.0**BIAS32)
_FLOOR32 = np.float32(ROUND32 + LOWEST32)


@inline
def exp2_unclipped32(x, beta, beta_lo, origin):
    """(e, shifted): e = 2**(x * (beta + beta_lo) - k + BIAS32), with origin = ROUND32 - k.

    All in float32. k is an integer below 2**13, so that the fma that forms f has no rounding error
    but its own. e is valid where `reach32` of shifted is at most 248.
    """
    shifted = fma(x, beta, origin)
    f = fma(x, beta_lo, fma(x, beta, origin - shifted))
    q = fma(_Q5, f, _Q4)
    q = fma(q, f, _Q3)
    q = fma(q, f, _Q2)
    q = fma(q, f, _Q1)
    q = fma(q, f, _Q0)
    q = fma(q, f, _ONE32)
    return scaled_by(q, shifted), shifted


@inline
def reach32(shifted):
    """The exponent above LOWEST32; a huge number below LOWEST32, and for nan and inf."""
    return ulps_above(shifted, _FLOOR32)


@inline
def clipped32(e, shifted):
    """e, or 0 where it is below 2**LOWEST32."""
    return choose(shifted < _FLOOR32, _ZERO32, e)


@inline
def exp2_biased32(x, beta, beta_lo, origin):
    """2**(x * (beta + beta_lo) - k + BIAS32), or 0 below 2**LOWEST32: see `exp2_unclipped32`."""
    return clipped32(*exp2_unclipped32(x, beta, beta_lo, origin))


@inline
def exp2_fraction32(f):
    """2**f in float32, for f between -1/2 and 1/2."""
    q = fma(_P5, f, _P4)
    q = fma(q, f, _P3)
    q = fma(q, f, _P2)
    q = fma(q, f, _P1)
    q = fma(q, f, _P0)
    return fma(q, f, _UNIT32)


@inline
def exp2_float32(y):
    """2**y in float32 for y <= 1; 0 where the result is subnormal, and for nan."""
    shifted = y + ROUND32
    q = exp2_fraction32(y - (shifted - ROUND32))
    return choose(y >= _NORMAL32, scaled_by(q, shifted), _ZERO32)


@kernel
def log1p_parts(s, s_lo):
    """log(1 + s + s_lo) in double-double for s >= 0, within 2**-56 relative.

    1 + s = 2**k (1 + u), and log(1 + u) = 2 atanh(u / (2 + u)) as a series in (u / (2 + u))**2.
    """
    if s < 2.0**-60:
        return s, s_lo
    whole, rest = two_sum(1.0, s)
    k = (bits64(whole) - bits64(0.7071067811865476)) >> 52
    if k == 0:
        u, u_lo = s, s_lo
    else:
        shrink = float64_of((1023 - k) << 52)
        u, u_lo = whole * shrink - 1.0, (rest + s_lo) * shrink
    v, v_lo = two_sum(2.0, u)
    r = u / v
    r_lo = (fma(-r, v, u) + u_lo - r * (v_lo + u_lo)) / v
    w = r * r
    series = 1.0 / 25.0
    for odd in range(23, 1, -2):
        series = fma(series, w, 1.0 / odd)
    hi, carry = two_sum(k * LN2_HEAD, 2.0 * r)
    lo = carry + (k * LN2_TAIL + 2.0 * (r_lo + r * (w * series)))
    total = hi + lo
    return total, lo - (total - hi)
