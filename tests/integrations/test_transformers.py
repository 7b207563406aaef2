"""The adapter for transformers, on small random models that are built from a config."""

from __future__ import annotations

import numpy as np
import pytest
from optional import library, torch

import hotmax as hm

pytestmark = pytest.mark.torch
transformers = library("transformers")
adapter = library("hotmax.integrations.transformers")


def small_model(kind):
    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if kind == "gpt2":
        config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=64, **sizes)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, **sizes,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():  # logits that differ: new weights are nearly 0
        parameter.data.mul_(6.0) if parameter.ndim > 1 else None
    return model.double().eval()


MODELS = {}


@pytest.fixture(params=["gpt2", "llama"])
def model(request):
    if request.param not in MODELS:
        MODELS[request.param] = small_model(request.param)
    return MODELS[request.param]


PROMPTS = [[5, 6, 7, 8], [9, 10], [11, 12, 13], [14]]


def padded(rows):
    """Prompts of different lengths, padded on the left."""
    longest = max(len(PROMPTS[row]) for row in rows)
    ids = torch.tensor([[0] * (longest - len(PROMPTS[r])) + PROMPTS[r] for r in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}, longest


def generated(model, rows, how, new=12, **settings):
    inputs, longest = padded(rows)
    seeds = [100 + row for row in rows]
    if how == "processor":
        extra = {
            "logits_processor": [adapter.LogitsProcessor(seeds=seeds, pad_token_id=0, **settings)]
        }
    else:
        extra = {"custom_generate": adapter.decoding_loop(seeds=seeds, **settings)}
    found = model.generate(**inputs, max_new_tokens=new, do_sample=False, **extra)
    lines = found[:, longest:].tolist()
    return [line[: line.index(2) + 1] if 2 in line else line for line in lines]


@pytest.mark.parametrize("how", ["processor", "loop"])
def test_greedy_is_transformers_greedy(model, how):
    inputs, longest = padded([0, 1, 2, 3])
    theirs = model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, longest:].tolist()
    theirs = [line[: line.index(2) + 1] if 2 in line else line for line in theirs]
    assert generated(model, [0, 1, 2, 3], how, temperature=0) == theirs


@pytest.mark.parametrize("how", ["processor", "loop"])
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.9, "top_p": 0.9},
        {"temperature": 1.2, "top_k": 20, "repetition_penalty": 1.3},
        {"mirostat": (3.0, 0.3)},
    ],
)
def test_the_same_tokens_whatever_the_batch(model, how, settings):
    together = generated(model, [0, 1, 2, 3], how, **settings)
    assert generated(model, [2, 0], how, **settings) == [together[2], together[0]]
    for row in range(4):
        assert generated(model, [row], how, **settings) == [together[row]]
    assert len({tuple(line) for line in together}) == 4


def test_both_ways_draw_the_same(model):
    settings = {"temperature": 0.8, "top_p": 0.95}
    one = generated(model, [0, 1], "processor", **settings)
    assert one == generated(model, [0, 1], "loop", **settings)


def test_kept_sets_are_those_of_generate(model):
    """The scores that generate draws from, step after step."""
    inputs, _ = padded([0, 1])
    options = {"temperature": 0.7, "top_k": 30, "top_p": 0.8}
    torch.manual_seed(3)
    theirs = model.generate(
        **inputs, max_new_tokens=6, do_sample=True, output_scores=True,
        return_dict_in_generate=True, output_logits=True, **options,
    )  # fmt: skip
    processor = adapter.LogitsProcessor(draw=False, **options)
    longest = inputs["input_ids"].shape[1]
    for step, (logits, scores) in enumerate(zip(theirs.logits, theirs.scores, strict=True)):
        ours = processor(theirs.sequences[:, : longest + step], logits)
        np.testing.assert_array_equal(torch.isfinite(ours), torch.isfinite(scores))
        kept = torch.isfinite(scores)
        torch.testing.assert_close(ours[kept], scores[kept])


def test_settings_for_each_row():
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 40)))
    ids = torch.zeros((3, 2), dtype=torch.int64)
    processor = adapter.LogitsProcessor(
        requests=[{"temperature": 0, "seed": 1}, {"top_k": 3, "seed": 2}, {"seed": 3}]
    )
    drawn = [processor(torch.cat([ids] * (n + 1), 1)[:, : n + 2], scores).argmax(-1).tolist()
             for n in range(30)]  # fmt: skip
    lines = np.array(drawn)
    assert set(lines[:, 0]) == {int(scores[0].argmax())}
    assert set(lines[:, 1]) <= set(scores[1].topk(3).indices.tolist())
    want = [int(hm.sample(scores[2].numpy(), seed=[3], step=n)) for n in range(30)]
    assert lines[:, 2].tolist() == want


def test_beginnings_and_wrong_numbers_of_rows():
    scores = torch.zeros(1, 50)
    processor = adapter.LogitsProcessor(seeds=[4])
    first = [int(processor(torch.zeros(1, n), scores).argmax()) for n in (3, 4, 5)]
    again = [int(processor(torch.zeros(1, n), scores).argmax()) for n in (3, 4, 5)]
    assert first == again  # a shorter prompt begins anew
    processor.reset()
    assert int(processor(torch.zeros(1, 6), scores).argmax()) == first[0]
    with pytest.raises(ValueError, match="seeds must be one for each of 2 rows, got 1"):
        processor(torch.zeros(2, 9), torch.zeros(2, 50))
    with pytest.raises(ValueError, match="top_q"):
        adapter.LogitsProcessor(top_q=1)
