"""Rows of any number: the same bits for every division, few passes, errors that name the place."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from safetensors.numpy import save_file
from source_parts import cut, sample

import hotmax as hm
from hotmax.calibration import assessment, request, temperature
from hotmax.calibration.calibrated_source import calibrated_source
from hotmax.calibration.row_parts import RowParts

Z, Y = sample()


@pytest.fixture
def large(monkeypatch):
    """Let these few rows count as more than memory holds."""
    monkeypatch.setattr(temperature, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(assessment, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(temperature, "SUBSAMPLE_ENTRIES", 20_000)
    monkeypatch.setattr(request, "MOST_SCORED", 1000)
    monkeypatch.setattr(assessment, "MOST_SCORED", 1000)


@pytest.fixture
def passes(monkeypatch):
    """The passes over all rows."""
    seen = []
    run = RowParts.run

    def counted(self, job, tell=None):
        if self.rows >= 6000:  # and not the sample that the curve of a fit is drawn from
            seen.append(type(job).__name__)
        return run(self, job, tell)

    monkeypatch.setattr(RowParts, "run", counted)
    return seen


def same(one, two):
    """Are two results equal to the last bit?"""
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, n), getattr(two, n)) for n in one.__dataclass_fields__)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray | float):
        return np.array_equal(one, two, equal_nan=True)
    return one == two


# --- bits --------------------------------------------------------------------------------------


def test_a_fit_in_one_pass_is_the_exact_one(large, passes):
    fit = temperature.fit_rows(temperature.row_parts(Z, Y))
    assert passes == ["MomentsAt"]
    exact = temperature.fit_examples(temperature.row_parts(Z, Y).whole)
    assert fit.temperature == pytest.approx(exact.temperature, rel=1e-12)
    assert fit.nll == pytest.approx(exact.nll, rel=1e-13)
    assert fit.nll_before == exact.nll_before
    assert fit.interval == pytest.approx(exact.interval, rel=1e-4)
    assert (fit.iterations, fit.converged) == (1, True)


def test_a_poor_guess_takes_another_pass(large, passes):
    """Sorted rows: a subsample of ranges is still from everywhere, but few of its rows are."""
    order = np.argsort(Z.max(1) - Z[np.arange(len(Z)), Y], kind="stable")
    z, y = Z[order], Y[order]
    fit = hm.calibration.fit_temperature(hm.io.source(z, y))
    exact = temperature.fit_examples(temperature.row_parts(z, y).whole)
    assert fit.temperature == pytest.approx(exact.temperature, rel=1e-12)
    assert len(passes) <= 3


def nearly_separable(rng):
    """All labels but three are those of the largest logit: most subsamples are separable."""
    z = (rng.normal(size=(20_000, 4)) * 4).astype(np.float32)
    y = z.argmax(1)
    rows = rng.choice(len(z), 3, replace=False)
    y[rows] = np.argsort(z[rows], axis=1)[:, -2]
    return z, y, None


def hardly_any_information(rng):
    z = rng.normal(size=(20_000, 4)) * 0.05
    return z, (z + rng.gumbel(size=z.shape)).argmax(1), None


def extreme_logits(rng):
    z = rng.normal(size=(20_000, 4)) * 4
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    z[rng.random(len(z)) < 0.01] *= 1e4
    return z, y, None


def weights_of_many_sizes(rng):
    z, y, _ = hardly_any_information(rng)
    return 50 * z, y, rng.exponential(size=len(z)) * 10.0 ** rng.integers(-8, 8, len(z))


@pytest.mark.parametrize(
    "case", [nearly_separable, hardly_any_information, extreme_logits, weights_of_many_sizes]
)
def test_hard_fits_take_three_passes_and_are_exact(large, passes, rng, case):
    """The truth is a root in extended precision, by Newton's iteration from the fit."""
    z, y, weights = case(rng)
    fit = hm.calibration.fit_temperature(hm.io.source(z, y), sample_weight=weights)
    assert len(passes) <= 3
    assert fit.converged
    w = np.ones(len(z)) if weights is None else weights.astype(np.longdouble)
    gaps = z.astype(np.longdouble)
    gaps = gaps - gaps[np.arange(len(z)), y][:, None]
    inverse = 1 / np.longdouble(fit.temperature)
    for _ in range(6):
        e = np.exp((gaps - gaps.max(1, keepdims=True)) * inverse)
        p = e / e.sum(1, keepdims=True)
        mean = (p * gaps).sum(1)
        curvature = (p * gaps**2).sum(1) - mean**2
        inverse -= (w * mean).sum() / (w * curvature).sum()
    assert fit.temperature == pytest.approx(float(1 / inverse), rel=1e-12)
    exact = temperature.fit_examples(
        temperature.row_parts(z, y, sample_weight=weights, any_weight=True).whole
    )
    assert fit.interval == pytest.approx(exact.interval, rel=1e-3)


@pytest.mark.parametrize("labels", ["separable", "reversed", "no information"])
def test_limits_are_those_of_an_array_in_memory(large, passes, labels):
    z = Z[:3000] if labels != "no information" else np.zeros_like(Z[:3000])
    y = z.argmin(1) if labels == "reversed" else z.argmax(1)
    z, y = np.tile(z, (3, 1)), np.tile(y, 3)
    fit = hm.calibration.fit_temperature(hm.io.source(z, y))
    exact = temperature.fit_examples(temperature.row_parts(z, y).whole)
    assert len(passes) <= 3
    assert (fit.temperature, fit.diagnosis) == (exact.temperature, exact.diagnosis)
    assert fit.interval == pytest.approx(exact.interval, rel=1e-9)


def test_bits_do_not_depend_on_divisions_threads_or_order(large):
    c = hm.calibration
    want = c.fit_temperature(Z, Y), c.evaluate(Z, Y), c.nll(Z, Y), c.reliability(Z, Y)
    before = hm.get_threads()
    try:
        for seed, threads in ((1, 1), (2, 2), (3, 4)):
            hm.set_threads(threads)
            source = cut(Z, Y, seed, pieces=1 + 5 * seed)
            got = c.fit_temperature(source), c.evaluate(source), c.nll(source)
            assert same((*got, c.reliability(source)), want)
    finally:
        hm.set_threads(before)


def test_a_report_does_not_depend_on_divisions_and_takes_three_passes_at_most(large, passes):
    z, y = Z[:6000], Y[:6000]
    want = hm.report(z, y)
    assert 2 <= len(passes) <= 3
    passes.clear()
    got = hm.report(cut(z, y, 4))
    assert 2 <= len(passes) <= 3
    assert got.to_json() == want.to_json()


def test_states_of_an_evaluation_merge_in_any_order(rng):
    weights = rng.exponential(size=len(Z)) * 10.0 ** rng.integers(-9, 9, len(Z))
    results = []
    for trial in range(4):
        edges = np.sort(rng.integers(0, len(Z), 2 * trial))
        states = []
        for index in np.split(rng.permutation(len(Z)), edges):
            if index.size:
                state = hm.calibration.EvaluationState()
                states.append(state.update(Z[index], Y[index], sample_weight=weights[index]))
        rng.shuffle(states)
        total = hm.calibration.EvaluationState()
        for state in states:
            total.merge(state)
        results.append(total.result())
    assert all(same(one, results[0]) for one in results)
    want = np.average(-hm.log_softmax(Z.astype(float))[np.arange(len(Z)), Y], weights=weights)
    assert results[0].nll == pytest.approx(want, rel=1e-13)


def test_metrics_of_many_rows_are_near_those_of_each_row(large, monkeypatch):
    c = hm.calibration
    Z, Y = sample(6000)
    cells = {name: getattr(c, name)(Z, Y) for name in ("nll", "brier", "accuracy", "ece")}
    fine = {name: getattr(c, name)(Z, Y) for name in ("smooth_ece", "ks", "aurc")}
    interval = c.ece(Z, Y, interval=True).interval, c.nll(Z, Y, interval=True).interval
    monkeypatch.setattr(request, "MOST_SCORED", 10**9)
    for name, value in cells.items():
        assert value == pytest.approx(getattr(c, name)(Z, Y), rel=1e-14)
    for name, value in fine.items():
        assert value == pytest.approx(getattr(c, name)(Z, Y), rel=2e-3)
    assert interval[0] == pytest.approx(c.ece(Z, Y, interval=True).interval, abs=5e-3)
    assert interval[1] == pytest.approx(c.nll(Z, Y, interval=True).interval, abs=5e-3)


def test_reservoirs_are_the_same_rows(rng):
    """Calibrators and sets from an array and from parts; the result says how many rows."""
    c = hm.calibration
    source = cut(Z, Y, 7)
    vectors = [c.Calibrator("vector", max_rows=1000).fit(*data) for data in ((Z, Y), (source,))]
    assert [one.fitted_rows_ for one in vectors] == [1000, 1000]
    p, q = (one.predict_proba(Z[:50]) for one in vectors)
    np.testing.assert_array_equal(p, q)
    one, two = (c.conformal.fit(*data, max_rows=1000) for data in ((Z, Y), (source,)))
    assert one == two
    assert (one.rows, one.all_rows) == (1000, len(Z))
    assert "1000 of 21000 rows" in str(one)
    assert one.evaluate(source).coverage == one.evaluate(Z, Y).coverage
    chosen = [c.select(*data, max_rows=800) for data in ((Z, Y), (source,))]
    assert chosen[0].candidates == chosen[1].candidates
    assert chosen[0].rows == 800
    assert c.Calibrator("identity").fit(Z, Y).fitted_rows_ == 20_000


# --- where rows come from ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The same rows in every kind of place."""
    folder = tmp_path_factory.mktemp("places")
    z, y = Z[:5000], Y[:5000]
    np.savez(folder / "a.npz", logits=z, labels=y)
    np.savez_compressed(folder / "c.npz", logits=z, labels=y)
    np.save(folder / "x.npy", z)
    np.save(folder / "y.npy", y)
    save_file({"logits": z, "labels": y}, folder / "s.safetensors")
    frame = pd.DataFrame(z, columns=[f"c{k}" for k in range(z.shape[1])]).assign(label=y)
    frame.astype(dict.fromkeys(frame.columns[:-1], float)).to_csv(folder / "t.csv", index=False)
    shards = folder / "shards"
    shards.mkdir()
    for number, part in enumerate(np.array_split(np.arange(5000), 3)):
        table = pa.Table.from_pandas(frame.iloc[part], preserve_index=False)
        pq.write_table(table, shards / f"{number}.parquet", row_group_size=777)
    group = zarr.open_group(str(folder / "z.zarr"), mode="w")
    group.create_array("logits", data=z, chunks=(777, z.shape[1]))
    group.create_array("labels", data=y, chunks=(777,))
    lists = pa.FixedSizeListArray.from_arrays(z.ravel(), z.shape[1])
    pq.write_table(pa.table({"logits": lists, "labels": y}), folder / "l.parquet")
    lazy = dd.from_pandas(frame, npartitions=3)
    return {
        "npz": (folder / "a.npz",),
        "compressed npz": (folder / "c.npz",),
        "npy": (folder / "x.npy", str(folder / "y.npy")),
        "safetensors": (folder / "s.safetensors",),
        "csv": (folder / "t.csv",),
        "directory": (shards,),
        "pattern": (str(shards / "*.parquet"),),
        "address": (f"file://{shards}/*.parquet",),
        "list": (sorted(shards.iterdir()),),
        "lists in parquet": (folder / "l.parquet",),
        "zarr": (folder / "z.zarr",),
        "arrays": (z, y),
        "dask array": (da.from_array(z, chunks=(1111, 2)), y),
        "dask frame": (lazy, "label"),
        "dask frame of unknown lengths": (lazy[lazy["label"] >= 0], "label"),
    }  # fmt: skip


def test_every_place_gives_the_same_bits(places):
    z, y = Z[:5000], Y[:5000]
    want = hm.calibration.evaluate(z, y), hm.calibration.fit_temperature(z, y)
    for name, arguments in places.items():
        source = hm.io.source(*arguments)
        assert (source.rows, source.classes, source.has_labels) == (5000, 4, True), name
        got = hm.calibration.evaluate(source), hm.calibration.fit_temperature(source)
        assert same(got, want), name
    assert sum(len(x) for x, _ in source.blocks()) == 5000


def test_read_brings_shards_together(places):
    for name in ("directory", "pattern", "list", "zarr", "address"):
        found = hm.io.read(*places[name])
        np.testing.assert_array_equal(found.logits, Z[:5000])
        np.testing.assert_array_equal(found.labels, Y[:5000])


def test_shards_that_disagree_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", logits=Z[:50], labels=Y[:50])
    cases = {
        "classes": {"logits": Z[:50, :3], "labels": Y[:50] % 3},
        "dtype": {"logits": Z[:50].astype(np.float64), "labels": Y[:50]},
        "labels": {"logits": Z[:50]},
        "names of classes": {"logits": Z[:50], "labels": Y[:50], "classes": list("abcd")},
        "names of labels array 'labels' and array 'y'": {"logits": Z[:50], "y": Y[:50]},
    }
    for what, arrays in cases.items():
        np.savez(tmp_path / "b.npz", **arrays)
        with pytest.raises(ValueError, match=rf"a\.npz and .*b\.npz do not belong.*: {what}"):
            hm.io.source([tmp_path / "a.npz", tmp_path / "b.npz"])
    save_file({"logits": Z[:50], "y": Y[:50]}, tmp_path / "c.safetensors")  # another kind of file
    assert hm.io.source([tmp_path / "a.npz", tmp_path / "c.safetensors"]).rows == 100


def test_what_is_wrong_names_the_file_and_its_row(tmp_path):
    z = Z[:300].copy()
    z[250, 2] = np.nan
    np.savez(tmp_path / "a.npz", logits=Z[:300], labels=Y[:300])
    np.savez(tmp_path / "b.npz", logits=z, labels=Y[:300])
    source = hm.io.source(tmp_path)
    for function in (hm.calibration.fit_temperature, hm.calibration.evaluate, hm.report):
        with pytest.raises(ValueError, match=r"b\.npz: row 250 holds nan"):
            function(source)
    labels = Y[:300].copy()
    labels[7] = 9
    np.savez(tmp_path / "b.npz", logits=Z[:300], labels=labels)
    with pytest.raises(ValueError, match=r"b\.npz: label 9 at row 7 is out of range"):
        hm.calibration.nll(hm.io.source(tmp_path))
    p = hm.softmax(Z[:300])
    np.savez(tmp_path / "p.npz", logits=p, labels=Y[:300])
    with pytest.raises(ValueError, match=r"p\.npz holds probabilities, not logits"):
        hm.io.source(tmp_path / "p.npz")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        hm.io.source(tmp_path / "nothing-*.npz")
    with pytest.raises(ValueError, match="has no labels"):
        hm.calibration.nll(hm.io.source(Z[:300]))
    with pytest.raises(TypeError, match="targets must be left out"):
        hm.calibration.nll(hm.io.source(Z[:300], Y[:300]), Y[:300])


# --- Dask --------------------------------------------------------------------------------------


def test_dask_arrays_and_schedulers(large):
    want = hm.calibration.fit_temperature(Z, Y)
    lazy = da.from_array(Z, chunks=(9999, 3)), da.from_array(Y, chunks=5000)
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            assert hm.calibration.fit_temperature(*lazy) == want
    weights = np.linspace(0.5, 2.0, len(Z))
    weighted = hm.calibration.fit_temperature(*lazy, sample_weight=da.from_array(weights, 7000))
    assert weighted == hm.calibration.fit_temperature(Z, Y, sample_weight=weights)
    wrong = Y.copy()
    wrong[12_345] = 4
    with pytest.raises(ValueError, match=r"block 1, .*got 4 in row 2346"):
        hm.calibration.fit_temperature(lazy[0], wrong)


def test_a_report_on_lengths_that_are_not_known():
    """A frame of Dask never tells its length; an array may not."""
    z, y = Z[:600], Y[:600]
    frame = pd.DataFrame(z, columns=list("abcd")).assign(label=y)
    lazy = dd.from_pandas(frame, npartitions=3)
    lazy = lazy[lazy["label"] >= 0]
    x, labels = lazy[list("abcd")], lazy["label"]
    want = hm.report(z, y, class_names=list("abcd")).to_json()
    for given in ((x, labels), (x.to_dask_array(), labels.to_dask_array())):
        assert hm.report(*given, class_names=list("abcd")).to_json() == want


@pytest.mark.parametrize("method", ["temperature", "histogram"])
def test_sources_through_a_calibrator(method):
    """As the probabilities of an array: from parts, from a Dask array, from probabilities."""
    z, y = Z[:3000], Y[:3000]
    fitted = hm.calibration.Calibrator(method).fit(z, y)
    p = np.maximum(fitted.predict_proba(z), 1e-300)
    p = p / p.sum(1, keepdims=True)
    want = hm.calibration.evaluate(p, y, input="probabilities")
    lazy = da.from_array(z, chunks=(777, 3)), da.from_array(y, chunks=1000)
    for source in (cut(z, y, 5), hm.io.source(*lazy)):
        through = calibrated_source(source, fitted, 1e-300)
        assert same(hm.calibration.evaluate(through), want)
    softmax = hm.io.source(hm.softmax(z.astype(float)), y, input="probabilities")
    again = hm.calibration.evaluate(calibrated_source(softmax, fitted, 1e-300))
    assert again.nll == pytest.approx(want.nll, rel=1e-9)
    with pytest.raises(ValueError, match="has 3 classes, and the calibrator was fitted to 4"):
        hm.report(hm.io.source(z[:, :3], y % 3), calibrator=fitted)
    wrong = z.copy()
    wrong[1234] = np.nan
    with pytest.raises(ValueError, match=r"part \d+, rows \d+ to \d+: .*nan"):
        hm.calibration.evaluate(calibrated_source(cut(wrong, y, 5), fitted))


def test_predict_proba_stays_lazy():
    scaling = hm.calibration.TemperatureScaling().fit(Z, Y)
    lazy = scaling.predict_proba(da.from_array(Z, chunks=(9999, 3)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), scaling.predict_proba(Z))
    z = Z.copy()
    z[20_000] = np.nan
    broken = scaling.predict_proba(da.from_array(z, chunks=(9999, 4)))
    with pytest.raises(ValueError, match="block 2: logits: row 2 holds nan"):
        broken.compute()
