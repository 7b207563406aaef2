"""jax, dask, torch and array_api_strict give what NumPy gives, whatever comes in."""

from __future__ import annotations

import warnings

import array_api_strict as strict
import dask.array as da
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from fuzz.calls import CALLS
from fuzz.libraries import LIBRARIES, eager_jax, examples_of_each, search
from optional import torch

import hotmax as hm
from hotmax._backends.operation import OPERATIONS

NAN, INF = np.nan, np.inf
# How many calls of each function: jax compiles every operation for every shape.
EXAMPLES = {
    "torch": 6,
    "dask": 3,
    "dask in blocks": 3,
    "strict": 4,
    "jax": 1,
    "jax without x64": 1,
}
# jax takes seconds for a function: one of each kind here, and all of them in tests/fuzz.
ON_JAX = ("softmax", "log_softmax", "logsumexp", "entropy", "softmax_jvp", "kl_divergence",
               "cross_entropy", "sample", "saturation", "gumbel_softmax")  # fmt: skip
MAKERS = {
    "numpy": np.asarray,
    "jax": jnp.asarray,
    "dask": lambda x: da.from_array(x, chunks=1),
    "strict": strict.asarray,
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.fixture(autouse=True)
def without_programs():
    """jax runs one operation at a time: a program for each call would take seconds to compile."""
    with eager_jax(True):
        yield


def test_every_function_is_drawn():
    assert set(CALLS) == set(OPERATIONS)
    assert set(EXAMPLES) == set(LIBRARIES)


def test_examples_are_counted_over_all_searches():
    assert examples_of_each(10_000, 240) == 41
    assert examples_of_each(10, 240) == 1


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "jax without x64" else [])
        for name in LIBRARIES
    ],
)
def test_every_function_agrees_with_numpy(library):
    for name in ON_JAX if library.startswith("jax") else CALLS:
        search(name, LIBRARIES[library], EXAMPLES[library], None, few=True)


@each
def test_an_excluded_class_has_no_derivative_in_a_row_of_nan(make):
    """A class that `where` excludes is not there: 0, whatever the others are."""
    x, mask = make(np.array([NAN, 1.0, 2.0])), np.array([True, False, True])
    for result in (
        hm.temperature_derivative(x, where=mask),
        hm.softmax_jvp(x, np.ones(3), where=mask),
        hm.softmax_vjp(x, np.ones(3), where=mask),
    ):
        np.testing.assert_array_equal(np.asarray(result), [NAN, 0.0, NAN])
    for tensor in (hm.softmax_jacobian(x, where=mask), hm.softmax_hessian(x, where=mask)):
        indices = np.indices(tensor.shape)
        expected = np.where((indices == 1).any(axis=0), 0.0, NAN)
        np.testing.assert_array_equal(np.asarray(tensor), expected)


@each
@pytest.mark.parametrize(
    ("student", "teacher", "limit"),
    [
        ([INF, 1.0], [0.0, 1.0], INF),  # no mass where the teacher has some
        ([0.0, 1.0], [INF, 1.0], INF),  # T^2 log 2
        ([INF, 1.0], [INF, 5.0], 0.0),  # both are one-hot at all temperatures
        ([INF, INF], [3.0, 1.0], 0.5),  # as [0, 0] and [3, 1]: half the variance
        ([-INF, 1.0, 2.0], [-INF, 2.0, 1.0], 0.5),
    ],
)
def test_distillation_at_infinite_temperature_is_the_limit(make, student, teacher, limit):
    got = hm.distillation_loss(*(make(np.array(a)) for a in (student, teacher)), temperature=INF)
    assert float(np.asarray(got)) == limit


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_the_gradient_of_a_perplexity_that_overflows(make):
    """exp(1001) times probabilities of 1, 1 and exp(-2001)."""
    x = make(np.array([[-1000.0, 1.0, -2000.0]]))
    value, gradient = hm.perplexity(x, np.array([0]), return_grad=True)
    assert float(value) == INF
    small, large, none = np.asarray(gradient)[0]
    # In formulas, of jax here, the gradient is cut off at the largest number.
    assert small < -1e307
    assert large > 1e307
    assert none == 0.0


@pytest.mark.torch
def test_the_gradient_of_a_perplexity_that_overflows_by_a_learned_temperature():
    x = torch.tensor([[-1000.0, 1.0, -2000.0]], dtype=torch.float64, requires_grad=True)
    t = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    hm.perplexity(x, torch.tensor([0]), temperature=t).backward()
    assert x.grad[0, 0] < -1e307
    assert x.grad[0, 1] > 1e307
    assert x.grad[0, 2] == 0.0
    assert t.grad == -INF


def test_small_derivatives_of_a_perplexity_that_overflows():
    """exp(710) times exp(-708)."""
    _, gradient = hm.perplexity([[0.0, 710.0, 2.0]], [0], return_grad=True)
    np.testing.assert_allclose(gradient, [[-INF, INF, np.exp(2.0)]], rtol=1e-12)


def test_the_gradient_of_attention_does_not_see_nan_under_a_mask_in_bfloat16():
    q, k = np.zeros((3, 2)), np.zeros((4, 2))
    k[2, 1] = NAN
    q, k = q.astype(ml_dtypes.bfloat16), k.astype(ml_dtypes.bfloat16)
    gradient = hm.attention_vjp(q, k, k * 0 + 1, q, causal=True).q.astype(float)
    np.testing.assert_array_equal(gradient[:2], 0.0)


# --- dask -------------------------------------------------------------------------------------

ROWS = np.random.default_rng(0).normal(size=(6, 5))


def of_unknown_length(x: np.ndarray, chunks: tuple[int, int] = (2, 5)) -> da.Array:
    lazy = da.from_array(x, chunks=chunks)
    return lazy[lazy[:, 0] > -INF]


@pytest.mark.parametrize("chunks", [(2, 5), (2, 2)])
def test_dask_takes_a_number_of_rows_that_is_not_known(chunks):
    lazy = of_unknown_length(ROWS, chunks)
    for name in (
        "softmax",
        "logsumexp",
        "entropy",
        "softargmax",
        "softmax_jacobian",
        "softmax_vjp",
    ):
        more = (np.arange(5.0),) if name == "softmax_vjp" else ()
        for options in ({}, {"where": np.arange(5) < 3}, {"temperature": 0.5}):
            got = getattr(hm, name)(lazy, *more, **options).compute(scheduler="sync")
            expected = getattr(hm, name)(ROWS, *more, **options)
            np.testing.assert_allclose(got, expected, rtol=1e-13)
    got = hm.softmax(lazy, where=lazy > 0, temperature=abs(lazy[:, :1])).compute()
    expected = hm.softmax(ROWS, where=ROWS > 0, temperature=np.abs(ROWS[:, :1]))
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    np.testing.assert_allclose(hm.kl_divergence(lazy, lazy * 2), hm.kl_divergence(ROWS, ROWS * 2))


def test_dask_says_what_to_do_where_the_sizes_are_needed():
    lazy = of_unknown_length(ROWS)
    for call, name in (
        (lambda: hm.softmax(lazy, temperature=np.ones((6, 1))), "x"),
        (lambda: hm.softmax(lazy, where=ROWS > 0), "x"),
        (lambda: hm.softmax(lazy, axis=0), "x"),
        (lambda: hm.softmax_jacobian(lazy, axis=0), "x"),
        (lambda: hm.cross_entropy(lazy, np.zeros(6, int)), "logits"),
        (lambda: hm.segment_softmax(lazy.T, np.zeros(6, int)), "x"),
        (lambda: hm.linear_cross_entropy(lazy, np.ones((3, 5)), np.zeros(6, int)), "hidden"),
    ):
        with pytest.raises(ValueError, match=rf"call {name}\.compute_chunk_sizes\(\) first"):
            call()


def test_dask_graphs_do_not_warn():
    x = da.from_array(
        np.array([[1e38, -1e38, 3.0], [-1000.0, 0.0, 1.0]], np.float32), chunks=(1, 2)
    )
    labels = np.array([1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lazy in (
            hm.logsumexp((x / 1e34).astype(np.float16), temperature=1e-3),
            hm.softargmax(x),
            hm.entropy(x),
            hm.cross_entropy(x, labels),
            hm.perplexity(x, labels),
            hm.focal_loss(x, labels),
            hm.kl_divergence(x, -x),
            hm.softmax_hessian(x, temperature=0.0),
        ):
            lazy.compute(scheduler="sync")


def test_dask_reduces_losses_to_the_bits_of_numpy():
    x = np.random.default_rng(1).normal(size=(301, 7)).astype(np.float32)
    labels, lazy = np.arange(301) % 7, da.from_array(x, chunks=(40, 3))
    for loss in (hm.cross_entropy, hm.perplexity, hm.focal_loss, hm.mae_loss, hm.brier_loss):
        got = loss(lazy, da.from_array(labels, chunks=50), ignore_index=3).compute()
        assert got.dtype == np.float32
        assert got == loss(x, labels, ignore_index=3)
    assert hm.kl_divergence(lazy, -lazy).compute() == hm.kl_divergence(x, -x)
