"""How far from the truth a result is, in ULP: exact, in integers.

Imports nothing from hotmax. The truth is a number of mpmath, in a context of the tests' own.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np

mp = mpmath.MPContext()  # a context of our own: nobody else's precision reaches it
mp.prec = 210
ZERO, ONE = mp.mpf(0), mp.mpf(1)

# bits of the significand, least and greatest exponent of a normal number
FORMATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def type_name(dtype) -> str:
    """The name of a float type, whatever its byte order."""
    if isinstance(dtype, str) and dtype in FORMATS:
        return dtype
    return np.dtype(dtype).newbyteorder("=").name


def spacing_exponent(value: mpmath.mpf, dtype) -> int:
    """The gap between neighbours of `dtype` at value is 2 to this power.

    Among subnormals the gap no longer shrinks.
    """
    digits, least, greatest = FORMATS[type_name(dtype)]
    _, mantissa, exponent, bits = mp.convert(value)._mpf_
    size = exponent + bits if mantissa else mp.mag(value)  # the same, but for 0 and inf
    return min(max(size - 1, least), greatest) - digits + 1


def spacing(value: mpmath.mpf, dtype) -> mpmath.mpf:
    """The gap between neighbours of `dtype` at value."""
    return mp.ldexp(ONE, spacing_exponent(value, dtype))


def ulps(got, true: mpmath.mpf, dtype, scale: mpmath.mpf | None = None) -> float:
    """The error of `got` in spacings of `dtype` at `scale`, or at the true value.

    A `got` of infinity stands for the first power of two that does not fit.
    """
    got = float(got)
    if mp.isnan(true) or math.isnan(got):
        return 0.0 if mp.isnan(true) and math.isnan(got) else math.inf
    if mp.isinf(true):
        return 0.0 if got == float(true) else math.inf
    unit = spacing_exponent(true if scale is None else scale, dtype)
    if math.isinf(got):
        if (got > 0) != (true > 0):
            return math.inf
        edge = mp.ldexp(ONE, FORMATS[type_name(dtype)][2] + 1)
        got, true = 0.0, max(ZERO, edge - abs(true))
    return distance(got, true, unit)


def distance(got: float, true: mpmath.mpf, unit: int) -> float:
    """abs(got - true) / 2 ** unit, in integers: exact, and several times as fast as in mpf."""
    negative, mantissa, exponent, _ = mp.convert(true)._mpf_
    ours, below = got.as_integer_ratio()
    ours_exponent = 1 - below.bit_length()  # below is a power of two
    start = min(exponent, ours_exponent)
    theirs = -mantissa if negative else mantissa
    error = abs((ours << (ours_exponent - start)) - (theirs << (exponent - start)))
    spare = max(error.bit_length() - 64, 0)  # beyond what a float holds
    try:
        return math.ldexp(float(error >> spare), start + spare - unit)
    except OverflowError:
        return math.inf


def worst_ulps(got, true, scale=None) -> float:
    """The largest error in an array, against an mpf or an object array of them."""
    got = np.asarray(got)
    dtype = type_name(got.dtype)
    flat = true.reshape(-1).tolist() if isinstance(true, np.ndarray) else [true]
    assert got.size == len(flat), f"{got.shape} results for {len(flat)} true values"
    pairs = zip(got.astype(np.float64).reshape(-1).tolist(), flat, strict=True)
    distinct = {(g, id(t)): (g, t) for g, t in pairs}  # equal entries share one mpf
    found = list(distinct.values())
    if len(found) > 50 and scale is None:
        found = [found[i] for i in contenders(found, dtype)]
    return max((ulps(g, t, dtype, scale) for g, t in found), default=0.0)


def contenders(pairs, dtype) -> list[int]:
    """Where the largest error may be; every other one is smaller, whatever is rounded here.

    A true value is (head + tail) 2**exponent to 2**-104 of itself, so that an error comes out to
    2**-51 of itself and 2**-50 ULP. Left to `ulps`: zeros, infinities, nan, and what overflows.
    """
    digits, least, greatest = FORMATS[dtype]
    signs, mantissas, exponents, bits = zip(*(true._mpf_ for _, true in pairs), strict=True)
    head = [float(mantissa) for mantissa in mantissas]
    tail = [float(m - int(h)) for m, h in zip(mantissas, head, strict=True)]
    exponent, head = np.array(exponents, np.int64), np.array(head)
    unit = np.clip(exponent + np.array(bits, np.int64) - 1, least, greatest) - digits + 1
    with np.errstate(all="ignore"):
        got = np.ldexp(np.array([g for g, _ in pairs]), -exponent)
        got = np.where(np.array(signs, bool), -got, got)
        error = np.ldexp(np.abs(got - head - np.array(tail)), exponent - unit)
    known = (head != 0) & np.isfinite(error)
    worst = np.max(error[known], initial=0.0)
    return np.flatnonzero(~known | (error >= worst - 2**-40 * (1 + worst))).tolist()
