"""What is said about files that are wrong."""

from __future__ import annotations

import os
import struct
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from prediction_files import X, says, table
from safetensors.numpy import save_file

import hotmax as hm
from hotmax.io import arrays

Y = np.array([0, 2, 1, 1, 0, 2, 2])
NAMES = ("cat", "dog", "fox")


def test_files_that_are_not_there_or_cannot_be_read(folder, monkeypatch):
    says("there is no file", "a.npz")
    says("is a directory without files", folder)
    (folder / "a.npz").write_bytes(b"")
    says("a.npz is empty", "a.npz")
    (folder / "a.pt").write_bytes(b"PK")
    says("pickles are never read", "a.pt")
    (folder / "a.txt").write_text("1 2")
    says("the name must end in one of .npy, .npz", "a.txt")
    with pytest.raises(TypeError, match="path must be a path, or a list of paths, got int"):
        hm.io.read(3)

    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    np.savez("a.npz", logits=X)
    monkeypatch.setattr("pathlib.Path.open", denied)
    says("a.npz may not be read: permission denied", "a.npz")


def test_missing_arrays(folder):
    np.savez("a.npz", scores=X, truth=Y)
    says("a.npz has no array 'logits'; it has 'scores' and 'truth': say which by", "a.npz")
    says("no array 'truth2' for the labels", "a.npz", logits="scores", labels="truth2")
    found = hm.io.read("a.npz", logits="scores", labels="truth")
    np.testing.assert_array_equal(found.labels, Y)
    assert hm.io.read("a.npz", logits="scores").labels is None
    np.savez("b.npz")
    says("it has none at all", "b.npz")
    np.save("a.npy", X)
    says("has one array", "a.npy", logits="scores")
    says("there is no file y.npy", "a.npy", labels="y.npy")


def test_objects_are_refused(folder):
    objects = np.array([["a", None]], object)
    np.save("a.npy", objects, allow_pickle=True)
    says("holds Python objects, which only pickle could read", "a.npy")
    np.savez("a.npz", logits=X, labels=np.array(["a"] * 7, object))
    says("array 'labels' holds Python objects", "a.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": X[None]}, "array 'logits' must have shape (rows, classes), or (rows,) for"),
        ({"logits": X[0, 0]}, "for one logit of two classes, got ()"),
        ({"logits": X[:0]}, "has no rows"),
        ({"logits": X[:, :0]}, "has no classes"),
        ({"logits": X.astype(complex)}, "got complex128"),
        ({"logits": X.astype(str)}, "must hold float16"),
        ({"logits": X, "labels": Y[:5]}, "5 labels for 7 rows"),
        ({"logits": X, "labels": np.stack([Y, Y])}, "labels must be one for each row"),
        ({"logits": X, "labels": Y + 1}, "label 3 at row 1 is out of range: 3 classes are 0 to 2"),
        ({"logits": X, "labels": Y - 1}, "label -1 at row 0 is out of range"),
        ({"logits": X, "labels": Y + 0.5}, "label 0.5 at row 0 is not a whole number"),
        ({"logits": X, "labels": Y.astype(complex)}, "labels must be integers or text"),
        ({"logits": X, "labels": [NAMES[y] for y in Y]}, "the classes have no names"),
        (
            {"logits": X, "labels": ["cat"] * 6 + ["owl"], "classes": NAMES},
            "'owl' at row 6 is none",
        ),
        ({"logits": X, "classes": NAMES[:2]}, "2 names of classes for 3 classes"),
        ({"logits": X, "classes": ["a", "b", "a"]}, "two classes have the name 'a'"),
        ({"logits": X, "classes": X}, "array 'classes' must hold one name"),
    ],
)
def test_arrays_that_do_not_fit(folder, arrays, message):
    np.savez("a.npz", **arrays)
    says(message, "a.npz")


@pytest.mark.parametrize("row", [0, 3, 6])
def test_nan_is_told_with_its_row(folder, row):
    x = X.copy()
    x[row, 1] = np.nan
    np.savez("a.npz", logits=x)
    says(f"array 'logits' holds nan at row {row}", "a.npz")
    np.savez("a.npz", logits=np.where(np.isnan(x), -np.inf, x))
    assert hm.io.read("a.npz").logits[row, 1] == -np.inf


def test_the_first_nan_of_many_blocks(folder, monkeypatch):
    monkeypatch.setattr("hotmax.io.one_file.BLOCK", 6)
    x = X.copy()
    x[3, 1] = x[6, 0] = np.nan
    np.savez("a.npz", logits=x)
    says("nan at row 3", "a.npz")


def test_damaged_npz(folder):
    np.savez("a.npz", logits=X, labels=Y)
    whole = (folder / "a.npz").read_bytes()
    for damaged in (whole[:100], whole[:-10], b"hello", b"PK\x03\x04" + bytes(100)):
        (folder / "b.npz").write_bytes(damaged)
        says("is not an .npz file, or is damaged", "b.npz")
    flipped = bytearray(whole)
    flipped[whole.index(X.tobytes())] ^= 1
    (folder / "b.npz").write_bytes(flipped)
    says("Bad CRC-32", "b.npz")
    (folder / "b.npy").write_bytes(whole)
    says("is an .npz file inside", "b.npy")


def test_damaged_members(folder, monkeypatch):
    np.save("x.npy", X)
    member = (folder / "x.npy").read_bytes()
    for content, message in (
        (member[:-4], "is cut off"),
        (b"junk", "is not an .npy array"),
        (b"\x93NUMPY\x09\x00" + member[8:], "is not an .npy array that can be read"),
    ):
        for limit in (1 << 27, 1):
            monkeypatch.setattr(arrays, "MAPPED", limit)
            with zipfile.ZipFile("a.npz", "w") as archive:
                archive.writestr("logits.npy", content)
            says(message, "a.npz")
    (folder / "a.npy").write_bytes(member[:-4])
    says("a.npy is cut off: 80 of 84 bytes are there", "a.npy")
    (folder / "a.npy").write_bytes(member[:9])
    says("is not an .npy array", "a.npy")


def test_a_member_that_is_not_where_the_directory_says(folder, monkeypatch):
    monkeypatch.setattr(arrays, "MAPPED", 1)
    np.savez("a.npz", logits=X)
    content = bytearray((folder / "a.npz").read_bytes())
    content[0:2] = b"XX"
    (folder / "a.npz").write_bytes(content)
    says("is not where the directory says", "a.npz")


def test_damaged_safetensors(folder):
    save_file({"logits": X, "labels": Y}, "a.safetensors")
    whole = (folder / "a.safetensors").read_bytes()
    for content, message in (
        (whole[:-4], "is cut off"),
        (whole[:20], "is not a .safetensors file"),
        (b"12345678{}", "is not a .safetensors file"),
        (struct.pack("<Q", 4) + b"oops", "its header is damaged"),
        (struct.pack("<Q", 2) + b"{}", "has no tensor 'logits'"),
        (struct.pack("<Q", 13) + b'{"logits": 3}', "its entry in the header is damaged"),
        (whole.replace(b'"F32"', b'"F77"'), "holds F77"),
        (whole.replace(b"[7,3]", b"[9,3]"), "is cut off, or its entry"),
    ):
        (folder / "b.safetensors").write_bytes(content)
        says(message, "b.safetensors")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cat,dog,label\n1,2,0\n\n1,2\n", "line 4 has 2 columns, and the first has 3"),
        ("cat,dog,label\n1,2,0\n1,2,0,9\n", "line 3 has 4 columns, and the first has 3"),
        ("cat,dog\n1,2\n1,2,3\n", "line 3 has 3 columns"),
        ('cat,dog\n"1",2\n1,"2",3\n', "line 3 has 3 columns"),
        ("cat,dog,label\n1,x,0\n", "column 'dog' holds text, and is not the label"),
        ("cat,dog,label\n1,2,0\n1,x,1\n", "line 3, column 'dog': 'x' is not a number"),
        ("1,2\n3,x\n", "line 2, column 2: 'x' is not a number"),
        ("cat,dog,label\n1,2,0\n,2,1\n", "line 3, column 'cat': nothing is there"),
        ("cat,dog,label\n1,2,0\n1,nan,1\n", "the table holds nan at line 3"),
        ("cat,dog,label\n\n1,2,0\n1,2,7\n", "label 7 at line 4 is out of range"),
        ("cat,dog,label\n1,2,cat\n1,2,owl\n", "label 'owl' at line 3 is none of the classes"),
        ("cat,dog,label\n1,2,0.5\n", "label 0.5 at line 2 is not a whole number"),
        ("1.5,2,owl\n1,2,cat\n", "label 'owl' at line 1 is text, and the classes have no names"),
        ("cat,dog\n", "has a header and no rows"),
        ("cat,dog,bat\n1,2\n", "the header has 3 columns, and the first row 2"),
        ("\n\n", "has no rows"),
        ("cat,cat\n1,2\n", "two columns have the name 'cat'"),
        (",cat\n0,2\n", "column 1 has no name"),
        ("label\n0\n", "has no column of logits"),
        ("id,cat,label\nx1,2,0\n", "column 'id' holds text, and is not the label"),
        ("cat\nabc\n", "has only one column, and it is the label"),
    ],
)
def test_tables_that_are_wrong(folder, content, message):
    (folder / "a.csv").write_text(content)
    says(message, "a.csv")


def test_tables_asked_for_what_they_do_not_have(folder):
    (folder / "a.csv").write_text("cat,dog,label\n1,2,0\n")
    says("has no column 'kind' for the labels", "a.csv", labels="kind")
    says("has no columns 'score'..., only 'cat', 'dog' and 'label'", "a.csv", logits="score")
    (folder / "a.csv").write_text("1,2,0\n")
    says("has no header, so no column 'kind'", "a.csv", labels="kind")
    says("has no header: its columns cannot be chosen by name", "a.csv", logits="kind")
    (folder / "a.csv").write_text("1\n")
    says("has only one column", "a.csv", labels="last")
    (folder / "a.csv").write_bytes(b"cat,dog\n1,\xff\n")
    says("is not UTF-8 text", "a.csv")
    (folder / "a.csv").write_bytes(b"1,2\n" * 40000 + b"1,\xff\n")
    says("a.csv", "a.csv")
    (folder / "y.txt").write_bytes(b"\xff")
    np.save("x.npy", X)
    says("is not UTF-8 text", "x.npy", labels="y.txt")
    (folder / "y.txt").write_text("0\n2\n1\n1\n0\n2\n3\n")
    says("y.txt: label 3 at line 7 is out of range", "x.npy", labels="y.txt")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"logits": [[1.0, 2.0], [3.0]]}, "row 1 of column 'logits' has 1 logits"),
        ({"logits": [[1.0, 2.0], [3.0, None]]}, "nothing is there in column 'logits', row 1"),
        ({"logits": [[1.0, 2.0], None]}, "nothing is there in column 'logits', row 1"),
        ({"cat": [1.0, None], "dog": [1.0, 2.0]}, "nothing is there in column 'cat', row 1"),
        ({"cat": [1.0, 2.0], "dog": [1, 2], "y": [1, None]}, "in column 'y', row 1"),
        ({"cat": [1.0, 2.0], "dog": [1, 2], "y": [1, 5]}, "label 5 at row 1 is out of range"),
        ({"id": ["a", "b"], "cat": [1.0, 2.0], "y": [0, 0]}, "column 'id' holds text"),
        ({"a": [[1.0]], "b": [[1.0]]}, "has the lists 'a' and 'b': say which"),
        ({"cat": pa.array([], pa.float64())}, "has no rows"),
        ({"logits": [[1.0, 2.0]], "y": [0.5]}, "label 0.5 at row 0 is not a whole number"),
    ],
)
def test_parquet_that_is_wrong(folder, columns, message):
    table("a.parquet", **columns)
    says(message, "a.parquet")


def test_parquet_damaged_or_without_pyarrow(folder, monkeypatch):
    (folder / "a.parquet").write_bytes(b"PAR1 and no more")
    says("is not a Parquet file, or is damaged", "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "hotmax\[files\]"'):
        hm.io.read("a.parquet")


def test_nothing_of_pickle_is_run(folder):
    """A file that would run code on unpickling does not."""

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(folder / "sprung"),)

    np.save("a.npy", np.array([[Trap()]], object), allow_pickle=True)
    np.savez("a.npz", logits=np.array([[Trap()]], object))
    for name in ("a.npy", "a.npz"):
        says("only pickle could read", name)
    assert not (folder / "sprung").exists()
    np.load("a.npy", allow_pickle=True)  # the trap works
    assert (folder / "sprung").exists()


@pytest.mark.parametrize("labels", ["y", "last", "labels.parquet"])
def test_labels_that_an_npy_cannot_have_are_not_dropped(tmp_path, labels):
    """A misspelt file of labels: before, the logits came back without any."""
    path = tmp_path / "x.npy"
    np.save(path, np.eye(3) * 5)
    with pytest.raises(ValueError, match=f"x.npy: an .npy file has one array, and no '{labels}'"):
        hm.io.read(path, labels=labels)
    assert hm.io.read(path, labels="none").labels is None
