"""softmax and its family against the truth: every hard row, special value, limit and option."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import reference
from comparisons import CASES, FUNCTIONS, PEERS, TYPES, dtype_of
from scipy import special

import hotmax as hm

INF, NAN = math.inf, math.nan
ENTRYWISE = (hm.softmax, hm.log_softmax, hm.softmin, hm.hardmax)
REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)


def same(got, expected) -> None:
    """Equal values, nan where nan is expected: no tolerance."""
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


# --- accuracy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "type_name"),
    [
        pytest.param(case, type_name, id=f"{case.name}, {type_name}")
        for case in CASES
        for type_name in case.types
    ],
)
def test_accuracy(case, type_name):
    """Every function, at every temperature of the case, within its tolerance."""
    row = case.row(type_name)
    before = row.tobytes()
    beyond = []
    for temperature in case.temperatures:
        for function in FUNCTIONS.values():
            result = function.ours(row, temperature=temperature)
            assert result.dtype == row.dtype
            ulps = function.worst_ulps(result, row, temperature)
            if not ulps <= function.tolerance[type_name]:
                beyond.append(f"{function.name} at T={temperature:g}: {ulps:.3g} ULP")
    assert not beyond, "; ".join(beyond)
    assert row.tobytes() == before


@pytest.mark.parametrize("temperature", [1.0, 0.7, 30.0])
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (4, 3, 0, 5, 2, 1), (1, 4, 0, 2)])
def test_long_rows_whose_parts_lie_far_apart(order, temperature):
    """float32 rows beyond 16384 classes are computed in parts, each relative to its own maximum."""
    heights = np.array([0.0, -10.0, -40.0, -70.0, -95.0, -np.inf])[list(order)]
    rng = np.random.default_rng(0)
    x = np.concatenate([h + rng.standard_normal(17_000) for h in heights]).astype(np.float32)
    x *= np.float32(temperature)
    got = hm.softmax(x, temperature=temperature)
    z = x.astype(np.longdouble) / np.longdouble(temperature)
    terms = np.exp(z - z.max())
    true = terms / terms.sum()
    spacing = np.spacing(np.maximum(true.astype(np.float32), np.float32(2.0**-149)))
    assert (np.abs(got.astype(np.longdouble) - true) / spacing).max() <= 2.0
    assert got[x == -np.inf].max(initial=0.0) == 0.0
    for bad in (np.nan, np.inf):
        y = x.copy()
        y[20_000] = bad
        want = np.full(y.size, np.nan) if np.isnan(bad) else np.arange(y.size) == 20_000
        same(hm.softmax(y, temperature=temperature), want)


@pytest.mark.parametrize("scale", [10, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
def test_many_ordinary_rows(scale, temperature):
    """Among them rows whose maximum is nearly all there is, so that its rounding counts."""
    x = (np.random.default_rng(1).standard_normal((1000, 1000)) * scale).astype(np.float32)
    got = hm.softmax(x, temperature=temperature)
    z = x.astype(np.longdouble) / np.longdouble(temperature)
    terms = np.exp(z - z.max(-1, keepdims=True))
    true = terms / terms.sum(-1, keepdims=True)
    spacing = np.spacing(np.maximum(true.astype(np.float32), np.float32(2.0**-149)))
    assert (np.abs(got - true) / spacing).max() <= 2.0
    assert got.max() <= 1.0


@pytest.mark.parametrize("axis", [0, 1])
def test_a_lone_class_is_certain(axis):
    x = np.full((2000, 65), -np.inf, np.float32)
    x[:, 7] = np.linspace(-5, 5, 2000)
    x = np.ascontiguousarray(x.T) if axis == 0 else x
    assert (hm.softmax(x, axis=axis).max(axis) == 1.0).all()


def test_large_results():
    """A large result owns its memory, like any other array, and keeps the bits of its rows."""
    x = np.random.default_rng(0).standard_normal((8200, 1024), np.float32)
    p = hm.softmax(x)
    assert (p.shape, p.flags.c_contiguous, p.flags.writeable) == (x.shape, True, True)
    assert p.flags.owndata
    assert p[-3:].tobytes() == hm.softmax(x[-3:]).tobytes()


@pytest.mark.parametrize("type_name", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 10, 64, 65, 100, 1000, 3000, 20_000, 200_000])
def test_equal_logits_share_evenly(n, type_name):
    """Exactly, to the last bit, and so do those that share with classes that have nothing."""
    kind = np.dtype(type_name).type
    for value in np.random.default_rng(n).standard_normal(40).astype(kind) * kind(9):
        x = np.full((3, n), value, kind)
        x[1, ::2] = -np.inf
        x[2, n // 2 :] -= 80
        half = kind(1) / kind(n // 2)
        for got in (hm.softmax(x), hm.softmax(x.T.copy(), axis=0).T):
            np.testing.assert_array_equal(got[0], kind(1) / kind(n))
            np.testing.assert_array_equal(got[1], np.where(x[1] == value, half, 0))
            np.testing.assert_array_equal(got[2, : n // 2], half)


def test_probabilities_add_up_to_one():
    for n in (2, 10, 64, 65, 1000, 100_000):
        p = hm.softmax(np.random.default_rng(n).standard_normal(n) * 5)
        assert abs(math.fsum(p.tolist()) - 1) < 1e-15


def test_ulps_measure_what_they_say():
    """The measure itself: half a spacing is 0.5 in every type, among subnormals too."""
    mp = reference.mp
    for name, (digits, least, greatest) in reference.FORMATS.items():
        eps = mp.ldexp(1, 1 - digits)
        assert reference.ulps(1.0, 1 + eps / 2, name) == 0.5
        assert reference.ulps(2.0**least, mp.ldexp(1, least) * (1 + eps / 4), name) == 0.25
        tiny = mp.ldexp(1, least - digits + 1)
        assert reference.ulps(0.0, tiny / 2, name) == 0.5
        assert reference.ulps(0.0, tiny / 2**20, name) < 1e-5
        assert reference.ulps(INF, mp.ldexp(1, greatest + 2), name) == 0.0
        assert reference.ulps(INF, mp.ldexp(1, greatest), name) > 100
        assert reference.ulps(-INF, mp.ldexp(1, greatest + 2), name) == INF
        assert reference.ulps(1.0, mp.nan, name) == INF
        assert reference.ulps(NAN, mp.mpf(1), name) == INF
        assert reference.ulps(3.0, mp.inf, name) == INF


def test_reference_agrees_with_naive_formulas():
    x = np.random.default_rng(0).standard_normal((3, 5))
    for name in FUNCTIONS:
        for t in (0.5, 1.0, -2.0):
            naive = getattr(reference, f"naive_{name}")(x, t)
            true = reference.along(getattr(reference, name), x, -1, t).astype(np.float64)
            np.testing.assert_allclose(naive, true, rtol=1e-13, atol=1e-14)


# --- what the peers get wrong -----------------------------------------------------------------


def test_peers_lose_float32_digits():
    """scipy, torch and jax are tens of ULP off at N(0,10); ours is within 2."""
    row = (np.random.default_rng(0).standard_normal(1000) * 10).astype(np.float32)
    softmax = FUNCTIONS["softmax"]
    assert softmax.worst_ulps(hm.softmax(row), row, 1.0) <= 2
    for peer in PEERS.values():
        assert softmax.worst_ulps(peer("softmax", row), row, 1.0) > 10, peer.name


def test_peers_lose_every_digit_near_one_hot():
    row = np.array([0.0, -40.0])
    log_softmax = FUNCTIONS["log_softmax"]
    assert log_softmax.worst_ulps(hm.log_softmax(row), row, 1.0) <= 1
    for peer in PEERS.values():
        assert peer("log_softmax", row)[0] == 0, peer.name


def test_int8_does_not_wrap_around():
    row = np.array([-128, 127, 0], np.int8)
    truth = reference.softmax(row)
    assert reference.worst_ulps(hm.softmax(row), truth) <= 2
    for peer in (PEERS["scipy"], PEERS["jax"]):  # torch refuses it
        assert reference.worst_ulps(peer("softmax", row), truth) > 1e6, peer.name


def test_dividing_first_overflows():
    row, t = np.array([1e300, 0.0]), 1e-10
    same(hm.softmax(row, temperature=t), [1, 0])
    with np.errstate(all="ignore"):
        assert np.isnan(special.softmax(row / t)).any()


# --- published figures ------------------------------------------------------------------------

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())["rows"]
CALLS = {
    "softmax": hm.softmax,
    "log_softmax": hm.log_softmax,
    "argsort of softmax": lambda x: np.argsort(hm.softmax(x)),
    "round of softargmax": lambda x: np.round(hm.softargmax(x)),
    "softmax([1,2,3])[2] / softmax([1,2,3])[0]": lambda: (
        hm.softmax([1, 2, 3])[2] / hm.softmax([1, 2, 3])[0]
    ),
}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["id"])
def test_published_figure(row):
    arguments = [np.array(row["x"])] if "x" in row else []
    options = {"temperature": row["temperature"]} if "temperature" in row else {}
    result = CALLS[row["call"]](*arguments, **options)
    np.testing.assert_allclose(
        result, row["expect"], rtol=row.get("rtol", 0), atol=row.get("atol", 0)
    )


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
    for heat in (INF, np.float32(INF)):
        same(hm.softmax(x, temperature=heat), np.where(x > -INF, float(share), 0))
        same(hm.log_softmax(x, temperature=heat), np.where(x > -INF, -float(log_n), -INF))
        same(hm.logsumexp(x, temperature=heat), log_n)
        same(hm.entropy(x, temperature=heat), log_n)
        same(hm.smoothmax(x, temperature=heat), INF)
        middle = (n * (n - 1) / 2 - 2) / (n - 1)
        same(hm.softargmax(x, temperature=heat), np.asarray(middle).astype(x.dtype))
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
            turned = function(x, temperature=-temperature)
            np.testing.assert_allclose(
                np.asarray(turned, np.float64),
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
    heat = np.array([0.5, 0.0, INF, -1.0]).reshape(4, 1, 1)
    for function in (hm.softmax, hm.log_softmax, *REDUCING):
        got = function(x, temperature=heat)
        for i, t in enumerate(heat.ravel()):
            same(got[i], function(x[i], temperature=float(t)))
    heat = np.random.default_rng(1).random((4, 3, 1)).astype(np.float32)
    got = hm.softmax(x, temperature=heat)
    same(got[2, 1], hm.softmax(x[2, 1], temperature=float(heat[2, 1, 0])))
    heat = np.array([0.5, 1.0, 2.0])  # along the last axis, for classes on the first
    for short in (4, 3):
        y = x[:short, :, 0]
        got = hm.softmax(y, axis=0, temperature=heat)
        for j in range(3):
            same(got[:, j], hm.softmax(y[:, j], temperature=float(heat[j])))


@pytest.mark.parametrize("rows", [1, 5, 40, 3000])
@pytest.mark.parametrize("n", [3, 70])
def test_temperature_array_meets_each_dispatch(rows, n):
    """Per-row temperatures through lanes, rows, staging and threads."""
    rng = np.random.default_rng(rows)
    x, heat = rng.standard_normal((rows, n)), rng.random((rows, 1)) + 0.1
    picked = rng.integers(0, rows, 5)
    for where in (None, np.ones((rows, n), bool)):
        got = hm.softmax(x, temperature=heat, where=where)
        for r in picked:
            same(got[r], hm.softmax(x[r], temperature=float(heat[r, 0])))


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


# --- logsumexp: weights, sign, keepdims -------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 70, 600])
@pytest.mark.parametrize("temperature", [1.0, 0.7, -2.0, 1e3])
def test_weights_against_the_truth(n, temperature):
    rng = np.random.default_rng(n)
    for scale in (1.0, 100.0):
        x = rng.standard_normal(n) * scale
        for weights in (rng.random(n), rng.random(n) * 1e300, rng.random(n) * 1e-300):
            got = hm.logsumexp(x, weights=weights, temperature=temperature)
            true, _ = reference.weighted_logsumexp(x, weights, temperature)
            peak = max(abs(v / temperature) for v in x)
            largest = max(peak, abs(float(np.log(weights.max()))), abs(float(true)))
            assert reference.ulps(got, true, "float64", reference.mp.mpf(largest)) <= 2


@pytest.mark.parametrize("n", [2, 10, 70])
def test_signed_weights_against_the_truth(n):
    rng = np.random.default_rng(n)
    for _ in range(5):
        x, weights = rng.standard_normal(n) * 5, rng.standard_normal(n)
        got, sign = hm.logsumexp(x, weights=weights, return_sign=True)
        true, true_sign = reference.weighted_logsumexp(x, weights)
        assert sign == float(true_sign)
        assert abs(float(got) - float(true)) < 1e-11


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_logsumexp_as_in_scipy(axis, keepdims):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 5)) * 3
    for weights in (None, rng.random((3, 4, 5)), rng.random((1, 4, 1)), 2.5, rng.random(5)):
        got = hm.logsumexp(x, axis=axis, keepdims=keepdims, weights=weights)
        want = special.logsumexp(x, axis=axis, keepdims=keepdims, b=weights)
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-13)
    weights = rng.standard_normal((3, 4, 5))
    got, sign = hm.logsumexp(x, axis=axis, keepdims=keepdims, weights=weights, return_sign=True)
    want, want_sign = special.logsumexp(
        x, axis=axis, keepdims=keepdims, b=weights, return_sign=True
    )
    assert np.shape(got) == np.shape(sign) == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=1e-11)
    same(sign, want_sign)


def test_zero_weights_leave_out_even_inf_and_nan():
    same(hm.logsumexp([INF, 0.0], weights=[0.0, 1.0]), 0)
    same(hm.logsumexp([NAN, 0.0], weights=[0.0, 2.0]), LN2)
    same(hm.logsumexp([5.0, 0.0], weights=[0.0, 0.0]), -INF)
    same(hm.logsumexp([5.0, 0.0], weights=[0.0, 0.0], return_sign=True), (-INF, 0))
    same(hm.logsumexp([1.0, 1.0], weights=[1.0, -1.0], return_sign=True), (-INF, 0))
    same(hm.logsumexp([INF, 0.0], weights=[1.0, 1.0]), INF)
    same(hm.logsumexp([INF, 0.0], weights=[-1.0, 1.0], return_sign=True), (INF, -1))
    same(hm.logsumexp([-INF, 0.0], weights=[5.0, 1.0]), 0)
    same(hm.logsumexp([NAN, 0.0], weights=[1.0, 1.0]), NAN)
    same(hm.logsumexp([1.0, 0.0], weights=[NAN, 1.0]), NAN)
    same(hm.logsumexp([0.0, 0.0], weights=[1.0, 1.0], return_sign=True), (LN2, 1))


def test_the_logarithm_of_a_negative_sum_is_nan():
    """As in SciPy, where the sign is not asked for."""
    x = [[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]
    same(hm.logsumexp(x, weights=[1.0, -1.0])[[0, 2]], [NAN, -INF])
    assert hm.logsumexp(x, weights=[1.0, -1.0])[1] == pytest.approx(math.log(math.e**2 - math.e))
    out = np.zeros(3)
    same(hm.logsumexp(x, weights=-1.0, out=out), [NAN] * 3)
    same(out, [NAN] * 3)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -1.0], temperature=INF, return_sign=True)[1], 0)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -2.0], temperature=INF), NAN)
    same(hm.logsumexp([0.0, 1.0], weights=[1.0, -2.0], temperature=0.0), NAN)


def test_weights_broadcast_x_too():
    got = hm.logsumexp(np.zeros(3), weights=np.ones((2, 3)))
    np.testing.assert_allclose(got, [math.log(3)] * 2, rtol=1e-15)
    x = np.random.default_rng(0).standard_normal((4, 6))
    where = x > -0.5
    np.testing.assert_array_equal(
        hm.logsumexp(x, weights=np.full(6, 3.0), where=where),
        hm.logsumexp(x, weights=np.where(where, 3.0, 0.0)),
    )


def test_unit_weights_change_nothing():
    for n in (3, 70, 600):
        x = np.random.default_rng(n).standard_normal((2, n)) * 4
        np.testing.assert_allclose(hm.logsumexp(x, weights=np.ones(n)), hm.logsumexp(x), rtol=2e-16)
        same(hm.logsumexp(x, return_sign=True)[1], [1, 1])


def test_keepdims():
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for function in REDUCING:
        for axis, shape in (
            (-1, (2, 3, 1)),
            (0, (1, 3, 4)),
            ((0, 2), (1, 3, 1)),
            (None, (1, 1, 1)),
        ):
            kept = function(x, axis=axis, keepdims=True)
            assert kept.shape == shape
            same(kept, np.reshape(function(x, axis=axis), shape))


# --- shapes and kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, (0, 1), (2, 0), (0, 1, 2), [1], np.int64(1)])
def test_axes(axis):
    """Any axes: the same as moving them to the end and flattening."""
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    axes = tuple(range(3)) if axis is None else tuple(np.atleast_1d(axis) % 3)
    axes = tuple(sorted(int(a) for a in axes))
    others = tuple(a for a in range(3) if a not in axes)
    moved = x.transpose(others + axes)
    flat = np.ascontiguousarray(moved).reshape([x.shape[a] for a in others] + [-1])
    for function in ENTRYWISE:
        back = function(flat).reshape(moved.shape).transpose(np.argsort(others + axes))
        same(function(x, axis=axis), back)
    for function in REDUCING:
        same(function(x, axis=axis), function(flat))


def test_no_axes_at_all():
    """axis=() leaves every entry a row of its own."""
    x = np.array([[1.0, 2.0]])
    same(hm.softmax(x, axis=()), [[1.0, 1.0]])
    same(hm.logsumexp(x, axis=()), x)


def test_a_single_number_is_one_class():
    for number in (3.0, 3, True, np.float32(3), np.array(3.0)):
        for axis in (-1, 0, None):
            assert np.shape(hm.softmax(number, axis=axis)) == ()
            same(hm.softmax(number, axis=axis), 1)
            same(hm.log_softmax(number, axis=axis), 0)
            same(hm.logsumexp(number, axis=axis), float(number))
            same(hm.entropy(number, axis=axis), 0)
    assert hm.softmax(np.float32(3)).dtype == np.float32
    same(hm.softmax(-INF), NAN)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (0, 0), (2, 0, 3)])
def test_empty(shape):
    for type_name in TYPES:
        x = np.empty(shape, dtype_of(type_name))
        for axis in (-1, 0, None):
            for function in ENTRYWISE:
                result = function(x, axis=axis)
                assert result.shape == shape
                assert result.dtype == x.dtype
            reduced = np.empty(shape).sum(axis).shape
            for function, empty in zip(REDUCING, (-INF, -INF, 0.0, 0.0), strict=True):
                result = function(x, axis=axis)
                assert result.dtype == x.dtype
                same(result, np.full(reduced, empty))
    same(hm.logsumexp([]), -INF)
    same(hm.logsumexp([], weights=[], return_sign=True), (-INF, 0))
    assert hm.softmax([]).shape == (0,)
    same(hm.softmax(np.empty((0, 3)), temperature=np.empty((0, 1)), where=np.empty((0, 3), bool)),
         np.empty((0, 3)))  # fmt: skip


def test_lists_and_tuples():
    same(hm.softmax([[1, 2], [3, 3]]), hm.softmax(np.array([[1.0, 2.0], [3.0, 3.0]])))
    same(hm.softmax((1.5, True)), hm.softmax(np.array([1.5, 1.0])))
    same(hm.logsumexp([np.float32(0), np.float32(0)]), np.float32(LN2))
    same(hm.softmax([1.0, 2.0], temperature=[0.5]), hm.softmax([1.0, 2.0], temperature=0.5))


@pytest.mark.parametrize("dtype", list("bBhHiIlLqQ?"))
def test_integers_and_bools_are_float64(dtype):
    dtype = np.dtype(dtype)
    numbers = [0, 1] if dtype.kind == "b" else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 7]
    x = np.array(numbers, dtype)
    for function in ENTRYWISE + REDUCING:
        result = function(x)
        assert result.dtype == np.float64
        same(result, function(np.array([float(v) for v in numbers])))


def test_integers_tell_entries_apart_as_float64_does():
    x = np.array([2**62, 2**62 + 2**10, 2**62 + 2**11], np.int64)
    same(hm.softmax(x, temperature=1024.0), hm.softmax(x.astype(np.float64), temperature=1024.0))


@pytest.mark.parametrize("type_name", TYPES)
def test_floats_come_back_as_they_went_in(type_name):
    x = np.array([[1, 2, 3], [3, 2, 1]]).astype(dtype_of(type_name))
    for function in ENTRYWISE + REDUCING:
        assert function(x).dtype == x.dtype
        assert function(x[0]).dtype == x.dtype
        assert function(x[0, 0]).dtype == x.dtype
    result, sign = hm.logsumexp(x, weights=1.0, return_sign=True)
    assert result.dtype == sign.dtype == x.dtype


def test_half_precision_overflows_to_inf_without_a_word():
    x = np.array([60000, 60000], np.float16)
    assert hm.logsumexp(x, temperature=0.5) == INF
    assert hm.log_softmax(np.array([6e4, -6e4], np.float16), temperature=0.1)[1] == -INF
    assert hm.smoothmax(x, temperature=1e5) == INF


# --- out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ENTRYWISE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("shape", [(3,), (7, 5), (5, 70), (2, 600), (3, 5000)])
def test_out(function, type_name, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype_of(type_name))
    want = function(x)
    out = np.empty_like(x)
    assert function(x, out=out) is out
    same(out, want)
    in_place = x.copy()
    assert function(in_place, out=in_place) is in_place
    same(in_place, want)


@pytest.mark.parametrize("function", ENTRYWISE, ids=lambda f: f.__name__)
def test_out_that_overlaps(function):
    """As if the input had been copied first."""
    for n in (5, 70, 600):
        base = np.random.default_rng(n).standard_normal((9, n))
        for of_x, of_out in (
            (np.s_[1:], np.s_[:-1]),
            (np.s_[:-1], np.s_[1:]),
            (np.s_[::-1], np.s_[:]),
            (np.s_[:, ::-1], np.s_[:]),
            (np.s_[::2], np.s_[:5]),
            (np.s_[:4, 1:], np.s_[:4, :-1]),
        ):
            memory = base.copy()
            want = function(memory[of_x].copy())
            function(memory[of_x], out=memory[of_out])
            same(memory[of_out], want)
        memory = base[:5, :5].copy()
        want = function(memory.T.copy())
        function(memory.T, out=memory)
        same(memory, want)
        memory = base.copy()
        want = function(memory.copy(), axis=0)
        function(memory, axis=0, out=memory)
        same(memory, want)


def test_out_over_the_mask_or_the_temperature():
    where = np.array([[True, False, True], [True, True, False]])
    x = np.arange(6.0).reshape(2, 3)
    want = hm.softmax(x, where=where.copy())
    memory = np.zeros((2, 3))
    memory.view(bool).reshape(2, 24)[:, :3] = where
    got = hm.softmax(x, where=memory.view(bool).reshape(2, 24)[:, :3], out=memory)
    same(got, want)
    heat = np.array([[0.5, 9.0, 9.0], [2.0, 9.0, 9.0]])
    want = hm.softmax(x, temperature=heat[:, :1].copy())
    same(hm.softmax(x, temperature=heat[:, :1], out=heat), want)


def test_out_with_strides():
    x = np.random.default_rng(0).standard_normal((4, 6))
    room = np.full((4, 12), 5.0)
    assert np.shares_memory(hm.softmax(x, out=room[:, ::2]), room)
    same(room[:, ::2], hm.softmax(x))
    same(room[:, 1::2], np.full((4, 6), 5.0))
    out = np.empty((6, 4)).T
    same(hm.softmax(x, out=out), hm.softmax(x))


def test_out_of_reductions():
    x = np.random.default_rng(0).standard_normal((3, 70))
    for function in REDUCING:
        out = np.empty(3)
        assert function(x, out=out) is out
        same(out, function(x))
        kept = np.empty((3, 1))
        same(function(x, keepdims=True, out=kept)[:, 0], function(x))
        number = np.empty(())
        assert function(x[0], out=number) is number
        same(number, function(x[0]))
        memory = x.copy()
        same(function(memory, out=memory[:, 0]), function(x))
    out = np.empty(3)
    assert hm.logsumexp(x, weights=2.0, out=out) is out
    same(out, hm.logsumexp(x, weights=2.0))


# --- what a review found ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiny", "temperature"), [(5e-324, 1.0), (1e-310, 1.0), (1e-300, 1e300), (-1e-300, -1e300)]
)
def test_a_long_row_of_logits_too_small_to_tell_apart(tiny, temperature):
    """Scaling merges them; each must still be counted once."""
    x = np.zeros(100)
    x[0] = tiny
    np.testing.assert_allclose(hm.softmax(x, temperature=temperature), 0.01, rtol=1e-15)
    assert hm.logsumexp(x, temperature=temperature) == pytest.approx(math.log(100), rel=1e-15)
    assert hm.softargmax(x, temperature=temperature) == pytest.approx(49.5, rel=1e-15)


@pytest.mark.parametrize("gap", [1040.0, 1200.0])
def test_a_heavy_weight_far_below_the_maximum(gap):
    log_weight = 300 * math.log(10)  # the first term is e**-690.8, the second e**(690.8 - gap)
    got = hm.logsumexp([0.0, -gap], weights=[1e-300, 1e300])
    assert got == pytest.approx(log_weight - gap, rel=1e-14)


def test_infinite_weights():
    assert hm.logsumexp([1.0, 2.0], weights=[np.inf, 1.0]) == np.inf
    assert np.isnan(hm.logsumexp([1.0, -np.inf], weights=[1.0, np.inf]))
    value, sign = hm.logsumexp([1.0, 2.0], weights=[-np.inf, 1.0], return_sign=True)
    assert (value, sign) == (np.inf, -1.0)


@pytest.mark.parametrize("hidden", [-np.inf, -1e9, -6000.0])
@pytest.mark.parametrize("n", [1000, 8193, 16_384, 30_000])
def test_ties_in_a_masked_row(n, hidden):
    """Most classes are hidden, whole parts of them: the others are right all the same."""
    seen = np.float32([-0.288] * 20 + list(np.linspace(-5.288, -1.288, 80)))
    x = np.full(n, hidden, np.float32)
    x[n - 100 :] = seen
    got = hm.softmax(np.stack([x, x]))[1, n - 100 :]
    for one, want in zip(got.tolist(), reference.softmax(seen), strict=True):
        assert reference.ulps(one, want, "float32") < 1.6
    near = np.where(np.arange(n) < n - 100, np.float32(-5680), x - 5670)  # near enough to count
    exps = np.exp(near.astype(np.float64) + 5670)
    np.testing.assert_allclose(hm.softmax(near), exps / exps.sum(), rtol=1e-6)


def test_rows_whose_errors_do_not_cancel():
    """Most classes share one logit, which is not the largest: beyond 2 ULP, as the README says.

    Seen: 2.32 on this row.
    """
    x = np.float32([0, -2.6969512, -5.2480044, -10.612128] + [-1.1014884] * 62)
    worst = 0.0
    for got, want in zip(hm.softmax(x), reference.softmax(x), strict=True):
        worst = max(worst, abs(float(got - want)) / float(np.spacing(np.float32(float(want)))))
    assert worst <= 2.5
