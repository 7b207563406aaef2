"""softmax and its family at special values, and at every temperature."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import reference
from arrays import on
from comparisons import TYPES, dtype_of
from softmax_family import same

import hotmax as hm

INF, NAN = math.inf, math.nan
B = 1.7e308

REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)


# --- the table of special values --------------------------------------------------------------

LN2 = math.log(2)

#   row, softmax, log_softmax, logsumexp, smoothmax, entropy, softargmax
SPECIAL = {
    "-inf is not there": ([0, -INF, 0], [0.5, 0, 0.5], [-LN2, -INF, -LN2], LN2, LN2, LN2, 1),
    "one +inf takes all": ([0, INF, 5], [0, 1, 0], [-INF, 0, -INF], INF, INF, 0, 1),
    "+inf entries share": (
        [INF, 1, INF, -INF],
        [0.5, 0, 0.5, 0],
        [-LN2, -INF, -LN2, -INF],
        INF,
        INF,
        LN2,
        1,
    ),
    "nan spoils the row": ([0, NAN, 1], [NAN] * 3, [NAN] * 3, NAN, NAN, NAN, NAN),
    "nan beside +inf": ([INF, NAN, 1], [NAN] * 3, [NAN] * 3, NAN, NAN, NAN, NAN),
    "nan beside -inf": ([-INF, -INF, NAN], [NAN] * 3, [NAN] * 3, NAN, NAN, NAN, NAN),
    "everything -inf": ([-INF, -INF], [NAN] * 2, [NAN] * 2, -INF, -INF, NAN, NAN),
    "a single class": ([7.5], [1], [0], 7.5, 7.5, 0, 0),
    "a single class, -inf": ([-INF], [NAN], [NAN], -INF, -INF, NAN, NAN),
    "a single class, +inf": ([INF], [1], [0], INF, INF, 0, 0),
    "zeros of both signs tie": ([0.0, -0.0], [0.5, 0.5], [-LN2, -LN2], LN2, LN2, LN2, 0.5),
}
NAMES = ("softmax", "log_softmax", "logsumexp", "smoothmax", "entropy", "softargmax")


def padded(row: list, n: int) -> list:
    """The row with classes that are not there behind it, to reach the kernels for long rows."""
    return row + [-INF] * (n - len(row))


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("temperature", [1.0, 1e-3, 1e300, 1e-300])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name, temperature, type_name):
    """As the table says, in short rows and in long ones, alone and beside ordinary rows."""
    row, p, log_p, lse, smooth, entropy, index = SPECIAL[name]
    dtype = dtype_of(type_name)
    with np.errstate(over="ignore"):
        finite = len(row) == 1 and math.isfinite(row[0])  # then max / T and T log n matter
        zero = all(v in (0, -INF) for v in row) and not all(v == -INF for v in row)
        if finite:
            lse = row[0] / temperature
        if zero:
            smooth = temperature * LN2
        expected = [np.asarray(v, np.float64).astype(dtype) for v in (p, log_p, lse, smooth)]
        expected += [np.asarray(v, np.float64).astype(dtype) for v in (entropy, index)]
    for n in (len(row), 40, 70, 600):
        x = np.array(padded(row, n) if n > len(row) else row).astype(dtype)
        ordinary = np.linspace(0, 1, n).astype(dtype)
        batch = np.stack([ordinary, x, ordinary])
        for function, want in zip(NAMES, expected, strict=True):
            got = getattr(hm, function)(x, temperature=temperature)
            inside = getattr(hm, function)(batch, temperature=temperature)[1]
            assert np.asarray(got).tobytes() == np.ascontiguousarray(inside).tobytes(), function
            if want.ndim:
                rest = np.asarray(got, np.float64)[len(row) :]
                got = np.asarray(got)[: len(row)]
                empty = NAN if np.isnan(want).all() else (0.0 if function == "softmax" else -INF)
                same(rest, np.full(rest.shape, empty))
            np.testing.assert_allclose(
                np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=2e-16, atol=0
            )


@pytest.mark.parametrize("n", [3, 70, 600])
def test_everything_masked(n):
    """0, -inf and -inf, whatever hides under the mask."""
    for hidden in (0.0, NAN, INF, -INF):
        x = np.full((2, n), hidden)
        x[1] = 0.0
        where = np.zeros((2, n), bool)
        where[1] = True
        for function, empty in (
            (hm.softmax, 0.0),
            (hm.log_softmax, -INF),
            (hm.softmin, 0.0),
            (hm.logsumexp, -INF),
            (hm.smoothmax, -INF),
            (hm.entropy, 0.0),
            (hm.softargmax, 0.0),
        ):
            result = function(x, where=where)
            same(result[0], np.full(np.shape(result[0]), empty))
            same(result[1], function(x[1]))
        same(hm.hardmax(x, where=where)[0], np.zeros(n))
        same(hm.logsumexp(x, where=where, weights=np.ones(n))[0], -INF)


@pytest.mark.parametrize("temperature", [1.0, 0.0, INF, -1.0, -INF])
@pytest.mark.parametrize("n", [4, 70, 600])
def test_everything_masked_at_a_negative_temperature(n, temperature):
    """logsumexp of nothing is -inf; smoothmax is T times that, the minimum of nothing."""
    x, where = np.zeros(n), np.zeros(n, bool)
    for t in (temperature, -temperature):
        same(hm.softmax(x, where=where, temperature=t), np.zeros(n))
        same(hm.logsumexp(x, where=where, temperature=t), -INF)
        smooth = -math.copysign(INF, t)
        same(hm.smoothmax(x, where=where, temperature=t), smooth)
        same(hm.smoothmax(np.full(n, smooth), temperature=t), smooth)
        same(hm.smoothmax(x[:0], temperature=t), smooth)


@pytest.mark.parametrize("temperature", [1.0, 0.0, INF, -1.0, -INF])
@pytest.mark.parametrize("n", [4, 70, 600])
def test_what_is_masked_never_leaks(n, temperature):
    """The same bits as without the hidden entries, whatever they are."""
    rng = np.random.default_rng(n)
    where = rng.random(n) < 0.6
    where[:2] = True, False
    clean = rng.standard_normal(n)
    for type_name in TYPES:
        x = clean.astype(dtype_of(type_name))
        for hidden in (NAN, INF, -INF, 1e4):
            dirty = x.copy()
            dirty[~where] = hidden
            for function in (hm.softmax, hm.log_softmax, *REDUCING):
                got = function(dirty, where=where, temperature=temperature)
                want = function(x, where=where, temperature=temperature)
                same(got, want)
        same(hm.softmax(x, where=where, temperature=temperature)[~where].astype(float), 0.0)
        same(hm.log_softmax(x, where=where, temperature=temperature)[~where].astype(float), -INF)


def test_where_on_the_largest_entry():
    same(hm.softmax([1.0, 9.0, 1.0], where=[True, False, True]), [0.5, 0, 0.5])
    same(hm.hardmax([1.0, 9.0, 1.0], where=[True, False, True]), [0.5, 0, 0.5])
    same(hm.softmax([1.0, -9.0, 1.0], where=[True, False, True], temperature=-1), [0.5, 0, 0.5])
    same(hm.softargmax([1.0, 9.0, 1.0], where=[True, False, True]), 1)


def test_where_broadcasts():
    x = np.arange(6.0).reshape(2, 3)
    same(hm.softmax(x, where=[True, False, True])[:, 1], [0, 0])
    same(hm.softmax(x, where=[[True], [False]])[1], [0, 0, 0])
    same(hm.softmax(x, where=True), hm.softmax(x))
    same(hm.softmax(x, where=False), np.zeros((2, 3)))


def test_a_masked_array_is_its_data_with_a_mask():
    x = np.ma.masked_array([1.0, NAN, 3.0], mask=[False, True, False])
    same(hm.softmax(x), hm.softmax(np.array([1.0, 0.0, 3.0]), where=[True, False, True]))
    same(hm.logsumexp(x), hm.logsumexp([1.0, 3.0]))
    same(hm.logsumexp(x, weights=[1.0, 1.0, 1.0]), hm.logsumexp([1.0, 3.0], weights=[1.0, 1.0]))
    same(hm.softmax(x, where=[True, True, False]), [1, 0, 0])


# --- temperature ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 70, 600])
@pytest.mark.parametrize("type_name", TYPES)
def test_temperature_zero_is_the_largest_entries(n, type_name):
    x = np.zeros(n, dtype_of(type_name))
    x[[1, 3]] = 2
    x[0] = -1
    p = np.zeros(n)
    p[[1, 3]] = 0.5
    ln2 = np.asarray(LN2).astype(x.dtype)
    for zero in (0, 0.0, np.float32(0), False):
        same(hm.softmax(x, temperature=zero), p)
        same(hm.log_softmax(x, temperature=zero), np.where(p > 0, -float(ln2), -INF))
        same(hm.logsumexp(x, temperature=zero), INF)
        same(hm.smoothmax(x, temperature=zero), 2)
        same(hm.entropy(x, temperature=zero), ln2)
        same(hm.softargmax(x, temperature=zero), 2)
    same(hm.hardmax(x), p)
    same(hm.logsumexp(-x, temperature=0), INF)
    same(hm.logsumexp(x - x.dtype.type(9), temperature=0), -INF)
    same(hm.logsumexp(x * x.dtype.type(0), temperature=0), np.asarray(math.log(n)).astype(x.dtype))


@pytest.mark.parametrize("n", [5, 70, 600])
@pytest.mark.parametrize("type_name", TYPES)
def test_minus_zero_is_the_limit_from_below(n, type_name):
    """All mass on the smallest entries: 1 / ln b as b -> 0."""
    x = np.arange(n).astype(dtype_of(type_name))
    x[3] = 0
    p = np.zeros(n)
    p[[0, 3]] = 0.5
    for zero in (-0.0, np.array([-0.0]), hm.temperature_of_base(0)):
        same(hm.softmax(x, temperature=zero), p)
        same(hm.smoothmax(x, temperature=zero), 0)
        same(hm.softargmax(x, temperature=zero), 1.5)
    same(hm.softmin(x, temperature=0.0), p)


@pytest.mark.parametrize("n", [5, 70, 600])
@pytest.mark.parametrize("type_name", TYPES)
def test_temperature_inf_is_uniform(n, type_name):
    x = np.random.default_rng(n).standard_normal(n).astype(dtype_of(type_name))
    x[2] = -INF
    share = np.asarray(1 / (n - 1)).astype(x.dtype)
    log_n = np.asarray(math.log(n - 1)).astype(x.dtype)
    for temperature in (INF, np.float32(INF)):
        same(hm.softmax(x, temperature=temperature), np.where(x > -INF, float(share), 0))
        same(hm.log_softmax(x, temperature=temperature), np.where(x > -INF, -float(log_n), -INF))
        same(hm.logsumexp(x, temperature=temperature), log_n)
        same(hm.entropy(x, temperature=temperature), log_n)
        same(hm.smoothmax(x, temperature=temperature), INF)
        middle = (n * (n - 1) / 2 - 2) / (n - 1)
        same(hm.softargmax(x, temperature=temperature), np.asarray(middle).astype(x.dtype))
    same(hm.smoothmax(x[:1], temperature=INF), x[0])
    x[2] = INF
    same(hm.softmax(x, temperature=-INF), np.where(x < INF, float(share), 0))
    same(hm.smoothmax(x, temperature=-INF), -INF)


@pytest.mark.parametrize("n", [5, 70, 600, 20000])
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("temperature", [0.7, 1e-300, 1e300, INF])
def test_negative_temperature_turns_the_row(n, type_name, temperature):
    """softmax(x, -T) = softmax(-x, T), within an ULP or two; smoothmax becomes a smooth minimum."""
    x = np.random.default_rng(n).standard_normal(n).astype(dtype_of(type_name))
    loose = {"rtol": 4 * 2.0 ** (1 - reference.FORMATS[type_name][0]), "atol": 0}
    for special_value in (x[0], -40.0, INF, -INF, NAN):
        x[0] = special_value
        for function in (hm.softmax, hm.log_softmax, hm.logsumexp, hm.entropy, hm.softargmax):
            negated = function(x, temperature=-temperature)
            np.testing.assert_allclose(
                np.asarray(negated, np.float64),
                np.asarray(function(-x, temperature=temperature), np.float64),
                **loose,
            )
        low = np.float64(hm.smoothmax(x, temperature=-temperature))
        np.testing.assert_allclose(-low, float(hm.smoothmax(-x, temperature=temperature)), **loose)


@pytest.mark.parametrize("n", [5, 70, 600])
def test_softmin_is_softmax_of_minus_x(n):
    x = np.random.default_rng(n).standard_normal((3, n))
    x[0, 1] = INF
    x[1, :2] = -INF
    for t in (1.0, 0.3, 0.0, INF, -2.0, 1e-300, np.array([[0.0], [1.0], [-1.0]])):
        np.testing.assert_allclose(
            hm.softmin(x, temperature=t), hm.softmax(-x, temperature=t), rtol=1e-15, atol=0
        )


def test_temperature_for_each_row():
    x = np.random.default_rng(0).standard_normal((4, 3, 70))
    temperature = np.array([0.5, 0.0, INF, -1.0]).reshape(4, 1, 1)
    for function in (hm.softmax, hm.log_softmax, *REDUCING):
        got = function(x, temperature=temperature)
        for i, t in enumerate(temperature.ravel()):
            same(got[i], function(x[i], temperature=float(t)))
    temperature = np.random.default_rng(1).random((4, 3, 1)).astype(np.float32)
    got = hm.softmax(x, temperature=temperature)
    same(got[2, 1], hm.softmax(x[2, 1], temperature=float(temperature[2, 1, 0])))
    temperature = np.array([0.5, 1.0, 2.0])  # along the last axis, for classes on the first
    for short in (4, 3):
        y = x[:short, :, 0]
        got = hm.softmax(y, axis=0, temperature=temperature)
        for j in range(3):
            same(got[:, j], hm.softmax(y[:, j], temperature=float(temperature[j])))


@pytest.mark.parametrize("rows", [1, 5, 40, 3000])
@pytest.mark.parametrize("n", [3, 70])
def test_temperature_array_meets_each_dispatch(rows, n):
    """Per-row temperatures through lanes, rows, staging and threads."""
    rng = np.random.default_rng(rows)
    x, temperature = rng.standard_normal((rows, n)), rng.random((rows, 1)) + 0.1
    picked = rng.integers(0, rows, 5)
    for where in (None, np.ones((rows, n), bool)):
        got = hm.softmax(x, temperature=temperature, where=where)
        for r in picked:
            same(got[r], hm.softmax(x[r], temperature=float(temperature[r, 0])))


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (2, 1 / math.log(2)),
        (math.e, 1.0),
        (10.0, 1 / math.log(10)),
        (0.5, -1 / math.log(2)),
        (1, INF),
        (INF, 0.0),
        (1 + 2**-52, 2.0**52),
    ],
)
def test_temperature_of_base(base, expected):
    assert hm.temperature_of_base(base) == pytest.approx(expected, rel=4e-16)


def test_temperature_of_base_is_the_base_of_the_powers():
    x = np.array([0.0, 1.0, 3.0])
    for base in (0.25, 1.5, 2.0, 10.0):
        p = hm.softmax(x, temperature=hm.temperature_of_base(base))
        np.testing.assert_allclose(p, base**x / (base**x).sum(), rtol=1e-14)
    same(hm.softmax(x, temperature=hm.temperature_of_base(1)), [1 / 3] * 3)
    same(hm.softmax(x, temperature=hm.temperature_of_base(INF)), [0, 0, 1])


@on("numpy", "strict", "torch", "dask")
@pytest.mark.parametrize(
    ("row", "temperature"),
    [([-B] * 3, B), ([-B, -B, -B], 1.2e308), ([B] * 3, -B), ([-np.inf, -B, -B], B)],
)
def test_smoothmax_where_its_second_term_is_beyond_all_numbers(xp, row, temperature):
    """T log n overflows, and max + T log n does not. Before: inf."""
    with mpmath.workdps(50):
        x = [mpmath.mpf(v) / temperature for v in row if np.isfinite(v)]
        truth = float(temperature * (max(x) + mpmath.log(sum(mpmath.exp(v - max(x)) for v in x))))
    got = xp.call(hm.smoothmax, np.array(row), temperature=temperature)
    assert abs(float(got) - truth) <= 4 * np.spacing(B)


@on("numpy", "strict", "torch", "dask")
@pytest.mark.parametrize(
    ("row", "temperature"),
    [([5e-324, 0.0, 1e-323], 1e-160), ([1e-200, 0.0, 3e-200], -1e-40)],
)
def test_the_derivative_of_entropy_where_its_square_is_below_all_numbers(xp, row, temperature):
    """The variance of x / T underflows, and that over T does not. Before: 0."""
    with mpmath.workdps(50):
        x = [mpmath.mpf(v) for v in row]  # at three equal probabilities, within 1e-150
        variance = sum((v - sum(x) / 3) ** 2 for v in x) / 3
        truth = float(variance / mpmath.mpf(temperature) ** 3)
    got = xp.call(hm.entropy_temperature_derivative, np.array(row), temperature=temperature)
    np.testing.assert_allclose(got, truth, rtol=1e-14)
