"""Conformal sets: their definition, and their coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_calibration as reference

from hotmax.calibration import conformal

METHODS = ["lac", "aps", "raps"]


def sample(rows, classes=6, seed=0, temperature=2.0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 3
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


def score(p, k, method, penalty, free):
    """By the definitions, for one class of one row without ties."""
    if method == "lac":
        return 1 - p[k]
    likelier = [v for v in p if v >= p[k]]
    extra = penalty * max(len(likelier) - free, 0) if method == "raps" else 0.0
    return sum(likelier) + extra


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_the_definition(method, coverage):
    z, labels = sample(99)
    fitted = conformal.fit(z, labels, coverage=coverage, method=method, penalty=0.1, free=2)
    p = reference.softmax(z)
    scores = sorted(score(p[i], labels[i], method, 0.1, 2) for i in range(99))
    assert fitted.threshold == pytest.approx(
        scores[math.ceil(100 * coverage - 1e-9) - 1], rel=1e-12
    )
    new, _ = sample(40, seed=1)
    q = reference.softmax(new)
    want = [[score(row, k, method, 0.1, 2) <= fitted.threshold for k in range(6)] for row in q]
    np.testing.assert_array_equal(fitted.sets(new), want)


@pytest.mark.parametrize("method", METHODS)
def test_coverage(method):
    """Over many calibration sets the mean coverage lies in 0.9 to 0.9 + 1 / (n + 1)."""
    held = []
    for seed in range(150):
        z, labels = sample(600, seed=seed)
        fitted = conformal.fit(z[:100], labels[:100], method=method)
        held.append(fitted.evaluate(z[100:], labels[100:]).coverage)
    error = np.std(held) / math.sqrt(len(held))
    assert 0.9 - 3 * error <= np.mean(held) <= 0.9 + 1 / 101 + 3 * error


def test_too_few_rows_take_every_class():
    z, labels = sample(5)
    fitted = conformal.fit(z, labels, coverage=0.9)
    assert fitted.threshold == math.inf
    assert fitted.sets(z).all()


def test_absent_classes_are_in_no_set():
    z, labels = sample(50)
    fitted = conformal.fit(z[:5], labels[:5], coverage=0.9)
    there = np.ones(z.shape, bool)
    there[:, 2] = False
    np.testing.assert_array_equal(fitted.sets(z, where=there), there)
    gone = np.where(there, z, -np.inf)
    np.testing.assert_array_equal(fitted.sets(gone), there)


def test_temperature_probabilities_and_ignored_rows():
    z, labels = sample(80)
    fitted = conformal.fit(z, labels, method="aps", temperature=2.0)
    p = reference.softmax(z, 2.0)
    other = conformal.fit(p, labels, method="aps", input="probabilities")
    assert other.threshold == pytest.approx(fitted.threshold, rel=1e-12)
    marked = np.where(np.arange(80) < 60, labels, -1)
    padded = np.where(marked[:, None] < 0, np.nan, z)
    assert conformal.fit(padded, marked, ignore_index=-1) == conformal.fit(z[:60], labels[:60])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("coverage", [0.3, np.float32(0.9), 0.97])
def test_repeats_are_weights(method, coverage):
    z, labels = sample(60)
    times = np.random.default_rng(2).integers(0, 4, 60)
    repeated = np.repeat(z, times, axis=0), np.repeat(labels, times)
    weighted = conformal.fit(z, labels, coverage=coverage, method=method, sample_weight=times)
    plain = conformal.fit(*repeated, coverage=coverage, method=method)
    assert weighted.threshold == plain.threshold
    assert weighted.rows == (times > 0).sum()


def test_of_equal_classes_the_first_is_likelier():
    z, labels = np.zeros((99, 4)), np.arange(99) % 2
    fitted = conformal.fit(z, labels, coverage=0.9, method="aps")
    assert fitted.threshold == pytest.approx(0.5)
    assert fitted.sets(z[:1]).tolist() == [[True, True, False, False]]


def test_evaluation():
    z, labels = sample(300)
    fitted = conformal.fit(z[:100], labels[:100])
    result = fitted.evaluate(z[100:], labels[100:])
    inside = fitted.sets(z[100:])
    assert result.coverage == inside[np.arange(200), labels[100:]].mean()
    assert result.mean_size == inside.sum(1).mean()
    assert result.sizes.sum() == 200
    assert "promised" in str(result)
    assert "lac" in str(fitted)
    assert result._repr_html_()
    assert fitted._repr_html_()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"coverage": 1.0}, ValueError, "coverage"),
        ({"coverage": "a"}, TypeError, "coverage"),
        ({"method": "lace"}, ValueError, "method"),
        ({"penalty": -1.0}, ValueError, "penalty"),
        ({"penalty": "a"}, TypeError, "penalty"),
        ({"free": "a"}, TypeError, "free"),
        ({"free": -3}, ValueError, "free"),
    ],
)
def test_bad_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        conformal.fit(*sample(20), **options)


def test_bad_rows_are_named():
    z, labels = sample(20)
    fitted = conformal.fit(z, labels)
    z[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3"):
        conformal.fit(z, labels)
    with pytest.raises(ValueError, match="row 3"):
        fitted.sets(z)
    with pytest.raises(ValueError, match="6 classes"):
        fitted.sets(z[:, :4])
    with pytest.raises(ValueError, match="labels must be integers"):
        conformal.fit(sample(20)[0], np.full((20, 6), 1 / 6))


def test_a_picture_of_the_sizes():
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 4)) * 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    found = conformal.fit(logits[:150], labels[:150]).evaluate(logits[150:], labels[150:])
    ax = found.plot()
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, found.sizes[: len(heights)] / 150)
    assert sum(heights) == pytest.approx(1.0)
    plt.close(ax.figure)
