"""Floating-point functions against mpmath, with the accuracy that their docstrings claim."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from numba import njit

from hotmax._kernels.numeric import arithmetic, double_double
from hotmax._kernels.simd import vectors
from hotmax._kernels.simd.staging import transpose
from hotmax._kernels.softmax.logs import log1p_vector, log1p_vector_parts

mp = reference.mp


@njit
def exp2_parts_of(y, y_low):
    t, power = np.empty(y.size), np.empty(y.size)
    for i in range(y.size):
        t[i], power[i] = arithmetic.exp2_parts(y[i], y_low[i])
    return t, power


@njit
def exp2_33_bits_of(y):
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = arithmetic.exp2_33_bits(y[i])
    return out


@njit
def exp2_biased32_of(x, beta, beta_lo, origin):
    out = np.empty(x.size, np.float32)
    for i in range(x.size):
        out[i] = arithmetic.exp2_biased32(x[i], beta, beta_lo, origin)
    return out


@njit
def two_sum_of(a, b):
    return double_double.two_sum(a, b)


@njit
def two_diff_of(a, b):
    return double_double.two_diff(a, b)


@njit
def reciprocal_of(high, low):
    return double_double.dd_reciprocal(high, low)


@njit
def fma_of(a, b, c):
    return vectors.fma(a, b, c)


@njit
def maximum_of(a, b):
    return vectors.maximum(a, b)


def grid(low: float, high: float, dense: int, random: int) -> np.ndarray:
    """Evenly spaced, at random, and at and beside every half: where the polynomial changes over."""
    rng = np.random.default_rng(0)
    halves = np.arange(math.ceil(2 * low), math.floor(2 * high) + 1) / 2
    halves = halves[:: max(1, halves.size // 200)]
    beside = np.concatenate([np.nextafter(halves, -np.inf), halves, np.nextafter(halves, np.inf)])
    all_of_them = [np.linspace(low, high, dense), rng.uniform(low, high, random), beside]
    return np.clip(np.concatenate(all_of_them), low, high)


def relative(got, true) -> float:
    return float(abs(mp.mpf(got) / true - 1))


# --- exp2 -------------------------------------------------------------------------------------


def test_exp2_parts(rng):
    """power * (1 + t) is 2**(y + y_low + BIAS), but for the roundings of f and t.

    f is up to 1/2 and t up to 0.41 of 1 + t, which is 0.7 at least: together less than 2**-53.
    """
    y = np.concatenate([grid(-1.0, 1.0, 2001, 1000), grid(-1140.0, 1.0, 1501, 1000)])
    y_low = y * rng.uniform(-(2.0**-53), 2.0**-53, y.size)
    t, power = exp2_parts_of(y, y_low)
    assert (np.frexp(power)[0] == 0.5).all()
    assert np.abs(t).max() < 0.4143  # 2**f - 1 with f up to 1/2
    worst = 0.0
    for i in range(y.size):
        true = mp.mpf(2) ** (mp.mpf(y[i]) + mp.mpf(y_low[i]) + arithmetic.BIAS64)
        worst = max(worst, relative(mp.mpf(power[i]) * (1 + mp.mpf(t[i])), true))
    assert worst < 2.0**-53


def test_exp2_parts_polynomial():
    """The polynomial as written, evaluated exactly, beside 2**f."""
    coefficients = (arithmetic.LN2, *arithmetic.EXP2_COEFFICIENTS)
    worst = 0.0
    for f in np.linspace(-0.5, 0.5, 2001).tolist():
        value = mp.mpf(0)
        for coefficient in reversed(coefficients):
            value = (value + coefficient) * mp.mpf(f)
        worst = max(worst, relative(1 + value, mp.mpf(2) ** mp.mpf(f)))
    assert worst < 2.0**-55.4


def test_exp2_of_whole_numbers_is_exact():
    y = np.arange(-1140.0, 2.0)
    t, power = exp2_parts_of(y, np.zeros_like(y))
    assert (t == 0).all()
    assert (power == np.ldexp(1.0, (y + arithmetic.BIAS64).astype(int))).all()
    y = np.arange(-1000.0, 2.0)
    assert (exp2_33_bits_of(y) == np.exp2(y)).all()


def test_exp2_33_bits():
    """To 2**-33 relative, down to where it is cut off."""
    y = np.concatenate([grid(-1.0, 1.0, 2001, 1000), grid(-1000.0, 1.0, 1501, 1000)])
    got = exp2_33_bits_of(y)
    assert max(relative(g, mp.mpf(2) ** mp.mpf(v)) for g, v in zip(got, y, strict=True)) < 2.0**-33
    assert (exp2_33_bits_of(np.array([-1001.0, -1e300, -np.inf])) == 2.0**-1000).all()


@pytest.mark.parametrize("m", [0.0, 3.7, -80.0, 1000.0])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 30.0, -0.7])
def test_exp2_biased32(m, temperature, rng):
    """exp(x / T) / 2**k in float32 arithmetic, from a double-double beta: within an ULP."""
    from hotmax._kernels.softmax.float32 import exp2_constants, peak_exp, rounded_peak_exp

    m, size = float(np.float32(m)), abs(temperature)
    constants = tuple(
        np.float32(c) for c in njit(lambda m, t: exp2_constants(m, t))(m, temperature)
    )
    k = 2 * round(m / size / math.log(2.0) / 2)
    low = (k + arithmetic.LOWEST32) * math.log(2.0) * size
    v = np.concatenate([np.linspace(low, m, 1500), rng.uniform(m - 5 * size, m, 1500), [m]])
    v = np.clip(v.astype(np.float32), np.float32(low), np.float32(m))
    x = v if temperature > 0 else -v
    got = exp2_biased32_of(x, *constants)
    unit = njit(lambda m, t: peak_exp(m, t))(m, temperature)
    assert relative(unit, mp.exp(mp.mpf(m) / size) / mp.mpf(2) ** k) < 2.0**-32
    assert (
        njit(lambda m, t, line: rounded_peak_exp(m, t, line))(m, temperature, constants) == got[-1]
    )
    worst = 0.0
    for g, one in zip(got.tolist(), x.tolist(), strict=True):
        true = mp.exp(mp.mpf(one) / mp.mpf(temperature)) * mp.mpf(2) ** (arithmetic.BIAS32 - k)
        lowest = arithmetic.BIAS32 + arithmetic.LOWEST32
        if abs(mp.log(true, 2) - lowest) > 0.51:  # else it may be clipped
            worst = max(worst, reference.ulps(g, true, "float32"))
    assert worst < 1.0
    # clipped only where the result is 0
    assert float(got[0]) * arithmetic.UNBIAS32 < 2.0**-150
    far = np.array([low - 200 * size, -1e38, -np.inf]) / math.copysign(1.0, temperature)
    assert not exp2_biased32_of(far.astype(np.float32), *constants).any()


def test_reach32():
    """Within reach, an exponential is right without a look at it."""

    def both(x, beta, beta_lo, origin):
        e, shifted = arithmetic.exp2_unclipped32(x, beta, beta_lo, origin)
        return e, arithmetic.reach32(shifted)

    run = njit(both)
    line = np.float32(1.0), np.float32(0.0), arithmetic.ROUND32
    for k in range(-190, 70):
        for x in (np.float32(k), np.float32(k + 0.4), np.float32(k - 0.4)):
            e, reach = run(x, *line)
            if -185 <= k <= 63:
                assert reach == k + 185
                true = mp.mpf(2) ** (mp.mpf(float(x)) + arithmetic.BIAS32)
                assert reference.ulps(float(e), true, "float32") < 1
            else:
                assert reach > 248


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33, 48, 100, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_top_two_and_ties(n, sign, rng):
    from hotmax._kernels.softmax.float32 import count_ties, two_largest

    sign = np.float32(sign)
    for turn in range(200):
        x = rng.standard_normal(n).astype(np.float32)
        if turn % 2:
            x = np.round(x)
        ordered = np.sort(np.append(sign * x, -np.inf))
        assert two_largest(x, sign) == (ordered[-1], ordered[-2])
        assert count_ties(x, x[n // 2]) == (x == x[n // 2]).sum()
        x[turn % n] = np.nan
        assert np.isnan(two_largest(x, sign)[0])


# --- log --------------------------------------------------------------------------------------


def test_log1p_parts(rng):
    """Two words of log(1 + s + s_low), from tiny to huge: worst between 0.2 and 2."""
    s = np.concatenate(
        [
            2.0 ** rng.uniform(-1000, 100, 1500),
            2.0 ** rng.uniform(-70, 4, 1500),
            np.linspace(0, 3, 1501),
            np.nextafter(math.sqrt(0.5) * 2.0 ** np.arange(1, 30) - 1, np.inf),
            np.arange(64.0),
            [1e8, 1e15, 1e17],
        ]
    )
    worst = 0.0
    for value in s.tolist():
        low = value * float(rng.uniform(-(2.0**-53), 2.0**-53))
        high, rest = arithmetic.log1p_parts(value, low)
        true = mp.log1p(mp.mpf(value) + mp.mpf(low))
        if true == 0:
            assert high == rest == 0
            continue
        worst = max(worst, relative(mp.mpf(high) + mp.mpf(rest), true))
    assert worst < 2.0**-56.5


def test_log1p_vector(rng):
    """To 2**-36 relative, and to 2**-56 in double-double, for any number of classes below 2**31."""
    s = np.concatenate(
        [
            [0.0],
            2.0 ** rng.uniform(-1000, 6, 1000),
            2.0 ** rng.uniform(0, 31, 1000),
            np.linspace(0, 63, 1001),
            *(np.sqrt(0.5) * 2.0 ** np.arange(1, 32) - 1 + e for e in (-1e-9, 0.0, 1e-9)),
        ]
    )
    log1p, parts = njit(lambda s: log1p_vector(s)), njit(lambda s, lo: log1p_vector_parts(s, lo))
    for value in s.tolist():
        true = mp.log1p(mp.mpf(value))
        assert log1p(value) == true == 0 or relative(log1p(value), true) < 2.0**-36
        lo = value * float(rng.uniform(-(2.0**-53), 2.0**-53))
        hi, rest = parts(value, lo)
        true = mp.log1p(mp.mpf(value) + mp.mpf(lo))
        bound = 2.0**-56 if value > 2.0**-45 else 2.0**-53
        assert hi == rest == true == 0 or relative(mp.mpf(hi) + mp.mpf(rest), true) < bound


def test_exp2_biased64(rng):
    """Within 0.9 ULP, relative to powers of two far from 0 too; 0 below 2**LOWEST64."""
    beta, beta_lo = 1.4426950408889634, 2.0355273740931033e-17
    exp2 = njit(lambda x, o: arithmetic.exp2_biased64(x, beta, beta_lo, o))
    for k in (0.0, 1000.0, -70000.0, 2.0**30):
        origin = arithmetic.ROUND64 - k
        at = k / beta
        for x in (at + rng.uniform(-700, 1, 700)).tolist():
            exact = mp.mpf(x) * (mp.mpf(beta) + mp.mpf(beta_lo)) - k + arithmetic.BIAS64
            assert relative(mp.mpf(exp2(x, origin)), mp.mpf(2) ** exact) < 0.9 * 2.0**-52
        for x in (-np.inf, -1e300, at - 900.0):
            assert exp2(x, origin) == 0.0


# --- error-free sums --------------------------------------------------------------------------


def pairs() -> list[tuple[float, float]]:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(3000) * 2.0 ** rng.integers(-300, 300, 3000)
    b = rng.standard_normal(3000) * 2.0 ** rng.integers(-300, 300, 3000)
    near = a * (1 + rng.integers(-8, 8, 3000) * 2.0**-52)
    special = [(0.0, 0.0), (1.0, 2.0**-53), (1.0, -(2.0**-54)), (5e-324, 1.0), (1.0, -1.0)]
    return [
        *zip(a, b, strict=True),
        *zip(a, near, strict=True),
        *zip(near, -a, strict=True),
        *special,
    ]


def test_two_sum_and_two_difference_are_exact():
    for a, b in pairs():
        s, e = two_sum_of(a, b)
        assert s == a + b
        assert Fraction(s) + Fraction(e) == Fraction(float(a)) + Fraction(float(b))
        d, e = two_diff_of(a, b)
        assert d == a - b
        assert Fraction(d) + Fraction(e) == Fraction(float(a)) - Fraction(float(b))


def test_reciprocal(rng):
    """1 / (high + low) in two arithmetic."""
    for high in 2.0 ** rng.uniform(0, 60, 2000):
        low = float(high * rng.uniform(-(2.0**-53), 2.0**-53))
        inverse, rest = reciprocal_of(float(high), low)
        true = 1 / (mp.mpf(float(high)) + mp.mpf(low))
        assert relative(mp.mpf(inverse) + mp.mpf(rest), true) < 2.0**-100


def test_fma_rounds_once():
    for a, b in pairs()[:2000]:
        c = -a * b * (1 + 2.0**-50)
        if math.isfinite(c):
            exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
            assert fma_of(a, b, c) == float(exact)
    f = np.float32
    a, b = f(1 + 2**-12), f(1 - 2**-12)
    assert fma_of(a, b, f(-1)) == f(-(2.0**-24))
    assert type(fma_of(a, b, f(-1))) in (float, np.float32)


def test_maximum_keeps_nan():
    for a in (0.0, 1.0, -np.inf, np.inf, np.nan):
        for b in (0.0, 1.0, -np.inf, np.inf, np.nan):
            for kind in (np.float32, np.float64):
                got = maximum_of(kind(a), kind(b))
                np.testing.assert_equal(float(got), float(np.maximum(a, b)))


def test_constants():
    assert float(1 / mp.log(2)) == arithmetic.LOG2E
    assert float(1 / mp.log(2) - mp.mpf(arithmetic.LOG2E)) == arithmetic.LOG2E_LO
    assert float(mp.log(2)) == arithmetic.LN2
    head, tail = arithmetic.LN2_HEAD, arithmetic.LN2_TAIL
    assert pytest.approx(float(mp.log(2) - mp.mpf(head)), rel=1e-16) == tail
    assert all(k * head == Fraction(head) * k for k in (1, 3, 1075, 2**19 + 1))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 7), (5, 9), (8, 8), (17, 3), (33, 41), (4, 100), (100, 16)])
def test_turned(kind, shape):
    """Whole tiles and what is left over, from and into the middle of larger arrays."""
    n, m = shape
    around = np.arange((n + 3) * (m + 5), dtype=kind).reshape(n + 3, m + 5) + 1
    source = around[2 : 2 + n, 3 : 3 + m]
    buffer = np.zeros((m + 4, n + 7), kind)
    target = buffer[1 : 1 + m, 2 : 2 + n]
    transpose(source, target, False)
    np.testing.assert_array_equal(target, source.T)
    assert np.count_nonzero(buffer) == target.size

    width = -(-n // 16) * 16  # rows at cache lines, as a target that is streamed must have them
    buffer = np.zeros((m * width + 16), kind)
    start = (-buffer.ctypes.data % 64) // buffer.itemsize
    target = buffer[start : start + m * width].reshape(m, width)[:, :n]
    transpose(source, target, True)
    np.testing.assert_array_equal(target, source.T)
    assert np.count_nonzero(buffer) == target.size
