"""Every setting of sampling may be one for each row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from optional import torch

import hotmax as hm

VOCABULARY = 120
STEPS = {
    "temperature": [0.7, 1.3, 0.0, 1.0],
    "top_k": [40, 0, 7, -1],
    "top_p": [0.9, 1.0, 0.5, None],
    "min_p": [0.0, 0.02, None, 0.1],
    "top_a": [0.2, 0.0, None, 0.05],
    "typical_p": [1.0, 0.8, 0.95, None],
    "epsilon": [0.0, 0.001, 0.01, None],
    "eta": [0.002, 0.0, None, 0.01],
    "top_n_sigma": [-1, 2.0, 0, 1.0],
}
ROWS = np.random.default_rng(5).normal(size=(4, VOCABULARY)) * 2


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_setting_for_each_row(name, shape):
    """As each row alone with its own number, or without it where it is off."""
    each = np.array(STEPS[name], object).reshape(shape)
    given = {name: each.tolist()}
    if name == "temperature":
        given = {name: each.astype(float)}
    drawn = hm.sample(ROWS, size=20, seed=[1, 2, 3, 4], **given)
    kept = hm.truncate(ROWS, **given)
    sampler = hm.Sampler(given, order="hf", seed=[1, 2, 3, 4])
    np.testing.assert_array_equal(sampler.truncate(ROWS), kept)
    np.testing.assert_array_equal(sampler(ROWS), drawn[:, 0])
    cut = 0
    for row, value in enumerate(STEPS[name]):
        alone = {name: value}
        one = ROWS[row : row + 1]
        np.testing.assert_array_equal(hm.truncate(one, **alone), kept[row : row + 1])
        np.testing.assert_array_equal(
            hm.sample(one, size=20, seed=[row + 1], **alone), drawn[row : row + 1]
        )
        cut += not np.isfinite(kept[row]).all()
    assert cut >= 2 or name == "temperature"


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_penalties_seeds_and_steps_as_columns(name):
    """Shape (rows, 1) is (rows,), and each row is as it is alone."""
    tokens = [[1, 2, 2], [3], [], [4, 5, 6]]
    each, seeds, steps = np.array([1.2, 1.0, 1.5, 2.0]), np.array([9, 8, 7, 6]), np.arange(4)
    drawn = hm.sample(ROWS, tokens=tokens, seed=seeds, step=steps, size=5, **{name: each})
    columns = {name: each[:, None], "seed": seeds[:, None], "step": steps[:, None]}
    np.testing.assert_array_equal(hm.sample(ROWS, tokens=tokens, size=5, **columns), drawn)
    kept = hm.truncate(ROWS, tokens=tokens, **{name: each})
    assert not np.array_equal(kept, ROWS)
    for one in (each, each[:, None]):
        sampler = hm.Sampler({name: one}, seed=seeds.reshape(one.shape))
        np.testing.assert_array_equal(sampler.truncate(ROWS, tokens=tokens), kept)
    for row in range(4):
        alone = {name: each[row], "seed": seeds[row : row + 1], "step": steps[row : row + 1]}
        got = hm.sample(ROWS[row : row + 1], tokens=[tokens[row]], size=5, **alone)
        np.testing.assert_array_equal(got, drawn[row : row + 1])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("order", ["hf", "llama.cpp"])
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("xtc", ([0.5, 1.0, 0.0, 0.9], [0.1, 0.05, 0.2, 0.3])),
        ("mirostat", ([3.0, 2.0, 1.0, 5.0], [0.1, 0.2, 0.0, 0.3])),
        ("dynamic_temperature", ([0.5, 0.1, 1.0, 0.2], [1.5, 2.0, 1.0, 3.0], [1.0, 2.0, 0.5, 1.0])),
    ],
)
def test_steps_of_a_sampler_for_each_row(name, numbers, order, shape):
    """Call after call, as a sampler for each row: mirostat learns for each row too."""
    each = tuple(np.reshape(column, shape) for column in numbers)
    together = hm.Sampler({name: each}, order=order, seed=[1, 2, 3, 4])
    alone = [
        hm.Sampler({name: tuple(column[row] for column in numbers)}, order=order, seed=[row + 1])
        for row in range(4)
    ]
    for _ in range(4):
        kept, drawn = together.truncate(ROWS), together(ROWS)
        for row, sampler in enumerate(alone):
            one = ROWS[row : row + 1]
            np.testing.assert_array_equal(sampler.truncate(one), kept[row : row + 1])
            np.testing.assert_array_equal(sampler(one), drawn[row : row + 1])


def test_none_in_a_row_is_off():
    """Also of penalties, and a temperature of 1."""
    tokens = [[1, 2, 2], [3], [7], [4, 5, 6]]
    off, on = [1.5, None, 1.0, 2.0], [1.5, 1.0, 1.0, 2.0]
    for given in (off, np.array(off, object)[:, None]):
        sampler = hm.Sampler(repetition_penalty=given, temperature=given)
        for kept, want in (
            (
                hm.truncate(ROWS, tokens=tokens, repetition_penalty=given, temperature=given),
                hm.truncate(ROWS, tokens=tokens, repetition_penalty=on, temperature=on),
            ),
            (hm.penalize(ROWS, tokens, repetition=given), hm.penalize(ROWS, tokens, repetition=on)),
            (sampler.truncate(ROWS, tokens=tokens), hm.penalize(ROWS, tokens, repetition=on)),
        ):
            np.testing.assert_array_equal(kept, want)
        np.testing.assert_array_equal(
            hm.sample(ROWS, temperature=given, seed=1, size=9),
            hm.sample(ROWS, temperature=on, seed=1, size=9),
        )
    kept = hm.penalize(ROWS, tokens, frequency=[None, 0.5, None, 0.0], presence=[1.0, None, 0, 0])
    np.testing.assert_array_equal(
        kept, hm.penalize(ROWS, tokens, frequency=[0, 0.5, 0, 0], presence=[1.0, 0, 0, 0])
    )


def test_settings_as_tensors_and_arrays():
    x = torch.from_numpy(ROWS)
    want = hm.sample(ROWS, top_k=[3, 0, 5, 1], temperature=[1.0, 2.0, 0.5, 1.0], seed=range_of(4))
    got = hm.sample(
        x,
        top_k=torch.tensor([3, 0, 5, 1]),
        temperature=torch.tensor([1.0, 2.0, 0.5, 1.0]),
        seed=torch.arange(4),
        step=torch.zeros(4, dtype=torch.int64),
    )
    assert got.tolist() == want.tolist()


def range_of(n):
    return list(range(n))


def test_a_setting_for_each_row_of_more_dimensions():
    x = ROWS.reshape(2, 2, VOCABULARY)
    ks = np.array([[1, 2], [3, 4]])
    kept = np.isfinite(hm.truncate(x, top_k=ks)).sum(-1)
    assert kept.tolist() == ks.tolist()
    assert np.isfinite(hm.truncate(x, top_k=ks[:, :, None])).sum(-1).tolist() == ks.tolist()
    moved = np.isfinite(hm.truncate(np.moveaxis(x, -1, 0), top_k=ks, axis=0)).sum(0)
    assert moved.tolist() == ks.tolist()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"top_p": [0.5, 1.5, 0.5, 0.5]}, ValueError, r"top_p .*got .*1\.5.* in row 1"),
        ({"top_p": [[0.5], [0.5], [-1.0], [0.5]]}, ValueError, "top_p .* in row 2"),
        ({"top_k": [1, 2, 3, 2.5]}, TypeError, "top_k .* in row 3"),
        ({"top_k": np.array([1.0, 2.0, 3.0, 4.0])}, TypeError, "top_k .* in row 0"),
        ({"top_k": [1, 2, 3]}, ValueError, r"top_k .*\(4,\) or \(4, 1\).*got shape \(3,\)"),
        ({"min_p": [[0.5], [0.5, 0.1]]}, (TypeError, ValueError), "min_p"),
        ({"min_p": np.array([0.1, 0.1, np.nan, 0.1])}, ValueError, "min_p .*nan.* in row 2"),
        ({"temperature": [1.0, 2.0]}, ValueError, "temperature"),
        ({"temperature": [1.0, 1.0, math.nan, 1.0]}, ValueError, "temperature .*nan in row 2"),
        ({"temperature": [[1.0], ["a"], [1.0], [1.0]]}, TypeError, "temperature .*'a' in row 1"),
        ({"seed": [1, 2, -3, 4]}, ValueError, "seed .*-3 in row 2"),
        ({"seed": np.array([[1], [-2], [3], [4]])}, ValueError, "seed .*-2 in row 1"),
        ({"seed": [1, 2, 3, 4.5]}, TypeError, r"seed .*4\.5 in row 3"),
        ({"step": [0, 1]}, ValueError, "step"),
        ({"step": -1}, ValueError, "step"),
        ({"step": 2**30}, ValueError, "step"),
        ({"step": 0.5}, TypeError, "step"),
        ({"repetition_penalty": 1.5}, ValueError, "tokens must be given"),
        ({"offsets": [0, 1]}, ValueError, "offsets must come with tokens"),
        ({"tokens": [0, 1], "offsets": [0, 1, 2]}, ValueError, "offsets must be 5 ints"),
        ({"tokens": [0], "offsets": [0, 1, 0, 1, 1]}, ValueError, "offsets must not decrease"),
        ({"tokens": [0, 1], "offsets": [0, 1, 1, 1, 1]}, ValueError, "offsets must not decrease"),
        ({"tokens": [[0], [1], [999], [0]]}, ValueError, "tokens .* got 999 in row 2"),
        (
            {"tokens": [[0], [0.5], [1], []], "presence_penalty": 1.0},
            TypeError,
            "tokens must hold ints, got float64 in row 1",
        ),
        ({"bias": [{}, {}, 3, {}]}, ValueError, "bias .*got 3 in row 2"),
        (
            {"tokens": [0], "repetition_penalty": [1.0, 0.0, 1.0, 1.0]},
            ValueError,
            r"repetition_penalty must .* in row 1",
        ),
        (
            {"tokens": [0], "frequency_penalty": [1.0, 0.0]},
            ValueError,
            r"frequency_penalty .*shape \(2,\)",
        ),
        ({"bias": [{0: 1.0}, {999: 1.0}, {}, {}]}, ValueError, "bias .* got 999 in row 1"),
        ({"bias": [{0: 1.0}, {1: "a"}, {}, {}]}, TypeError, "bias .*'a' for 1 in row 1"),
        ({"bias": {0: math.nan}}, ValueError, "bias must not map to nan"),
        ({"bias": 3}, TypeError, "bias must be a dict"),
        ({"bias": [{}, {}]}, ValueError, "bias .*one for each row"),
        ({"presence_penalty": [0.0, 1.0], "tokens": [0]}, ValueError, "presence"),
        ({"return_logprob": 1}, TypeError, "return_logprob"),
    ],
)
def test_errors_name_the_argument_and_the_row(options, error, words):
    with pytest.raises(error, match=words):
        hm.sample(ROWS, **options)


@pytest.mark.parametrize("name", [*STEPS, "step", "repetition_penalty", "offsets", "bias"])
def test_masked_settings_are_refused(name):
    """What would a masked number mean?"""
    masked = np.ma.MaskedArray([1, 1, 1, 1], [False, True, False, False])
    with pytest.raises((ValueError, TypeError), match=name.removesuffix("_penalty")):
        hm.sample(ROWS, **{"tokens": [0, 1, 2], "seed": 0, name: masked})
