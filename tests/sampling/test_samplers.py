"""Sampler in the orders of the field, its steps with a memory, penalties and biases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_sampling as reference
from optional import library, torch

import hotmax as hm

warpers = library("transformers.generation.logits_process")

ROWS = [x[x > -np.inf] for x in reference.hard_rows(1200, 4)]


def kept_by(steps, x, order="llama.cpp", **options):
    return np.isfinite(hm.Sampler(steps, order=order, **options).truncate(x))


LLAMA = {  # step: (reference, numbers)
    "top_k": (reference.llama_top_k, [1, 3, 40]),
    "top_p": (reference.llama_top_p, [0.25, 0.5, 0.77, 0.95]),
    "min_p": (reference.llama_min_p, [0.01, 0.3, 1.0]),
    "typical_p": (reference.llama_typical, [0.3, 0.77]),
    "top_n_sigma": (reference.top_n_sigma, [0.5, 1.0, 2.0]),
}


@pytest.mark.parametrize("name", LLAMA)
def test_kept_sets_of_llama(name):
    """Its tie rules: exactly as many as needed, the first ones."""
    by_hand, values = LLAMA[name]
    differ = 0
    for number, x in enumerate(ROWS):
        value = values[number % len(values)]
        differ += not np.array_equal(kept_by({name: value}, x), by_hand(x, value))
    assert differ <= 3  # where nearly equal numbers meet a cut, rounding decides


def test_ties_as_each_library_has_them():
    x = np.array([1.0, 3.0, 3.0, 3.0, 3.0, 0.0])
    for order in ("hf", "vllm"):
        assert kept_by({"top_k": 2}, x, order).tolist() == [False, True, True, True, True, False]
        # of four equal ones two are enough for 0.4: the first in the row are dropped
        assert np.flatnonzero(kept_by({"top_p": 0.4}, x, order)).tolist() == [3, 4]
    assert np.flatnonzero(kept_by({"top_k": 2}, x)).tolist() == [1, 2]
    assert np.flatnonzero(kept_by({"top_p": 0.4}, x)).tolist() == [1, 2]


def test_temperature_comes_last_in_llama():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    hot = {"temperature": 5.0, "top_p": 0.8}
    assert kept_by(hot, x).sum() == kept_by({"top_p": 0.8}, x).sum() == 2
    assert kept_by(hot, x, "hf").sum() == 3
    assert kept_by({"top_p": 0.8, "temperature": 5.0}, x, None).sum() == 2
    assert kept_by(hot, x, None).sum() == 3


def test_vllm_cuts_by_min_p_before_top_p():
    """min_p first takes the tail away, so that top_p is a share of what is left."""
    x = np.log([0.4, 0.3, 0.1, 0.1, 0.1])
    steps = {"min_p": 0.5, "top_p": 0.56}
    assert kept_by(steps, x, "vllm").sum() == 1
    assert kept_by(steps, x, "hf").sum() == 2


def test_vllm_kept_sets():
    """By the warpers of transformers, which have the same rules, in the order of vllm."""
    chain = [
        warpers.TemperatureLogitsWarper(0.8),
        warpers.MinPLogitsWarper(0.003),
        warpers.TopKLogitsWarper(30),
        warpers.TopPLogitsWarper(0.91),
    ]
    steps = {"temperature": 0.8, "min_p": 0.003, "top_k": 30, "top_p": 0.91}
    differ = 0
    for x in ROWS:
        scores = torch.from_numpy(x)[None]
        for warper in chain:
            scores = warper(None, scores)
        # which of equal logits top_p keeps is up to torch's sort
        ours, theirs = x[kept_by(steps, x, "vllm")], x[np.isfinite(scores[0].numpy())]
        differ += not np.array_equal(np.sort(ours), np.sort(theirs))
    assert differ <= 3


def test_xtc():
    for x in ROWS:
        for threshold in (0.02, 0.1, 0.3):
            kept = kept_by({"xtc": (1.0, threshold)}, x)
            assert np.array_equal(kept, reference.xtc(x, threshold))
        assert kept_by({"xtc": (0.0, 0.1)}, x).all()
    x = np.broadcast_to(np.array([2.0, 1.0, 0.0]), (20000, 3))
    sampler = hm.Sampler({"xtc": (0.3, 0.2)}, order="llama.cpp", seed=1)
    cut = ~np.isfinite(sampler.truncate(x)[:, 0])
    assert abs(cut.mean() - 0.3) < 4 * math.sqrt(0.21 / 20000)
    assert (sampler(x)[cut] > 0).all()


def test_dynamic_temperature():
    rng = np.random.default_rng(0)
    x = rng.normal(size=6)
    temperature = reference.dynamic_temperature(x, 0.2, 3.0, 1.5)
    sampler = hm.Sampler({"dynamic_temperature": (0.2, 3.0, 1.5)}, order="llama.cpp", seed=3)
    drawn = sampler(np.broadcast_to(x, (40000, 6)))
    p = reference.probabilities(x, temperature)
    counts = np.bincount(drawn, minlength=6)
    assert (np.abs(counts / 40000 - p) < 4.5 * np.sqrt(p * (1 - p) / 40000)).all()
    greedy = hm.Sampler({"dynamic_temperature": (0.0, 1e-9)}, seed=0)
    assert greedy([[1.0, 3.0, 2.0]]).tolist() == [1]
    assert hm.Sampler({"dynamic_temperature": (0.0, 1.0)}, seed=0)([[1.0]]).tolist() == [0]


def test_mirostat():
    """mu by its recurrence, and the surprise near its target in the end."""
    rng = np.random.default_rng(0)
    target, rate = 3.0, 0.1
    sampler = hm.Sampler({"mirostat": (target, rate)}, order="llama.cpp", seed=2)
    mu, surprises = 2 * target, []
    for _ in range(400):
        x = rng.normal(size=500) * 2
        kept = reference.mirostat(x, mu)
        assert np.array_equal(np.isfinite(sampler.truncate(x)), kept)
        token = int(sampler(x))
        assert kept[token]
        p = reference.probabilities(np.where(kept, x, -np.inf))
        surprises.append(-math.log2(p[token]))
        mu -= rate * (surprises[-1] - target)
        assert sampler.mu[0] == pytest.approx(mu, rel=1e-9)
    assert abs(np.mean(surprises[100:]) - target) < 0.1
    with pytest.raises(ValueError, match="1 rows"):
        sampler(np.zeros((2, 500)))


def test_calls_take_new_numbers_and_seeds_repeat():
    x = np.zeros((3, 50))
    one, two = (hm.Sampler({"top_p": 0.9}, seed=7) for _ in range(2))
    first = [one(x).tolist() for _ in range(5)]
    assert first == [two(x).tolist() for _ in range(5)]
    assert len({tuple(line) for line in first}) == 5
    assert hm.sample(x, top_p=0.9, seed=7).tolist() == first[0]
    each = hm.Sampler({}, seed=[1, 2, 3])
    assert each(x).tolist() == hm.sample(x, seed=[1, 2, 3]).tolist()
    fresh = hm.Sampler({})
    assert len({tuple(fresh(x).tolist()) for _ in range(5)}) > 1
    assert hm.Sampler({"temperature": 0}, ties="first")(x).tolist() == [0, 0, 0]


def test_a_temperature_for_each_row():
    sampler = hm.Sampler({"temperature": [[0.0], [np.inf]], "top_k": 2}, seed=0)
    drawn = np.array([sampler([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]]) for _ in range(300)])
    assert (drawn[:, 0] == 1).all()
    assert set(drawn[:, 1]) == {0, 1}


def test_penalties_of_transformers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 40))
    tokens = rng.integers(0, 40, (6, 15))
    theirs = warpers.RepetitionPenaltyLogitsProcessor(1.3)(
        torch.from_numpy(tokens), torch.from_numpy(x)
    )
    np.testing.assert_allclose(hm.penalize(x, tokens, repetition=1.3), theirs.numpy(), rtol=1e-15)


def test_penalties_by_hand():
    x = np.array([[2.0, -2.0, 1.0], [0.0, 4.0, -1.0]], np.float32)
    got = hm.penalize(x, [[0, 1, 1], [2, -1, -1]], repetition=2.0, frequency=0.5, presence=0.25)
    want = np.array([[0.25, -5.25, 1.0], [0.0, 4.0, -2.75]], np.float32)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(
        hm.penalize(
            x.T, [[0, 1, 1], [2, -1, -1]], repetition=2.0, frequency=0.5, presence=0.25, axis=0
        ),
        want.T,
    )
    np.testing.assert_array_equal(hm.penalize(x, []), x)
    np.testing.assert_array_equal(hm.penalize(x, [1], presence=1.0)[:, 1], x[:, 1] - 1)
    sampler = hm.Sampler({"presence": 1e9, "temperature": 0}, seed=0)
    assert sampler(x, tokens=[[0], [1]]).tolist() == [2, 0]
    with pytest.raises(ValueError, match="tokens"):
        sampler(x)


def test_bias():
    x = np.array([[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(hm.add_bias(x, {1: 0.5})[:, 1], [2.5, 5.5])
    np.testing.assert_array_equal(hm.add_bias(x, [0], axis=0)[0], [-np.inf] * 3)
    assert x[0, 0] == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hm.Sampler({"top_q": 1}), ValueError, "top_q"),
        (lambda: hm.Sampler({"top_q": 1}, order=None), ValueError, "top_q"),
        (lambda: hm.Sampler([("top_k", 1)]), TypeError, "steps"),
        (lambda: hm.Sampler({}, order="openai"), ValueError, "order"),
        (lambda: hm.Sampler({"temperature": -1.0}), ValueError, "temperature"),
        (lambda: hm.Sampler({"xtc": 0.5}), ValueError, "xtc"),
        (lambda: hm.Sampler({"xtc": (2.0, 0.1)}), ValueError, "probability of xtc"),
        (lambda: hm.Sampler({"mirostat": 0.0}), ValueError, "mirostat"),
        (lambda: hm.Sampler({"repetition": 0.0}), ValueError, "repetition"),
        (lambda: hm.penalize([1.0, 2.0], [2]), ValueError, "tokens"),
        (lambda: hm.penalize([1.0, 2.0], [0.5]), TypeError, "tokens"),
        (lambda: hm.penalize([1.0, 2.0], [[0]]), ValueError, "tokens"),
        (lambda: hm.penalize([1.0, 2.0], [0], axis=None), TypeError, "axis"),
        (lambda: hm.add_bias([1.0], {1: 0.5}), ValueError, "tokens"),
        (lambda: hm.add_bias([1.0], {"a": 0.5}), TypeError, "tokens"),
        (lambda: hm.add_bias([1.0], {0: math.nan}), ValueError, "nan"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_mirostat_learns_from_the_first_of_ties():
    """Nothing else could have come: no surprise, so mu rises by rate * target."""
    for ties in ("even", "first"):
        sampler = hm.Sampler({"temperature": 0, "mirostat": (3.0, 0.1)}, ties=ties, seed=0)
        assert sampler([1.0, 2.0, 3.0]) == 2
        assert sampler.mu == pytest.approx([6.0 + 0.1 * 3.0])


def test_bias_brings_no_class_back():
    np.testing.assert_array_equal(hm.add_bias([-np.inf, 1.0], {0: np.inf, 1: 2}), [-np.inf, 3.0])
    with pytest.raises(TypeError, match="tokens must map to numbers, got 'a' for 0"):
        hm.add_bias([0.0, 1.0], {0: "a"})
