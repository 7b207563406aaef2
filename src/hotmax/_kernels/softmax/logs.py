"""log(1 + s) for several rows at once, in vectors, without a branch."""

from __future__ import annotations

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.numeric.arithmetic import LN2, LN2_HEAD, LN2_TAIL
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.simd.vectors import choose, fma


@inline
def halved(whole, rest, exponent, step, power):
    """Divide whole + rest by power = 2**step where it then stays above sqrt(1/2)."""
    large = whole > 0.7071067811865476 * power
    shrink = choose(large, 1.0 / power, 1.0)
    return whole * shrink, rest * shrink, exponent + choose(large, step, 0.0)


@inline
def reduced(s):
    """(whole, rest, k): 1 + s = 2**k (whole + rest), with whole near 1, for 0 <= s < 2**31."""
    whole, rest = two_sum(1.0, s)
    whole, rest, k = halved(whole, rest, 0.0, 16.0, 65536.0)
    whole, rest, k = halved(whole, rest, k, 8.0, 256.0)
    whole, rest, k = halved(whole, rest, k, 4.0, 16.0)
    whole, rest, k = halved(whole, rest, k, 2.0, 4.0)
    return halved(whole, rest, k, 1.0, 2.0)


@inline
def log1p_vector(s):
    """log(1 + s) in float64 for 0 <= s < 2**31, within 2**-36 relative."""
    whole, rest, k = reduced(s)
    u = (whole - 1.0) + rest
    r = u / (2.0 + u)
    w = r * r
    series = fma(w, 1.0 / 13.0, 1.0 / 11.0)
    series = fma(w, series, 1.0 / 9.0)
    series = fma(w, series, 1.0 / 7.0)
    series = fma(w, series, 1.0 / 5.0)
    series = fma(w, series, 1.0 / 3.0)
    return fma(k, LN2, 2.0 * fma(r * w, series, r))


@inline
def log1p_vector_parts(s, s_lo):
    """log(1 + s + s_lo) in double-double for 0 <= s < 2**31.

    Within 2**-56 relative; below s = 2**-45 rounded to float64.
    """
    whole, rest, k = reduced(s)
    # 2**-k as the ratio of what was divided by
    shrink = choose(k > 0.0, whole / (1.0 + s), 1.0)
    u, u_lo = whole - 1.0, rest + s_lo * shrink
    v, v_lo = two_sum(2.0, u)
    r = u / v
    r_lo = (fma(-r, v, u) + u_lo - r * (v_lo + u_lo)) / v
    w = r * r
    series = fma(w, 1.0 / 25.0, 1.0 / 23.0)
    series = fma(w, series, 1.0 / 21.0)
    series = fma(w, series, 1.0 / 19.0)
    series = fma(w, series, 1.0 / 17.0)
    series = fma(w, series, 1.0 / 15.0)
    series = fma(w, series, 1.0 / 13.0)
    series = fma(w, series, 1.0 / 11.0)
    series = fma(w, series, 1.0 / 9.0)
    series = fma(w, series, 1.0 / 7.0)
    series = fma(w, series, 1.0 / 5.0)
    series = fma(w, series, 1.0 / 3.0)
    hi, carry = two_sum(k * LN2_HEAD, 2.0 * r)
    lo = carry + (k * LN2_TAIL + 2.0 * (r_lo + r * (w * series)))
    total = hi + lo
    return total, lo - (total - hi)
