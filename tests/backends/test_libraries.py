"""The same tests over every kind of array: NumPy, torch, jax, jitted jax, dask, strict."""

from __future__ import annotations

import inspect
import itertools

import dask.array
import dask.callbacks
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest
from arrays import KINDS, SEEN, Kind, Source, on
from comparisons import CASES, FUNCTIONS
from optional import torch

import hotmax as hm

CORE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "softmin", "softargmax", "entropy")
ACCURATE = ("softmax", "log_softmax", "logsumexp", "smoothmax", "entropy")
INF, NAN = np.inf, np.nan


# Jitted by the caller, each temperature would be a program of its own.
each_library = on("torch", "torch, generic", "jax", "dask", "strict")

# jax compiles for each shape, so that a row costs it a second: it gets a few.
ROWS = [
    case for case in CASES if case.row("float64").size <= 1000 and "every size" not in case.name
]
FEW = ("N(0,1) 10 classes", "N(0,10) 2 classes", "near one-hot [0, -20]", "near one-hot [0, -40]",
       "offset 1e+06, gaps of a few ULP", "ties", "all equal")  # fmt: skip


def tolerance(kind: Kind, name: str) -> float:
    """In ULP. The generic path has the arithmetic of its library."""
    if kind.exact:
        return 2.0
    return 8.0 if name == "entropy" else 4.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@on("torch", "torch, generic", "strict")
def test_truth(xp, dtype):
    """Where the kernels compute: the bits of NumPy, which has tests against mpmath of its own."""
    for case in ROWS:
        if dtype not in case.types:
            continue
        row = case.row(dtype)
        for temperature in case.temperatures[::3]:
            for name in ACCURATE:
                got = xp.call(getattr(hm, name), row, temperature=temperature)
                assert got.dtype == row.dtype
                if xp.exact:
                    want = np.asarray(getattr(hm, name)(row, temperature=temperature))
                    assert got.tobytes() == want.tobytes(), (case.name, name, temperature)
                else:
                    is_near(xp, name, got, row, temperature, case.name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_truth_on_jax(dtype):
    """Rows of one length, the short ones with -inf at their ends: one program for all of them.

    No extremes: jax on the CPU flushes subnormal numbers to 0.
    """
    kind, rows = KINDS["jax"], [case.row(dtype) for case in ROWS if case.name in FEW]
    assert len(rows) == len(FEW)
    batch = np.full((len(rows), max(row.size for row in rows)), -INF, dtype)
    for row, its in zip(rows, batch, strict=True):
        its[: row.size] = row
    for temperature, name in itertools.product((0.7, 1.0, 3.0, 1e3), ACCURATE):
        got = kind.call(getattr(hm, name), batch, temperature=temperature)
        assert got.dtype == batch.dtype
        for row, its in zip(batch, got, strict=True):
            is_near(kind, name, its, row, temperature, str(row))


def is_near(kind: Kind, name: str, got, row, temperature: float, whose: str) -> None:
    if name == "entropy" and abs(got) < 1e-290 and not kind.exact:
        return  # a sum of subnormal numbers, which have few digits
    off = FUNCTIONS[name].worst_ulps(got, row, temperature)
    assert off <= tolerance(kind, name), (whose, name, temperature, off)


SPECIAL = [
    [1.0, 2.0, 3.0],
    [INF, 1.0, INF],
    [-INF, -INF, -INF],
    [-INF, 2.0, 2.0],
    [NAN, 1.0, 2.0],
    [0.0, -80.0, -80.0],
    [1e4, -1e4, 1e4],
]
MASKS = [None, [True, False, True], [False, False, False], [[True], [False]] * 3 + [[True]]]
TEMPERATURES = [1.0, 0.7, 0.0, -0.0, INF, -INF, -2.0]


@each_library
@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_special_values(xp, name, temperature):
    """What NumPy's arrays give, which has tests of its own, every kind gives."""
    x = np.array(SPECIAL)
    masks = MASKS if temperature == 1.0 else MASKS[1:2]
    for mask in masks:
        mask = None if mask is None else np.array(mask)
        options = {"temperature": temperature, "where": mask}
        expected = np.asarray(getattr(hm, name)(x, **options))
        got = xp.call(getattr(hm, name), x, **options)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("name", CORE)
def test_special_values_while_traced(name):
    """All temperatures in one program, which knows none of them."""
    x, temperatures = np.array([SPECIAL] * len(TEMPERATURES)), np.array(TEMPERATURES)[:, None, None]
    options = {"temperature": temperatures, "where": np.array(MASKS[1])}
    got = KINDS["jitted"].call(getattr(hm, name), x, **options)
    expected = getattr(hm, name)(x, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_special_values_compiled_in(name, temperature):
    """A number in a function that the caller jits is known to the compiler."""
    x = np.array(SPECIAL)
    for mask in (None, np.array(MASKS[1])) if temperature == 1.0 else (np.array(MASKS[1]),):
        options = {"temperature": temperature, "where": mask}
        got = KINDS["jitted"].call(getattr(hm, name), x, **options)
        np.testing.assert_allclose(got, getattr(hm, name)(x, **options), rtol=1e-14, atol=0.0)


@each_library
@pytest.mark.parametrize("name", CORE)
def test_shapes_and_axes(xp, name):
    function = getattr(hm, name)
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    for axis in ((0, 2),) if xp.library == "jax" else (0, 1, (0, 2), None):
        got = xp.call(function, x, axis=axis, temperature=np.full((1, 1, 1), 0.7))
        np.testing.assert_allclose(got, function(x, axis=axis, temperature=0.7), rtol=1e-13)
    temperature = np.linspace(0.2, 3, 15).reshape(3, 1, 5)
    got = xp.call(function, x, axis=1, temperature=temperature)
    np.testing.assert_allclose(got, function(x, axis=1, temperature=temperature), rtol=1e-13)
    if "keepdims" in inspect.signature(function).parameters:
        temperature = np.ones((1, 1, 1))
        assert xp.call(function, x, axis=(0, 2), temperature=temperature, keepdims=True).shape == (
            1,
            4,
            1,
        )
    for shape in ((0, 3), (3, 0), ()):
        empty = np.ones(shape)
        if xp.library == "dask" and 0 in shape:
            continue  # dask has no blocks of length 0 to cut
        assert xp.call(function, empty).shape == np.shape(function(empty))


@each_library
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.bool_])
def test_types(xp, dtype):
    x = np.array([[1, 0, 3], [0, 0, 1]] * 3 + [[0, 2, 0]]).astype(dtype)
    if xp.name == "strict" and dtype == np.float16:
        with pytest.raises(TypeError, match="float16"):  # it has no such type
            xp.make(x)
        return
    for name in CORE:
        expected = getattr(hm, name)(x)
        got = xp.call(getattr(hm, name), x)
        assert got.dtype == expected.dtype
        rough = 1e-2 if dtype == np.float16 else 1e-5 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(got.astype(float), expected.astype(float), rtol=rough)


@each_library
def test_integers_do_not_wrap(xp):
    got = xp.call(hm.softmax, np.array([-128, 127, 0], np.int8))
    np.testing.assert_allclose(got, hm.softmax([-128.0, 127.0, 0.0]), rtol=1e-14)


@on("torch", "torch, generic", "jitted", "dask", "strict")
def test_weights(xp):
    """Jitted, the operations of jax need not be compiled one by one."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(4, 6)) * 5, rng.normal(size=(4, 6))
    w[0, :3], x[1, 2], w[1, 2] = 0.0, INF, 0.0
    for temperature in (1.0, 0.3, -2.0, INF):
        options = {"weights": w, "temperature": temperature, "return_sign": True}
        expected = hm.logsumexp(x, **options)
        got = xp.call(hm.logsumexp, x, **options)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
        np.testing.assert_array_equal(got[1], expected[1])
        del options["return_sign"]
        expected = hm.logsumexp(x, **options)
        assert np.isnan(expected).any()  # where the sum is negative
        np.testing.assert_allclose(xp.call(hm.logsumexp, x, **options), expected, rtol=1e-12)
    positive = xp.call(hm.logsumexp, x, weights=np.abs(w), axis=0)
    np.testing.assert_allclose(positive, hm.logsumexp(x, weights=np.abs(w), axis=0), rtol=1e-12)


@each_library
def test_bad_arguments(xp):
    x = xp.make(np.ones((2, 3)))
    with pytest.raises(TypeError, match="out is for NumPy arrays"):
        hm.softmax(x, out=np.ones((2, 3)))
    with pytest.raises(ValueError, match="temperature must not be nan"):
        hm.softmax(x, temperature=NAN)
    with pytest.raises(ValueError, match=r"temperature.*broadcast to \(2, 1\).*\(3,\)"):
        hm.softmax(x, temperature=np.ones(3))
    with pytest.raises(TypeError, match="where must hold bools"):
        hm.softmax(x, where=np.ones((2, 3)))
    with pytest.raises(ValueError, match="where must"):
        hm.softmax(x, where=np.ones(2, bool))
    with pytest.raises(ValueError, match=r"where must be .* of one shape"):
        hm.softmax(x, where=[[True], [True, False]])
    with pytest.raises(ValueError, match="axis must lie in"):
        hm.softmax(x, axis=2)
    if xp.name != "jitted":
        with pytest.raises(TypeError, match="complex64"):
            hm.softmax(xp.make(np.ones(3, np.complex64)))
    with pytest.raises(TypeError, match="temperature is a"):
        hm.softmax(np.ones((2, 3)), temperature=xp.make(np.ones((2, 1))))
    with pytest.raises(TypeError, match="where is a"):
        hm.softmax(np.ones((2, 3)), where=xp.make(np.ones((2, 1), bool)))


# --- NumPy's relatives ------------------------------------------------------------------------


def test_columns_come_back_as_numpy():
    for column in (pandas.Series([1.0, 2.0]), polars.Series([1.0, 2.0]), [1.0, 2.0], (1.0, 2.0)):
        result = hm.softmax(column)
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, hm.softmax(np.array([1.0, 2.0])))
    assert float(hm.softmax(3.0)) == 1.0


def test_masked_arrays_honour_their_mask():
    x = np.ma.masked_array([1.0, NAN, 2.0], [False, True, False])
    np.testing.assert_array_equal(
        hm.softmax(x), hm.softmax([1.0, 0.0, 2.0], where=np.ones(3) == [1, 0, 1])
    )


# --- dask -------------------------------------------------------------------------------------


def test_dask_merges_its_blocks_within_two_ulp_of_numpy():
    rng = np.random.default_rng(1)
    hard = np.where(np.arange(40) == 7, 0.0, -40.0) + rng.normal(size=(5, 40)) * 0.1
    for dtype in (np.float32, np.float64):
        for x in (rng.normal(size=(5, 40)) * 10, hard):
            x = x.astype(dtype)
            lazy = dask.array.from_array(x, chunks=(5, 14))
            for name in CORE:
                one = getattr(hm, name)(x, temperature=0.3)
                two = getattr(hm, name)(lazy, temperature=0.3)
                assert two.dtype == dtype
                scale = np.abs(one)
                if name in ("logsumexp", "smoothmax"):  # in ULP of the larger of its terms
                    temperature = 0.3 if name == "logsumexp" else 1.0
                    scale = np.maximum(scale, (np.abs(x).max() / temperature).astype(dtype))
                gap = np.abs(one.astype(float) - two.compute(scheduler="sync").astype(float))
                assert (gap <= 2 * np.spacing(scale)).all(), name


def test_dask_never_gathers_a_row():
    """A task sees a block, or a few numbers for each block, and never as many as a row has."""
    SEEN.clear()
    lazy = hm.softmax(dask.array.from_array(Source(), chunks=(2, 100)))
    assert lazy.chunks == ((2, 2), (100,) * 10)
    assert not any(np.prod(part) for part in SEEN)  # dask looks at the type of nothing
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), 1e-3)
    assert max(width for _, width in SEEN) == 100
    biggest = max(np.prod(shape) for shape in blocks_of(lazy))
    assert biggest == 200  # a block of x itself: what is merged is smaller


def blocks_of(lazy):
    """The shapes of all that the tasks of a lazy array make."""
    made = []

    class Watch(dask.callbacks.Callback):
        def _posttask(self, key, result, dsk, state, worker_id):
            made.append(np.shape(result))

    with Watch():
        lazy.compute(scheduler="sync", optimize_graph=False)
    return made[:-1] if made[-1] == lazy.shape else made


# --- the same bits in jax ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "smoothmax", "entropy"])
def test_a_jitted_row_keeps_its_bits(name):
    """log_softmax and softargmax do not: the compiler fuses their last step by the shape."""
    x = np.random.default_rng(0).normal(size=(50, 21)).astype(np.float32)
    function = jax.jit(lambda a: getattr(hm, name)(a, temperature=0.7))
    whole = np.asarray(function(x))
    for row, got in zip(x, whole, strict=True):
        is_near(KINDS["jitted"], name, got, row, 0.7, str(row))
    for start, count in ((0, 1), (3, 1), (7, 5), (20, 17)):
        part = np.asarray(function(x[start : start + count]))
        np.testing.assert_array_equal(part, whole[start : start + count])


def test_bfloat16():
    x = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, -80.0]] * 3 + [[0.0, 1.0, 0.0]], np.float32)
    for name in ("softmax", "log_softmax", "entropy"):
        truth = torch.from_numpy(np.asarray(getattr(hm, name)(x))).to(torch.bfloat16)
        ours = getattr(hm, name)(torch.from_numpy(x).to(torch.bfloat16))
        assert ours.dtype is torch.bfloat16
        assert torch.equal(ours, truth)
        jaxs = getattr(hm, name)(jnp.asarray(x, jnp.bfloat16))
        assert jaxs.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(jaxs, float), truth.double().numpy(), rtol=0.01)
