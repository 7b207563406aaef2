"""Filters, draws and searches where differences of logits leave float64, and at tiny temperatures.

What is kept is held against mpmath. Draws are held against draws from the same row at a common
size: a power of two that multiplies logits and temperature changes no probability.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import reference_kept_sets as reference

import hotmax as hm
from hotmax._kernels.sampling.selection import find_cut

B = 1e308
LARGEST = float(np.finfo(np.float64).max)
# The shares are sums of few powers of two, so that at inf they are reached exactly or not at all.
STEPS = {
    "top_k": [1, 3],
    "top_p": [0.25, 0.8125],
    "min_p": [0.03, 0.5],
    "typical_p": [0.25, 0.8125],
    "epsilon": [0.01, 0.3],
    "eta": [0.01, 0.3],
    "top_n_sigma": [0.7, 1.9],
    "xtc": [(1.0, 0.05), (1.0, 0.3)],
    "mirostat": [(0.6,), (2.0,)],
}
SIZES = [B, 1e200, 1.0, 1e-200, 1e-310]
TEMPERATURES = [0.2, 0.7, 1.7]


def kept(name, value, x, temperature):
    """What is left of a row."""
    if name in ("xtc", "mirostat"):
        left = hm.Sampler({"temperature": temperature, name: value}, seed=0).truncate(x)
    else:
        left = hm.truncate(x, temperature=temperature, **{name: value})
    assert (np.asarray(left)[np.isfinite(left)] == x[np.isfinite(left)]).all()
    return np.isfinite(left).tolist()


def rows():
    """Rows of a few classes between -1 and 1, with both ends and a tie."""
    rng = np.random.default_rng(0)
    for n in (2, 3, 7):
        x = rng.uniform(-1.0, 1.0, n)
        x[0], x[-1] = 1.0, -1.0
        x[n // 2] = x[1]
        yield x


@pytest.mark.parametrize("name", STEPS)
def test_kept_sets_at_every_size(name):
    for x in rows():
        for size in SIZES:
            y = x * size
            hot = [t * size for t in TEMPERATURES] + [math.inf, 5e-324, 1e-310]
            for temperature in hot:
                for value in STEPS[name]:
                    want = reference.kept(name, value, y, temperature)
                    assert kept(name, value, y, temperature) == want, (y, temperature, value)


@pytest.mark.parametrize("name", STEPS)
def test_kept_sets_of_float32(name):
    for x in rows():
        for size in (3e38, 1e-39):
            y = (x * size).astype(np.float32)
            for temperature in (0.2 * size, 1.7 * size, 1e-39, 1e-45, math.inf):
                for value in STEPS[name]:
                    want = reference.kept(name, value, y, temperature)
                    assert kept(name, value, y, temperature) == want, (y, temperature, value)


def test_kept_sets_below_0():
    for name in ("top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma"):
        for x in rows():
            for temperature in (-0.7 * B, -math.inf, -1e-310):
                for value in STEPS[name]:
                    want = reference.kept(name, value, x * B, temperature)
                    assert kept(name, value, x * B, temperature) == want, (name, x, temperature)


def test_long_rows_beyond_float64(rng):
    """Long enough for the buckets, and for groups of which most are never looked at."""
    x = rng.uniform(-1.0, 1.0, 4000) * B
    assert kept("top_k", 3, x, 1.0) == (x >= np.sort(x)[-3]).tolist()
    x = x[:200]
    for name in ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma"):
        for temperature in (B / 4, math.inf):
            want = reference.kept(name, STEPS[name][1], x, temperature)
            assert kept(name, STEPS[name][1], x, temperature) == want, (name, temperature)


def test_mean_distances_are_not_rounded_away():
    """Two that are typical and far from the rest, which have no weight."""
    x = np.array([1e-300, 0.0, 0.5e-300, -B, B * 1e-20])
    x[-1] = -1e280
    for value in (0.25, 0.8125):
        want = reference.kept("typical_p", value, x, 1e-300)
        assert kept("typical_p", value, x, 1e-300) == want


def test_top_n_sigma_far_from_0():
    """The mean of large logits that lie close together."""
    x = 1e16 + np.array([0.0, 2.0, 4.0, 2.0, 6.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        assert kept("top_n_sigma", value, x, 1.0) == reference.kept("top_n_sigma", value, x, 1.0)


def test_dynamic_temperature_at_every_size():
    """The temperature that it chooses is seen in what min_p then keeps."""
    x = np.array([1.0, 0.6, 0.2, -0.1, -1.0])
    for size in SIZES:
        row = reference.Row(x * size, 0.4 * size)
        share = row.entropy() / reference.mp.log(5)
        factor = reference.mp.mpf(0.25) + (reference.mp.mpf(3) - 0.25) * share
        hotter = reference.Row(x * size, 0.4 * size)
        hotter.t *= factor
        weights = [reference.mp.exp(-(gap / hotter.t)) for gap in hotter.gaps]
        for bound in (0.2, 0.4, 0.6, 0.8):
            steps = {"temperature": 0.4 * size, "dynamic_temperature": (0.25, 3.0), "min_p": bound}
            left = hm.Sampler(steps, seed=0).truncate(x * size)
            assert np.isfinite(left).tolist() == [w >= bound for w in weights], (size, bound)


def test_products_of_temperatures_beyond_float64():
    x = [[2.0, 1.0, 0.0]]
    cold = hm.Sampler({"temperature": 1e-200, "dynamic_temperature": (1e-200, 2e-200)}, seed=1)
    assert all(cold(x)[0] == 0 for _ in range(20))
    hot = hm.Sampler({"temperature": 1e200, "dynamic_temperature": (1e200, 2e200)}, seed=1)
    assert {int(hot(x)[0]) for _ in range(40)} == {0, 1, 2}


def test_mirostat_learns_at_any_rate():
    sampler = hm.Sampler({"mirostat": (1e308, 1e308)}, seed=1)
    for _ in range(5):
        assert sampler([[1.0, 2.0, 3.0]])[0] in (0, 1, 2)
        assert np.isfinite(sampler.mu).all()


# --- draws ------------------------------------------------------------------------------------

OPTIONS = [
    {},
    {"replace": False, "size": 3},
    {"top_p": 0.9, "size": 4},
    {"typical_p": 0.9, "replace": False, "size": 1},
    {"min_p": 0.01, "eta": 0.01, "size": 4},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("classes", [5, 100])
def test_draws_do_not_depend_on_the_size_of_logits(options, classes, rng):
    x = rng.integers(-8, 9, (40, classes)) / 8.0
    for temperature in (0.25, 1.0, 1.75, math.inf):
        want = hm.sample(x, temperature=temperature, seed=5, **options)
        for power in (1023, 900, -900, -1060):
            size = 2.0**power
            t = size * temperature
            if 0.0 < t / size == temperature:  # 1.75 * 2**1023 is the largest that is there
                got = hm.sample(x * size, temperature=t, seed=5, **options)
                assert (got == want).all(), (temperature, power)


@pytest.mark.parametrize("temperature", [math.inf, B, 1e-310, 1.0])
def test_draws_without_replacement_are_different_classes(temperature):
    """They were duplicates, or what lay in memory: the keys were nan."""
    x = np.array([B, -B, 0.0])
    most = 3 if temperature > 1.0 else 1
    for seed in range(50):
        drawn = hm.sample(x, temperature=temperature, replace=False, size=most, seed=seed)
        assert sorted(drawn) == ([0, 1, 2] if most == 3 else [0])
    long = np.where(np.arange(3000) % 2, B, -B)
    if temperature == math.inf:
        drawn = hm.sample(long, temperature=temperature, replace=False, size=3000, seed=1)
        assert sorted(drawn) == list(range(3000))


def test_draws_without_replacement_follow_softmax():
    """Of B and -B at temperature B the first comes first with 1 / (1 + exp(-2))."""
    x = np.tile([B, -B], (20000, 1))
    first = hm.sample(x, temperature=B, replace=False, size=2, seed=3)[:, 0]
    p = 1.0 / (1.0 + math.exp(-2.0))
    assert abs((first == 0).mean() - p) < 4.0 * math.sqrt(p * (1 - p) / 20000)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("n", [0, 1, 10, 60, 5000])
def test_a_cut_among_keys_that_are_not_finite_is_none(bad, n, rng):
    """No key reaches nan, and nothing is read or written outside of the arrays."""
    keys = rng.normal(size=n)
    keys[n // 2 : n // 2 + 1] = bad
    buffer = np.full((2, n + 2), 7.0)
    for weights, target in ((None, 2.0), (np.ones(n), 0.5 * n)):
        cut, needed = find_cut(keys, weights, target, False, buffer[0, 1:-1], buffer[1, 1:-1])
        if bad == -math.inf and n > 2048 and weights is None:  # it is in no group that counts
            assert (cut, needed) == (np.sort(keys)[-2], 1)
        else:
            assert math.isnan(cut)
            assert needed == 0
    assert (buffer[:, [0, -1]] == 7.0).all()


# --- searches and diagnoses -------------------------------------------------------------------


@pytest.mark.parametrize(("size", "temperature"), [(B, B), (B, math.inf), (1e-310, 1e-310)])
def test_beam_search_at_every_size(size, temperature):
    table = np.array([[0.0, 1.0, -1.0], [-1.0, 0.5, 1.0], [1.0, -1.0, 0.25]]) * size
    found = hm.beam_search(
        lambda p: table[p[:, -1]], [0], width=9, length=2, temperature=temperature
    )
    logs = []
    for line in table:
        row = reference.Row(line, temperature)
        logs.append([float(reference.mp.log(w / row.total)) for w in row.weights])
    want = sorted(-(logs[0][a] + logs[a][b]) for a in range(3) for b in range(3))
    assert np.allclose(found.log_probabilities, -np.array(want), rtol=1e-14)


@pytest.mark.parametrize("penalty", [-1e308, -400.0, 400.0, 1e308])
def test_beam_search_with_any_length_penalty(penalty):
    step = lambda prefixes: np.tile([0.0, 1.0], (len(prefixes), 1))  # noqa: E731
    found = hm.beam_search(step, [0], width=2, length=8, length_penalty=penalty, end=0)
    assert len(found.sequences) == 2
    assert not np.isnan(found.scores).any()


def gap_of_entropy(h):
    """The difference of two logits whose softmax has entropy h, by halving."""
    low, high = mpmath.mpf(0), mpmath.mpf(100)
    for _ in range(190):
        z = (low + high) / 2
        p = 1 / (1 + mpmath.exp(z))  # of the less likely
        entropy = mpmath.log1p(mpmath.exp(-z)) + p * z
        low, high = (z, high) if entropy > h else (low, z)
    return low


@pytest.mark.parametrize("gap", [2 * B, 1e308, 1e305, 1.0, 1e-300, 1e-310])
def test_temperature_for_entropy_of_two_classes(gap):
    """gap / T is the same for every gap: it is found from the entropy in mpmath."""
    x = [B, -B] if gap == 2 * B else [gap, 0.0]
    for share in (1e-3, 0.5, 0.6, 0.69, 0.6931471805):
        with mpmath.workprec(200):
            z = gap_of_entropy(share)
            exact = (mpmath.mpf(x[0]) - mpmath.mpf(x[1])) / z
            want = float(exact) if exact <= LARGEST else math.inf
        got = hm.temperature_for_entropy(x, share)
        # near log 2 the entropy hardly depends on the temperature
        slack = want * max(1e-15, 4e-16 / (math.log(2.0) - share))
        assert got == want or abs(got - want) <= max(slack, 5e-324), (share, got, want)


@pytest.mark.parametrize(
    ("x", "temperature", "gap"),
    [([B, -B], B, 2.0), ([B, -B], -B, 2.0), ([3e-310, 0.0], 1e-310, 3.0), ([B, -B], math.inf, 0.0)],
)
def test_saturation_at_every_size(x, temperature, gap):
    found = hm.saturation(x, temperature=temperature, target=0.5)
    p = 1.0 / (1.0 + math.exp(-gap))
    assert found.entropy == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), rel=1e-13)
    assert found.slope_max == pytest.approx(p * (1 - p), rel=1e-13)
    assert found.variance == pytest.approx(gap**2 / 4.0, rel=1e-13)
    want = None if gap == 0.0 else gap * hm.temperature_for_entropy([1.0, 0.0], 0.5)
    assert found.factor == (None if want is None else pytest.approx(want, rel=1e-13))


@pytest.mark.parametrize(("x", "temperature"), [([0.0, 1.0], 1e-310), ([B, -B], 1e-3)])
def test_saturation_beyond_float64(x, temperature):
    found = hm.saturation(x, temperature=temperature, target=0.5)
    assert (found.saturated, found.entropy, found.variance) == (1.0, 0.0, math.inf)
    assert found.factor in (None, math.inf)


def test_saturation_takes_a_gap_that_only_float64_lacks():
    found = hm.saturation([B, -B], target=0.5)
    assert found.factor == pytest.approx(hm.temperature_for_entropy([B, -B], 0.5), rel=1e-13)
