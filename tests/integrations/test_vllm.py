"""The adapters for vLLM, against engines that keep to its documented contracts."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from optional import library, torch

import hotmax as hm

pytestmark = pytest.mark.torch
adapter = library("hotmax.integrations.vllm")

VOCABULARY = 80


class MoveDirectionality(enum.Enum):
    UNIDIRECTIONAL = enum.auto()
    SWAP = enum.auto()


@dataclass(frozen=True)
class BatchUpdate:
    batch_size: int
    removed: list
    added: list
    moved: list


@dataclass
class Params:
    extra_args: Any = None
    seed: int | None = None


@dataclass
class Work:
    """A request of the engine's."""

    number: int
    params: Params
    prompt: list
    length: int
    output: list = field(default_factory=list)


def logits_of(work, output):
    seed = [work.number, len(output), *(output[-2:] or [0])]
    return np.random.default_rng(seed).normal(size=VOCABULARY).astype(np.float32) * 2


def settings_of(number):
    options = {"temperature": [0.0, 0.7, 1.3][number % 3], "seed": 1000 + number}
    if number % 2:
        options["top_p"] = 0.9
    if number % 4 == 0:
        options["repetition_penalty"] = 1.3
    if number % 5 == 0:
        options["mirostat"] = [3.0, 0.2]
    return options


def work_of(number, mirostat=True):
    options = settings_of(number)
    if not mirostat:
        options.pop("mirostat", None)
    if number % 7 == 6:
        params = Params()  # does not ask for hotmax
    else:
        params = Params({"hotmax": json.dumps(options) if number % 2 else options})
    return Work(number, params, [number % 5, 3], 3 + number % 11)


def alone(number, mirostat=True):
    work, options = work_of(number, mirostat), settings_of(number)
    if not mirostat:
        options.pop("mirostat", None)
    if isinstance(options.get("mirostat"), list):
        options["mirostat"] = tuple(options["mirostat"])
    seed = options.pop("seed")
    sampler = hm.Sampler(order="vllm", ties="first")
    sampler.add(number, seed=seed, **options)
    tokens = []
    while len(tokens) < work.length:
        logits = logits_of(work, tokens)[None]
        tokens.append(int(sampler(logits, requests=[number], tokens=[work.prompt + tokens])[0]))
    return tokens


class Engine:
    """A persistent batch of the V1 runner: requests join, leave gaps, are moved and swapped."""

    def __init__(self, processor, rng):
        self.processor, self.rng, self.batch = processor, rng, []

    def step(self, new):
        removed = [i for i, work in enumerate(self.batch) if len(work.output) == work.length]
        added, moved, holes = [], [], list(removed)
        for work in new:  # fill the gaps first; those filled are not among the removed
            index = holes.pop(0) if holes else len(self.batch)
            if index in removed:
                removed.remove(index)
            if index == len(self.batch):
                self.batch.append(work)
            else:
                self.batch[index] = work
            type(self.processor).validate_params(work.params)
            added.append((index, work.params, work.prompt, work.output))
        while holes:  # condense: the last ones move into what is left of the gaps
            hole, last = holes.pop(0), len(self.batch) - 1
            while last in holes:
                holes.remove(last)
                self.batch.pop()
                last -= 1
            if hole < last:
                self.batch[hole] = self.batch[last]
                moved.append((last, hole, MoveDirectionality.UNIDIRECTIONAL))
                removed.remove(hole)
            self.batch.pop()
        if len(self.batch) > 1 and self.rng.random() < 0.5:
            one, two = self.rng.choice(len(self.batch), 2, replace=False).tolist()
            self.batch[one], self.batch[two] = self.batch[two], self.batch[one]
            moved.append((one, two, MoveDirectionality.SWAP))
        changed = removed or added or moved
        removed.sort(reverse=True)  # as vLLM's are
        update = BatchUpdate(len(self.batch), removed, added, moved) if changed else None
        self.processor.update_state(update)
        if not self.batch:
            return
        given = np.stack([logits_of(work, work.output) for work in self.batch])
        logits = self.processor.apply(torch.from_numpy(given.copy()))
        for row, work in enumerate(self.batch):
            if work.params.extra_args is None:
                np.testing.assert_array_equal(logits[row].numpy(), given[row])
            else:
                assert int(torch.isfinite(logits[row]).sum()) == 1
            work.output.append(int(logits[row].argmax()))


def test_the_v1_interface_under_continuous_batching():
    processor = adapter.LogitsProcessor(None, torch.device("cpu"), False)
    assert processor.is_argmax_invariant() is False
    rng = np.random.default_rng(0)
    engine, waiting, done = Engine(processor, rng), [work_of(n) for n in range(60)], []
    everything = list(waiting)
    while waiting or engine.batch:
        count = min(int(rng.integers(0, 4)), max(9 - len(engine.batch), 0), len(waiting))
        new, waiting = waiting[:count], waiting[count:]
        engine.step(new)
    for work in everything:
        if work.params.extra_args is not None:
            assert work.output == alone(work.number), work.number
            done.append(work)
    assert len(done) > 45
    assert processor.rows == {}


def test_a_request_that_was_preempted_goes_on():
    """It is added again with the output that it has."""
    want = alone(1)
    processor = adapter.LogitsProcessor(None, torch.device("cpu"), False)
    work = work_of(1)
    work.output = want[:3]
    processor.update_state(BatchUpdate(1, [], [(0, work.params, work.prompt, work.output)], []))
    logits = torch.from_numpy(logits_of(work, work.output)[None])
    assert int(processor.apply(logits).argmax()) == want[3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"top_p": 2.0}, "top_p"),
        ({"top_k": "many"}, "top_k"),
        ({"top_q": 1}, "top_q"),
        ({"seed": -1}, "seed"),
        ("{", "must be JSON"),
        ([1], "must be a dict"),
    ],
)
def test_wrong_settings_are_refused_at_the_entrance(given, words):
    for kind in (adapter.LogitsProcessor, adapter.RunnerV2LogitsProcessor):
        with pytest.raises(ValueError, match=words):
            kind.validate_params(Params({"hotmax": given}))
        kind.validate_params(Params())
        kind.validate_params(Params({"hotmax": {}}, seed=4))
    with pytest.raises(ValueError, match="mirostat"):
        adapter.RunnerV2LogitsProcessor.validate_params(Params({"hotmax": {"mirostat": [3, 0.1]}}))


class RunnerV2:
    """Slots that are used again, rows in a new order at each step, several for a draft."""

    def __init__(self, slots, length):
        self.states = SimpleNamespace(
            device=torch.device("cpu"), max_num_reqs=slots, vocab_size=VOCABULARY,
            all_token_ids=SimpleNamespace(gpu=torch.zeros((slots, length), dtype=torch.int32)),
            prompt_len=SimpleNamespace(np=np.zeros(slots, np.int32)),
            total_len=SimpleNamespace(gpu=torch.zeros(slots, dtype=torch.int32)),
        )  # fmt: skip
        self.processor = adapter.RunnerV2LogitsProcessor(None, self.states)
        self.running, self.free = {}, list(range(slots))

    def add(self, work):
        slot = self.free.pop()
        self.running[slot] = work
        self.states.prompt_len.np[slot] = len(work.prompt)
        self.commit(slot, work.prompt)
        asked = self.processor.add_request(slot, work.params)
        assert asked == (work.params.extra_args is not None)

    def commit(self, slot, tokens, start=0):
        ids = self.states.all_token_ids.gpu
        ids[slot, start : start + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.states.total_len.gpu[slot] = start + len(tokens)

    def step(self, rng, drafts):
        self.processor.apply_staged_writes()
        rows = []
        for slot, work in self.running.items():
            sequence = work.prompt + work.output
            guess = drafts(work)
            for local in range(len(guess) + 1):
                seen = sequence + guess[:local]
                rows.append((slot, len(seen) - 1, seen[-1], work.output + guess[:local], local))
        rng.shuffle(rows)
        slots, positions, inputs, outputs, local = zip(*rows, strict=True)
        context = SimpleNamespace(
            expanded_idx_mapping=torch.tensor(slots, dtype=torch.int32),
            pos=torch.tensor(positions), input_ids=torch.tensor(inputs),
            expanded_local_pos=torch.tensor(local),
        )  # fmt: skip
        given = np.stack(
            [logits_of(self.running[s], o) for s, o in zip(slots, outputs, strict=True)]
        )
        logits = self.processor.apply(torch.from_numpy(given.copy()), context)
        drawn = {(s, p): int(token) for s, p, token in zip(slots, positions, logits.argmax(-1),
                                                           strict=True)}  # fmt: skip
        for slot, work in list(self.running.items()):
            guess = [*drafts(work), None]
            for token in guess:  # a draft stays as long as it is what was drawn
                at = len(work.prompt) + len(work.output)
                work.output.append(drawn[slot, at - 1])
                if token != work.output[-1]:
                    break
            sequence = work.prompt + work.output
            self.commit(slot, sequence)
            if len(work.output) >= work.length:
                del self.running[slot]
                self.free.append(slot)


@pytest.mark.parametrize("speculative", [False, True])
def test_the_v2_interface(speculative):
    rng = np.random.default_rng(0)
    engine, waiting = RunnerV2(5, 64), [work_of(n, mirostat=False) for n in range(25)]
    everything = list(waiting)
    truth = {work.number: alone(work.number, mirostat=False) for work in everything}

    def drafts(work):
        if not speculative:
            return []
        right = truth[work.number][len(work.output) : len(work.output) + 2]
        return right if len(work.output) % 2 else [(t + 1) % VOCABULARY for t in right]

    while waiting or engine.running:
        while waiting and engine.free and rng.random() < 0.7:
            engine.add(waiting.pop(0))
        if engine.running:
            engine.step(rng, drafts)
    for work in everything:
        if work.params.extra_args is not None:
            assert work.output[: work.length] == truth[work.number], work.number
