"""Log-probabilities of the likeliest, the chosen and the drawn; the score of a text."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import reference
from optional import torch

import hotmax as hm

INF = math.inf


def rows_of(n, kind):
    rng = np.random.default_rng(n)
    x = (rng.normal(size=(6, n)) * 4).astype(kind)
    x[0, n // 2] = 60.0  # nearly one-hot
    x[1, :] = np.round(x[1, :])  # ties
    x[2, : n // 2] = -INF
    x[3, n // 3] = INF
    return x


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("n", "k"), [(5, 5), (40, 3), (300, 20), (3000, 20), (3000, 1500)])
@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.0, INF, -2.0])
def test_the_largest_of_log_softmax(kind, n, k, temperature):
    x = rows_of(n, kind)
    logs = hm.log_softmax(x, temperature=temperature)
    found, tokens = hm.top_logprobs(x, k, temperature=temperature)
    by_size = np.argsort(-x if not temperature < 0 else x, axis=-1, kind="stable")[:, :k]
    np.testing.assert_array_equal(tokens, by_size)
    want = np.take_along_axis(logs, tokens, -1)
    assert found.dtype == kind
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
    finite = np.isfinite(want)
    np.testing.assert_array_max_ulp(found[finite], want[finite], 2)
    chosen = np.random.default_rng(1).integers(0, n, (6, 2))
    log, rank = hm.chosen_logprobs(x, chosen, temperature=temperature)
    want = np.take_along_axis(logs, chosen, -1)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(log[~finite], want[~finite])
    np.testing.assert_array_max_ulp(log[finite], want[finite], 2)
    upright = x if not temperature < 0 else -x
    at = np.take_along_axis(upright, chosen, -1)
    np.testing.assert_array_equal(rank, 1 + (upright[:, None] > at[:, :, None]).sum(-1))


@pytest.mark.parametrize("temperature", [1.0, 0.2, -3.0])
def test_long_rows_have_the_bits_of_chosen_logprobs(temperature):
    """The sums of both are computed apart: here in one visit with the maxima, from the first line.

    There are rows whose first line is masked or far below the maximum, ties in several groups, and
    more classes than one block of sums.
    """
    x = (np.random.default_rng(8).normal(size=(7, 70_001)) * 3).astype(np.float32)
    x[1] = np.round(x[1] / 2)
    x[2, :40_000] = -INF if temperature > 0 else INF
    x[3, 60_000] = math.copysign(200.0, temperature)
    x[4, :100] -= np.float32(math.copysign(25.0, temperature))
    x[5] = 0.5
    x[6, 69_999:] = math.copysign(20.0, temperature)
    found, tokens = hm.top_logprobs(x, 20, temperature=temperature)
    upright = x if temperature > 0 else -x
    np.testing.assert_array_equal(tokens, np.argsort(-upright, axis=-1, kind="stable")[:, :20])
    want = hm.chosen_logprobs(x, tokens, temperature=temperature).logprobs
    np.testing.assert_array_equal(found, want)


def test_exact_near_one_hot():
    """Against mpmath: float64 has lost these digits in log(p)."""
    x = np.array([0.0, 45.0, -3.0, 1.5])
    want = [float(v) for v in reference.log_softmax(x.tolist())]
    log, tokens = hm.top_logprobs(x, 4)
    np.testing.assert_allclose(log, np.array(want)[tokens], rtol=4e-16)
    assert -2e-19 < log[0] < 0
    np.testing.assert_allclose(hm.chosen_logprobs(x, 1).logprobs, want[1], rtol=4e-16)
    drawn, log = hm.sample(x, seed=0, size=5, return_logprob=True)
    assert set(drawn.tolist()) == {1}
    np.testing.assert_allclose(log, want[1], rtol=4e-16)


def test_special_rows():
    x = np.array([[np.nan, 1.0, 2.0], [-INF, -INF, -INF], [1.0, 2.0, 0.0]])
    log, _ = hm.top_logprobs(x, 2)
    assert np.isnan(log[:2]).all()
    assert np.isfinite(log[2]).all()
    mask = np.array([[True] * 3, [False] * 3, [False, True, False]])
    log, tokens = hm.top_logprobs(np.zeros((3, 3)), 2, where=mask)
    assert log[1].tolist() == [-INF, -INF]
    assert (log[2].tolist(), tokens[2, 0]) == ([0.0, -INF], 1)
    log, rank = hm.chosen_logprobs(np.zeros((3, 3)), [0, 0, 0], where=mask)
    assert log[1:].tolist() == [-INF, -INF]
    log, rank = hm.chosen_logprobs(np.zeros((2, 3)), [-1, 1])
    assert np.isnan(log[0])
    assert rank.tolist() == [0, 1]


def test_on_every_array_library(xp):
    if xp.jitted:  # values, which jax.jit hides
        with pytest.raises(TypeError, match="traced"):
            xp.call(hm.top_logprobs, np.zeros((2, 3)), k=1)
        return
    x = np.random.default_rng(0).normal(size=(4, 30))
    x[0, 4] = 30.0  # nearly one-hot
    x[1] = np.round(x[1])  # ties
    x[2, 10:] = -INF
    tokens = np.array([3, 0, 29, 7])
    want, chosen = hm.top_logprobs(x, 12), hm.chosen_logprobs(x, tokens)
    warm = hm.top_logprobs(x, 12, temperature=0.6)
    for row in range(4):  # against mpmath
        true = reference.log_softmax((x[row] / 0.6).tolist())
        true = [float(true[token]) for token in warm.tokens[row]]
        np.testing.assert_allclose(warm.logprobs[row], true, rtol=1e-14)
    got = hm.top_logprobs(xp.make(x), 12)
    log, rank = hm.chosen_logprobs(xp.make(x), xp.make(tokens))
    got_warm = hm.top_logprobs(xp.make(x), 12, temperature=0.6)
    single = 1e-6 if str(got.logprobs.dtype).endswith("float32") else 1e-14
    for part, numbers in zip((*got, log, rank, *got_warm), (*want, *chosen, *warm), strict=True):
        assert isinstance(part, type(xp.make(x)))
        np.testing.assert_allclose(xp.back(part), numbers, rtol=single)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.95}, {"top_k": 6, "min_p": 1e-6}])
@pytest.mark.parametrize("n", [12, 500])
def test_logprobs_of_draws(replace, options, n):
    x = np.random.default_rng(2).normal(size=(5, n))
    size = 3
    drawn, logs = hm.sample(
        x, temperature=0.7, size=size, seed=4, replace=replace, return_logprob=True, **options
    )
    without = hm.sample(x, temperature=0.7, size=size, seed=4, replace=replace, **options)
    np.testing.assert_array_equal(drawn, without)
    p = hm.log_softmax(hm.truncate(x, temperature=0.7, **options), temperature=0.7)
    np.testing.assert_allclose(logs, np.take_along_axis(p, drawn, -1), rtol=1e-13)


def test_logprobs_of_certain_draws():
    x = np.array([[1.0, 1.0, 0.0]])
    assert hm.sample(x, temperature=0, ties="first", return_logprob=True)[1].tolist() == [0.0]
    even = hm.sample(x, temperature=0, seed=0, return_logprob=True)[1]
    np.testing.assert_allclose(even, -math.log(2))
    token, log = hm.sample(torch.tensor([1.0, 2.0]), seed=0, return_logprob=True)
    assert token.dtype is torch.int64
    assert log.dtype is torch.float32


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hm.top_logprobs([1.0, 2.0], 3), ValueError, "k must be at most .* 2, got 3"),
        (lambda: hm.top_logprobs([1.0, 2.0], 0), ValueError, "k must be at least 1"),
        (lambda: hm.top_logprobs([1.0, 2.0], 1.5), TypeError, "k must be an int"),
        (lambda: hm.chosen_logprobs([1.0, 2.0], 2), ValueError, "tokens .*got 2"),
        (lambda: hm.chosen_logprobs([[1.0, 2.0]] * 3, [0, 1, 5]), ValueError, "got 5 in row 2"),
        (
            lambda: hm.chosen_logprobs([[1.0, 2.0]], [0, 1]),
            ValueError,
            "tokens must have the shape",
        ),
        (lambda: hm.chosen_logprobs([1.0, 2.0], 0.5), TypeError, "tokens must hold ints"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


# --- texts ------------------------------------------------------------------------------------


def test_the_score_of_a_text_does_not_depend_on_blocks():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, 30)) * 5, rng.integers(0, 30, 500)
    mask, documents = rng.random(500) < 0.8, np.sort(rng.integers(0, 7, 500))
    sizes = rng.integers(1, 6, 500)
    scores = set()
    for cuts in ([0, 500], [0, 1, 2, 300, 500], list(range(0, 501, 20))):
        scorer = hm.TextScorer()
        for a, b in itertools.pairwise(cuts):
            scorer.update(
                x[a:b], y[a:b], mask=mask[a:b], documents=documents[a:b], num_bytes=sizes[a:b]
            )
        score = scorer.result()
        scores.add((score.nll, score.perplexity, score.bits_per_byte, score.tokens, score.bytes,
                    *(one.nll for one in score.documents.values())))  # fmt: skip
    assert len(scores) == 1
    losses = hm.cross_entropy(x, y, reduction="none")
    assert score.nll == math.fsum(losses[mask])
    wide = x.astype(np.longdouble)  # by the formula, without hotmax
    plain = np.log(np.exp(wide).sum(-1)) - wide[np.arange(500), y]
    np.testing.assert_allclose(score.nll, float(plain[mask].sum()), rtol=1e-14)
    np.testing.assert_allclose(score.perplexity, hm.perplexity(x[mask], y[mask]), rtol=1e-14)
    assert score.bytes == sizes[mask].sum()
    np.testing.assert_allclose(score.bits_per_byte, losses[mask].sum() / math.log(2) / score.bytes)
    assert sorted(score.documents) == sorted(set(documents.tolist()))
    for one, part in score.documents.items():
        inside = mask & (documents == one)
        assert part.tokens == inside.sum()
        np.testing.assert_allclose(part.nll, losses[inside].sum())
        assert part.bytes == sizes[inside].sum()
    halves = [hm.TextScorer().update(x[part], y[part], mask=mask[part], num_bytes=sizes[part])
              for part in (slice(0, 123), slice(123, 500))]  # fmt: skip
    assert halves[0].merge(halves[1]).result().nll == score.nll


def test_the_score_of_masked_documents_against_mpmath():
    """Documents in any order, over blocks that cut them; one token is nearly certain."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(60, 9)) * 5, rng.integers(0, 9, 60)
    x[7], y[7] = np.arange(9) == 4, 4
    x[7, 4] = 45.0
    mask, documents = rng.random(60) < 0.7, rng.integers(0, 3, 60)
    mask[7] = True
    sizes = rng.integers(0, 6, 60)
    scorer = hm.TextScorer()
    for a, b in itertools.pairwise([0, 1, 8, 33, 60]):
        scorer.update(
            x[a:b], y[a:b], mask=mask[a:b], documents=documents[a:b], num_bytes=sizes[a:b]
        )
    score = scorer.result()
    losses = [-reference.log_softmax(row.tolist())[label] for row, label in zip(x, y, strict=True)]
    parts = [(score, mask)] + [(score.documents[d], mask & (documents == d)) for d in range(3)]
    for part, inside in parts:
        nll = sum(loss for loss, counts in zip(losses, inside, strict=True) if counts)
        count, size = int(inside.sum()), int(sizes[inside].sum())
        assert (part.tokens, part.bytes) == (count, size)
        np.testing.assert_allclose(part.nll, float(nll), rtol=1e-15)
        np.testing.assert_allclose(part.perplexity, math.exp(nll / count), rtol=1e-14)
        np.testing.assert_allclose(part.bits_per_byte, float(nll) / math.log(2) / size, rtol=1e-14)
    certain = hm.TextScorer().update(x[7:8], y[7:8]).result()
    np.testing.assert_allclose(certain.nll, float(losses[7]), rtol=1e-14)
    assert 0 < certain.nll < 1e-18


def test_texts_of_ignored_targets_and_tensors():
    x, y = (
        np.random.default_rng(0).normal(size=(2, 4, 9)),
        np.array([[0, 1, -100, 2], [3, 8, 8, -100]]),
    )
    scorer = hm.TextScorer().update(torch.from_numpy(x), torch.from_numpy(y), ignore_index=-100)
    score = scorer.result()
    assert score.tokens == 6
    np.testing.assert_allclose(score.perplexity, hm.perplexity(x, y, ignore_index=-100))
    assert score.bytes is None
    assert math.isnan(score.bits_per_byte)
    assert "perplexity" in str(score)
    impossible = hm.TextScorer().update([[0.0, -INF]], [1]).result()
    assert impossible.perplexity == INF
    assert hm.TextScorer().result().perplexity == 1.0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mask": [True]}, ValueError, "mask must have the shape of targets"),
        ({"mask": [1, 0]}, TypeError, "where must hold bools|mask"),
        ({"documents": [0.5, 1.0]}, TypeError, "documents must hold ints"),
        ({"num_bytes": [1, -1]}, ValueError, "num_bytes must be at least 0"),
        ({"num_bytes": [1]}, ValueError, "num_bytes must have the shape"),
    ],
)
def test_bad_texts(options, error, words):
    scorer = hm.TextScorer()
    with pytest.raises(error, match=words):
        scorer.update(np.zeros((2, 3)), [0, 1], **options)
    assert scorer.result().tokens == 0
