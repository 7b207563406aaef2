"""The words for vectors, entry by entry against NumPy and exact arithmetic."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import pytest
from numba import njit

from hotmax._kernels.simd import memory, vectors as v
from hotmax._kernels.simd.vectors import LINE, WIDTH

KINDS = [np.float32, np.float64]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 1e-40]

each_kind = pytest.mark.parametrize("kind", KINDS)


def pairs(kind) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of special numbers, and many others."""
    rng = np.random.default_rng(0)
    a, b = (c.ravel() for c in np.meshgrid(SPECIAL, SPECIAL))
    more = rng.standard_normal((2, 64)) * 10.0 ** rng.integers(-5, 6, (2, 64))
    return np.append(a, more[0]).astype(kind), np.append(b, more[1]).astype(kind)


def by_vectors(rule, count):
    """rule over arrays, WIDTH entries at a time."""
    rule = njit(rule)

    @njit
    def one(a, out):
        for i in range(0, out.size, WIDTH):
            v.store(out, i, rule(v.load(a, i)))

    @njit
    def two(a, b, out):
        for i in range(0, out.size, WIDTH):
            v.store(out, i, rule(v.load(a, i), v.load(b, i)))

    @njit
    def three(a, b, c, out):
        for i in range(0, out.size, WIDTH):
            v.store(out, i, rule(v.load(a, i), v.load(b, i), v.load(c, i)))

    return (one, two, three)[count - 1]


@each_kind
@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (lambda a, b: a + b, operator.add),
        (lambda a, b: a - b, operator.sub),
        (lambda a, b: a * b, operator.mul),
        (lambda a, b: a / b, operator.truediv),
        (lambda a, b: v.maximum(a, b), np.maximum),
        (lambda a, b: v.choose(a < b, a, b), lambda a, b: np.where(a < b, a, b)),
        (lambda a, b: v.choose(a > b, a, b), lambda a, b: np.where(a > b, a, b)),
        (lambda a, b: v.choose(a <= b, a, b), lambda a, b: np.where(a <= b, a, b)),
        (lambda a, b: v.choose(a >= b, a, b), lambda a, b: np.where(a >= b, a, b)),
        (lambda a, b: v.choose(a == b, 3.0, b), lambda a, b: np.where(a == b, 3.0, b)),
        (lambda a, b: v.choose(a != b, a, 3.0), lambda a, b: np.where(a != b, a, 3.0)),
        (lambda a, b: -a + 2.0 * b, lambda a, b: -a + 2 * b),
    ],
)
def test_operators(kind, rule, want):
    a, b = pairs(kind)
    out = np.empty_like(a)
    by_vectors(rule, 2)(a, b, out)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, want(a, b).astype(kind))


@each_kind
def test_fma_rounds_once(kind, rng):
    a, b, c = (rng.standard_normal(512).astype(kind) for _ in range(3))
    c[::2] = -(a * b)[::2]  # what is left is the rounding error of the product
    out = np.empty_like(a)
    by_vectors(lambda a, b, c: v.fma(a, b, c), 3)(a, b, c, out)
    for i in range(a.size):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        around = abs(Fraction(float(out[i])) - exact)
        for other in (np.nextafter(out[i], kind(-np.inf)), np.nextafter(out[i], kind(np.inf))):
            assert around <= abs(Fraction(float(other)) - exact)


@pytest.mark.parametrize(
    ("kind", "rounds"), [(np.float32, 12582912.0), (np.float64, 2.0**52 * 1.5)]
)
def test_scaled_by(kind, rounds, rng):
    powers = np.arange(-60, 60)[: 14 * WIDTH]
    q = rng.uniform(1, 2, powers.size).astype(kind)
    shifted = (powers + rounds).astype(kind)
    out = np.empty_like(q)
    by_vectors(lambda q, s: v.scaled_by(q, s), 2)(q, shifted, out)
    np.testing.assert_array_equal(out, np.ldexp(q, powers))


@each_kind
@pytest.mark.parametrize("count", range(WIDTH + 1))
def test_some_of_a_vector(kind, count):
    @njit
    def copy(a, out, count):
        entries = v.load_partial(a, 2, count, a.dtype.type(7.0))
        v.store_partial(out, 3, count, entries + a.dtype.type(0.0))

    @njit
    def whole(a, out, count):
        v.store(out, 0, v.load_partial(a, 2, count, a.dtype.type(7.0)))

    a, out = np.arange(2 + count, dtype=kind), np.full(3 + WIDTH, -1, kind)
    copy(a, out, count)
    np.testing.assert_array_equal(out[3 : 3 + count], a[2:])
    assert (np.delete(out, slice(3, 3 + count)) == -1).all()
    whole(a, out, count)
    np.testing.assert_array_equal(out[:WIDTH], np.append(a[2:], np.full(WIDTH - count, 7, kind)))


def test_between_float_types(rng):
    wide = rng.standard_normal(64) * 10.0 ** rng.integers(-50, 45, 64)
    out = np.empty(64, np.float32)
    by_vectors(lambda a: a, 1)(wide, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, wide.astype(np.float32))
    again = np.empty(64)
    by_vectors(lambda a: v.to_float64(a), 1)(out, again)
    np.testing.assert_array_equal(again, out.astype(np.float64))


@each_kind
def test_across_a_vector(kind, rng):
    @njit
    def across(a):
        x = v.load(a, 0)
        return (
            v.horizontal_sum(x),
            v.entry(x, 5),
            v.any_of(x > a.dtype.type(0.5)),
            v.entry(v.splat(a[3]), 6),
        )

    a = rng.standard_normal(WIDTH).astype(kind)
    total, sixth, large, fourth = across(a)
    near, far = (a[0] + a[4]) + (a[2] + a[6]), (a[1] + a[5]) + (a[3] + a[7])
    assert total == near + far
    assert (sixth, large, fourth) == (a[5], (a > 0.5).any(), a[3])
    assert not across(np.full(WIDTH, 0.5, kind))[2]
    assert across(np.append(np.zeros(WIDTH - 1), 0.75).astype(kind))[2]


@each_kind
def test_lines(kind, rng):
    """Long vectors compute as short ones do, and come apart into two of them."""

    @njit
    def run(a, out, low, high):
        line = v.load_line(a, 0)
        v.store(out, 0, v.choose(line > 0.0, v.fma(line, 2.0, line), -line))
        first, second = v.halves(line)
        v.store(low, 0, v.to_float64(first))
        v.store(high, 0, second)

    a = rng.standard_normal(LINE).astype(kind)
    out, low, high = np.empty(LINE, kind), np.empty(WIDTH), np.empty(WIDTH, kind)
    run(a, out, low, high)
    np.testing.assert_array_equal(out, np.where(a > 0, (a * np.float64(3)).astype(kind), -a))
    np.testing.assert_array_equal(np.append(low, high), a)


def test_steps_above():
    """Whole numbers, of which the largest is found: huge for what is below, or no number."""

    @njit
    def run(a, floor):
        first, second = v.halves(v.ulps_above(v.load_line(a, 0), floor))
        return v.horizontal_maximum(v.maximum(first, second))

    floor = np.float32(2.0**23 + 100)
    a = np.arange(LINE, dtype=np.float32) + floor
    assert run(a, floor) == LINE - 1
    a[3] = floor + 200
    assert run(a, floor) == 200
    nans = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(np.float32)
    for far in (floor - 1, 0.0, -0.0, -1.0, -floor, np.inf, -np.inf, 1e30, -1e30, *nans):
        a[3] = far
        assert run(a, floor) > 2**23, far


@each_kind
@pytest.mark.parametrize("place", range(WIDTH))
def test_maximum_of(kind, place):
    @njit
    def run(a):
        return v.horizontal_maximum(v.load(a, 0))

    a = np.linspace(-3, -1, WIDTH).astype(kind)
    a[place] = 2
    assert run(a) == 2
    a[place] = np.nan
    assert np.isnan(run(a))


@each_kind
def test_streamed_lines_arrive(kind, rng):
    @njit
    def run(a, out):
        for i in range(0, out.size // 2, WIDTH):
            v.stream(out, i, v.load(a, i))
        for i in range(out.size // 2, out.size, LINE):
            v.stream(out, i, v.load_line(a, i))
        memory.fence()

    buffer = np.zeros(1024 + 64, kind)
    start = (-buffer.ctypes.data % 64) // buffer.itemsize
    a = rng.standard_normal(1024).astype(kind)
    run(a, buffer[start : start + 1024])
    np.testing.assert_array_equal(buffer[start : start + 1024], a)
    assert np.count_nonzero(buffer) == 1024


def test_a_borrowed_array_is_the_same_array():
    @njit
    def double(a):
        b = memory.borrowed(a)
        for r in range(b.shape[0]):
            row = b[r]
            for i in range(row.size):
                row[i] *= 2.0

    a = np.ones((3, 5))
    double(a)
    double(a[:, ::2])
    np.testing.assert_array_equal(a, np.tile([4.0, 2.0, 4.0, 2.0, 4.0], (3, 1)))
