"""Labels beside files and lazy arrays: as long as the logits, without masks, looked up once."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import hotmax as hm

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 1, 0, 1, 1])
NAMES = ["1", "2", "3"]


def labels_in(source):
    return np.concatenate([labels for _, labels in source.blocks()]).tolist()


@pytest.fixture
def files(tmp_path):
    for i in (0, 1):
        np.save(tmp_path / f"{i}.npy", X[3 * i : 3 * i + 3])
    return [tmp_path / "0.npy", tmp_path / "1.npy"]


@pytest.mark.parametrize("count", [4, 9])
def test_labels_of_another_length_are_refused(tmp_path, count):
    labels = np.zeros(count, int)
    np.savez(tmp_path / "a.npz", logits=X, labels=labels)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("logits", data=X)
    group.create_array("labels", data=labels)
    for name in ("a.npz", "a.zarr"):
        for read in (hm.io.read, hm.io.source):
            with pytest.raises(ValueError, match=rf"{name}: {count} labels for 6 rows of logits"):
                read([tmp_path / name])


@pytest.mark.parametrize("kind", ["array", "text", "label file", "label text"])
def test_shards_with_integer_names_have_one_meaning(files, tmp_path, kind):
    given = Y + 1
    if kind == "label file":
        np.save(tmp_path / "y.npy", given)
        labels, wrong = tmp_path / "y.npy", tmp_path / "z.npy"
        np.save(wrong, np.array([1, 2, 1, 0, 1, 1]))
    elif kind == "label text":
        labels, wrong = tmp_path / "y.txt", tmp_path / "z.txt"
        labels.write_text("\n".join(map(str, given)))
        wrong.write_text("1\n2\n1\n0\n1\n1")
    else:
        change = str if kind == "text" else int
        labels = np.array([change(label) for label in given])
        wrong = np.array([change(label) for label in (1, 2, 1, 0, 1, 1)])
    np.save(tmp_path / "all.npy", X)
    for paths in (files, tmp_path / "all.npy"):
        found = hm.io.read(paths, labels=labels, class_names=NAMES)
        assert found.labels.tolist() == Y.tolist()
        with pytest.raises(ValueError, match=r"label '?0'? .* none of the classes"):
            hm.io.read(paths, labels=wrong, class_names=NAMES)


@pytest.mark.parametrize("text", [False, True])
def test_row_groups_do_not_change_the_meaning(tmp_path, text):
    cells = [str(label + 1) if text else int(label + 1) for label in Y]
    table = pa.table({**{n: X[:, i] for i, n in enumerate(NAMES)}, "label": pa.array(cells)})
    for size in (1, 2, 6):
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=size)
        assert hm.io.read(tmp_path / "a.parquet").labels.tolist() == Y.tolist()
        assert labels_in(hm.io.source(tmp_path / "a.parquet")) == Y.tolist()


def test_masked_labels_are_refused_everywhere(files, tmp_path):
    masked = np.ma.array(Y, mask=Y == 0)
    store = zarr.open_array(tmp_path / "z.zarr", mode="w", shape=X.shape, dtype="f8")
    store[:] = X
    lazy = da.from_array(X, chunks=(2, 3))
    for call in (
        lambda: hm.io.read(files, labels=masked),
        lambda: hm.io.read(files[0], labels=masked[:3]),
        lambda: hm.io.source(files, masked),
        lambda: hm.io.source(store, masked),
        lambda: hm.io.source(lazy, masked),
        lambda: hm.calibration.nll(lazy, masked),
        lambda: hm.calibration.nll(lazy, da.from_array(masked, chunks=2)),
    ):
        with pytest.raises(ValueError, match=r"(labels|targets) must have no masked entries"):
            call()


def test_a_zarr_takes_text_and_integer_names(tmp_path):
    store = zarr.open_array(tmp_path / "z.zarr", mode="w", shape=X.shape, dtype="f8")
    store[:] = X
    source = hm.io.source(store, np.array(["b", "a", "c"])[Y], class_names=["b", "a", "c"])
    assert labels_in(source) == Y.tolist()
    assert labels_in(hm.io.source(store, Y + 1, class_names=NAMES)) == Y.tolist()


def test_labels_beside_a_file_may_be_a_list(files):
    assert hm.io.read(files, labels=Y.tolist()).labels.tolist() == Y.tolist()
    categories = pd.Series(np.array(["x", "y"])[Y], dtype="category")
    found = hm.io.read(files, labels=categories, class_names=["x", "y", "z"])
    assert found.labels.tolist() == Y.tolist()
    assert hm.io.read(files[0], labels=Y[:3]).labels.tolist() == Y[:3].tolist()
    with pytest.raises(
        TypeError, match="labels must be the name of an array or column, a file, or"
    ):
        hm.io.read(files, labels=3)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_lazy_frame_names_its_classes(partitions):
    frame = pd.DataFrame(X, columns=NAMES).assign(label=Y + 1)
    source = hm.io.source(dd.from_pandas(frame, npartitions=partitions), "label")
    assert source.class_names == tuple(NAMES)
    assert hm.calibration.nll(source) == pytest.approx(hm.calibration.nll(X, Y), rel=1e-14)
    lazy = dd.from_pandas(frame.assign(id=7), npartitions=partitions)
    with pytest.raises(ValueError, match="column 'id' would be a class, and is no logit"):
        hm.io.source(lazy, "label")
