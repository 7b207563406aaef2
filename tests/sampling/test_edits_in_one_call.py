"""Penalties, biases and masks in the same call, and results in place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from optional import torch

import hotmax as hm

VOCABULARY = 120
ROWS = np.random.default_rng(5).normal(size=(4, VOCABULARY)) * 2


# --- penalties, biases and masks in the same call ---------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bias_and_penalties_in_one_call(kind):
    """As add_bias, penalize and sample one after the other."""
    x = ROWS.astype(kind)
    tokens = [[1, 1, 2], [], [5], [7, 7, 7, 7, -1]]
    bias = [{3: 2.0}, {4: -math.inf}, {}, {5: -1.5, 6: 0.25}]
    penalties = {"repetition": [1.5, 1.0, 0.8, 2.0], "frequency": 0.3, "presence": [0, 1, 0, 1]}
    by_hand = hm.penalize(hm.add_bias(x, bias), tokens, **penalties)
    named = {f"{name}_penalty": value for name, value in penalties.items()}
    got = hm.truncate(x, bias=bias, tokens=tokens, top_p=0.9, **named)
    np.testing.assert_array_equal(got, hm.truncate(by_hand, top_p=0.9))
    assert got.dtype == kind
    flat, offsets = [1, 1, 2, 5, 7, 7, 7, 7, -1], [0, 3, 3, 4, 9]
    again = hm.truncate(x, bias=bias, tokens=flat, offsets=offsets, top_p=0.9, **named)
    np.testing.assert_array_equal(again, got)
    drawn = hm.sample(x, bias=bias, tokens=tokens, top_p=0.9, seed=3, size=50, **named)
    np.testing.assert_array_equal(drawn, hm.sample(by_hand, top_p=0.9, seed=3, size=50))
    plain = hm.sample(x, bias=bias, tokens=tokens, seed=3, size=50, **named)
    np.testing.assert_array_equal(plain, hm.sample(by_hand, seed=3, size=50))
    np.testing.assert_array_equal(
        hm.penalize(x, torch.tensor(flat), offsets=torch.tensor(offsets), **penalties),
        hm.penalize(x, tokens, **penalties),
    )


def test_histories_longer_than_the_vocabulary():
    """Each token counts as often as it came, and is penalized once."""
    tokens = np.random.default_rng(3).integers(-1, VOCABULARY, (4, 5 * VOCABULARY))
    for penalties in ({"repetition": 1.7}, {"repetition": 0.6, "frequency": 0.01, "presence": 0.3}):
        named = {f"{name}_penalty": value for name, value in penalties.items()}
        np.testing.assert_array_equal(
            hm.truncate(ROWS, tokens=tokens, **named), hm.penalize(ROWS, tokens, **penalties)
        )


def test_a_forbidden_class_is_not_drawn_below_temperature_0():
    x = np.array([0.0, 1.0, 2.0])
    drawn = hm.sample(x, temperature=-1.0, bias={0: -math.inf}, seed=0, size=200)
    assert set(drawn.tolist()) == {1, 2}


@pytest.mark.parametrize("word", [np.uint8, np.int32, np.uint32, np.int64])
def test_packed_bits(word):
    """Bit b of word w is class w * width + b, as xgrammar and llguidance have them."""
    rng = np.random.default_rng(0)
    mask = rng.random(ROWS.shape) < 0.3
    width = 8 * np.dtype(word).itemsize
    words = -(-VOCABULARY // width)
    packed = np.zeros((4, words), np.uint64)
    for row, column in np.argwhere(mask):
        packed[row, column // width] |= np.uint64(1) << np.uint64(column % width)
    packed = packed.astype(word)
    want = hm.truncate(ROWS, where=mask, top_p=0.9)
    np.testing.assert_array_equal(hm.truncate(ROWS, where=packed, top_p=0.9), want)
    got = hm.truncate(torch.from_numpy(ROWS), where=torch.from_numpy(packed), top_p=0.9)
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(
        hm.Sampler(seed=1)(ROWS, where=packed), hm.sample(ROWS, where=mask, seed=1)
    )
    np.testing.assert_array_equal(hm.top_logprobs(ROWS, 5, where=packed).logprobs,
                                  hm.top_logprobs(ROWS, 5, where=mask).logprobs)  # fmt: skip
    np.testing.assert_array_equal(
        hm.truncate(ROWS, where=packed[1]), hm.truncate(ROWS, where=mask[1])
    )
    with pytest.raises(TypeError, match=f"packed bits, {words} words of {width} bits"):
        hm.truncate(ROWS, where=packed[:, :-1])
    with pytest.raises(ValueError, match="packed bits for each row"):
        hm.truncate(ROWS, where=packed[:3])


# --- in place ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_in_place(kind):
    x = torch.from_numpy(ROWS).to(kind)
    want = hm.truncate(x, top_k=5, temperature=[1.0, 0.5, 2.0, 1.0])
    other, version = x.clone(), x._version
    assert hm.truncate(x, top_k=5, temperature=[1.0, 0.5, 2.0, 1.0], out=other) is other
    assert torch.equal(other, want)
    assert torch.equal(x, torch.from_numpy(ROWS).to(kind))
    assert hm.truncate(x, top_k=5, temperature=[1.0, 0.5, 2.0, 1.0], out=x) is x
    assert torch.equal(x, want)
    assert x._version > version  # autograd notices
    for call, options in (
        (hm.penalize, {"tokens": [1, 2], "repetition": 2.0}),
        (hm.add_bias, {"tokens": {1: 2.0}}),
    ):
        y = torch.from_numpy(ROWS).to(kind)
        want = call(y, **options)
        assert call(y, out=y, **options) is y
        assert torch.equal(y, want)


def test_what_cannot_be_written_to():
    x = torch.from_numpy(ROWS)
    with pytest.raises(ValueError, match="out must have shape"):
        hm.truncate(x, top_k=2, out=torch.empty(3))
    with pytest.raises(ValueError, match="out must not require"):
        hm.truncate(x, top_k=2, out=torch.empty(ROWS.shape, requires_grad=True))
    with pytest.raises(ValueError, match="out must have shape"):
        hm.truncate(x, top_k=2, out=torch.empty(ROWS.shape))
    with pytest.raises(TypeError, match="out must be a plain tensor on the CPU"):
        hm.truncate(x, top_k=2, out=torch.empty(ROWS.shape, device="meta"))


def test_in_place_on_arrays_and_views():
    x = ROWS.copy()
    want = hm.truncate(x, top_k=5)
    assert hm.truncate(x, top_k=5, out=x) is x
    np.testing.assert_array_equal(x, want)
    y = ROWS.copy()
    shifted = y.reshape(-1)[: 3 * VOCABULARY].reshape(3, VOCABULARY)
    later = y.reshape(-1)[VOCABULARY:].reshape(3, VOCABULARY)
    want = hm.truncate(shifted.copy(), top_k=5)
    hm.truncate(shifted, top_k=5, out=later)
    np.testing.assert_array_equal(later, want)
    z = ROWS.T.copy()
    want = hm.truncate(z, top_k=5, axis=0)
    hm.truncate(z, top_k=5, axis=0, out=z)
    np.testing.assert_array_equal(z, want)
