"""Shapes, kinds and `out` of softmax and its family."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from comparisons import TYPES, dtype_of
from softmax_family import same

import hotmax as hm

INF, NAN = math.inf, math.nan
ENTRYWISE = (hm.softmax, hm.log_softmax, hm.softmin, hm.hardmax)
REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)


# --- the table of special values --------------------------------------------------------------

LN2 = math.log(2)


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
    temperature = np.array([[0.5, 9.0, 9.0], [2.0, 9.0, 9.0]])
    want = hm.softmax(x, temperature=temperature[:, :1].copy())
    same(hm.softmax(x, temperature=temperature[:, :1], out=temperature), want)


def test_out_with_strides():
    x = np.random.default_rng(0).standard_normal((4, 6))
    buffer = np.full((4, 12), 5.0)
    assert np.shares_memory(hm.softmax(x, out=buffer[:, ::2]), buffer)
    same(buffer[:, ::2], hm.softmax(x))
    same(buffer[:, 1::2], np.full((4, 6), 5.0))
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
    """Most classes share one logit, which is not the largest: beyond 2 ULP, as the contract says.

    Seen: 2.32 on this row.
    """
    x = np.float32([0, -2.6969512, -5.2480044, -10.612128] + [-1.1014884] * 62)
    worst = 0.0
    for got, want in zip(hm.softmax(x), reference.softmax(x), strict=True):
        worst = max(worst, abs(float(got - want)) / float(np.spacing(np.float32(float(want)))))
    assert worst <= 2.5
