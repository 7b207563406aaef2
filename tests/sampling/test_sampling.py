"""sample: the random numbers, the transform, the draws, and the same whatever the batch."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import reference_sampling as reference
import scipy.stats

import hotmax as hm
from hotmax._kernels.sampling import inversion, random as numbers

# --- random numbers ---------------------------------------------------------------------------

KNOWN = [  # the known answers that come with the paper's own code
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@numbers.kernel
def compiled_philox(c, k):
    return numbers.philox(c[0], c[1], c[2], c[3], k[0], k[1])


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, words):
    assert reference.philox(counter, key) == words
    ours = compiled_philox(np.array(counter, np.uint64), np.array(key, np.uint64))
    assert tuple(map(int, ours)) == words


def test_uniform_numbers_are_the_words_of_philox():
    for key, row, index, stream in [(0, 0, 0, 0), (2**63 + 5, 2**40 + 3, 7, 9), (3, 1, 2**31, 4)]:
        a, b, c, d = reference.philox(
            (row % 2**32, row >> 32, index, stream), (key % 2**32, key >> 32)
        )
        bits = a << 73 | b << 41 | c << 9 | d >> 23  # 105 bits
        want = mpmath.mpf(2 * bits + 1) / mpmath.mpf(2) ** 106
        with mpmath.workprec(200):
            high, low = numbers.uniform(np.uint64(key), row, index, stream)
            assert mpmath.mpf(high) + mpmath.mpf(low) == mpmath.mpf(2 * bits + 1) / 2**106
        assert abs(float(want) - high) < 2**-52


def test_gumbel_noise():
    noise = np.array([numbers.gumbel(np.uint64(1), 0, i, 1) for i in range(20000)])
    assert scipy.stats.kstest(noise, "gumbel_r").pvalue > 0.01
    assert np.isfinite(noise).all()


# --- the transform, fed with chosen numbers ---------------------------------------------------


def transform(x, u, temperature=1.0):
    """The class that a uniform number gives; u is an mpf, of up to 106 bits."""
    x = np.asarray(x)
    weights, totals = np.empty(x.size), np.empty((-(-x.size // inversion.WEIGHT_BLOCK), 2))
    inversion.exp_weights(x, weights, float(x.max()), temperature)
    total, total_low = inversion.set_totals(weights, totals)
    high = float(mpmath.floor(u * 2**53) / 2**53)
    return inversion.invert(weights, totals, total, total_low, high, float(u - high))


def interval(x, target):
    """[low, high): the uniform numbers that give class `target`, by bisection."""
    ends = []
    for wanted in (target, target + 1):
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        for _ in range(105):
            middle = (low + high) / 2
            if transform(x, middle) < wanted:
                low = middle
            else:
                high = middle
        ends.append(high)
    return ends


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 1, 300, 1234, 1999])
def test_a_rare_class_has_its_own_share(kind, place):
    """A class of probability 1e-12 is given by 1e-12 of the numbers, to 2**-53."""
    x = np.random.default_rng(place).normal(size=2000).astype(kind)
    x[place] = math.log(np.exp(x.astype(np.float64)).sum()) + math.log(1e-12)
    with mpmath.workprec(160):
        exps = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        true = exps[place] / mpmath.fsum(exps)
        low, high = interval(x, place)
        assert abs((high - low) - true) <= mpmath.mpf(2) ** -53
        assert 0.9e-12 < high - low < 1.1e-12


def test_every_class_has_its_own_share():
    x = np.random.default_rng(0).normal(size=600) * 4
    with mpmath.workprec(160):
        exps = [mpmath.exp(mpmath.mpf(float(v))) for v in x]
        total = mpmath.fsum(exps)
        bounds = [mpmath.fsum(exps[:i]) / total for i in range(601)]
        for i in range(0, 600, 7):
            gap = bounds[i + 1] - bounds[i]
            edge = min(gap / 1000, mpmath.mpf(2) ** -50)
            if gap > mpmath.mpf(2) ** -45:
                assert transform(x, bounds[i] + 8 * edge) == i
                assert transform(x, bounds[i + 1] - 8 * edge) == i


def test_a_tail_of_1e_28_is_reached():
    """Beyond 2**-53: the uniform number has two words."""
    x = np.array([0.0, math.log(1e-28)])
    with mpmath.workprec(200):
        low, _ = interval(x, 1)
        assert abs((1 - low) / mpmath.mpf("1e-28") - 1) < 0.01


def test_no_number_gives_a_class_of_probability_0():
    rng = np.random.default_rng(1)
    ends = [mpmath.mpf(1) / 2**106, 1 - mpmath.mpf(1) / 2**106]
    for n in (2, 5, 255, 256, 257, 1000):
        for _ in range(20):
            x = np.where(rng.random(n) < 0.5, -np.inf, rng.normal(size=n) * 50)
            x[rng.integers(n)] = 0.0
            with mpmath.workprec(160):
                us = ends + [mpmath.mpf(int(b)) / 2**53 for b in rng.integers(0, 2**53, 20)]
                for u in us:
                    assert x[transform(x, u)] > -np.inf


@pytest.mark.parametrize("classes", [10, 64, 65, 1000])
def test_the_draws_are_the_transform_of_their_numbers(classes):
    """sample = transform of Philox at (seed, row, draw): short rows and long ones."""
    x = np.random.default_rng(0).normal(size=(50, classes)) * 2
    drawn = hm.sample(x, size=4, seed=77)
    wrong = 0
    for r in range(50):
        cumulated = np.cumsum(reference.probabilities(x[r]))
        for d in range(4):
            a, b, _, _ = reference.philox((r, 0, d, 0), (77, 0))
            u = (a * 2**32 + b) / 2**64
            want = int(np.searchsorted(cumulated, u))
            near = np.min(np.abs(cumulated - u)) < 1e-12
            wrong += drawn[r, d] != want and not near
    assert wrong == 0


def test_more_classes_than_float32_can_count():
    """2**24 + 2 classes, the last with all the mass but a third: torch draws 0 % of those."""
    n = 2**24 + 2
    x = np.full(n, -40.0, np.float32)
    x[-1], x[-2], x[0] = 1.0, 1.0, 1.0
    drawn = hm.sample(x, size=3000, seed=0)
    counts = [(drawn == c).sum() for c in (0, n - 2, n - 1)]
    assert sum(counts) == 3000
    assert scipy.stats.chisquare(counts).pvalue > 0.01


# --- draws against softmax --------------------------------------------------------------------


FILTERS = {
    "none": {},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.1},
    "typical_p": {"typical_p": 0.7},
    "epsilon": {"epsilon": 0.05},
    "eta": {"eta": 0.05},
    "top_n_sigma": {"top_n_sigma": 1.5},
    "all": {"top_k": 6, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.99, "epsilon": 1e-3},
}


def chi_square(drawn, p):
    """The chance of a worse fit; draws of classes of probability 0 are an error at once."""
    counts = np.bincount(drawn.ravel(), minlength=p.size)
    assert not counts[p == 0].any()
    there = p > 0
    expected = p[there] * drawn.size
    order = np.argsort(expected)
    few = np.cumsum(expected[order]) < 10  # the rarest together
    if few.any():
        few = order[: few.sum() + 1]
        rest = np.setdiff1d(np.arange(expected.size), few)
        seen = counts[there]
        observed = np.append(seen[rest], seen[few].sum())
        expected = np.append(expected[rest], expected[few].sum())
    else:
        observed = counts[there]
    if observed.size == 1:
        return 1.0
    return scipy.stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("temperature", [0.1, 0.5, 1, 10])
@pytest.mark.parametrize("classes", [12, 300])
def test_draws_follow_softmax(name, temperature, classes):
    x = np.random.default_rng(classes).normal(size=classes)
    options = FILTERS[name]
    drawn = hm.sample(x, temperature=temperature, size=20000, seed=5, **options)
    kept = hm.truncate(x, temperature=temperature, **options)
    p = reference.probabilities(kept, temperature)
    assert chi_square(drawn, p) > 1e-4


def test_the_chi_square_test_can_fail():
    x = np.random.default_rng(12).normal(size=12)
    drawn = hm.sample(x, temperature=1.1, size=20000, seed=5)
    assert chi_square(drawn, reference.probabilities(x)) < 1e-4


def test_across_rows_and_seeds():
    """One draw from each of many rows, and from each of many seeds, is as good as many of one."""
    x = np.array([2.0, 1.0, 3.0, 5.0, 4.0], np.float32)
    p = reference.probabilities(x, 2.0)
    many = np.broadcast_to(x, (20000, 5))
    assert chi_square(hm.sample(many, temperature=2, seed=1), p) > 1e-4
    assert chi_square(hm.sample(many, temperature=2, seed=np.arange(20000)), p) > 1e-4


def test_temperature_0_and_infinity():
    x = np.array([[1.0, 5.0, 5.0, -np.inf, 5.0]] * 3)
    drawn = hm.sample(x, temperature=0, size=9000, seed=0)
    assert chi_square(drawn, np.array([0, 1, 1, 0, 1]) / 3) > 1e-4
    assert (hm.sample(x, temperature=0, ties="first", size=5) == 1).all()
    assert (hm.sample(x, temperature=0, ties="first", top_k=3) == 1).all()
    drawn = hm.sample(x, temperature=np.inf, size=9000, seed=0)
    assert chi_square(drawn, np.array([1, 1, 1, 0, 1]) / 4) > 1e-4
    temperature = np.array([[0.0], [np.inf], [-0.0]])
    drawn = hm.sample(x[:, [0, 1, 2, 4]], temperature=temperature, size=9000, seed=0)
    for row, p in zip(drawn, ([0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]), strict=True):
        assert chi_square(row, np.array(p) / sum(p)) > 1e-4
    drawn = hm.sample([1.0, np.inf, 0.0, np.inf], size=2000, seed=0)
    assert chi_square(drawn, np.array([0, 0.5, 0, 0.5])) > 1e-4
    drawn = hm.sample([1.0, np.inf, 0.0, np.inf], size=2000, seed=0, top_k=3)
    assert chi_square(drawn, np.array([0, 0.5, 0, 0.5])) > 1e-4


def test_negative_temperature_is_softmin():
    x = np.random.default_rng(0).normal(size=9)
    drawn = hm.sample(x, temperature=-0.7, size=20000, seed=1)
    assert chi_square(drawn, reference.probabilities(-x, 0.7)) > 1e-4
    kept = hm.truncate(x, temperature=-1, top_k=3)
    assert set(np.flatnonzero(kept < np.inf)) == set(np.argsort(x)[:3])
    drawn = hm.sample(x, temperature=-1, top_k=3, size=5000, seed=1)
    assert chi_square(drawn, reference.probabilities(-kept)) > 1e-4


def test_without_replacement():
    """The first is drawn by softmax, the second by softmax without the first (Plackett-Luce)."""
    x = np.array([1.0, 0.0, 2.0, 1.5, -np.inf])
    p = reference.probabilities(x)
    rows = np.broadcast_to(x, (30000, 5))
    drawn = hm.sample(rows, size=3, replace=False, seed=3)
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    pairs = np.zeros((5, 5))
    for i in range(4):
        for j in set(range(4)) - {i}:
            pairs[i, j] = p[i] * p[j] / (1 - p[i])
    assert chi_square(drawn[:, 0] * 5 + drawn[:, 1], pairs.ravel()) > 1e-4
    all_four = hm.sample(x, size=4, replace=False, seed=0)
    assert sorted(all_four.tolist()) == [0, 1, 2, 3]
    first = hm.sample(x, size=2, replace=False, seed=0)
    assert first.tolist() == all_four[:2].tolist()
    with pytest.raises(ValueError, match="size=5"):
        hm.sample(x, size=5, replace=False)


# --- the same whatever the batch --------------------------------------------------------------


@pytest.mark.parametrize("classes", [7, 64, 65, 3000])
@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}, {"size": 3, "replace": False}])
def test_a_row_draws_the_same_in_any_batch(classes, options):
    x = np.random.default_rng(0).normal(size=(70, classes)).astype(np.float32)
    seeds = np.arange(70) + 5
    whole = hm.sample(x, seed=seeds, **options)
    order = np.random.default_rng(1).permutation(70)
    np.testing.assert_array_equal(hm.sample(x[order], seed=seeds[order], **options), whole[order])
    for r in (0, 33, 69):
        np.testing.assert_array_equal(hm.sample(x[r], seed=int(seeds[r]), **options), whole[r])
    one = hm.sample(x, seed=9, **options)
    np.testing.assert_array_equal(hm.sample(x[:40], seed=9, **options), one[:40])
    np.testing.assert_array_equal(hm.sample(np.asfortranarray(x).T, seed=9, axis=0, **options), one)
    np.testing.assert_array_equal(
        hm.sample(x.reshape(7, 10, -1), seed=9, **options).ravel(), one.ravel()
    )
    threads = hm.get_threads()
    try:
        hm.set_threads(1 if threads > 1 else 2)
        np.testing.assert_array_equal(hm.sample(x, seed=9, **options), one)
    finally:
        hm.set_threads(threads)


def test_a_non_plain_neighbour_changes_nothing():
    x = np.random.default_rng(0).normal(size=(40, 8))
    plain = hm.sample(x, size=50, seed=2)
    x[3], x[17, 2], x[20] = 0.0, np.inf, -np.inf
    x[20, 1] = 0.0
    drawn = hm.sample(x, size=50, seed=2)
    rest = np.setdiff1d(np.arange(40), [3, 17, 20])
    np.testing.assert_array_equal(drawn[rest], plain[rest])


def test_without_a_seed_draws_differ():
    x = np.zeros(1000)
    assert len({int(hm.sample(x)) for _ in range(10)}) > 1


def test_masks_and_types():
    x = np.random.default_rng(0).normal(size=(30, 9))
    where = x > -0.5
    where[:, 0] = True
    hidden = np.where(where, x, np.nan)
    drawn = hm.sample(hidden, where=where, size=40, seed=0)
    assert np.take_along_axis(where, drawn, 1).all()
    np.testing.assert_array_equal(drawn, hm.sample(np.where(where, x, -np.inf), size=40, seed=0))
    for kind in ("float16", "float32", "int64"):
        kept = hm.truncate((x * 4).astype(kind), top_k=3)
        assert kept.dtype == (kind if kind != "int64" else "float64")
        assert hm.sample((x * 4).astype(kind), top_p=0.5, seed=1).dtype == np.int64
    frozen = x.copy()
    frozen.flags.writeable = False
    hm.sample(frozen, top_k=2), hm.truncate(frozen, top_p=0.3), hm.sample(frozen)


def test_axes():
    x = np.random.default_rng(0).normal(size=(4, 5, 6))
    drawn = hm.sample(x, axis=(0, 2), seed=1)
    flat = x.transpose(1, 0, 2).reshape(5, 24)
    np.testing.assert_array_equal(drawn, hm.sample(flat, seed=1))
    kept = hm.truncate(x, axis=(0, 2), top_k=7)
    want = hm.truncate(flat, top_k=7).reshape(5, 4, 6).transpose(1, 0, 2)
    np.testing.assert_array_equal(kept, want)
    np.testing.assert_array_equal(
        hm.truncate(x, axis=1, top_p=0.6),
        np.moveaxis(hm.truncate(np.moveaxis(x, 1, -1), top_p=0.6), -1, 1),
    )
    assert hm.sample(x, axis=None, seed=0).shape == ()
    assert hm.sample(np.zeros((0, 3))).shape == (0,)
    assert hm.sample(x, size=2).shape == (4, 5, 2)
    out = np.empty_like(x)
    assert hm.truncate(x, top_k=2, out=out) is out
    np.testing.assert_array_equal(out, hm.truncate(x, top_k=2))
