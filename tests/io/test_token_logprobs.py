"""Responses of language models' APIs: perplexity always, answer options where all are listed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hotmax as hm

CHOICES = {"A": -0.3, " B": -1.9, "C": -3.0, "\n": -6.0}


def chat(chosen="A", top=None, size=None):
    listed = [
        {"token": t, "logprob": p, "bytes": list(t.encode())} for t, p in (top or CHOICES).items()
    ]
    number = {one["token"]: one["logprob"] for one in listed}[chosen]
    token = {"token": chosen, "logprob": number, "bytes": size, "top_logprobs": listed}
    return {"choices": [{"logprobs": {"content": [token]}}]}


def completion():
    return {
        "choices": [
            {
                "logprobs": {
                    "tokens": ["The", " cat", " é"],
                    "token_logprobs": [None, -2.0, -1.0],
                    "top_logprobs": [None, {" cat": -2.0}, {" é": -1.0}],
                    "text_offset": [0, 3, 7],
                }
            }
        ]
    }


def saved(folder, name, responses):
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("\n".join(json.dumps(one) for one in responses) + "\n\n")
    else:
        path.write_text(json.dumps(responses))
    return path


def test_perplexity_of_completions(tmp_path):
    found = hm.io.read(saved(tmp_path, "one.json", completion()))
    assert found.perplexity == pytest.approx(math.exp(1.5))
    assert found.score.tokens == 2  # the first of the echo has none
    assert found.bits_per_byte == pytest.approx(3.0 / math.log(2) / len(" cat é".encode()))
    assert found.tokens == (("The", " cat", " é"),)
    assert found.logits.shape == (1, 0)
    assert "no answer options" in str(found)


def test_a_list_of_responses_and_their_forms(tmp_path):
    """Chat completions, a batch, the responses API and the bare object are read alike."""
    bare = chat()["choices"][0]["logprobs"]
    batch = {"custom_id": "x", "response": {"status_code": 200, "body": chat()}}
    newer = {"output": [{"content": [{"text": "A", "logprobs": bare["content"]}]}]}
    forms = [chat(), batch, newer, {"logprobs": bare}]
    found = hm.io.read(saved(tmp_path, "all.json", forms))
    assert [line.tolist() for line in found.logprobs] == [[-0.3]] * 4
    assert found.score.documents[2].perplexity == pytest.approx(math.exp(0.3))


def test_answer_options_with_labels(tmp_path):
    lines = [{**chat(chosen), "label": label} for chosen, label in
             (("A", "A"), ("A", "B"), (" B", "C"), ("C", "A"))]  # fmt: skip
    found = hm.io.read(saved(tmp_path, "answers.jsonl", lines))
    assert found.class_names == ("A", "B", "C")
    assert found.labels.tolist() == [0, 1, 2, 0]
    assert found.label_source == "key 'label'"
    np.testing.assert_array_equal(found.logits, np.tile([-0.3, -1.9, -3.0], (4, 1)))
    two = hm.io.read(saved(tmp_path, "answers.jsonl", lines[:2]), class_names=["A", "B"])
    assert two.logits.shape == (2, 2)
    report = hm.report(np.tile(found.logits, (30, 1)), np.tile(found.labels, 30))
    assert report.assessment is not None


def test_variants_of_an_option_are_added(tmp_path):
    top = {"A": math.log(0.5), " A": math.log(0.25), "B": math.log(0.2)}
    found = hm.io.read(saved(tmp_path, "a.jsonl", [chat("A", top)]), class_names=["A", "B"])
    np.testing.assert_allclose(np.exp(found.logits), [[0.75, 0.2]])


def test_an_option_that_is_not_listed(tmp_path):
    lines = [{**chat(), "label": "A"}, {**chat("A", {"A": -0.1, "C": -3.0}), "label": "B"}]
    path = saved(tmp_path, "answers.jsonl", lines)
    found = hm.io.read(path)  # the perplexity is there all the same
    assert found.perplexity == pytest.approx(math.exp(0.2))
    assert found.class_names is None
    assert found.labels is None
    assert "line 2 does not list the option 'B'" in str(found)
    with pytest.raises(ValueError, match="line 2 does not list the option 'B' among its 2"):
        hm.io.read(path, class_names=["A", "B"])


def test_other_labels(tmp_path):
    lines = [{**chat(), "right": 1, "options": ["A", "B"]} for _ in range(2)]
    found = hm.io.read(saved(tmp_path, "x.jsonl", lines), labels="right")
    assert found.labels.tolist() == [1, 1]
    assert found.class_names == ("A", "B")
    assert hm.io.read(saved(tmp_path, "x.jsonl", lines), labels="none").labels is None
    with pytest.raises(ValueError, match="not every response has a label 'other'"):
        hm.io.read(saved(tmp_path, "x.jsonl", lines), labels="other")


BROKEN = {
    "nothing": ([{}], "has no log-probabilities"),
    "a number": ([3], "must be an object"),
    "above 0": ([chat("A", {"A": 0.5})], "no number of 0 or less"),
    "text for a number": ([chat("A", {"A": "low"})], "no number of 0 or less"),
    "no text": ([{"logprobs": [{"token": 3, "logprob": -1.0}]}], "no text"),
    "lengths": ([{"logprobs": {"tokens": ["a"], "token_logprobs": []}}], "as many token_logprobs"),
    "tops": (
        [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{}, {}]}}],
        "as many top_logprobs",
    ),
    "no object": ([{"logprobs": [5]}], "no object"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_broken_files_are_one_line_that_names_them(tmp_path, name, suffix):
    responses, words = BROKEN[name]
    path = saved(tmp_path, f"broken{suffix}", responses)
    with pytest.raises(ValueError, match=words) as error:
        hm.io.read(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", '{"a": 1, "a": 2}', "[]", '{"a": NaN}', "[" * 100_000])
def test_what_is_no_json(tmp_path, text):
    for suffix in (".json", ".jsonl"):
        path = tmp_path / f"x{suffix}"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"x\.json"):
            hm.io.read(path)
