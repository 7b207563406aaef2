"""Where files lie: addresses that fsspec reads, zarr arrays and groups, labels beside them."""

from __future__ import annotations

import io
import sys

import fsspec
import numpy as np
import pytest
import zarr

import hotmax as hm

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(900, 4)).astype(np.float32) * 4
Y = RNG.integers(0, 4, 900)
HALVES = slice(0, 400), slice(400, 900)


def archive(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def rows_of(*arguments, **options):
    """All logits and labels, in order, through `source` and through `read`."""
    blocks = list(hm.io.source(*arguments, **options).blocks())
    x, y = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
    path, *labels = arguments
    if not labels or isinstance(labels[0], str):
        found = hm.io.read(path, labels=labels[0] if labels else None, **options)
        np.testing.assert_array_equal(found.logits, x)
        np.testing.assert_array_equal(found.labels, y)
    return x, y


def assert_rows(found):
    np.testing.assert_array_equal(found[0], Z)
    np.testing.assert_array_equal(found[1], Y)


@pytest.fixture
def memory():
    """A file system of fsspec in this process."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    for name, rows in zip("ab", HALVES, strict=True):
        system.pipe(f"/s/{name}.npz", archive(logits=Z[rows], labels=Y[rows]))
    system.pipe("/x.npy", saved(Z))
    system.pipe("/y.npy", saved(Y))
    yield system
    system.store.clear()


# --- addresses ---------------------------------------------------------------------------------


def test_addresses_are_read_by_fsspec(memory):
    assert_rows(rows_of("memory://s/*.npz"))
    assert_rows(rows_of("memory://s"))
    assert_rows(rows_of(["memory://s/a.npz", "memory://s/b.npz"]))
    assert_rows(rows_of("memory://x.npy", "memory://y.npy"))


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("memory://no.npz", FileNotFoundError, r"there is no file memory://no\.npz"),
        ("memory://no*.npz", FileNotFoundError, r"no file matches memory://no\*\.npz"),
        ("nowhere://a.npz", ValueError, r"nowhere://a\.npz cannot be read: .*nowhere"),
        ("memory://bad.npz", ValueError, r"memory://bad\.npz is not an \.npz file"),
        ("memory://bad.parquet", ValueError, r"memory://bad\.parquet"),
        ("memory://bad.txt", ValueError, r"memory://bad\.txt: the name must end in"),
        ("memory://d", ValueError, r"memory:///d/a\.npz and memory:///d/b\.npz do not belong.*3"),
        ("memory://nan", ValueError, r"memory:///nan/a\.npz.*row 7"),
    ],
)
def test_what_is_wrong_with_an_address_names_it(memory, name, error, message):
    for kind in ("npz", "parquet", "txt"):
        memory.pipe(f"/bad.{kind}", b"PK nothing of the kind")
    memory.pipe("/d/a.npz", archive(logits=Z, labels=Y))
    memory.pipe("/d/b.npz", archive(logits=Z[:, :3], labels=Y % 3))
    z = Z.copy()
    z[7] = np.nan
    memory.pipe("/nan/a.npz", archive(logits=z, labels=Y))
    with pytest.raises(error, match=message) as caught:
        hm.calibration.nll(hm.io.source(name))
    assert "hotmax-" not in str(caught.value)  # nor the copy
    assert "\n" not in str(caught.value)


def test_one_line_says_what_to_install(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"memory://x\.npy is read by fsspec: pip install fsspec"):
        hm.io.read("memory://x.npy")
    monkeypatch.undo()
    fsspec.register_implementation(
        "hotmaxtest", "no_such_module.System", errtxt="Install no_such_module for this"
    )
    with pytest.raises(ImportError, match=r"hotmaxtest://a\.npy .*: Install no_such_module"):
        hm.io.source("hotmaxtest://a.npy")


def test_errors_of_a_service_are_one_line(memory, monkeypatch):
    def refuse(self, *arguments, **options):
        raise RuntimeError("no credentials\nand many lines more")

    monkeypatch.setattr(type(memory), "get_file", refuse)
    message = r"^memory://x\.npy cannot be read: RuntimeError: no credentials$"
    with pytest.raises(OSError, match=message):
        hm.io.source("memory://x.npy")


# --- zarr --------------------------------------------------------------------------------------


def make_group(path, rows=slice(None), **more):
    group = zarr.open_group(path, mode="w")
    arrays = {"logits": Z[rows], "labels": Y[rows], **more}
    for name, data in arrays.items():
        group.create_array(name, data=data, chunks=(77, *data.shape[1:]))
    return group


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_array_and_its_labels(tmp_path, version):
    path = str(tmp_path / "x.zarr")
    array = zarr.create_array(path, data=Z, chunks=(100, 3), zarr_format=version)
    labels = zarr.create_array(str(tmp_path / "y.zarr"), data=Y, chunks=(64,))
    np.save(tmp_path / "y.npy", Y)
    for y in (Y, labels, str(tmp_path / "y.npy")):
        assert_rows(rows_of(path, y))
    for y in (Y, labels):
        assert_rows(rows_of(array, y))
    assert not hm.io.source(path).has_labels
    with pytest.raises(ValueError, match=r"x\.zarr is one array, without labels: .*'truth'"):
        hm.io.source(path, "truth")
    with pytest.raises(ValueError, match="899 labels for 900 rows"):
        hm.io.source(path, Y[1:])


def test_a_zarr_group_and_lists_of_them(tmp_path, memory):
    group = make_group(str(tmp_path / "g.zarr"), truth=(Y + 1) % 4, other=Z * 2)
    for data in (str(tmp_path / "g.zarr"), group):
        assert_rows(rows_of(data))
        x, y = rows_of(data, "truth", logits="other")
        np.testing.assert_array_equal(x, Z * 2)
        np.testing.assert_array_equal(y, (Y + 1) % 4)
        assert not hm.io.source(data, "none").has_labels
        for options in ({"labels": "no"}, {"logits": "no"}):
            with pytest.raises(ValueError, match="has no array 'no', only 'labels', 'logits'"):
                hm.io.source(data, **options)
    parts = [str(tmp_path / f"{name}.part.zarr") for name in "ab"]
    for path, rows in zip(parts, HALVES, strict=True):
        make_group(path, rows)
    assert_rows(rows_of(parts))
    assert_rows(rows_of(str(tmp_path / "*.part.zarr")))
    make_group("memory://g.zarr")
    assert_rows(rows_of("memory://g.zarr"))
    make_group(parts[1], logits=Z.astype(float))
    with pytest.raises(ValueError, match=r"a\.part\.zarr and .*b\.part\.zarr .*: dtype"):
        hm.io.source(parts)


def test_what_is_wrong_with_a_zarr_names_it(tmp_path, monkeypatch):
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(ValueError, match=r"empty\.zarr holds no array or group of zarr"):
        hm.io.source(tmp_path / "empty.zarr")
    with pytest.raises(FileNotFoundError, match=r"there is no directory .*no\.zarr"):
        hm.io.source(tmp_path / "no.zarr")
    path = tmp_path / "g.zarr"
    make_group(str(path))
    damaged = next(file for file in (path / "logits").rglob("*") if file.name == "0")
    file = damaged if damaged.is_file() else next(damaged.rglob("0"))
    file.write_bytes(b"nothing that zstd knows")
    with pytest.raises(ValueError, match=r"g\.zarr cannot be read"):
        list(hm.io.source(path, input="probabilities", logits="logits").blocks())
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r"g\.zarr needs zarr: pip install zarr"):
        hm.io.source(path)
