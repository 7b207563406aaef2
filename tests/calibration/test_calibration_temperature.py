"""fit_temperature: the exact optimum, its intervals, and the cases without one."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import reference_calibration as reference

import hotmax as hm
from hotmax.calibration import fit_temperature
from hotmax.calibration.temperature import QUANTILE


def sample(rows, classes, seed=0, scale=3.0, heat=2.0, kind=np.float64):
    """Logits, and labels drawn at temperature `heat`."""
    rng = np.random.default_rng(seed)
    z = (rng.standard_normal((rows, classes)) * scale).astype(kind)
    labels = (z / heat + rng.gumbel(size=z.shape)).argmax(1)
    return z, labels


def masked(seed=0):
    z, labels = sample(60, 10, seed)
    gone = np.random.default_rng(seed).random(z.shape) < 0.4
    gone[np.arange(60), labels] = False
    return np.where(gone, -np.inf, z), labels


def few_seen():
    z, labels = sample(80, 10, 3)
    return z, labels % 3


CASES = {
    "plain": lambda: sample(50, 10),
    "20 rows": lambda: sample(20, 5, 1),
    "two classes": lambda: sample(60, 2, 2),
    "times 100": lambda: (sample(50, 10)[0] * 100, sample(50, 10)[1]),
    "times 0.01": lambda: (sample(50, 10)[0] * 0.01, sample(50, 10)[1]),
    "times 1e-200": lambda: (sample(50, 10)[0] * 1e-200, sample(50, 10)[1]),
    "times 1e200": lambda: (sample(50, 10)[0] * 1e200, sample(50, 10)[1]),
    "far offset": lambda: (sample(50, 10)[0] + 1000.0, sample(50, 10)[1]),
    "masks": masked,
    "three of ten classes seen": few_seen,
    "long rows": lambda: sample(20, 90, 4),
    "underconfident": lambda: sample(60, 6, 5, heat=0.3, scale=0.5),
    "nearly uniform": lambda: sample(400, 4, 6, scale=0.3, heat=1.0),
}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_the_exact_optimum(name, kind):
    z, labels = CASES[name]()
    if kind == np.float32 and "200" in name:
        z = z * (1e190 if "-" in name else 1e-190)
    z = z.astype(kind)
    fit = fit_temperature(z, labels)
    true = reference.temperature(z, labels)
    assert fit.diagnosis is None
    assert fit.converged
    assert fit.temperature == pytest.approx(true, rel=1e-11)
    assert abs(fit.gradient) < 1e-12
    assert fit.interval[0] < fit.temperature < fit.interval[1]
    p = reference.softmax(z.astype(float) / true)
    nll = -np.log(p[np.arange(len(z)), labels]).mean()
    assert fit.nll == pytest.approx(nll, rel=1e-12)


def test_the_subsample_does_not_show(monkeypatch):
    """A fit that starts from some rows ends where one that starts from all of them does."""
    z, labels = sample(30_000, 10, 8, kind=np.float32)
    whole = fit_temperature(z, labels)
    monkeypatch.setattr("hotmax.calibration.temperature.SAMPLE", 1)
    monkeypatch.setattr("hotmax.calibration.temperature.LEAST_ROWS", 500)
    assert fit_temperature(z, labels).temperature == pytest.approx(whole.temperature, rel=1e-12)
    # the sample misleads: its rows, every 60th, are right, and the others are not
    labels[::60] = z[::60].argmax(1)
    monkeypatch.setattr("hotmax.calibration.temperature.LEAST_ROWS", 500)
    misled = fit_temperature(z, labels).temperature
    monkeypatch.undo()
    assert misled == pytest.approx(fit_temperature(z, labels).temperature, rel=1e-12)


def test_soft_labels():
    z, labels = sample(40, 6)
    hard = fit_temperature(z, labels)
    assert fit_temperature(z, np.eye(6)[labels]).temperature == pytest.approx(
        hard.temperature, rel=1e-13
    )
    soft = 0.8 * np.eye(6)[labels] + 0.2 / 6
    true = reference.temperature(z, soft)
    assert fit_temperature(z, soft).temperature == pytest.approx(true, rel=1e-11)


def test_weights_count_rows():
    z, labels = sample(40, 5)
    times = np.random.default_rng(1).integers(0, 4, 40)
    repeated = fit_temperature(np.repeat(z, times, axis=0), np.repeat(labels, times))
    weighted = fit_temperature(z, labels, sample_weight=times)
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=1e-12)
    assert weighted.interval == pytest.approx(repeated.interval, rel=1e-9)
    assert weighted.rows == repeated.rows == times.sum()


def test_ignored_rows_may_hold_anything():
    z, labels = sample(40, 5)
    want = fit_temperature(z[:30], labels[:30])
    z[30:] = np.nan
    labels[30:] = -100
    got = fit_temperature(z, labels, ignore_index=-100)
    assert got.temperature == want.temperature
    assert got.rows == 30


def test_where_is_minus_infinity():
    z, labels = masked()
    there = z > -np.inf
    filled = np.where(there, z, np.nan)
    assert fit_temperature(filled, labels, where=there) == fit_temperature(z, labels)


def test_probabilities():
    z, labels = sample(60, 7)
    p = reference.softmax(z)
    assert fit_temperature(p, labels, input="probabilities").temperature == pytest.approx(
        fit_temperature(z, labels).temperature, rel=1e-12
    )
    with pytest.raises(ValueError, match="look like probabilities"):
        fit_temperature(p, labels)
    fit_temperature(p - 1, labels)  # the way out that the message names
    with pytest.raises(ValueError, match="sums to"):
        fit_temperature(z, labels, input="probabilities")


@pytest.mark.parametrize("layout", ["fortran", "strided", "reversed", "read-only", "swapped"])
def test_layout_and_bytes_do_not_matter(layout):
    z, labels = sample(200, 10, kind=np.float32)
    want = fit_temperature(z, labels)
    if layout == "fortran":
        z = np.asfortranarray(z)
    elif layout == "strided":
        z = np.repeat(z, 2, axis=1)[:, ::2]
    elif layout == "reversed":
        z = np.ascontiguousarray(z[::-1])[::-1]
    elif layout == "read-only":
        z.flags.writeable = False
        labels.flags.writeable = False
    else:
        z = z.astype(">f4")
    before = z.copy()
    assert fit_temperature(z, labels) == want
    np.testing.assert_array_equal(z, before)


def test_threads_do_not_matter():
    z, labels = sample(60_000, 10, kind=np.float32)
    threads, results = hm.get_threads(), []
    try:
        for count in (1, 2, 3):
            hm.set_threads(count)
            results.append(fit_temperature(z, labels))
    finally:
        hm.set_threads(threads)
    assert results[0] == results[1] == results[2]


def test_half_precision_and_more_dimensions():
    z, labels = sample(240, 5)
    z = z.astype(np.float16)
    want = reference.temperature(z[:240], labels)
    got = fit_temperature(z.reshape(4, 60, 5), labels.reshape(4, 60))
    assert got.temperature == pytest.approx(want, rel=1e-11)


def test_a_memory_mapped_file(tmp_path):
    z, labels = sample(500, 8, kind=np.float32)
    np.save(tmp_path / "z.npy", z)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    assert fit_temperature(mapped, labels) == fit_temperature(z, labels)


@pytest.mark.parametrize("library", ["torch", "torch gradient", "torch bfloat16", "jax", "dask"])
def test_arrays_of_other_libraries(library):
    z, labels = sample(60, 5, kind=np.float32)
    if library.startswith("torch"):
        import torch

        given, truth = torch.from_numpy(z), torch.from_numpy(labels)
        if library.endswith("gradient"):
            given = given.requires_grad_()
        if library.endswith("bfloat16"):
            given = given.bfloat16()
            z = given.float().numpy()
    elif library == "jax":
        jax = pytest.importorskip("jax")
        given, truth = jax.numpy.asarray(z), jax.numpy.asarray(labels)
    else:
        dask = pytest.importorskip("dask.array")
        given, truth = dask.from_array(z, chunks=20), dask.from_array(labels, chunks=20)
    assert fit_temperature(given, truth) == fit_temperature(z, labels)
    assert hm.calibration.ece(given, truth) == hm.calibration.ece(z, labels)


# --- no optimum -------------------------------------------------------------------------------


def test_separable():
    z, _ = sample(50, 4)
    fit = fit_temperature(z, z.argmax(1))
    assert fit.diagnosis == "separable"
    assert fit.temperature == 0.0
    assert fit.nll == 0.0
    assert fit.interval[0] == 0.0
    assert "separable" in str(fit)
    # at the upper end the log-likelihood has fallen by 1.92
    p = reference.softmax(z / fit.interval[1])
    assert -np.log(p.max(1)).sum() == pytest.approx(QUANTILE / 2, rel=1e-8)


def test_anti_correlated():
    z, _ = sample(50, 4)
    fit = fit_temperature(z, z.argmin(1))
    assert fit.diagnosis == "anti-correlated"
    assert fit.temperature == math.inf
    assert fit.nll == pytest.approx(math.log(4), rel=1e-14)
    p = reference.softmax(z / fit.interval[0])
    loss = -np.log(p[np.arange(50), z.argmin(1)]).sum() - 50 * math.log(4)
    assert loss == pytest.approx(QUANTILE / 2, rel=1e-8)
    assert fit.interval[1] == math.inf


@pytest.mark.parametrize("repeats", [1, 1000])
def test_labels_of_no_correlation_at_all(repeats):
    """Each label once for the same row: the slope at 1 / T = 0 is 0, and rounds to either side."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        row = rng.integers(-9, 9, rng.integers(3, 9)).astype(float)
        row[0] = 10.0
        labels = np.repeat(np.arange(row.size), repeats)
        assert reference.slope_at(
            row[None], np.full((1, row.size), 1 / row.size), [1], mpmath.mpf(0)
        )[1] == pytest.approx(0.0, abs=1e-14)
        fit = fit_temperature(np.tile(row, (labels.size, 1)), labels)
        assert fit.diagnosis == "anti-correlated"
        assert fit.temperature == math.inf
        assert fit.converged
        assert 0.0 < fit.interval[0] < fit.interval[1] == math.inf


def test_a_faint_correlation_is_still_one():
    """The slope at 1 / T = 0 is 1e-6 of what it could be: far above rounding."""
    z = np.tile([1.0, 0.0], (2_000_000, 1))
    labels = np.arange(2_000_000) % 2
    labels[1] = 0
    fit = fit_temperature(z, labels)
    assert fit.diagnosis is None
    assert fit.temperature == pytest.approx(1 / math.log(1_000_001 / 999_999), rel=1e-9)


def test_no_information():
    fit = fit_temperature(np.full((9, 3), 7.0), [0, 1, 2] * 3)
    assert fit.diagnosis == "no information"
    assert fit.temperature == 1.0
    assert fit.interval == (0.0, math.inf)


def test_large_samples_have_their_diagnoses_too():
    """Through the subsample as well."""
    z, _ = sample(9000, 300, kind=np.float32)
    assert fit_temperature(z, z.argmax(1)).diagnosis == "separable"
    assert fit_temperature(z, z.argmin(1)).diagnosis == "anti-correlated"


def test_ties_at_the_limit():
    """Labels that share the maximum with another class: half the mass, however low T."""
    fit = fit_temperature([[5.0, 5.0, 0.0]] * 4, [0, 1, 0, 1])
    assert fit.diagnosis == "separable"
    assert fit.nll == pytest.approx(math.log(2), rel=1e-15)


# --- intervals --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [30, 300, 20_000])
def test_the_profile_interval(rows):
    """Its ends are where twice the log-likelihood has fallen by 3.84; also in the series."""
    z, labels = sample(rows, 5)
    fit = fit_temperature(z, labels)
    at = np.arange(rows)

    def excess(heat):
        return 2 * (-np.log(reference.softmax(z / heat)[at, labels]).sum() - fit.nll * rows)

    for end in fit.interval:
        assert excess(end) == pytest.approx(QUANTILE, rel=1e-3 if rows == 20_000 else 1e-6)
    if rows == 20_000:
        assert fit.interval == pytest.approx(fit.interval_by_information, rel=2e-3)


def test_both_intervals_hold_the_truth_in_95_percent():
    rng = np.random.default_rng(0)
    held, by_information, sets = 0, 0, 1000
    for _ in range(sets):
        z = rng.standard_normal((200, 4)) * 3
        labels = (z / 1.7 + rng.gumbel(size=z.shape)).argmax(1)
        fit = fit_temperature(z, labels)
        held += fit.interval[0] <= 1.7 <= fit.interval[1]
        low, high = fit.interval_by_information
        by_information += low <= 1.7 <= high
    assert 0.93 <= held / sets <= 0.97
    assert 0.93 <= by_information / sets <= 0.97


# --- real networks ----------------------------------------------------------------------------


def test_densenet_on_cifar_100():
    z, labels = reference.real_network("densenet-bc-100-cifar-100")
    assert fit_temperature(z, labels).temperature == pytest.approx(2.1176094921, abs=6e-11)
    before, after = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(z))
        fit, test = order[: len(z) // 2], order[len(z) // 2 :]
        heat = fit_temperature(z[fit], labels[fit]).temperature
        before.append(hm.calibration.ece(z[test], labels[test]))
        after.append(hm.calibration.ece(z[test], labels[test], temperature=heat))
    assert np.mean(before) == pytest.approx(0.140, abs=0.004)
    assert np.mean(after) == pytest.approx(0.014, abs=0.003)


# --- bad input --------------------------------------------------------------------------------

GOOD = (np.array([[1.0, 2.0, 0.5], [0.0, 3.0, 1.0]]), np.array([0, 1]))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda z, y: (z.astype(complex), y), TypeError, "logits must hold"),
        (lambda z, y: (z[0], y[0]), ValueError, "shape"),
        (lambda z, y: (z[:, :0], y), ValueError, "at least one class"),
        (lambda z, y: (z[:0], y[:0]), ValueError, "at least one row"),
        (lambda z, y: (z, y[:1]), ValueError, "labels must have shape"),
        (lambda z, y: (z, y.astype(float)), TypeError, "labels must be integers"),
        (lambda z, y: (z, y + 2), ValueError, "got 3 in row 1"),
        (lambda z, y: (z, y - 1), ValueError, "got -1 in row 0"),
        (lambda z, y: (z, np.full((2, 3), 0.9)), ValueError, "sum of 2.7 in row 0"),
        (lambda z, y: (np.where(z == 3, np.nan, z), y), ValueError, "row 1 holds nan"),
        (lambda z, y: (np.where(z == 3, np.inf, z), y), ValueError, r"row 1 holds \+inf"),
        (lambda z, y: (np.where(z == 3, -np.inf, z), y), ValueError, "row 1 has its label"),
        (lambda z, y: (np.stack([z[0], z[1] - np.inf]), y), ValueError, "row 1 holds nothing"),
    ],
)
@pytest.mark.parametrize("repeat", [1, 30])
def test_bad_input_is_named(change, error, words, repeat):
    z, labels = change(*GOOD)
    if repeat > 1 and z.ndim == 2 and z.shape[1] == 3:  # beyond short rows
        z = np.concatenate([z] + [z - 9] * repeat, axis=1)
        if labels.ndim == 2 or 3 in labels:
            return
    with pytest.raises(error, match=words):
        fit_temperature(z, labels)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sample_weight": [1.0]}, ValueError, "sample_weight must have shape"),
        ({"sample_weight": [1.0, -1.0]}, ValueError, "not negative"),
        ({"sample_weight": [0.0, 0.0]}, ValueError, "no row is left"),
        ({"ignore_index": 1.5}, TypeError, "ignore_index"),
        ({"where": [[1, 0, 1]]}, TypeError, "where must hold bools"),
        ({"where": [[True, False]]}, ValueError, "where must broadcast"),
        ({"input": "logit"}, ValueError, "input must be"),
    ],
)
def test_bad_options_are_named(options, error, words):
    with pytest.raises(error, match=words):
        fit_temperature(*GOOD, **options)


def test_all_rows_ignored():
    with pytest.raises(ValueError, match="no row is left"):
        fit_temperature(GOOD[0], [-1, -1], ignore_index=-1)


def test_one_weighted_row():
    """A single row keeps its weight."""
    assert fit_temperature([[2.0, 0.0, 1.0]], [2], sample_weight=[3.0]).rows == 3.0


@pytest.mark.parametrize("weight", [1e-8, 1e-300, 1e300])
def test_next_to_no_information(weight):
    """Weights so small that the interval is as wide as the numbers are, or beyond all measure."""
    z, labels = sample(6, 3)
    fit = fit_temperature(z, labels, sample_weight=np.full(6, weight))
    assert fit.temperature == pytest.approx(fit_temperature(z, labels).temperature, rel=1e-11)
    assert fit.interval[0] <= fit.temperature <= fit.interval[1]
    if weight < 1:
        assert fit.interval[1] == math.inf


def test_the_text_and_html():
    fit = fit_temperature(*sample(50, 4))
    assert str(fit).startswith("temperature ")
    assert "95 %" in str(fit)
    assert fit._repr_html_().startswith("<pre>")
