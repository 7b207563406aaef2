"""Saturation and the temperature for an entropy, against eigenvalues, naive formulas and mpmath."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
import reference
from arrays import on
from reference import mp

import hotmax as hm

jax.config.update("jax_enable_x64", True)


def normal(*shape, seed=0, size=1.0):
    return np.random.default_rng(seed).standard_normal(shape) * size


def naive(logits):
    """All figures by their definitions, one row at a time."""
    p = reference.naive_softmax(logits)
    slope = p * (p[:, None] * (1 - np.eye(p.shape[-1]))).sum(-1)  # 1 - p has no digits near 1
    norms = [np.linalg.svd(np.diag(r) - np.outer(r, r))[1][0] for r in p]
    return {
        "rows": len(p),
        "saturated": np.mean([r.max() > 0.99 for r in p]),
        "entropy": reference.naive_entropy(logits).mean(),
        "entropy_limit": math.log(logits.shape[-1]),
        "slope_mean": slope.mean(),
        "slope_max": slope.max(),
        "jacobian_mean": np.mean(norms),
        "jacobian_max": np.max(norms),
        "variance": logits.var(-1).mean(),
    }


@pytest.mark.parametrize("size", [0.01, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("n", [2, 5, 60])
def test_every_figure(size, n):
    logits = normal(40, n, size=size)
    want = naive(logits)
    for found in (
        hm.saturation(logits),
        hm.saturation(logits * 2.5, temperature=2.5),
        hm.saturation(logits.T, axis=0),
        hm.saturation(reference.naive_softmax(logits), input="probabilities"),
    ):
        for name, value in want.items():
            assert getattr(found, name) == pytest.approx(value, rel=1e-11), name
        assert found.histogram.sum() == found.slope_histogram.sum() == 40 * n


def test_jacobian_of_special_rows():
    for row, want in [
        ([0.0, 0.0, 0.0], 1 / 3),
        ([5.0, 5.0, -90.0], 0.5),
        ([0.0, -40.0], 2 * math.exp(-40)),
        ([0.0, -2000.0], 0.0),
    ]:
        assert hm.saturation(row).jacobian_max == pytest.approx(want, rel=1e-12)


def test_slopes_of_rows_that_are_all_but_certain():
    """p (1 - p) of the largest p is the sum of the others, of which 1 - p keeps no digit."""
    found = hm.saturation([0.0, -40.0, -41.0])
    others = [math.exp(-40), math.exp(-41)]
    assert found.slope_max == pytest.approx(sum(others), rel=1e-12)
    assert found.slope_mean == pytest.approx(2 * sum(others) / 3, rel=1e-12)


def test_the_suggestion_is_right():
    logits = normal(50, 30, size=9.0)
    found = hm.saturation(logits, temperature=0.5)
    # not ==: the mean of 50 numbers log(30) is rounded
    assert found.target == pytest.approx(math.log(30) - 0.5, rel=1e-15)
    again = hm.saturation(logits, temperature=0.5 * found.factor)
    assert again.entropy == pytest.approx(found.target, rel=1e-14)
    assert again.factor == pytest.approx(1.0, rel=1e-13)
    assert hm.saturation(logits, target=0.25).target == 0.25
    assert hm.saturation([1.0, 1.0], target=0.1).factor is None  # ties: never below log 2


def test_masked_rows():
    logits = normal(30, 12, size=4.0)
    where = np.arange(12) < 7
    junk = np.where(where, logits, np.nan)
    found, want = hm.saturation(junk, where=where), hm.saturation(logits[:, :7])
    for name, value in vars(want).items():
        if name != "scale":
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-13, err_msg=name)
    where = np.ones((30, 12), bool)
    where[3] = False
    where[4, 1:] = False
    assert hm.saturation(logits, where=where).rows == 28


def test_attention_is_what_its_logits_are():
    q, k = normal(2, 4, 9, 16), normal(2, 2, 11, 16, seed=1)
    scores = q @ np.swapaxes(np.repeat(k, 2, axis=1), -1, -2)
    found, want = hm.attention_saturation(q, k, scale=0.7), hm.saturation(scores * 0.7)
    compare(found, want)
    assert found.scale == 0.7
    again = hm.attention_saturation(q, k, scale=found.suggested_scale)
    assert again.entropy == pytest.approx(found.target, rel=1e-13)
    seen = np.tri(9, 11, 2, dtype=bool)
    found = hm.attention_saturation(q, k, causal="lower_right", temperature=2.0)
    want = hm.saturation(scores / 8.0, where=seen)
    assert found.entropy == pytest.approx(want.entropy, rel=1e-12)
    assert found.rows == want.rows


def test_attention_with_a_bias_and_a_sink():
    """The sink is one more class; no scale alone need give the target."""
    q, k, bias = normal(2, 9, 16), normal(2, 11, 16, seed=1), normal(9, 11, seed=2, size=3.0)
    bias[:, 3] = -math.inf
    scores = q @ np.swapaxes(k, -1, -2) * 0.25 + bias
    found = hm.attention_saturation(q, k, bias=bias)
    compare(found, hm.saturation(scores))
    sink = np.array([0.5, -1.0]).reshape(2, 1, 1)
    more = np.concatenate([scores, np.broadcast_to(sink, (2, 9, 1))], -1)
    found = hm.attention_saturation(q, k, bias=bias, sink=sink)
    compare(found, hm.saturation(more))
    assert found.scale is None
    nothing = hm.attention_saturation(q, k, sink=-math.inf)
    compare(nothing, hm.attention_saturation(q, k))


def compare(found, want):
    for name, value in vars(want).items():
        if name != "scale":
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, err_msg=name)


def test_the_published_experiment():
    """One query, 128 keys, 512 features: peaked without the scale, spread with it."""
    for seed in range(5):
        q, k = normal(1, 512, seed=seed), normal(128, 512, seed=seed + 100)
        raw, scaled = hm.attention_saturation(q, k, scale=1.0), hm.attention_saturation(q, k)
        weights = hm.attention_weights(q, k, scale=1.0)
        assert raw.variance == pytest.approx(512, rel=0.4)
        assert scaled.variance == pytest.approx(1, rel=0.4)
        assert weights.max() > 0.5
        assert raw.slope_mean < scaled.slope_mean
        assert raw.entropy < 1 < 4 < scaled.entropy
        assert scaled.saturated == 0
        assert np.median(weights * (1 - weights)) < 1e-12
        scaled = hm.attention_weights(q, k)
        assert scaled.max() < 0.15
        assert np.median(scaled * (1 - scaled)) > 1e-3


def test_text_and_table():
    found = hm.attention_saturation(normal(8, 64), normal(20, 64), scale=1.0)
    assert "scale" in str(found).splitlines()[-1]
    assert "logits divided by" in str(hm.saturation(normal(4, 5)))
    assert "no temperature gives it" in str(hm.saturation([1.0, 1.0], target=0.1))
    assert found._repr_html_().count("<tr>") == 7


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    found = hm.saturation(normal(50, 20))
    axes = found.plot().axes
    assert [sum(bar.get_height() for bar in ax.patches) for ax in axes] == [1000, 1000]
    for ax in hm.saturation([0.0, 1.0]).plot().axes:
        ax.figure.canvas.draw()
        assert not any(tick.get_text() for tick in ax.get_yticklabels(minor=True))
    left, _ = matplotlib.pyplot.figure().subfigures(1, 2)
    assert found.plot(left) is left
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([1.0, math.nan],), {}, ValueError, "nan"),
        (([1.0, math.inf],), {}, ValueError, r"\+inf"),
        (([1.0],), {}, ValueError, "two classes"),
        (([1.0, 2.0],), {"temperature": 0}, ValueError, "temperature must not be 0"),
        (([1.0, 2.0],), {"input": "probs"}, ValueError, 'input must be "logits" or'),
        (([1.0, 2.0],), {"input": "probabilities"}, ValueError, "add up to 1 over axis, got 3"),
        (([0.1, 0.2],), {"input": "probabilities"}, ValueError, "add up to 1 over axis, got 0.3"),
        (([1.0, 2.0],), {"target": -1}, ValueError, "target"),
        (([1.0, 2.0],), {"target": "much"}, TypeError, "target"),
    ],
)
def test_bad_input(arguments, options, error, words):
    with pytest.raises(error, match=words):
        hm.saturation(*arguments, **options)


@pytest.mark.parametrize(
    ("q", "keys", "words"),
    [
        (math.nan, 2, r"q k\^T must not hold nan"),
        (1.0, 1, r"q k\^T must have a row with two classes"),
    ],
)
def test_bad_attention(q, keys, words):
    with pytest.raises(ValueError, match=words):
        hm.attention_saturation(np.full((2, 3), q), np.ones((keys, 3)))


# --- temperature_for_entropy ------------------------------------------------------------------


def true_temperature(rows, target, near):
    """By mpmath: the root of the mean entropy, from a start nearby."""

    def off(t):
        total = mp.mpf(0)
        for row in rows:
            z = [mp.mpf(float(v)) / t for v in row if v > -math.inf]
            e = [mp.exp(v - max(z)) for v in z]
            s = mp.fsum(e)
            total += mp.log(s) - mp.fsum(a * (v - max(z)) for a, v in zip(e, z, strict=True)) / s
        return total / len(rows) - mp.mpf(target)

    return mp.findroot(off, (mp.mpf(near) * (1 - mp.mpf(10) ** -8), mp.mpf(near)), tol=1e-50)


@pytest.mark.parametrize(
    ("row", "target"),
    [
        ([1.0, 2.0, 4.0], 0.9),
        ([1.0, 2.0, 4.0], 0.01),
        ([1.0, 2.0, 4.0], 1e-8),
        ([0.0, -1e-3, 5.0, 5.5], 1.3),
        ([1e6, 0.0, 3.0], 0.7),
        ([0.0, 1e-5], 0.5),
        ([0.0, 3.0, 3.0], 0.8),
        ([0.0, 3.0, -math.inf, 1.0], 0.6),
        ([0.0, 1e308], 0.3),
        ([-1e308, 1e308], 0.3),
    ],
)
def test_temperature_to_the_last_digits(row, target):
    got = hm.temperature_for_entropy(row, target)
    true = true_temperature([row], target, got)
    assert reference.ulps(got, true, "float64") <= 16


def test_mean_of_rows_and_each_row():
    x = normal(20, 9, size=3.0)
    got = hm.temperature_for_entropy(x, 1.1)
    assert reference.ulps(got, true_temperature(x, 1.1, got), "float64") <= 16
    aims = np.linspace(0.05, 2.1, 20)
    each = hm.temperature_for_entropy(x, aims, per_row=True)
    np.testing.assert_allclose(hm.entropy(x, temperature=each[:, None]), aims, rtol=4e-15)
    np.testing.assert_array_equal(hm.temperature_for_entropy(x.T, aims, axis=0, per_row=True), each)
    assert hm.temperature_for_entropy(x[3], aims[3]) == pytest.approx(each[3], rel=4e-15)


def test_limits_are_temperatures():
    assert hm.temperature_for_entropy([1.0, 2.0, 3.0], math.log(3)) == math.inf
    assert hm.temperature_for_entropy([1.0, 2.0, 3.0], 0.0) == 0.0
    assert hm.temperature_for_entropy([3.0, 3.0, 1.0], math.log(2)) == 0.0
    got = hm.temperature_for_entropy([0.0, -1.0], 1e-200)
    assert hm.entropy([0.0, -1.0], temperature=got) == pytest.approx(1e-200, rel=1e-12)


def test_masks_and_rows_of_nothing():
    x = normal(4, 6)
    where = np.ones((4, 6), bool)
    where[:, 4:] = False
    x[:, 4:] = np.nan
    want = hm.temperature_for_entropy(x[:, :4], 1.0)
    assert hm.temperature_for_entropy(x, 1.0, where=where) == want
    where[2] = False
    each = hm.temperature_for_entropy(x, 1.0, where=where, per_row=True)
    assert np.isnan(each).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("logits", "target", "options", "error", "words"),
    [
        ([1.0, 2.0], 0.7, {}, ValueError, "target must lie between 0.0 .* 0.693.* got 0.7"),
        ([2.0, 2.0, 1.0], 0.5, {}, ValueError, "target must lie between 0.693"),
        ([1.0, 2.0], -0.1, {}, ValueError, "target must lie between"),
        ([1.0, math.nan], 0.1, {}, ValueError, "nan"),
        ([-math.inf, -math.inf], 0.1, {}, ValueError, "something in it"),
        ([[1.0, 2.0]], [0.1], {}, ValueError, "per_row"),
        ([[1.0, 2.0]], [0.1, 0.2], {"per_row": True}, ValueError, "broadcast"),
        ([1.0, 2.0], "x", {}, TypeError, "target"),
    ],
)
def test_bad_target(logits, target, options, error, words):
    with pytest.raises(error, match=words):
        hm.temperature_for_entropy(logits, target, **options)


# --- arrays of other libraries ----------------------------------------------------------------


@on("torch", "jax")
def test_torch_and_jax(xp):
    make = xp.make
    x, where = normal(6, 5, size=3.0), np.arange(5) < 4
    temperature = np.linspace(0.5, 2.0, 6)[:, None]
    want = hm.saturation(x, temperature=temperature, where=where)
    assert str(hm.saturation(make(x), temperature=make(temperature), where=make(where))) == str(
        want
    )
    q, k, bias, sink = normal(2, 4, 8), normal(1, 5, 8, seed=1), normal(4, 5, seed=2), np.array(0.5)
    want = hm.attention_saturation(q, k, bias=bias, sink=sink)
    got = hm.attention_saturation(make(q), make(k), bias=make(bias), sink=make(sink))
    assert str(got) == str(want)
    assert hm.temperature_for_entropy(make(x), 1.1) == hm.temperature_for_entropy(x, 1.1)
    each = hm.temperature_for_entropy(make(x), make(np.full(6, 0.9)), per_row=True)
    assert isinstance(each, type(make(x)))
    np.testing.assert_array_equal(each, hm.temperature_for_entropy(x, 0.9, per_row=True))


def test_traced_values_are_refused():
    with pytest.raises(TypeError, match="x is traced"):
        jax.jit(lambda x: hm.saturation(x).entropy)(jax.numpy.ones(3))
