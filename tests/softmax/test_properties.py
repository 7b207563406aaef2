"""What softmax and its family obey on any input: hypothesis looks for one that breaks it."""

from __future__ import annotations

import math

import numpy as np
import reference
from comparisons import FUNCTIONS, TYPES, dtype_of
from hypothesis import given, settings, strategies as st

import hotmax as hm

ENTRYWISE = (hm.softmax, hm.log_softmax)
REDUCING = (hm.logsumexp, hm.smoothmax, hm.entropy, hm.softargmax)
EVERY = ENTRYWISE + REDUCING

# Lengths on both sides of every seam between kernels, small ones most often.
LENGTHS = st.one_of(st.integers(1, 9), st.sampled_from([31, 33, 63, 64, 65, 66, 100, 513]))
SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 88.7, -104.0, -745.2, 1e-45, 6e4)
TEMPERATURES = st.one_of(
    st.sampled_from([1.0, 0.7, 0.0, -0.0, math.inf, -math.inf, -1.0, 1e-300, 1e300, 5e-324, -1e-3]),
    st.floats(0.01, 100.0),
    st.floats(allow_nan=False),
)


@st.composite
def rows(draw, types=TYPES, finite=False, rows_at_most=4):
    """A (rows, classes) array of any float type and scale, with special values strewn in."""
    shape = (draw(st.integers(1, rows_at_most)), draw(LENGTHS))
    dtype = dtype_of(draw(st.sampled_from(types)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1e-6, 1.0, 10.0, 300.0, 3e4]))
    offset = draw(st.sampled_from([0.0, 0.0, 5.0, -1000.0]))
    x = rng.standard_normal(shape) * scale + offset
    if draw(st.booleans()):
        x = np.round(x)  # ties
    x = np.clip(x, -6e4, 6e4)
    if not finite:
        count = draw(st.integers(0, 4))
        for value in draw(st.lists(st.sampled_from(SPECIAL), min_size=count, max_size=count)):
            x.flat[rng.integers(x.size)] = value
    return x.astype(dtype)


@st.composite
def masks(draw, shape):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))


@st.composite
def laid_out(draw, x):
    """The same values in another memory layout."""
    way = draw(
        st.sampled_from(["as is", "fortran", "strided", "backwards", "read-only", "swapped"])
    )
    if way == "fortran":
        return np.asfortranarray(x)
    if way == "strided":
        buffer = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
        buffer[::2, 1::3] = x
        return buffer[::2, 1::3]
    if way == "backwards":
        return x[::-1, ::-1].copy()[::-1, ::-1]
    if way == "read-only":
        x = x.copy()
        x.flags.writeable = False
    if way == "swapped" and x.dtype.name != "bfloat16":
        return x.astype(x.dtype.newbyteorder())
    return x


def close(got, want, ulps=8.0, scale=0.0) -> None:
    """Equal but for a few ULP of the type, at the value itself or at `scale`."""
    got = np.asarray(got)
    eps = 2.0 ** (1 - reference.FORMATS[reference.type_name(got.dtype)][0])
    tiny = 2.0 ** (reference.FORMATS[reference.type_name(got.dtype)][1]) * eps
    np.testing.assert_allclose(
        got.astype(np.float64),
        np.asarray(want, np.float64),
        rtol=ulps * eps,
        atol=ulps * max(scale * eps, tiny),
    )


def same(got, want) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(want, np.float64))


# --- the contract -----------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=250)
def test_contract(data):
    """Any row, layout, mask and temperature: what the reference says, with no word of warning."""
    x = data.draw(laid_out(data.draw(rows())))
    where = data.draw(st.none() | masks(x.shape))
    axis = data.draw(st.sampled_from([0, 1, -1]))
    shape = tuple(1 if a == axis % 2 else n for a, n in enumerate(x.shape))
    if data.draw(st.booleans()):
        temperature = data.draw(TEMPERATURES)
    else:
        several = data.draw(st.lists(TEMPERATURES, min_size=max(shape), max_size=max(shape)))
        temperature = np.array(several).reshape(shape)
    function = FUNCTIONS[data.draw(st.sampled_from(sorted(FUNCTIONS)))]
    before = x.tobytes()
    got = function.ours(x, axis=axis, temperature=temperature, where=where)
    assert x.tobytes() == before
    assert got.dtype == x.dtype.newbyteorder("=")
    truth = reference.along(function.truth, x, axis, temperature, where)
    assert np.shape(got) == truth.shape
    tolerance = function.tolerance[reference.type_name(x.dtype)]
    if function.scale is None:
        assert reference.worst_ulps(got, truth) <= tolerance
        return
    scales = reference.along(function.scale, x, axis, temperature, where)
    for g, true, scale in zip(np.ravel(got), truth.ravel(), scales.ravel(), strict=True):
        assert reference.ulps(g, true, got.dtype, scale) <= tolerance


@given(
    rows(types=("float32", "float64"), rows_at_most=1),
    st.integers(0, 1000),
    st.booleans(),
    st.sampled_from([1.0, 0.3, -2.0, 1e3]),
)
def test_weights(x, seed, signed, temperature):
    """logsumexp with weights: right but for what cancels between weights of either sign."""
    row = x[0]
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(row.size) * (rng.random(row.size) < 0.8)
    if not signed or np.isinf(row).any():  # inf - inf has no sign
        weights = np.abs(weights)
    got, sign = hm.logsumexp(row, weights=weights, temperature=temperature, return_sign=True)
    true, true_sign = reference.weighted_logsumexp(row, weights, temperature)
    whole, _ = reference.weighted_logsumexp(row, np.abs(weights), temperature)
    if not math.isfinite(float(true)):
        same(got, float(true))
        same(sign, float(true_sign))
        return
    lost = float(reference.mp.exp(whole - true))  # 1 if nothing cancels
    if lost > 1e10:
        return  # hardly a digit is left
    assert sign == float(true_sign)
    largest = np.abs(np.where(np.isfinite(row), row, 0).astype(float)).max() / abs(temperature)
    error = abs(float(reference.mp.mpf(float(got)) - true))
    eps = float(np.finfo(np.float64).eps)
    rounding = float(reference.spacing(true, row.dtype))
    assert error <= rounding + 4 * eps * (lost * row.size + largest + abs(float(whole)))


# --- invariances ------------------------------------------------------------------------------


@given(rows(finite=True, types=("float64",)), st.integers(-1000, 1000), TEMPERATURES)
def test_shift_changes_nothing(x, shift, temperature):
    """Where x + shift is exact: integers."""
    x = np.round(x)
    for function in (hm.softmax, hm.log_softmax, hm.entropy, hm.softargmax):
        moved = function(x + shift, temperature=temperature)
        close(moved, function(x, temperature=temperature))


@given(rows(), TEMPERATURES, st.integers(0, 100))
def test_permutation(x, temperature, seed):
    """The classes may come in any order, within rounding of the sum."""
    order = np.random.default_rng(seed).permutation(x.shape[1])
    for function in ENTRYWISE:
        permuted = function(x[:, order], temperature=temperature)
        close(permuted, function(x, temperature=temperature)[:, order], ulps=4)
    for function in (hm.logsumexp, hm.smoothmax, hm.entropy):
        got = function(x[:, order], temperature=temperature)
        with np.errstate(all="ignore"):
            want = np.asarray(function(x, temperature=temperature), np.float64)
            size = np.nanmax(np.abs(np.where(np.isfinite(x), x, 0).astype(float)), initial=0.0)
            scale = size / abs(temperature) if function is hm.logsumexp else size
        close(got, want, ulps=4, scale=scale if math.isfinite(scale) else 0.0)


@given(st.data())
def test_mask_equals_slice(data):
    """Masked classes: as if they were not there."""
    x = data.draw(rows(rows_at_most=1))
    where = data.draw(masks(x.shape[1]))
    temperature = data.draw(TEMPERATURES)
    rest = x[:, where]
    for function, absent in ((hm.softmax, 0.0), (hm.log_softmax, -math.inf)):
        got = function(x, where=where, temperature=temperature)
        close(got[:, where], function(rest, temperature=temperature), ulps=4)
        same(got[:, ~where], np.full((1, int((~where).sum())), absent))
    for function in (hm.logsumexp, hm.smoothmax, hm.entropy):
        got = function(x, where=where, temperature=temperature)
        want = np.asarray(function(rest, temperature=temperature), np.float64)
        with np.errstate(all="ignore"):
            size = np.nanmax(np.abs(np.where(np.isfinite(rest), rest, 0).astype(float)), initial=0)
            scale = size / abs(temperature) if function is hm.logsumexp else size
        close(got, want, ulps=4, scale=scale if math.isfinite(scale) else 0.0)


@given(st.data())
def test_a_mask_equals_minus_inf(data):
    """To the last bit, in a row where something is left."""
    x = data.draw(rows())
    where = data.draw(masks(x.shape))
    where[:, 0] = True
    x[:, 0] = 1
    for function in EVERY:
        same(function(x, where=where), function(np.where(where, x, x.dtype.type(-np.inf))))


@given(rows(), TEMPERATURES)
def test_axis_equals_moveaxis(x, temperature):
    for function in ENTRYWISE:
        same(
            function(x.T, axis=0, temperature=temperature).T,
            function(np.ascontiguousarray(x), axis=-1, temperature=temperature),
        )
    for function in REDUCING:
        same(function(x.T, axis=0, temperature=temperature), function(x, temperature=temperature))


@given(rows(), st.sampled_from([1, 3, 30, 64, 500]), st.sampled_from([1.0, 0.7, 0.0, math.inf]))
def test_a_tail_of_minus_inf_equals_a_shorter_row(x, more, temperature):
    longer = np.concatenate([x, np.full((x.shape[0], more), -np.inf, x.dtype)], axis=1)
    n = x.shape[1]
    everything = (x == -np.inf).all(axis=1) | np.isnan(x).any(axis=1)
    for function, absent in ((hm.softmax, 0.0), (hm.log_softmax, -math.inf)):
        got = function(longer, temperature=temperature)
        close(got[:, :n], function(x, temperature=temperature), ulps=4)
        tail = np.where(everything[:, None], np.nan, np.full((x.shape[0], more), absent))
        same(got[:, n:], tail)
    for function in REDUCING:
        got = function(longer, temperature=temperature)
        with np.errstate(all="ignore"):
            size = np.nanmax(np.abs(np.where(np.isfinite(x), x, 0).astype(float)), initial=0.0)
            scale = size / temperature if function is hm.logsumexp else size
        scale = scale if math.isfinite(scale) and function is not hm.softargmax else 0.0
        close(got, np.asarray(function(x, temperature=temperature), float), ulps=4, scale=scale)


@given(rows(), TEMPERATURES)
def test_softmin_is_softmax_of_minus_x(x, temperature):
    close(hm.softmin(x, temperature=temperature), hm.softmax(-x, temperature=temperature), ulps=4)


@given(rows(finite=True, types=("float32", "float64")), st.floats(0.1, 10.0))
def test_dividing_by_a_power_of_two_is_the_temperature(x, temperature):
    """softmax(x / 2, T / 2) = softmax(x, T), where halving is exact."""
    half = x.dtype.type(0.5)
    for function in (*ENTRYWISE, hm.entropy):
        close(function(x * half, temperature=temperature / 2), function(x, temperature=temperature))


# --- bounds and limits ------------------------------------------------------------------------


@given(rows(finite=True, types=("float32", "float64")), TEMPERATURES)
def test_bounds(x, temperature):
    n, eps = x.shape[1], float(np.finfo(x.dtype).eps)
    p = hm.softmax(x, temperature=temperature)
    assert ((p >= 0) & (p <= 1)).all()
    assert (np.abs(p.sum(axis=1, dtype=np.float64) - 1) <= 2 * eps).all()
    assert (hm.log_softmax(x, temperature=temperature) <= 0).all()
    entropy = hm.entropy(x, temperature=temperature)
    assert ((entropy >= 0) & (entropy <= math.log(n) * (1 + 2 * eps))).all()
    index = hm.softargmax(x, temperature=temperature)
    assert ((index >= 0) & (index <= (n - 1) * (1 + 2 * eps))).all()


@given(rows(finite=True, types=("float32", "float64")), st.floats(1e-3, 1e3))
def test_smoothmax_lies_above_the_maximum(x, temperature):
    """In [max, max + T log n]; below the minimum at a negative temperature."""
    eps, n = float(np.finfo(x.dtype).eps), x.shape[1]
    width = temperature * math.log(n)
    top, bottom = x.max(axis=1).astype(float), x.min(axis=1).astype(float)
    high = hm.smoothmax(x, temperature=temperature).astype(float)
    low = hm.smoothmax(x, temperature=-temperature).astype(float)
    slack = 2 * eps * (np.abs(top) + np.abs(bottom) + width)
    assert (top <= high).all()
    assert (high <= top + width + slack).all()
    assert (low <= bottom).all()
    assert (low >= bottom - width - slack).all()


@given(rows(finite=True, types=("float32", "float64")))
def test_limits_are_reached(x):
    """A temperature near 0 or infinity gives what 0 and infinity give."""
    same(hm.softmax(x, temperature=1e-300), hm.softmax(x, temperature=0))
    same(hm.softmax(x, temperature=1e-300), hm.hardmax(x))
    close(hm.smoothmax(x, temperature=1e-300), hm.smoothmax(x, temperature=0), ulps=1, scale=1e-280)
    same(hm.smoothmax(x, temperature=0), x.max(axis=1))
    same(hm.entropy(x, temperature=1e-300), hm.entropy(x, temperature=0))
    close(hm.softmax(x, temperature=1e300), hm.softmax(x, temperature=math.inf), ulps=2)
    close(hm.entropy(x, temperature=1e300), hm.entropy(x, temperature=math.inf), ulps=2)
    ties = (x == x.max(axis=1, keepdims=True)).sum(axis=1)
    close(hm.entropy(x, temperature=0), np.log(ties), ulps=2)
    close(hm.entropy(x, temperature=math.inf), np.full(x.shape[0], math.log(x.shape[1])), ulps=2)


@given(rows(finite=True, types=("float64",)), st.floats(0.2, 5.0))
def test_functions_agree_with_each_other(x, temperature):
    """exp(log_softmax) = softmax; smoothmax = T logsumexp; entropy = -sum p log p."""
    p, log_p = hm.softmax(x, temperature=temperature), hm.log_softmax(x, temperature=temperature)
    with np.errstate(under="ignore"):
        close(np.exp(log_p), p, ulps=2000)
        products = np.where(p > 0, p * log_p, 0.0)
    smooth = hm.smoothmax(x, temperature=temperature)
    scale = float(np.abs(x).max()) + 1
    close(smooth, temperature * hm.logsumexp(x, temperature=temperature), scale=scale)
    # A subnormal p has lost digits, and log p, up to 800, magnifies what is lost.
    normal = 2.0 ** reference.FORMATS[reference.type_name(p.dtype)][1]
    close(
        hm.entropy(x, temperature=temperature), -products.sum(axis=1), ulps=64, scale=1e3 * normal
    )


@given(
    st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple),
    st.sampled_from((*TYPES, "int8", "bool")),
    st.booleans(),
)
def test_every_shape(shape, type_name, keepdims):
    """Any number of dimensions, empty ones among them: shapes as NumPy's reductions have them."""
    x = np.zeros(shape, dtype_of(type_name))
    for axis in (None, *range(-len(shape), len(shape))):
        reduced = np.zeros(shape).sum(axis=axis, keepdims=keepdims).shape
        for function in ENTRYWISE:
            assert function(x, axis=axis).shape == shape
        for function in REDUCING:
            assert np.shape(function(x, axis=axis, keepdims=keepdims)) == reduced
