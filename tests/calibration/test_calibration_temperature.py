"""fit_temperature: the exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
import reference_calibration as reference
from temperature_cases import sample

import hotmax as hm
from hotmax.calibration import fit_temperature


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
    "underconfident": lambda: sample(60, 6, 5, temperature=0.3, scale=0.5),
    "nearly uniform": lambda: sample(400, 4, 6, scale=0.3, temperature=1.0),
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
    monkeypatch.setattr("hotmax.calibration.temperature.SUBSAMPLE_ENTRIES", 1)
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
    with pytest.raises(ValueError, match="probabilities must be at least 0"):
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
