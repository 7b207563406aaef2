"""Conformal sets: their definition, and their coverage by simulation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import reference_calibration as reference

from hotmax.calibration import conformal
from hotmax.calibration.examples import Examples

METHODS = ["lac", "aps", "raps"]


def sample(rows, classes=6, seed=0, temperature=2.0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes)) * 3
    return z, (z / temperature + rng.gumbel(size=z.shape)).argmax(1)


def score(p, k, method, penalty, free, share, allow_empty):
    """By the definitions, for one class of one row without ties."""
    if not allow_empty and k == max(range(len(p)), key=lambda c: p[c]):
        return 0.0
    if method == "lac":
        return 1 - p[k]
    likelier = [v for v in p if v > p[k]]
    extra = penalty * max(len(likelier) + 1 - free, 0) if method == "raps" else 0.0
    return sum(likelier) + share * p[k] + extra


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("randomize", [False, True])
@pytest.mark.parametrize("allow_empty", [False, True])
def test_the_definition(method, coverage, randomize, allow_empty):
    z, labels = sample(99)
    choices = {"randomize": randomize, "allow_empty": allow_empty, "seed": 5}
    fitted = conformal.fit(
        z, labels, coverage=coverage, method=method, penalty=0.1, free=2, **choices
    )
    shares = shares_of(z, 5) if randomize else np.zeros(99)
    p = reference.softmax(z)
    rest = method, 0.1, 2
    scores = sorted(score(p[i], labels[i], *rest, shares[i], allow_empty) for i in range(99))
    assert fitted.threshold == pytest.approx(
        scores[math.ceil(100 * coverage - 1e-9) - 1], rel=1e-12
    )
    new, _ = sample(40, seed=1)
    q = reference.softmax(new)
    shares = shares_of(new, 5) if randomize else np.zeros(40)
    want = [
        [score(row, k, *rest, u, allow_empty) <= fitted.threshold for k in range(6)]
        for row, u in zip(q, shares, strict=True)
    ]
    np.testing.assert_array_equal(fitted.sets(new), want)


def shares_of(z, seed):
    nothing = np.empty(0, np.int64), np.empty((1, 0)), np.ones(1)
    return conformal.random_shares(Examples(z, None, *nothing, False), seed)


def test_shares_are_uniform_and_belong_to_the_row():
    z, _ = sample(20_000)
    u = np.sort(shares_of(z, 0))
    assert np.abs(u - (np.arange(20_000) + 0.5) / 20_000).max() < 1.63 / math.sqrt(20_000)
    turned = shares_of(z[::-1], 0)[::-1]
    np.testing.assert_array_equal(turned, shares_of(z, 0))
    assert abs(np.corrcoef(shares_of(z, 0), shares_of(z, 1))[0, 1]) < 0.03
    near = z.copy()
    near[:, 0] = np.nextafter(near[:, 0], np.inf)
    assert abs(np.corrcoef(shares_of(z, 0), shares_of(near, 0))[0, 1]) < 0.03


@pytest.mark.parametrize("method", METHODS)
def test_a_row_has_the_same_set_in_any_batch(method):
    z, labels = sample(300)
    fitted = conformal.fit(z[:200], labels[:200], method=method)
    whole = fitted.sets(z)
    one_by_one = np.concatenate([fitted.sets(z[i : i + 1]) for i in range(300)])
    np.testing.assert_array_equal(whole, one_by_one)
    single = fitted.sets(z.astype(np.float32)), fitted.sets(z.astype(np.float32).astype(float))
    np.testing.assert_array_equal(*single)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("randomize", [False, True])
def test_no_set_is_empty_unless_asked(method, randomize):
    z, labels = sample(3000)
    options = {"method": method, "randomize": randomize, "coverage": 0.5}
    assert conformal.fit(z, labels, **options).sets(z).any(1).all()
    empty = conformal.fit(z, labels, allow_empty=True, **options).sets(z)
    assert empty.any(1).all() == (not randomize and method != "lac")


@pytest.mark.parametrize("method", METHODS)
def test_class_conditional_coverage(method):
    """Each class is covered: the mean over fits, within three standard errors."""
    held = []
    for seed in range(60):
        z, labels = sample(1500, classes=3, seed=seed)
        z[:, 0] += 1.5  # too sure of class 0: a single threshold covers it too often
        fitted = conformal.fit(z[:500], labels[:500], method=method, class_conditional=True)
        result = fitted.evaluate(z[500:], labels[500:])
        held.append([group.coverage.value for group in result.by_class])
    mean, error = np.mean(held, 0), np.std(held, 0) / math.sqrt(60)
    assert (mean >= 0.9 - 3 * error).all()
    assert fitted.class_conditional
    assert "each class" in str(fitted)


def test_groups_add_up():
    z, labels = sample(600)
    result = conformal.fit(z[:300], labels[:300], method="aps").evaluate(z[300:], labels[300:])
    inside = conformal.fit(z[:300], labels[:300], method="aps").sets(z[300:])
    y = labels[300:]
    held = inside[np.arange(300), y]
    for groups in (result.by_confidence, result.by_size, result.by_class):
        assert sum(group.rows for group in groups) == 300
        total = sum(group.rows * group.coverage.value for group in groups)
        assert total / 300 == pytest.approx(result.coverage)
    for group in result.by_class:
        assert group.coverage.value == held[y == int(group.name)].mean()
    assert result.by_size[0].coverage.value == held[inside.sum(1) == 1].mean()
    assert "confidence 99.9 to 100 %" in result.table()


@pytest.mark.parametrize("each", [False, True])
def test_files(tmp_path, each):
    z, labels = sample(60)
    fitted = conformal.fit(z, labels, method="raps", class_conditional=each, coverage=0.97)
    path = tmp_path / "sets.json"
    fitted.save(path)
    assert conformal.load(path) == fitted
    with pytest.raises(FileExistsError):
        fitted.save(path)
    good = json.loads(path.read_text())
    for name, value in [
        ("method", "lace"), ("coverage", 1.5), ("coverage", "a"), ("num_classes", 0), ("free", -1),
        ("randomize", 1), ("thresholds", [1.0]), ("thresholds", 3), ("seed", 0.5), ("version", 2),
        ("format", "x"), ("rows", True), ("threshold", None), ("more", 1), ("coverage", {}),
    ]:  # fmt: skip
        path.write_text(json.dumps({**good, name: value}))
        with pytest.raises(ValueError, match=r"sets\.json"):
            conformal.load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        conformal.load(path)


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
    fitted = conformal.fit(z, labels, method="aps", temperature=2.0, randomize=False)
    p = reference.softmax(z, 2.0)
    other = conformal.fit(p, labels, method="aps", input="probabilities", randomize=False)
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
    fitted = conformal.fit(z, labels, coverage=0.9, method="aps", randomize=False)
    assert fitted.threshold == pytest.approx(0.25)
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
