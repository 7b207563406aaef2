"""verify: drafts that are accepted or replaced have the target's distribution."""

from __future__ import annotations

import numpy as np
import pytest
from optional import torch
from scipy import stats

import hotmax as hm

ROWS, CLASSES, LENGTH = 60_000, 4, 3


def test_the_output_has_the_targets_distribution():
    """Chi-square over all sequences of three tokens, of models that look at the token before.

    The draft draws by the same seeds and steps as everything else: were its numbers used again, the
    replacements would depend on what they replace.
    """
    rng = np.random.default_rng(0)
    target, draft = rng.normal(size=(2, CLASSES + 1, CLASSES)) * [[[1.5]], [[1.0]]]
    seeds, rows = np.arange(ROWS, dtype=np.uint64), np.arange(ROWS)
    before, tokens = np.full(ROWS, CLASSES), np.empty((ROWS, LENGTH), int)
    drafts = np.empty((ROWS, LENGTH, CLASSES))
    targets = np.empty((ROWS, LENGTH + 1, CLASSES))
    for step in range(LENGTH):
        drafts[:, step], targets[:, step] = draft[before], target[before]
        tokens[:, step] = before = hm.sample(drafts[:, step], seed=seeds, step=step)
    targets[:, LENGTH] = target[before]
    found, accepted = hm.verify(drafts, targets, tokens, seed=seeds, step=0)
    share = [np.mean(accepted == n) for n in range(LENGTH + 1)]
    assert min(share) > 0.02  # every case happens
    assert (found[rows, accepted] >= 0).all()
    assert ((found >= 0).sum(1) == accepted + 1).all()
    # The rest of each sequence is drawn from the target, so that all have LENGTH + 1 tokens.
    for step in range(1, LENGTH + 1):
        missing = found[:, step] < 0
        drawn = hm.sample(target[found[missing, step - 1]], seed=seeds[missing] + 10**6, step=step)
        found[missing, step] = drawn
    p = np.exp(hm.log_softmax(target))
    expected = ROWS * np.einsum("a,ab,bc,cd->abcd", p[CLASSES], p[:-1], p[:-1], p[:-1]).reshape(-1)
    index = np.ravel_multi_index(tuple(found.T), (CLASSES,) * (LENGTH + 1))
    counts = np.bincount(index, minlength=expected.size)
    kept = expected >= 5
    observed = np.append(counts[kept], counts[~kept].sum())
    wanted = np.append(expected[kept], expected[~kept].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-4
    # the first tokens of the drafts themselves do not have it, so the test has power
    first = np.bincount(tokens[:, 0], minlength=CLASSES)
    assert stats.chisquare(first, ROWS * p[CLASSES]).pvalue < 1e-9


def test_filters_and_temperatures_of_both_models():
    """Chi-square over the first two tokens; the draft lacks a class that the target has."""
    rng = np.random.default_rng(5)
    q, p = rng.normal(size=(2, 8))
    q[3], p[3] = -np.inf, 2.0
    options = {"temperature": 0.8, "top_p": 0.9}
    q, p = hm.truncate(q, **options), hm.truncate(p, **options)
    assert np.isfinite(p).sum() < 8
    seeds = np.arange(30_000)
    drafts, targets = np.broadcast_to(q, (30_000, 2, 8)), np.broadcast_to(p, (30_000, 3, 8))
    tokens = np.stack(
        [hm.sample(drafts[:, step], seed=seeds, step=step, temperature=0.8) for step in (0, 1)], 1
    )
    found, accepted = hm.verify(
        drafts, targets, tokens, seed=seeds, temperature=np.full((30_000, 1), 0.8)
    )
    assert set(accepted.tolist()) == {0, 1, 2}
    second = accepted > 0
    wanted = hm.softmax(p, temperature=0.8)
    for drawn in (found[:, 0], found[second, 1]):
        counts = np.bincount(drawn, minlength=8)
        assert counts[wanted == 0.0].sum() == 0
        kept = wanted > 0.0
        assert stats.chisquare(counts[kept], drawn.size * wanted[kept]).pvalue > 1e-4


def test_the_share_that_is_accepted():
    """sum of min(p, q)."""
    rng = np.random.default_rng(1)
    q, p = rng.normal(size=(2, 6))
    seeds = np.arange(40_000)
    drafts = np.broadcast_to(q, (40_000, 1, 6))
    targets = np.broadcast_to(p, (40_000, 2, 6))
    tokens = hm.sample(drafts[:, 0], seed=seeds, temperature=0.8)
    _, accepted = hm.verify(drafts, targets, tokens[:, None], seed=seeds, temperature=0.8)
    want = np.minimum(hm.softmax(p, temperature=0.8), hm.softmax(q, temperature=0.8)).sum()
    assert abs(accepted.mean() - want) < 4.5 * np.sqrt(want * (1 - want) / 40_000)


def test_the_same_whatever_the_batch():
    rng = np.random.default_rng(2)
    drafts, targets = rng.normal(size=(8, 3, 300)), rng.normal(size=(8, 4, 300))
    seeds, steps = np.arange(8) * 7, np.arange(8)
    tokens = np.stack([hm.sample(drafts[:, i], seed=seeds, step=steps + i) for i in range(3)], 1)
    together = hm.verify(drafts, targets, tokens, seed=seeds, step=steps)
    for row in range(8):
        alone = hm.verify(
            drafts[row], targets[row], tokens[row], seed=seeds[row : row + 1], step=steps[row]
        )
        np.testing.assert_array_equal(alone.tokens, together.tokens[row])
        assert alone.accepted == together.accepted[row]
    tensors = hm.verify(
        torch.from_numpy(drafts), torch.from_numpy(targets), torch.from_numpy(tokens),
        seed=torch.from_numpy(seeds), step=torch.from_numpy(steps),
    )  # fmt: skip
    assert isinstance(tensors.tokens, torch.Tensor)
    np.testing.assert_array_equal(tensors.tokens.numpy(), together.tokens)


def test_equal_distributions_accept_all_and_greedy_ones_the_same():
    x = np.random.default_rng(3).normal(size=(50, 4, 9))
    tokens = hm.sample(x[:, :3], seed=1)
    assert (hm.verify(x[:, :3], x, tokens, seed=2).accepted == 3).all()
    best = x.argmax(-1)
    greedy = hm.verify(x[:, :3], x, best[:, :3], seed=2, temperature=0)
    np.testing.assert_array_equal(greedy.tokens, best)
    other = hm.verify(-x[:, :3], x, (-x).argmax(-1)[:, :3], seed=2, temperature=0)
    assert (other.accepted == 0).all()
    np.testing.assert_array_equal(other.tokens[:, 0], best[:, 0])
    short = tokens.copy()
    short[:, 1:] = -1  # drafts of one token
    found = hm.verify(x[:, :3], x, short, seed=2)
    assert (found.accepted == 1).all()
    assert (found.tokens[:, 2:] == -1).all()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"draft_tokens": [[0, 5]]}, ValueError, "draft_tokens .*got 5"),
        ({"draft_tokens": [0, 1]}, ValueError, "draft_tokens must have the shape"),
        ({"draft_tokens": [[0], [0, 1]]}, ValueError, "draft_tokens must .*got a ragged list"),
        ({"draft_tokens": [[0.5, 1.0]]}, TypeError, "draft_tokens must hold ints"),
        ({"target_logits": np.zeros((1, 2, 3))}, ValueError, "draft_logits must be"),
        ({"target_logits": np.zeros(3)}, ValueError, "draft_logits must be"),
        ({"target_logits": np.full((1, 3, 3), np.nan)}, ValueError, "target_logits .*nan.* row 0"),
        ({"draft_logits": np.full((1, 2, 3), -np.inf)}, ValueError, "draft_logits .*-inf in row 0"),
        ({"temperature": [1.0, 2.0]}, ValueError, "temperature"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_input(change, error, words):
    given = {
        "draft_logits": np.zeros((1, 2, 3)),
        "target_logits": np.zeros((1, 3, 3)),
        "draft_tokens": [[0, 1]],
        "seed": 0,
    }
    with pytest.raises(error, match=words):
        hm.verify(**{**given, **change})
