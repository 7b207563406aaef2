"""What comes into sampling besides logits: seeds, tokens, biases, penalties, counts.

Each either works or is refused in words that name it; none warns (pytest makes warnings errors).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from optional import torch

import hotmax as hm

INF = math.inf
TWO = np.array([[0.0, 1.0, 2.0], [0.5, 0.25, 3.0]])

# --- seeds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seeds",
    [
        [0, 2**64 - 1],
        (2**63 - 1, 2**63),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([0, 2**64 - 1], object),
        [np.uint64(2**64 - 1), np.int8(3)],
        [torch.tensor(4), 5],
    ],
)
def test_every_row_draws_by_its_own_seed(seeds):
    """NumPy would make floats of ints on both sides of 2**63."""
    drawn = hm.sample(np.zeros((2, 1000)), seed=seeds, size=5)
    for row in range(2):
        alone = hm.sample(np.zeros((1, 1000)), seed=[int(seeds[row])], size=5)
        np.testing.assert_array_equal(drawn[row], alone[0])
    sampler = hm.Sampler({}, seed=seeds)
    np.testing.assert_array_equal(sampler(np.zeros((2, 1000))), drawn[:, 0])


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        ([0, 2**64], ValueError),
        ([0, 2**70], ValueError),
        (2**64, ValueError),
        ([0, -1], ValueError),
        (np.array([1, -1]), ValueError),
        ([True, False], TypeError),
        ([True, 2], TypeError),
        (np.bool_(True), TypeError),
        (np.array([True, False]), TypeError),
        (torch.tensor([True, False]), TypeError),
        ([1.0, 2.0], TypeError),
        (np.array([1.0, 2.0]), TypeError),
        ([0, 0.5], TypeError),
        (["a", "b"], TypeError),
        ([None, 1], TypeError),
        ([[0], [1, 2]], (TypeError, ValueError)),
        ([1, 2, 3], ValueError),
    ],
)
def test_bad_seeds(seed, error):
    for call in (
        lambda: hm.sample(TWO, seed=seed),
        lambda: hm.gumbel_softmax(TWO, seed=seed),
        lambda: hm.Sampler({"temperature": 1.0}, seed=seed)(TWO),
    ):
        with pytest.raises(error, match="seed must be"):
            call()


def test_a_sampler_checks_its_seed_at_once():
    with pytest.raises(ValueError, match="seed must be"):
        hm.Sampler({}, seed=-1)


# --- counts -----------------------------------------------------------------------------------


def test_a_huge_top_k_keeps_all():
    np.testing.assert_array_equal(hm.truncate(TWO, top_k=10**400), TWO)


@pytest.mark.parametrize("count", [10**400, -(10**400), 0, True, 1.0])
def test_counts_that_cannot_be(count):
    error = TypeError if isinstance(count, bool | float) else ValueError
    with pytest.raises(error, match="size must be an int of at least 1 and at most 4294967296"):
        hm.sample(TWO, size=count)
    with pytest.raises(error, match="draws must be an int of at least 1"):
        hm.frequencies([1.0, 2.0], draws=count)
    with pytest.raises(error, match="width must be an int of at least 1"):
        hm.beam_search(lambda p: np.zeros((len(p), 2)), [0], width=count, length=1)
    with pytest.raises(error, match="length must be an int of at least 1"):
        hm.beam_search(lambda p: np.zeros((len(p), 2)), [0], width=1, length=count)


@pytest.mark.parametrize("value", [10**400, -(10**400), math.nan])
def test_numbers_beyond_float64(value):
    with pytest.raises(ValueError, match="top_p must be a number in"):
        hm.truncate(TWO, top_p=value)
    with pytest.raises(ValueError, match="repetition must be a number in"):
        hm.penalize(TWO, [0], repetition=value)


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ([[0], [1, 2]], ValueError),
        ([2**64 - 1], ValueError),
        ([2**70], TypeError),
        ([0.5], TypeError),
        ([[[0]]], ValueError),
    ],
)
def test_bad_starts_of_a_search(start, error):
    with pytest.raises(error, match="start must"):
        hm.beam_search(lambda p: np.zeros((len(p), 2)), start, width=1, length=1)


# --- tokens so far ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokens",
    [
        [[0, 0, 2], [1]],
        ((0, 0, 2), (1,)),
        [np.array([0, 0, 2]), [1]],
        [torch.tensor([0, 0, 2]), torch.tensor([1])],
        [[0, 0, 2], [1, -1]],
    ],
)
def test_rows_may_have_different_numbers_of_tokens(tokens):
    want = hm.penalize(TWO, [[0, 0, 2], [1, -1, -1]], frequency=0.5, presence=0.25)
    got = hm.penalize(TWO, tokens, frequency=0.5, presence=0.25)
    np.testing.assert_array_equal(got, want)
    sampler = hm.Sampler({"temperature": 0, "presence": 9.0})
    assert sampler(TWO, tokens=tokens).tolist() == [1, 2]
    np.testing.assert_array_equal(
        hm.penalize(TWO, [[], [1]], presence=0.25), TWO - [[0] * 3, [0, 0.25, 0]]
    )


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ([[0], [1, 2], [0]], ValueError, "one for each row in shape"),
        ([[[0], [1, 2]], [[0], [1]]], ValueError, "one for each row"),
        ([0, [1, 2]], ValueError, "one for each row"),
        ([[0], [1, 3]], ValueError, "below the number of classes, 3, got 3"),
        (
            [[0], [1, 2**70]],
            ValueError,
            "below the number of classes, 3, got 1180591620717411303424",
        ),
        ([2**70], ValueError, "below the number of classes"),
        ([0, 2**64 - 1], ValueError, "below the number of classes"),
        ([[0], [0.5, 1]], (TypeError, ValueError), "tokens must"),
        ([True, False], TypeError, "tokens must hold ints, got bool"),
        (["a"], TypeError, "tokens must hold ints"),
        ("word", TypeError, "tokens must hold ints"),
        (None, TypeError, "tokens must hold ints"),
        (3, ValueError, "one sequence"),
    ],
)
def test_bad_tokens(tokens, error, words):
    with pytest.raises(error, match=words):
        hm.penalize(TWO, tokens, presence=1.0)


def test_padding_of_any_size():
    np.testing.assert_array_equal(hm.penalize(TWO, [-(2**70), -1], presence=1.0), TWO)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_penalties_beyond_the_type(kind):
    """What is infinite stays, and what becomes too large is infinite."""
    largest = float(np.finfo(kind).max)
    x = np.array([largest, -largest, INF, -INF, 0.0], kind)
    tokens = [0, 1, 2, 3, 3, 4]
    assert hm.penalize(x, tokens, repetition=1e-3).tolist() == [
        INF, float(kind(-largest * 1e-3)), INF, -INF, 0.0,
    ]  # fmt: skip
    assert hm.penalize(x, tokens, repetition=1e300).tolist()[1:] == [-INF, INF, -INF, 0.0]
    for size in (1e308, -1e308):
        got = hm.penalize(x, tokens, frequency=size, presence=size).tolist()
        assert got[2:4] == [INF, -INF]
        assert got[4] == -math.copysign(INF, size)
        assert not np.isnan(got).any()


def test_nan_logits_stay_nan():
    assert np.isnan(hm.penalize([math.nan, 1.0], [0], repetition=2.0, presence=1.0)[0])
    assert np.isnan(hm.add_bias([math.nan, 1.0], {0: 2.0})[0])


@pytest.mark.parametrize("call", [hm.penalize, hm.add_bias])
def test_axes_and_single_numbers(call):
    with pytest.raises(ValueError, match=r"axis must lie in -2\.\.1 for 2 dimensions, got 2"):
        call(TWO, [0], axis=2)
    np.testing.assert_array_equal(call(TWO.T, [1], axis=0), call(TWO, [1]).T)
    assert np.shape(call(1.0, [0])) == ()


# --- biases -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "want"),
    [
        ([{1: 2.0}, {}], [[0.0, 3.0, 2.0], [0.5, 0.25, 3.0]]),
        ([{}, {0: -INF, 2: 1}], [[0.0, 1.0, 2.0], [-INF, 0.25, 4.0]]),
        ([[0, 2], []], [[-INF, 1.0, -INF], [0.5, 0.25, 3.0]]),
        ([[0], {0: 1.0}], [[-INF, 1.0, 2.0], [1.5, 0.25, 3.0]]),
        (np.array([[0], [1]]), [[-INF, 1.0, 2.0], [0.5, -INF, 3.0]]),
        (torch.tensor([[0], [1]]), [[-INF, 1.0, 2.0], [0.5, -INF, 3.0]]),
        ({}, TWO.tolist()),
        ([], TWO.tolist()),
    ],
)
def test_biases_of_each_row(tokens, want):
    assert hm.add_bias(TWO, tokens).tolist() == want
    assert hm.add_bias(TWO.T, tokens, axis=0).T.tolist() == want
    assert hm.add_bias(torch.from_numpy(TWO), tokens).tolist() == want


@pytest.mark.parametrize(
    ("tokens", "error", "words"),
    [
        ([{1: 2.0}], ValueError, r"list with one for each row; got 1 for rows of shape \(2,\)"),
        ([{1: 2.0}, 1], ValueError, "list with one for each row"),
        ([{3: 2.0}, {}], ValueError, "tokens must be 0 to 2, got 3"),
        ([[[0]], [[1]]], TypeError, "tokens must be ints"),
        (3, TypeError, "tokens must be a dict"),
        (None, TypeError, "tokens must be a dict"),
        ({True: 1.0}, TypeError, "tokens must be ints"),
        ({2**70: 1.0}, ValueError, "tokens must be 0 to 2"),
        ({0: 10**400}, ValueError, "tokens must map to numbers that fit"),
        ({0: 1j}, TypeError, "tokens must map to numbers"),
        ({0: np.complex128(1)}, TypeError, "tokens must map to numbers"),
        ({0: True}, TypeError, "tokens must map to numbers"),
    ],
)
def test_bad_biases(tokens, error, words):
    with pytest.raises(error, match=words):
        hm.add_bias(TWO, tokens)


def test_biases_beyond_the_type():
    x = np.array([6e4, -6e4, INF, -INF], np.float16)
    assert hm.add_bias(x, dict.fromkeys(range(4), 1e300)).tolist() == [INF, INF, INF, -INF]
    assert hm.add_bias(x, dict.fromkeys(range(4), -1e300)).tolist() == [-INF, -INF, INF, -INF]
