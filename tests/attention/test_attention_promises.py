"""What attention promises: masks, limits, the same bits, infinities, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import reference_attention
from attention_cases import normal, qkv, worst

import hotmax as hm
from hotmax._attention.forward import by_heads, pack
from hotmax._attention.heads import Heads
from hotmax._kernels.attention.scores import TILE_KEYS

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mask_equals_slice(dtype):
    q, k, v = qkv((2, 3, 50, 8), 800, dtype=dtype)
    present = np.random.default_rng(1).random(800) < 0.5
    got = hm.attention(q, k, v, where=present)
    want = hm.attention(q, k[..., present, :], v[..., present, :])
    np.testing.assert_allclose(got, want, atol=4 * np.finfo(dtype).eps)
    # a tail that is masked is no tail: the same bits
    got = hm.attention(q, k, v, where=np.arange(800) < 650)
    np.testing.assert_array_equal(got, hm.attention(q, k[..., :650, :], v[..., :650, :]))
    np.testing.assert_array_equal(hm.attention(q, k, v, where=True), hm.attention(q, k, v))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_hides_under_the_mask_never_leaks(dtype):
    q, k, v = qkv((2, 3, 50, 8), 800, dtype=dtype)
    for where in (np.arange(800) % 7 != 3, np.arange(800) < 790):
        clean = hm.attention(q, k, v, where=where)
        for junk in (NAN, INF, -INF):
            k2, v2, bias = k.copy(), v.copy(), np.zeros(800, dtype)
            k2[..., ~where, :] = junk
            v2[..., ~where, :] = junk
            bias[~where] = junk
            got = hm.attention(q, k2, v2, where=where)
            np.testing.assert_allclose(got, clean, atol=4 * np.finfo(dtype).eps)
            got = hm.attention(q, k2, v2, where=where, bias=bias)
            np.testing.assert_allclose(got, clean, atol=8 * np.finfo(dtype).eps)
            weights = hm.attention_weights(q, k2, where=where)
            assert (weights[..., ~where] == 0).all()
    k[0, 0, 5] = NAN  # and what is not masked is seen: by these queries, and by no others
    got = hm.attention(q, k, v, where=np.arange(50)[:, None] > np.arange(800))
    assert np.isnan(got[0, 0, 6:]).all()
    assert np.isfinite(got[0, 0, :6]).all()
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_to_see_is_zero(dtype):
    q, k, v = qkv((1, 2, 5, 4), 6, dtype=dtype)
    for options in ({"where": False}, {"bias": -INF}):
        out, sums = hm.attention(q, k, v, **options, return_logsumexp=True)
        assert (out == 0).all()
        assert (sums == -INF).all()
        assert (hm.attention_weights(q, k, **options) == 0).all()
    out = hm.attention(q, k[..., :2, :], v[..., :2, :], causal="lower_right")
    assert (out[..., :3, :] == 0).all()
    np.testing.assert_array_equal(out[..., 3, :], v[..., 0, :])
    out, sums = hm.attention(q, k[..., :0, :], v[..., :0, :], sink=2.0, return_logsumexp=True)
    assert (out == 0).all()
    assert (sums == 2.0).all()
    assert hm.attention(q[..., :0, :], k, v).shape == (1, 2, 0, 4)
    assert hm.attention(q[:0], k[:0], v[:0]).shape == (0, 2, 5, 4)
    assert hm.attention(q, k, v[..., :0]).shape == (1, 2, 5, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits(dtype):
    """Not the batch, the place, the threads, the layout or the other queries: the same bits."""
    q, k, v = qkv((2, 4, 205, 20), 700, 2, dtype=dtype)
    bias = normal(205, 700, dtype=dtype, seed=8)
    threads = hm.get_threads()
    for options in ({}, {"causal": True}, {"bias": bias}):
        whole = hm.attention(q, k, v, **options)
        try:
            hm.set_threads(1)
            np.testing.assert_array_equal(hm.attention(q, k, v, **options), whole)
            hm.set_threads(3)
            np.testing.assert_array_equal(hm.attention(q, k, v, **options), whole)
        finally:
            hm.set_threads(threads)
        np.testing.assert_array_equal(
            hm.attention(q[1, 3], k[1, 1], v[1, 1], **options), whole[1, 3]
        )
        strided = [np.asfortranarray(x) for x in (q, k, v)]
        strided[0] = strided[0].astype(strided[0].dtype.newbyteorder())
        for x in strided:
            x.flags.writeable = False
        np.testing.assert_array_equal(hm.attention(*strided, **options), whole)
    last = hm.attention(q[..., 200:, :], k, v, bias=bias[200:])
    np.testing.assert_array_equal(last, whole[..., 200:, :])
    weights = hm.attention_weights(q, k)
    np.testing.assert_array_equal(
        hm.attention_weights(q[..., 101:102, :], k), weights[..., 101:102, :]
    )


@pytest.mark.parametrize("keys", [1, 15, 16, 401, 1200])
@pytest.mark.parametrize("queries", [1, 2])
def test_few_queries_are_as_among_many(keys, queries):
    """One or two float32 queries read keys and values as they lie: the same bits as in tiles."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 32)).astype("float32") for n in (300, keys, keys))
    where = rng.random(keys) < 0.8
    sink = np.float32(0.3)
    huge, hidden, held = v.copy(), v.copy(), v.copy()
    huge[:: max(keys // 3, 1)] = 3e38  # the sums overflow; no value does
    hidden[~where] = NAN
    held[-1] = INF
    for values in (v, v[:, :16], v[:, :20], huge, hidden, held):
        for options in ({}, {"where": where, "sink": sink}, {"bias": np.where(where, 1.0, -INF)}):
            many = hm.attention(q, k, values, **options)[:queries]
            few = hm.attention(q[:queries], k, values, **options)
            np.testing.assert_array_equal(few.view("int32"), many.view("int32"))
    seen = hm.attention(q[:queries], k[where], v[where])
    np.testing.assert_allclose(
        hm.attention(q[:queries], k, hidden, where=where), seen, rtol=2e-5, atol=2e-6
    )


def test_temperature_limits():
    q, k, v = qkv((1, 2, 5, 4), 700)
    k[..., 7, :] = k[..., 3, :]  # a tie
    scores = q @ np.swapaxes(k, -1, -2)
    for temperature, best in ((0.0, scores.max(-1)), (-0.0, scores.min(-1))):
        want = hm.attention_weights(q, k, temperature=temperature)
        ties = scores == best[..., None]
        np.testing.assert_allclose(want, ties / ties.sum(-1, keepdims=True), atol=1e-15)
        got = hm.attention(q, k, v, temperature=temperature)
        np.testing.assert_allclose(got, want @ v, atol=1e-14)
        np.testing.assert_allclose(
            hm.attention(q, k, v, temperature=math.copysign(1e-300, temperature)), got, atol=1e-14
        )
    flat = hm.attention(q, k, v, temperature=INF)
    np.testing.assert_allclose(flat, np.broadcast_to(v.mean(-2, keepdims=True), flat.shape))
    bias = normal(700, seed=4)
    np.testing.assert_allclose(
        hm.attention_weights(q, k, temperature=INF, bias=bias)[0, 0, 0], hm.softmax(bias)
    )
    # at temperature 0 the bias decides among ties
    k2 = np.repeat(k[..., :1, :], 700, axis=-2)
    got = hm.attention_weights(q, k2, temperature=0, bias=bias)
    np.testing.assert_allclose(got, np.broadcast_to(hm.softmax(bias), got.shape))
    # one for each head, one for each query
    temperatures = np.array([0.0, 2.0]).reshape(2, 1, 1)
    both = hm.attention(q, k, v, temperature=temperatures)
    np.testing.assert_array_equal(both[:, 0], hm.attention(q, k, v, temperature=0)[:, 0])
    np.testing.assert_array_equal(both[:, 1], hm.attention(q, k, v, temperature=2)[:, 1])
    each = hm.attention(q, k, v, temperature=np.array([2.0, 0.0, 2.0, 0.0, 2.0])[:, None])
    np.testing.assert_array_equal(
        each[..., ::2, :], hm.attention(q, k, v, temperature=2)[..., ::2, :]
    )
    np.testing.assert_array_equal(
        each[..., 1::2, :], hm.attention(q, k, v, temperature=0)[..., 1::2, :]
    )


def test_sink_at_temperature_zero():
    q, k = np.array([[1.0]]), np.array([[2.0], [1.0]])
    for sign, want in ((1, [1.0, 0.0]), (-1, [0.0, 0.0])):
        got, sums = hm.attention(
            sign * q, k, np.eye(2), temperature=0, sink=0, return_logsumexp=True
        )
        np.testing.assert_array_equal(got[0], want)
        assert sums[0] == (INF if sign == 1 else 0.0)
    got = hm.attention(0 * q, k, np.eye(2), temperature=0, sink=0)
    np.testing.assert_allclose(got[0], [1 / 3, 1 / 3])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_logits_share_the_mass(dtype):
    q, k, v = qkv((1, 1, 3, 4), 700, dtype=dtype)
    bias = np.zeros(700)
    bias[[2, 690]] = INF
    want = v[..., [2, 690], :].mean(-2, keepdims=True)
    got = hm.attention(q, k, v, bias=bias)
    np.testing.assert_allclose(got, np.broadcast_to(want, got.shape), rtol=1e-6)
    bias[100] = NAN
    assert np.isnan(hm.attention(q, k, v, bias=bias)).all()
    assert np.isnan(hm.attention_weights(q, k, bias=bias)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    q, k, v = (x.astype(kind) for x in qkv((1, 2, 20, 8), 30))
    got, sums = hm.attention(q, k, v, return_logsumexp=True)
    assert got.dtype == sums.dtype == kind
    want = hm.attention(*(x.astype(np.float32) for x in (q, k, v)))
    np.testing.assert_array_equal(got, want.astype(kind))


def test_types_and_inputs():
    q, k, v = qkv()
    before = [x.tobytes() for x in (q, k, v)]
    assert hm.attention(q.astype("float32"), k, v).dtype == np.float64
    assert hm.attention([[1, 0]], [[1, 0], [0, 1]], [[1], [2]]).dtype == np.float64
    hm.attention(q, k, v, bias=np.zeros(9), where=np.ones(9, bool), causal=True)
    assert [x.tobytes() for x in (q, k, v)] == before


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": np.ones((2, 4, 9, 6))}, ValueError, r"features.*\(2, 4, 7, 5\).*\(2, 4, 9, 6\)"),
        ({"v": np.ones((2, 4, 8, 5))}, ValueError, r"length.*\(2, 4, 8, 5\)"),
        ({"v": np.ones((2, 2, 9, 5))}, ValueError, r"heads.*\(2, 2, 9, 5\)"),
        (
            {"k": np.ones((2, 3, 9, 5)), "v": np.ones((2, 3, 9, 5))},
            ValueError,
            r"divide.*\(2, 3, 9, 5\)",
        ),
        ({"k": np.ones((3, 4, 9, 5))}, ValueError, r"broadcast.*\(3, 4, 9, 5\)"),
        ({"q": np.ones(5)}, ValueError, r"at least.*\(5,\)"),
        ({"where": np.ones((7, 8), bool)}, ValueError, r"where.*\(2, 4, 7, 9\).*\(7, 8\)"),
        ({"where": np.ones(9)}, TypeError, "where must hold bools, got float64"),
        ({"where": [[True], [True, False]]}, ValueError, "where must be .* of one shape"),
        ({"bias": np.ones((8, 9))}, ValueError, r"bias.*\(2, 4, 7, 9\).*\(8, 9\)"),
        ({"sink": np.ones(4)}, ValueError, r"sink.*\(2, 4, 7, 1\).*\(4,\)"),
        ({"sink": NAN}, ValueError, "sink must not be nan"),
        ({"temperature": NAN}, ValueError, "temperature"),
        ({"temperature": np.ones(9)}, ValueError, r"temperature.*\(2, 4, 7, 1\).*\(9,\)"),
        ({"scale": INF}, ValueError, "scale must be finite"),
        ({"scale": 10**400}, ValueError, "scale must be finite"),
        ({"v": None}, TypeError, "v must be an array, got None"),
        ({"scale": "1"}, TypeError, "scale must be a real number"),
        ({"causal": "left"}, ValueError, "causal must be one of"),
        ({"causal": 1}, TypeError, "causal must be a bool or a str"),
        ({"q": np.ones((2, 4, 7, 5), complex)}, TypeError, "q must hold"),
        ({"bias": "x"}, TypeError, "bias must hold"),
    ],
)
def test_bad_input(change, error, words):
    q, k, v = qkv()
    arguments = {"q": q, "k": k, "v": v, **change}
    with pytest.raises(error, match=words):
        hm.attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinite_value_stays_infinite(dtype):
    """Also where tiles without one come after it."""
    q, k, v = qkv((1, 1, 3, 4), 900, dtype=dtype)
    v[..., 5, 0], v[..., 6, 1] = INF, -INF
    got = hm.attention(q, k, v)
    assert (got[..., 0] == INF).all()
    assert (got[..., 1] == -INF).all()
    assert np.isfinite(got[..., 2:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sink_far_above_all_scores_takes_all(dtype):
    q, k, v = qkv((1, 1, 7, 16), 5, dtype=dtype)
    got, total = hm.attention(
        np.abs(q), -np.abs(k), v, sink=5.0, temperature=1e-30, return_logsumexp=True
    )
    assert (got == 0.0).all()
    assert (total == 5.0).all()


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00001, 0xFFC12345])
def test_every_kind_of_nan_stays_one(bits):
    """Whatever the bits of a nan among the keys, each query that sees it is nan, and no other."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 24)).astype(np.float32) for n in (30, 700, 700))
    k[650, 5] = np.uint32(bits).view(np.float32)
    assert np.isnan(hm.attention(q, k, v)).all()
    seen = np.isnan(hm.attention(q, k, v, where=np.arange(700) < np.arange(635, 665)[:, None]))
    assert seen.all(-1).tolist() == seen.any(-1).tolist() == (np.arange(635, 665) > 650).tolist()


def test_threads_share_nothing_that_they_write():
    """Two tiles of queries see different parts of a tile of values: inf in one, not in the other.

    Each must find out for itself; a common note of what is finite was a race between threads.
    """
    q, k, v = qkv((1, 192, 8), 192, features=16, dtype="float32")
    v[0, 150] = INF
    heads = Heads(q, k, v, causal=True)
    packed = pack(heads, range(1), True)
    before = [part.copy() for part in packed]
    out, sums = np.empty_like(v), np.empty((1, 192, 3))
    by_heads(heads, range(1), 2, packed, out, sums)(0, 2)
    for part, old in zip(packed, before, strict=True):
        np.testing.assert_array_equal(part, old)
    assert np.isfinite(out[0, :150]).all()
    assert (out[0, 150:] == INF).all()


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_infinite_value_without_weight_is_not_seen(dtype, queries):
    """Also if its tile comes before the one that takes all weight."""
    for keys in (10, TILE_KEYS + 10):
        k, v = np.zeros((keys, 8), dtype), np.zeros((keys, 16), dtype)
        k[-1], v[0, 0], v[-1] = 1000.0, INF, 3.0
        assert (hm.attention(np.ones((queries, 8), dtype), k, v) == 3.0).all()


def test_a_bias_does_not_overflow_float32():
    """Near temperature 0 a score over T is too large for float32, the weights are not."""
    q, k = np.array([[1.0, 0.0]], "float32"), np.array([[2.0, 0], [1, 0], [0, 0]], "float32")
    for temperature, best in ((1e-20, 0), (1e-40, 0), (1e-300, 0), (-1e-300, 2)):
        options = {"bias": np.array([0.0, 1.0, 2.0], "float32"), "temperature": temperature}
        want = np.eye(3, dtype="float32")[[best]]
        for got in (
            hm.attention(q, k, np.eye(3, dtype="float32"), **options),
            hm.attention_weights(q, k, **options),
        ):
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, want)


def test_a_sink_beside_huge_scores():
    """Neither the second word of a score nor a sink above all ties is lost."""
    q, k, v = np.array([[1e15]]), np.array([[1.0]]), np.array([[1.0]])
    sink = 1e15 * 0.3 + 0.5
    want = reference_attention.attention(q, k, v, scale=0.3, sink=sink)
    assert worst(hm.attention(q, k, v, scale=0.3, sink=sink), want, v) <= 4
    for temperature in (0.0, 1.0):
        out, total = hm.attention(
            0 * q, k, v, temperature=temperature, sink=1000.0, return_logsumexp=True
        )
        assert (out.item(), total.item()) == (0.0, 1000.0)


@pytest.mark.parametrize("power", [8191.3, 8191.6, 8191.9, 8192.1, -8191.7, -8192.3])
def test_scores_where_whole_powers_of_two_end(power):
    """One tile of keys below the other, and a sink, for a largest weight of about 2**8192."""
    top = np.float32(power * math.log(2.0))
    k = np.repeat(np.array([top - 1, top], "float32"), TILE_KEYS)[:, None]
    q, v = np.ones((1, 1), "float32"), (k == top).astype("float32")
    for sink in (None, float(top) + math.log(TILE_KEYS)):
        want = reference_attention.attention(q, k, v, scale=1.0, sink=sink)
        out, total = hm.attention(q, k, v, scale=1.0, sink=sink, return_logsumexp=True)
        assert worst(out, want, v) <= 16  # of float32 weights near 1 that are added up
        sums = reference_attention.weights(q, k, scale=1.0, sink=sink)[1]
        assert reference.ulps(total.item(), sums[0], "float32") <= 1


def test_the_least_of_scores_has_weight_at_high_temperatures():
    """A score near the least float32, at temperatures beyond it."""
    q = np.array([[1.82e19]], "float32")
    k, v = np.array([[-1.82e19], [1.82e19]], "float32"), np.array([[0.0], [1.0]], "float32")
    for temperature in (1e39, 1e300):
        options = {"scale": 1.0, "temperature": temperature}
        want = reference_attention.attention(q, k, v, **options)
        assert worst(hm.attention(q, k, v, **options), want, v) <= 4
        weights = np.array(reference_attention.weights(q, k, **options)[0], object)
        one = reference.mp.mpf(1)
        assert reference.worst_ulps(hm.attention_weights(q, k, **options), weights, one) <= 4
    assert hm.attention(q, k, v, temperature=INF).item() == 0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("sink", [1000.0, INF])
def test_a_sink_that_takes_all_leaves_nothing_of_infinite_values(sink, queries, dtype):
    for value in (INF, -INF, NAN):
        v = np.full((10, 16), value, dtype)
        out = hm.attention(np.ones((queries, 8), dtype), np.ones((10, 8), dtype), v, sink=sink)
        assert (out == 0.0).all()
