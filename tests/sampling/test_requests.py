"""Requests, not batches: settings for each row, and draws by (seed of the request, step)."""

from __future__ import annotations

import json
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


# --- settings for each row --------------------------------------------------------------------


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


# --- seed and step ----------------------------------------------------------------------------


def test_a_draw_is_a_function_of_seed_and_step():
    seeds, steps = np.array([5, 6, 5, 7]), np.array([0, 3, 1, 2**30 - 1])
    x = np.broadcast_to(np.zeros(1000), (4, 1000))
    together = hm.sample(x, seed=seeds, step=steps)
    for row in range(4):
        assert hm.sample(x[0], seed=[seeds[row]], step=steps[row]) == together[row]
        assert hm.sample(x[:1], seed=seeds[row : row + 1], step=steps[row]) == together[row]
    shuffled = [2, 0, 3, 1]
    again = hm.sample(x, seed=seeds[shuffled], step=steps[shuffled])
    np.testing.assert_array_equal(again, together[shuffled])
    assert len(set(together.tolist())) == 4
    sampler = hm.Sampler({}, seed=9)
    assert [sampler(x).tolist() for _ in range(3)] == [
        hm.sample(x, seed=9, step=step).tolist() for step in range(3)
    ]


def test_steps_are_independent_and_uniform():
    """4,000 steps of one request over 20 classes: chi-square and the correlation of neighbours."""
    drawn = np.array(
        hm.sample(np.zeros((4000, 20)), seed=np.full(4000, 3), step=np.arange(4000)), float
    )
    counts = np.bincount(drawn.astype(int), minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # the 99.9 % point of 19 degrees of freedom
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / math.sqrt(4000)


# --- continuous batching ----------------------------------------------------------------------


def logits_after(request, tokens):
    """A small language model: random logits that depend on the request and all its tokens."""
    key = [request, len(tokens), *(tokens[-3:] or [0])]
    return np.random.default_rng(key).normal(size=VOCABULARY).astype(np.float32) * 2


def settings_of(request):
    """Every kind of step in some request."""
    rng = np.random.default_rng([77, request])
    options = {
        "temperature": float(rng.choice([0.0, 0.5, 1.0, 1.7])),
        "top_k": int(rng.choice([0, 5, 50])),
        "top_p": float(rng.choice([0.6, 0.95, 1.0])),
    }
    if request % 4 == 0:
        options["mirostat"] = (3.0, 0.2)
    if request % 5 == 0:
        options["xtc"] = (0.5, 0.05)
    if request % 6 == 0:
        options["dynamic_temperature"] = (0.3, 1.8, 1.2)
    if request % 3 == 0:
        options |= {"repetition_penalty": 1.2, "frequency_penalty": 0.3}
    if request % 7 == 0:
        options["logit_bias"] = {request % VOCABULARY: 4.0, 3: -math.inf}
    return options


def run_alone(request, length):
    sampler = hm.Sampler({}, seed=11)
    sampler.add(request, seed=request * 31 + 1, **settings_of(request))
    tokens = []
    for _ in range(length):
        logits = logits_after(request, tokens)[None]
        tokens.append(int(sampler(logits, requests=[request], tokens=[tokens])[0]))
    return tokens


def test_two_hundred_requests_draw_what_each_draws_alone():
    """Random joins, lengths and places, a restart from JSON, and 16 rows at most.

    Some have mirostat, XTC or a dynamic temperature, each with a state and settings of its own.
    """
    rng = np.random.default_rng(0)
    lengths = {request: int(rng.integers(1, 25)) for request in range(200)}
    waiting, running = list(lengths), []
    tokens = {request: [] for request in lengths}
    sampler, calls = hm.Sampler({}, seed=11), 0
    while waiting or running:
        while waiting and len(running) < 16 and (not running or rng.random() < 0.6):
            request = waiting.pop(int(rng.integers(len(waiting))))
            sampler.add(request, seed=request * 31 + 1, **settings_of(request))
            running.append(request)
        rng.shuffle(running)
        batch = running[: int(rng.integers(1, len(running) + 1))]  # some wait for a step
        logits = np.stack([logits_after(request, tokens[request]) for request in batch])
        drawn = sampler(logits, requests=batch, tokens=[tokens[request] for request in batch])
        for request, token in zip(batch, drawn.tolist(), strict=True):
            tokens[request].append(token)
            if len(tokens[request]) == lengths[request]:
                sampler.remove(request)
                running.remove(request)
        calls += 1
        if calls % 40 == 0:
            text = sampler.to_json()
            sampler = hm.Sampler.from_json(text)
            assert sampler.to_json() == text
    assert calls > 100
    assert sampler.requests == ()
    for request, length in lengths.items():
        assert tokens[request] == run_alone(request, length), request


def test_a_plain_array_of_steps_does_the_same():
    """Without a Sampler: seeds and steps are arrays of the caller's own."""
    x = np.random.default_rng(1).normal(size=(3, 8, VOCABULARY))
    seeds = np.array([4, 5, 6])
    alone = [
        [int(hm.sample(x[r, s], seed=seeds[r : r + 1], step=s, top_p=0.9)) for s in range(8)]
        for r in range(3)
    ]
    steps = np.zeros(3, int)
    drawn = [[], [], []]
    for rows in ([0], [1, 0], [0, 1, 2], [2, 0], [1, 2], [0, 1, 2]):
        logits = np.stack([x[r, steps[r]] for r in rows])
        out = hm.sample(logits, seed=seeds[rows], step=steps[rows], top_p=0.9)
        for r, token in zip(rows, out.tolist(), strict=True):
            drawn[r].append(token)
        steps[rows] += 1
    for r in range(3):
        assert drawn[r] == alone[r][: len(drawn[r])]
        assert len(drawn[r]) >= 4


def test_state_is_json_and_can_be_restored():
    sampler = hm.Sampler(mirostat=(3.0, 0.1), temperature=math.inf, seed=2)
    for _ in range(3):
        sampler(ROWS[:2], requests=["a", 7])
    state = json.loads(json.dumps(sampler.state("a")))
    assert state["step"] == 3
    other = hm.Sampler(mirostat=(3.0, 0.1), temperature=math.inf, seed=99)
    other.restore("somebody", state)
    assert other(ROWS[1:2], requests=["somebody"]) == sampler(ROWS[1:2], requests=["a"])
    assert other.state("somebody") == sampler.state("a")
    text = sampler.to_json()
    assert json.loads(text)["settings"]["temperature"] == "inf"
    again = hm.Sampler.from_json(text)
    assert again.requests == ("a", 7)
    np.testing.assert_array_equal(again(ROWS[:2], requests=[7, "a"]),
                                  sampler(ROWS[:2], requests=[7, "a"]))  # fmt: skip
    assert again(ROWS).tolist() == hm.Sampler.from_json(text)(ROWS).tolist()


def test_seeds_of_requests_follow_from_their_names():
    def run(names):
        sampler = hm.Sampler({}, seed=3)
        return [dict(zip(names, sampler(np.zeros((len(names), 999)), requests=names).tolist(),
                         strict=True)) for _ in range(3)]  # fmt: skip

    one, two = run(["x", "y", 1]), run([1, "1", "x"])
    for first, second in zip(one, two, strict=True):
        assert first["x"] == second["x"]
        assert first[1] == second[1]
    assert any(step[1] != step["1"] for step in two)  # an int is not its text


def test_a_request_may_turn_off_what_the_sampler_has():
    sampler = hm.Sampler(top_k=1, seed=0)
    sampler.add("free", top_k=None, temperature=50.0)
    x = np.tile(np.arange(50.0), (2, 1))
    drawn = np.array([sampler(x, requests=["free", "greedy"]) for _ in range(40)])
    assert (drawn[:, 1] == 49).all()
    assert len(set(drawn[:, 0])) > 10
    kept = sampler.truncate(x, requests=["greedy", "free"])
    assert np.isfinite(kept).sum(-1).tolist() == [1, 50]
    assert sampler.state("free")["step"] == 40


def test_logprobs_of_requests():
    sampler = hm.Sampler(top_k=3, temperature=0.5, seed=1)
    token, log = sampler(ROWS, requests=[1, 2, 3, 4], return_logprob=True)
    want = hm.log_softmax(hm.truncate(ROWS, top_k=3), temperature=0.5)
    np.testing.assert_allclose(log, want[np.arange(4), token], rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda s: s(ROWS, requests=["a", "b"]), ValueError, "each of 4 rows, got 2"),
        (lambda s: s(ROWS, requests=["a", "b", "c", "a"]), ValueError, "'a' twice"),
        (lambda s: s(ROWS, requests=[1.5, 2, 3, 4]), TypeError, "ints or strs"),
        (lambda s: s.add("x", top_q=1), ValueError, "top_q"),
        (lambda s: s.add("x", top_k=[1, 2]), ValueError, "one number each"),
        (lambda s: s.add("x", seed=-1), ValueError, "seed"),
        (lambda s: s.add("x", step=-1), ValueError, "step"),
        (lambda s: (s.add("x"), s.add("x")), ValueError, "already known"),
        (lambda s: s.remove("nobody"), KeyError, "not known"),
        (lambda s: s.state("nobody"), KeyError, "not known"),
        (lambda s: s.restore("x", {}), ValueError, "state must have seed"),
        (lambda s: hm.Sampler.from_json("{"), ValueError, "text must be JSON"),
        (lambda s: hm.Sampler.from_json("{}"), ValueError, "format"),
        (lambda s: hm.Sampler.from_json('{"format": "hotmax sampler", "version": 9}'),
         ValueError, "version 1, got 9"),
        (lambda s: hm.Sampler(top_p=0.9, seed=[1, 2])(ROWS[:1], requests=["a"]),
         ValueError, "seed must be one number"),
        (lambda s: hm.Sampler({"top_k": 3}, top_k=4), ValueError, "top_k must be given once"),
        (lambda s: hm.Sampler(repetition=1.1, repetition_penalty=1.2), ValueError, "given once"),
        (lambda s: hm.Sampler(xtc_probability=0.5), ValueError, "xtc_threshold"),
        (lambda s: hm.Sampler({"top_k": 3}, order=None).add("x", top_p=0.5), ValueError,
         "among the sampler's"),
        (lambda s: hm.Sampler(temperature=[1.0, -0.5]), ValueError, r"-0\.5 in row 1"),
    ],
)  # fmt: skip
def test_wrong_requests(call, error, words):
    with pytest.raises(error, match=words):
        call(hm.Sampler(top_p=0.9, seed=0))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"repetition_penalty": 1.3}, {"repetition": 1.3}),
        ({"repeat_penalty": 1.3}, {"repetition": 1.3}),
        (
            {"presence_penalty": 0.5, "frequency_penalty": 0.25},
            {"presence": 0.5, "frequency": 0.25},
        ),
        ({"temp": 0.5}, {"temperature": 0.5}),
        ({"epsilon_cutoff": 0.01, "eta_cutoff": 0.02}, {"epsilon": 0.01, "eta": 0.02}),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.1}, {"xtc": (0.5, 0.1)}),
        ({"mirostat_tau": 3.0, "mirostat_eta": 0.2}, {"mirostat": (3.0, 0.2)}),
        ({"logit_bias": {"7": 9.0}}, {"bias": {7: 9.0}}),
        ({"xtc_probability": None, "xtc_threshold": 0.1, "mirostat_tau": None}, {}),
        ({"xtc_probability": None, "mirostat_tau": None, "mirostat_eta": 0.1}, {}),
        ({"top_k": -1, "top_p": 1.0, "min_p": 0.0, "temperature": 1}, {}),
    ],
)
def test_names_of_the_field(theirs, ours):
    tokens = [1, 2, 3]
    one, two = hm.Sampler(theirs, seed=1), hm.Sampler(seed=1, **ours)
    for _ in range(5):
        np.testing.assert_array_equal(
            one.truncate(ROWS, tokens=tokens), two.truncate(ROWS, tokens=tokens)
        )
        np.testing.assert_array_equal(one(ROWS, tokens=tokens), two(ROWS, tokens=tokens))


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
