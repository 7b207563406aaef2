"""softmax and its family against the truth: accuracy on every hard row, and published figures."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import reference
from comparisons import CASES, FUNCTIONS, PEERS
from scipy import special
from softmax_family import same

import hotmax as hm

INF, NAN = math.inf, math.nan


# --- accuracy ---------------------------------------------------------------------------------


# As long as another, and mpmath takes seconds for each.
LONGEST = ("N(0,10) 100000 classes", "N(0,100) 100000 classes")


@pytest.mark.parametrize(
    ("case", "type_name"),
    [
        pytest.param(
            case,
            type_name,
            id=f"{case.name}, {type_name}",
            marks=[pytest.mark.slow] if case.name in LONGEST else [],
        )
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
