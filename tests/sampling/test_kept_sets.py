"""sample and truncate: the kept sets, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_sampling as reference
from optional import library, torch

import hotmax as hm
from hotmax._kernels.sampling import selection

warpers = library("transformers.generation.logits_process")


# --- kept sets against transformers -----------------------------------------------------------

ROWS = reference.hard_rows(3000, 0)
WARPERS = {  # theirs, ours, numbers: eta and epsilon powers of 4, whose roots float32 holds
    "top_k": (warpers.TopKLogitsWarper, "top_k", [1, 2, 5, 50, 1000]),
    "top_p": (warpers.TopPLogitsWarper, "top_p", [0.001, 0.25, 0.5, 0.77, 0.9, 0.999, 1.0]),
    "min_p": (warpers.MinPLogitsWarper, "min_p", [0.01, 0.1, 0.5, 1.0]),
    "typical_p": (warpers.TypicalLogitsWarper, "typical_p", [0.1, 0.5, 0.77, 0.95]),
    "epsilon": (warpers.EpsilonLogitsWarper, "epsilon", [4.0**-2, 4.0**-4, 4.0**-7]),
    "eta": (warpers.EtaLogitsWarper, "eta", [4.0**-2, 4.0**-4, 4.0**-7]),
}


@pytest.mark.parametrize("name", WARPERS)
def test_kept_sets_are_those_of_transformers(name):
    """In float64, so that their own rounding decides as little as it can.

    A row in which the cut falls within 1e-12 of a sum may differ by a class: rounding decides it.
    """
    warper, option, values = WARPERS[name]
    close = 0
    for number, x in enumerate(ROWS):
        value, temperature = values[number % len(values)], (1.0, 0.7, 2.5)[number // 7 % 3]
        divide = warpers.TemperatureLogitsWarper(temperature)
        theirs = warper(value)(None, divide(None, torch.from_numpy(x)[None]))[0].numpy()
        ours = hm.truncate(x, temperature=temperature, **{option: value})
        assert (ours[np.isfinite(ours)] == x[np.isfinite(ours)]).all()
        if not same_set(x, np.isfinite(ours), np.isfinite(theirs), name == "top_p"):
            assert is_close_call(name, x / temperature, value), (number, value)
            close += 1
    assert close <= 20


def same_set(x, kept, wanted, only_some_ties):
    """Of equal logits top_p may keep a part; torch's sort, which is not stable, says which."""
    if only_some_ties:
        return np.array_equal(np.sort(x[kept]), np.sort(x[wanted]))
    return np.array_equal(kept, wanted)


def is_close_call(name, x, value):
    p = reference.probabilities(x)
    if name == "top_p":
        sums = np.cumsum(np.sort(p)[::-1])
        return np.min(np.abs(sums - value)) < 1e-12
    if name == "typical_p":
        there = p > 0
        scores = np.abs(-np.log(p[there]) - reference.entropy(p))
        sums = np.cumsum(p[there][np.argsort(scores, kind="stable")])
        ranks = np.sort(scores)
        gaps = np.diff(ranks)
        return np.min(np.abs(sums - value)) < 1e-12 or (0 < gaps[gaps > 0].min() < 1e-12)
    if name == "min_p":
        return np.min(np.abs(p / p.max() - value)) < 1e-12
    bound = value
    if name == "eta":
        bound = min(value, math.sqrt(value) * math.exp(-reference.entropy(p)))
    return np.min(np.abs(p - bound)) < 1e-12 * bound


def test_the_whole_chain_of_transformers():
    options = {"top_k": 40, "top_p": 0.93, "min_p": 0.003, "typical_p": 0.91}
    chain = [
        warpers.TemperatureLogitsWarper(0.8),
        warpers.TopKLogitsWarper(40),
        warpers.TopPLogitsWarper(0.93),
        warpers.MinPLogitsWarper(0.003),
        warpers.TypicalLogitsWarper(0.91),
        warpers.EpsilonLogitsWarper(4.0**-5),
        warpers.EtaLogitsWarper(4.0**-4),
    ]
    differ = 0
    for x in ROWS[:1000]:
        scores = torch.from_numpy(x)[None]
        for warper in chain:
            scores = warper(None, scores)
        ours = hm.truncate(x, temperature=0.8, epsilon=4.0**-5, eta=4.0**-4, **options)
        differ += not same_set(x, np.isfinite(ours), np.isfinite(scores[0].numpy()), True)
    assert differ <= 3  # close calls


def test_long_rows_and_float32():
    """The bucketed selection and its prefilter, against a sort, on 50,000 classes."""
    rng = np.random.default_rng(0)
    for kind in (np.float32, np.float64):
        for make in (
            lambda: rng.normal(size=50000) * 3,
            lambda: np.round(rng.normal(size=50000) * 3),
            lambda: np.where(rng.random(50000) < 1e-3, 5.0, rng.normal(size=50000) * 1e-6),
            lambda: np.sort(rng.normal(size=50000)),
            lambda: rng.normal(size=50000) * 1e-40,
            lambda: np.zeros(50000),
        ):
            x = make().astype(kind)
            for k in (1, 30, 5000, 49999):
                kept = hm.truncate(x, top_k=k) > -np.inf
                assert (kept == (x >= np.sort(x)[-k])).all()
            p = reference.probabilities(x)
            order = reference.descending(x)
            sums = np.cumsum(p[order])
            for mass in (0.1, 0.5, 0.9, 0.9999):
                kept = hm.truncate(x, top_p=mass) > -np.inf
                count = int(np.searchsorted(sums, mass)) + 1
                assert abs(int(kept.sum()) - count) <= 1
                assert x[kept].min() >= x[~kept].max()


def test_selection_on_extreme_keys():
    """Differences that overflow, or are too small to scale."""
    rng = np.random.default_rng(0)
    for keys in (
        rng.choice([-1.7e308, 1.7e308, 0.0, 1.0], 500),
        rng.integers(0, 9, 500) * 5e-324,
        np.concatenate([[1e300], rng.normal(size=500)]),
    ):
        for target in (1.0, 7.0, 250.0, 499.0):
            cut, needed = selection.find_cut(
                keys, None, target, False, np.empty_like(keys), np.empty(keys.size)
            )
            want = np.sort(keys)[::-1][int(target) - 1]
            assert cut == want
            assert needed == target - (keys > cut).sum()


def test_surplus_of_weight_is_found_when_rounding_falls_short():
    keys, weights = np.arange(100.0), np.full(100, 0.1)
    cut, needed = selection.find_cut(keys, weights, 11.0, False, np.empty(100), np.empty(100))
    assert (cut, needed) == (0.0, 1)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"top_p": 0.0}, ValueError, r"top_p .*\(0, 1\].*0.0"),
        ({"top_p": 1.2}, ValueError, "top_p"),
        ({"top_p": math.nan}, ValueError, "top_p"),
        ({"top_p": "x"}, TypeError, "top_p"),
        ({"top_k": -2}, ValueError, "top_k .*at least 1.*-2"),
        ({"top_k": 2.0}, TypeError, "top_k"),
        ({"top_k": True}, TypeError, "top_k"),
        ({"min_p": -0.1}, ValueError, "min_p"),
        ({"typical_p": 0}, ValueError, "typical_p"),
        ({"epsilon": 1.0}, ValueError, "epsilon"),
        ({"eta": -0.1}, ValueError, "eta"),
        ({"top_n_sigma": -2}, ValueError, "top_n_sigma"),
        ({"temperature": math.nan}, ValueError, "temperature"),
        ({"size": 0}, ValueError, "size"),
        ({"size": 1.5}, TypeError, "size"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed"),
        ({"seed": [1, 2, 3]}, ValueError, "seed"),
        ({"seed": [0.5, 1.0]}, TypeError, "seed"),
        ({"seed": [-1, 1]}, ValueError, "seed"),
        ({"ties": "last"}, ValueError, "ties"),
        ({"replace": 1}, TypeError, "replace"),
    ],
)
def test_bad_options(options, error, words):
    with pytest.raises(error, match=words):
        hm.sample(np.zeros((2, 3)), **options)


@pytest.mark.parametrize("classes", [5, 100])
@pytest.mark.parametrize("options", [{}, {"top_k": 2}, {"replace": False}])
def test_bad_rows_are_named(classes, options):
    x = np.zeros((4, classes))
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="row 2 must not hold nan"):
        hm.sample(x, **options)
    x[2] = -np.inf
    with pytest.raises(ValueError, match="row 2 must have a class that is allowed"):
        hm.sample(x, **options)
    with pytest.raises(ValueError, match=r"row \(1, 0\) must have a class"):
        hm.sample(x.reshape(2, 2, classes), **options)
    with pytest.raises(ValueError, match="row 0 must have a class"):
        hm.sample(np.ones((2, 3)), where=np.array([[False] * 3, [True] * 3]), **options)
    with pytest.raises(ValueError, match="row 0 must have a class"):
        hm.sample(np.ones((2, 0)), **options)
    with pytest.raises(ValueError, match="logits must not hold nan"):
        hm.sample([1.0, np.nan], **options)


def test_truncate_names_bad_rows():
    with pytest.raises(ValueError, match="row 1 must not hold nan"):
        hm.truncate([[1.0, 2.0], [np.nan, 0.0]], top_k=1)
    with pytest.raises(TypeError, match="logits must hold"):
        hm.truncate(["a"], top_k=1)
