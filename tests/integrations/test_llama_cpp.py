"""The adapter for llama-cpp-python, on a model that has its interface."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hotmax as hm
from hotmax.integrations import llama_cpp

VOCABULARY = 60


class Llama:
    """What the adapter uses of llama_cpp.Llama: reset, eval, scores, n_tokens, and processors."""

    def __init__(self, logits_all=True):
        self._logits_all = logits_all
        self.scores = np.zeros((128, VOCABULARY), np.float32)
        self.input_ids = np.zeros(128, np.intc)
        self.n_tokens = 0

    def reset(self):
        self.n_tokens = 0

    def eval(self, tokens):
        for token in tokens:
            self.input_ids[self.n_tokens] = token
            seed = [self.n_tokens, int(token)]
            self.scores[self.n_tokens] = np.random.default_rng(seed).normal(size=VOCABULARY) * 2
            self.n_tokens += 1

    def generate(self, tokens, logits_processor):
        """As the library does: the scores are a field of records, so they are strided."""
        self.reset()
        self.eval(tokens)
        while True:
            data = np.zeros(VOCABULARY, [("id", np.intc), ("logit", np.single), ("p", np.single)])
            data["logit"] = self.scores[self.n_tokens - 1]
            for processor in logits_processor:
                data["logit"][:] = processor(self.input_ids[: self.n_tokens], data["logit"])
            p = hm.softmax(data["logit"], temperature=0.8)
            token = int(np.random.default_rng().choice(VOCABULARY, p=p / p.sum()))
            yield token
            self.eval([token])


SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.8, "min_p": 0.02},
    {"temp": 1.1, "repeat_penalty": 1.4, "frequency_penalty": 0.2},
    {"mirostat_tau": 3.0, "mirostat_eta": 0.2},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_processor_and_a_sampler_draw_the_same(settings):
    prompt = [3, 1, 4]
    processor = llama_cpp.LogitsProcessor(seed=5, **settings)
    forced = list(itertools.islice(Llama().generate(prompt, [processor]), 15))
    drawn = list(itertools.islice(llama_cpp.generate(Llama(), prompt, seed=5, **settings), 15))
    assert forced == drawn
    by_hand, llm, tokens = hm.Sampler(settings, order="llama.cpp", ties="first"), Llama(), prompt[:]
    by_hand.add("one", seed=5)
    llm.eval(prompt)
    for token in drawn:
        logits = llm.scores[llm.n_tokens - 1][None]
        assert by_hand(logits, requests=["one"], tokens=[tokens])[0] == token
        tokens.append(token)
        llm.eval([token])


def test_greedy_takes_the_largest():
    llm = Llama()
    for token in itertools.islice(llama_cpp.generate(llm, [1], temperature=0), 5):
        assert token == llm.scores[llm.n_tokens - 1].argmax()


def test_what_cannot_be():
    with pytest.raises(ValueError, match="logits_all=True"):
        next(llama_cpp.generate(Llama(logits_all=False), [1]))
    with pytest.raises(ValueError, match="at least one token"):
        next(llama_cpp.generate(Llama(), []))
    with pytest.raises(ValueError, match="one sequence each"):
        llama_cpp.LogitsProcessor()(np.zeros((1, 2), int), np.zeros(3))
    with pytest.raises(ValueError, match="top_q"):
        llama_cpp.LogitsProcessor(top_q=2)
