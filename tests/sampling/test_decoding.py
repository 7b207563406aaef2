"""Beam search, Gumbel-softmax and the sampling experiment."""

from __future__ import annotations

import itertools
import math
import sys

import matplotlib
import numpy as np
import pytest
import reference_sampling as reference
import scipy.stats

import hotmax as hm

# --- beam search ------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(5, 5, 5)) * 1.5  # logits after the last two tokens


def step(prefixes):
    assert prefixes.ndim == 2
    return TABLE[prefixes[:, -2], prefixes[:, -1]]


def log_p(sequence, offset=2, temperature=1.0):
    total = 0.0
    for i in range(offset, len(sequence)):
        p = reference.probabilities(TABLE[sequence[i - 2], sequence[i - 1]], temperature)
        total += math.log(p[sequence[i]])
    return total


def all_sequences(start, length, end):
    """Every sequence of up to `length` more tokens; those that end do so at their first end."""
    for count in range(1, length + 1):
        for tail in itertools.product(range(5), repeat=count):
            ended = tail[-1] == end
            if end in tail[:-1] or (count < length and not ended):
                continue
            yield (*start, *tail), ended


@pytest.mark.parametrize("end", [None, 3])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_wide_beam_finds_the_best_of_all(end, penalty, temperature):
    best = sorted(
        (
            (log_p(s, temperature=temperature) / (len(s) - 2) ** penalty, s, ended)
            for s, ended in all_sequences((0, 1), 4, end)
        ),
        reverse=True,
    )[:10]
    found = hm.beam_search(
        step, [0, 1], width=625, length=4, end=end, length_penalty=penalty, temperature=temperature
    )
    assert list(found.sequences[:10]) == [s for _, s, _ in best]
    assert list(found.finished[:10]) == [ended for _, _, ended in best]
    np.testing.assert_allclose(found.scores[:10], [score for score, _, _ in best], rtol=1e-12)


def test_width_1_is_greedy():
    found = hm.beam_search(step, [0, 1], width=1, length=6)
    sequence = [0, 1]
    for _ in range(6):
        sequence.append(int(np.argmax(TABLE[sequence[-2], sequence[-1]])))
    assert found.sequences == (tuple(sequence),)
    assert found.log_probabilities[0] == pytest.approx(log_p(sequence), rel=1e-12)


def test_a_batch_is_each_alone():
    starts = np.array([[0, 1], [4, 2], [3, 3]])
    together = hm.beam_search(step, starts, width=3, length=5, end=2)
    for start, beams in zip(starts, together, strict=True):
        assert beams == hm.beam_search(step, start, width=3, length=5, end=2)


def test_ended_beams_do_not_push_others_out():
    """Two of three tokens end here at once; the third must still be followed to its better end."""

    def ends(prefixes):
        first = np.log([0.34, 0.33, 0.33])
        later = np.log([0.998, 0.001, 0.001])
        return np.where(prefixes[:, -1:] == 9, first, later)

    found = hm.beam_search(ends, [9], width=1, length=3, end=0, length_penalty=1.0)
    assert found.finished == (True,)
    assert found.sequences[0][:2] == (9, 1)


def test_it_stops_when_nothing_can_win():
    calls = []

    def certain(prefixes):
        calls.append(len(prefixes))
        return np.tile([0.0, -50.0], (len(prefixes), 1))

    found = hm.beam_search(certain, [1], width=1, length=100, end=0)
    assert found.sequences == ((1, 0),)
    assert len(calls) == 1


def test_overconfidence_prunes_and_smoothing_spares():
    """A model sure of its first token, and less of those that follow: all beams begin with it.

    Trained with label smoothing it is less sure, and the beams keep the other beginnings.
    """
    later = np.log([0.4, 0.3, 0.2, 0.1])

    def first_tokens(sure, smoothing):
        first = np.array([sure, 1 - sure - 1e-6, 5e-7, 5e-7])
        first = np.log((1 - smoothing) * first + smoothing / 4)

        def model(prefixes):
            return np.tile(first if prefixes.shape[1] == 1 else later, (len(prefixes), 1))

        beams = hm.beam_search(model, [0], width=4, length=2)
        return {sequence[1] for sequence in beams.sequences}

    assert first_tokens(0.999, 0.0) == {0}
    assert first_tokens(0.6, 0.0) == {0, 1}
    assert first_tokens(0.999, 0.6) > {0}


def test_forbidden_tokens_and_dead_ends():
    found = hm.beam_search(lambda p: np.tile([0.0, -np.inf], (len(p), 1)), [0], width=3, length=2)
    assert found.sequences == ((0, 0, 0),)
    assert str(found).splitlines()[1].split() == ["0.0000", "0.0000", "0", "0", "0", "..."]
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"width": 0}, ValueError, "width"),
        ({"length": 0}, ValueError, "length"),
        ({"length": 1.0}, TypeError, "length"),
        ({"start": [0.5]}, TypeError, "start"),
        ({"start": [[[0]]]}, ValueError, "start"),
        ({"end": 0.5}, TypeError, "end"),
        ({"length_penalty": math.nan}, ValueError, "length_penalty"),
        ({"temperature": [1.0]}, TypeError, "temperature"),
        ({"step": 3}, TypeError, "step"),
        ({"step": lambda p: np.zeros(3)}, ValueError, r"step .* shape \(1, classes\)"),
        ({"step": lambda p: np.full((1, 3), np.nan)}, ValueError, "row 0"),
        ({"step": lambda p: np.full((1, 3), -np.inf)}, ValueError, "row 0"),
    ],
)
def test_bad_search(options, error, words):
    given = {"step": step, "start": [0, 1], "width": 2, "length": 2, **options}
    with pytest.raises(error, match=words):
        hm.beam_search(given.pop("step"), given.pop("start"), **given)


# --- Gumbel-softmax ---------------------------------------------------------------------------


def test_gumbel_softmax_draws_by_softmax():
    x = np.array([1.0, 0.0, 2.0, -1.0])
    rows = np.broadcast_to(x, (20000, 4))
    hard = hm.gumbel_softmax(rows, hard=True, seed=0)
    assert (hard.sum(1) == 1).all()
    assert ((hard == 0) | (hard == 1)).all()
    expected = reference.probabilities(x) * 20000
    assert scipy.stats.chisquare(hard.sum(0), expected).pvalue > 1e-4
    soft = hm.gumbel_softmax(rows, temperature=0.3, seed=0)
    np.testing.assert_array_equal(soft.argmax(1), hard.argmax(1))
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-12)
    cold = hm.gumbel_softmax(rows, temperature=0, seed=0)
    np.testing.assert_array_equal(cold, hard)


def test_gumbel_softmax_by_its_formula():
    x = np.random.default_rng(0).normal(size=(3, 4, 5))
    flat = hm.gumbel_softmax(np.zeros((12, 5)), seed=9)
    noise = np.log(flat)  # up to a constant in each row
    want = [
        reference.probabilities(row + g, 0.7)
        for row, g in zip(x.reshape(12, 5), noise, strict=True)
    ]
    got = hm.gumbel_softmax(x, temperature=0.7, seed=9)
    np.testing.assert_allclose(got.reshape(12, 5), want, rtol=1e-9)
    np.testing.assert_allclose(
        hm.gumbel_softmax(np.moveaxis(x, -1, 0), temperature=0.7, seed=9, axis=0),
        np.moveaxis(got, -1, 0),
        rtol=1e-15,
    )


def test_gumbel_softmax_masks_and_types():
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float16)
    where = np.arange(6) < 4
    got = hm.gumbel_softmax(x, where=where, hard=True, seed=1)
    assert got.dtype == np.float16
    assert (got[:, 4:] == 0).all()
    assert (got.sum(1) == 1).all()
    each = hm.gumbel_softmax(x, seed=np.arange(50))
    np.testing.assert_array_equal(hm.gumbel_softmax(x[7], seed=7), each[7])
    with pytest.raises(TypeError, match="hard"):
        hm.gumbel_softmax(x, hard=1)


# --- the published experiment -----------------------------------------------------------------


def test_the_published_experiment():
    """Logits [2, 1, 3, 5, 4], 1000 draws at 0.1, 0.5, 1 and 10: within 4 standard errors."""
    found = hm.frequencies([2.0, 1.0, 3.0, 5.0, 4.0], seed=0)
    assert found.temperatures.tolist() == [0.1, 0.5, 1, 10]
    assert found.draws == 1000
    assert (found.counts.sum(1) == 1000).all()
    for number, t in enumerate([0.1, 0.5, 1, 10]):
        p = reference.probabilities(np.array([2.0, 1.0, 3.0, 5.0, 4.0]), t)
        errors = np.sqrt(p * (1 - p) / 1000)
        assert (np.abs(found.frequencies[number] - p) <= 4 * errors + 1e-3 * (p < 1e-3)).all()
        np.testing.assert_allclose(found.probabilities[number], p, rtol=1e-12)
        np.testing.assert_allclose(found.standard_errors[number], errors, rtol=1e-9)
    assert (found.frequencies.argmax(1) == 3).all()


def test_frequencies_are_shown():
    found = hm.frequencies([1.0, 0.0], temperatures=[0, 1, np.inf], draws=100, seed=0)
    assert "T = inf" in str(found)
    assert found._repr_html_().count("<tr>") == 3
    assert found.counts[0].tolist() == [100, 0]
    with pytest.raises(ValueError, match="one row"):
        hm.frequencies([[1.0]])
    with pytest.raises(ValueError, match="draws"):
        hm.frequencies([1.0], draws=0)


def test_plots():
    matplotlib.use("Agg")
    figure = hm.frequencies([2.0, 1.0, 3.0, 5.0, 4.0], seed=0).plot()
    assert len(figure.axes) == 4
    assert [bar.get_height() for bar in figure.axes[0].patches][3] == 1.0
    ax = hm.beam_search(step, [0, 1], width=3, length=4).plot()
    assert len(ax.patches) == 3


def test_plots_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for result in (
        hm.frequencies([1.0, 0.0], draws=10),
        hm.beam_search(step, [0, 1], width=3, length=4),
    ):
        with pytest.raises(ImportError, match=r"hotmax\[plot\]"):
            result.plot()
