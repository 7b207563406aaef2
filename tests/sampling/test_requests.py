"""Requests, not batches: draws by (seed of the request, step)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hotmax as hm

VOCABULARY = 120
ROWS = np.random.default_rng(5).normal(size=(4, VOCABULARY)) * 2


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
