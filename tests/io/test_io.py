"""Files of logits: what is read, and what is said about those that are wrong."""

from __future__ import annotations

import csv
import io
import os
import struct
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

import hotmax as hm
from hotmax.io import arrays, parquet

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
Y = np.array([0, 2, 1, 1, 0, 2, 2])
NAMES = ("cat", "dog", "fox")
PROBABILITIES = np.exp(X) / np.exp(X).sum(1, keepdims=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(rows, header=None):
    out = io.StringIO()
    csv.writer(out).writerows(([header] if header else []) + rows)
    return out.getvalue()


def rows_with(labels, x=X):
    return [[*map(repr, row), label] for row, label in zip(x.tolist(), labels, strict=True)]


def save_csv(path, labels=Y, header=(*NAMES, "label")):
    path.write_text(text(rows_with(labels), header))


def table(path, **columns):
    pq.write_table(pa.table(columns), path)


def says(match, path, **options):
    """Reading raises, in one line that names the file."""
    with pytest.raises((ValueError, OSError)) as caught:
        hm.io.read(path, **options)
    message = str(caught.value)
    assert match in message, message
    assert str(path) in message or options.get("labels") in message
    assert "\n" not in message


# --- every kind of file gives the same ----------------------------------------------------------


WRITERS = {
    "a.npz": lambda path: np.savez(path, logits=X, labels=Y, classes=NAMES),
    "b.npz": lambda path: np.savez_compressed(path, logits=X, labels=Y, classes=NAMES),
    "a.csv": save_csv,
    "a.safetensors": lambda path: save_file(
        {"logits": X, "labels": Y}, path, {"classes": '["cat", "dog", "fox"]'}
    ),
    "a.parquet": lambda path: table(path, **dict(zip(NAMES, X.T, strict=True)), label=Y),
}


@pytest.mark.parametrize("name", WRITERS)
def test_logits_labels_and_names(folder, name):
    WRITERS[name](folder / name)
    found = hm.io.read(name)
    np.testing.assert_array_equal(found.logits, X)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.labels.dtype == np.int64
    assert found.classes == NAMES
    assert found.source == name
    assert str(found).startswith(f"{name}: 7 rows, 3 classes, float")
    assert "label" in found.label_source


def test_npy_and_its_labels(folder):
    np.save("x.npy", X)
    assert hm.io.read("x.npy").labels is None
    np.save("y.npy", Y)
    np.savez("y.npz", labels=Y)
    (folder / "y.txt").write_text("\n".join(map(str, Y)) + "\n")
    (folder / "y.csv").write_text("label\r\n" + "\r\n".join(map(str, Y)))
    for name in ("y.npy", "y.npz", "y.txt", "y.csv", folder / "y.txt"):
        np.testing.assert_array_equal(hm.io.read("x.npy", labels=name).labels, Y)
    (folder / "names.txt").write_text("\n".join(NAMES[y] for y in Y))
    found = hm.io.read("x.npy", labels="names.txt", classes=NAMES)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.label_source == "names.txt"


def test_a_name_in_the_file_comes_before_a_file_of_that_name(folder):
    np.savez("a.npz", logits=X, truth=Y)
    (folder / "truth").write_text("\n".join("0" * 7))
    np.testing.assert_array_equal(hm.io.read("a.npz", labels="truth").labels, Y)
    says("labels are read from .npy", "a.npz", labels=str(folder / "truth"))


def test_parquet_lists(folder):
    table("a.parquet", id=list("abcdefg"), logits=X.tolist(), target=[NAMES[y] for y in Y])
    found = hm.io.read("a.parquet", classes=NAMES)
    np.testing.assert_array_equal(found.logits, X)
    np.testing.assert_array_equal(found.labels, Y)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 3)
    table("b.parquet", scores=fixed)
    found = hm.io.read("b.parquet")
    assert found.logits.dtype == np.float32
    np.testing.assert_array_equal(found.logits, X)


def test_parquet_in_several_batches(folder, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH", 6)
    table("a.parquet", logits=X.tolist(), label=Y)
    table("b.parquet", **dict(zip(NAMES, X.T, strict=True)), label=[NAMES[y] for y in Y])
    for name in ("a.parquet", "b.parquet"):
        found = hm.io.read(name)
        np.testing.assert_array_equal(found.logits, X)
        np.testing.assert_array_equal(found.labels, Y)
    table("c.parquet", logits=[*X.tolist(), [1.0]])
    says("row 7 of column 'logits' has 1 logits, and those before it 3", "c.parquet")


@pytest.mark.parametrize("kind", ["float16", "float64", "int8", "uint32", "bool", ">f4"])
def test_types_come_as_they_are(folder, kind):
    x = (X > 0).astype(kind)
    np.savez("a.npz", logits=x)
    found = hm.io.read("a.npz")
    assert found.logits.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found.logits, x)


@pytest.mark.torch
def test_bfloat16_of_safetensors(folder):
    import torch
    from safetensors.torch import save_file as save_tensors

    tensor = torch.from_numpy(X).to(torch.bfloat16)
    save_tensors({"logits": tensor}, "a.safetensors")
    np.testing.assert_array_equal(hm.io.read("a.safetensors").logits, tensor.float().numpy())


def test_arrays_in_fortran_order(folder):
    np.save("a.npy", np.asfortranarray(X))
    np.savez("a.npz", logits=np.asfortranarray(X))
    for name in ("a.npy", "a.npz"):
        np.testing.assert_array_equal(hm.io.read(name).logits, X)


def is_mapped(array):
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = array.base if isinstance(array, np.ndarray) else None
    return False


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_are_mapped(folder, monkeypatch, order):
    monkeypatch.setattr(arrays, "MAPPED", 64)
    x = np.asarray(X, order=order)
    np.save("a.npy", x)
    np.savez("a.npz", first=Y, logits=x, labels=Y)
    np.savez_compressed("b.npz", logits=x, labels=Y)
    save_file({"logits": X, "labels": Y}, "a.safetensors")
    for name in ("a.npy", "a.npz", "a.safetensors", "b.npz"):
        found = hm.io.read(name)
        np.testing.assert_array_equal(found.logits, X)
        assert is_mapped(found.logits) == (name != "b.npz"), name
        assert type(found.logits) is np.ndarray


# --- which column is the label -----------------------------------------------------------------


def read_text(folder, content, **options):
    (folder / "a.csv").write_text(content)
    return hm.io.read("a.csv", **options)


@pytest.mark.parametrize("name", ["label", "Labels", "y", "TARGET"])
def test_the_label_goes_by_its_name(folder, name):
    found = read_text(folder, f"{name},cat,dog\n1,0.5,2\n0,1.5,0\n")
    assert found.labels.tolist() == [1, 0]
    assert found.classes == ("cat", "dog")
    assert found.label_source == f"column {name!r}"


def test_the_label_is_the_last_column_if_it_is_text(folder):
    found = read_text(folder, "cat,dog,animal\n0.5,2,dog\n1.5,0,cat\n")
    assert found.labels.tolist() == [1, 0]
    found = read_text(folder, "0.5,2,dog\n1.5,0,cat\n", classes=["cat", "dog"])
    assert found.labels.tolist() == [1, 0]
    assert found.label_source == "the last column"


def test_without_a_header_the_last_column_is_the_label_if_it_can_be(folder):
    assert read_text(folder, "0.5,2,1\n1.5,0,0\n").labels.tolist() == [1, 0]
    for content in ("0.5,2,1\n1.5,0,2\n", "0.5,2,1\n1.5,0,0.5\n", "5,2,1\n1,0,0\n"):
        found = read_text(folder, content)
        assert found.labels is None
        assert found.logits.shape == (2, 3)
    assert read_text(folder, "0.5,2,1\n1.5,0,0\n", labels="none").labels is None
    assert read_text(folder, "5,2,1\n1,0,0\n", labels="last").labels.tolist() == [1, 0]


def test_with_a_header_numbers_are_logits(folder):
    found = read_text(folder, "cat,dog,fox\n0.5,2,1\n1.5,0,0\n")
    assert found.labels is None
    assert found.classes == NAMES
    found = read_text(folder, "cat,dog,fox\n0.5,2,1\n1.5,0,0\n", labels="last")
    assert found.labels.tolist() == [1, 0]
    found = read_text(folder, "cat,dog,kind\n0.5,2,1\n1.5,0,0\n", labels="kind")
    assert found.labels.tolist() == [1, 0]


def test_columns_by_what_their_names_begin_with(folder):
    content = "id,score_cat,score_dog,label\nx1,0.5,2,dog\nx2,1.5,0,cat\n"
    found = read_text(folder, content, logits="score_")
    assert found.classes == ("cat", "dog")
    assert found.labels.tolist() == [1, 0]
    table("a.parquet", id=["x", "y"], score_cat=[0.5, 1.5], score_dog=[2, 0], label=[1, 0])
    np.testing.assert_array_equal(hm.io.read("a.parquet", logits="score_").logits, found.logits)


def test_other_separators_quotes_and_a_byte_order_mark(folder):
    for content in (
        "\ufeffcat;dog;label\r\n0.5;2;dog\r\n",
        "cat\tdog\tlabel\n0.5\t2\tdog\n",
        '"cat","dog","label"\n"0.5",2,"dog"\n\n',
    ):
        (folder / "a.csv").write_text(content, encoding="utf-8", newline="")
        found = hm.io.read("a.csv")
        assert found.classes == ("cat", "dog")
        assert found.labels.tolist() == [1]
        assert found.logits.tolist() == [[0.5, 2.0]]
    (folder / "a.tsv").write_text("0.5\t1\n")
    assert hm.io.read("a.tsv").logits.tolist() == [[0.5, 1.0]]


def test_names_that_are_numbers(folder):
    found = read_text(folder, "0,1,2,label\n0.5,2,1,2\n1.5,0,0,0\n")
    assert found.classes == ("0", "1", "2")
    assert found.labels.tolist() == [2, 0]
    found = read_text(folder, "10,20,label\n0.5,2,20\n1.5,0,10\n")
    assert found.labels.tolist() == [1, 0]
    np.savez("a.npz", logits=X, labels=Y + 1, classes=["1", "2", "3"])
    np.testing.assert_array_equal(hm.io.read("a.npz").labels, Y)


def test_labels_that_go_on_as_text(folder):
    found = read_text(folder, "1,two,label\n0.5,2,1\n1.5,0,two\n")
    assert found.labels.tolist() == [0, 1]


def test_labels_as_whole_floats_or_a_column(folder):
    np.savez("a.npz", logits=X, labels=Y.astype(float)[:, None])
    np.testing.assert_array_equal(hm.io.read("a.npz").labels, Y)
    np.savez("a.npz", logits=X, labels=np.array([NAMES[y].encode() for y in Y]), classes=NAMES)
    np.testing.assert_array_equal(hm.io.read("a.npz").labels, Y)


# --- probabilities ------------------------------------------------------------------------------


def test_probabilities_come_as_their_logarithms(folder):
    np.savez("a.npz", logits=PROBABILITIES, labels=Y)
    says('say input="probabilities" (--input probabilities)', "a.npz")
    found = hm.io.read("a.npz", input="probabilities")
    np.testing.assert_allclose(found.logits, np.log(PROBABILITIES), rtol=1e-6)
    np.savez("b.npz", probabilities=[[1.0, 0.0]], labels=[0])
    says("it has 'probabilities' and 'labels': say input=\"probabilities\"", "b.npz")
    assert hm.io.read("b.npz", input="probabilities").logits.tolist() == [[0.0, -np.inf]]
    np.savez("c.npz", probabilities=X)
    says("row 0 holds", "c.npz", input="probabilities")
    with pytest.raises(ValueError, match="input must be"):
        hm.io.read("a.npz", input="scores")


def test_half_precision_and_integer_probabilities(folder):
    np.savez("a.npz", logits=PROBABILITIES.astype(np.float16))
    found = hm.io.read("a.npz", input="probabilities")
    assert found.logits.dtype == np.float32
    np.testing.assert_allclose(found.logits, np.log(PROBABILITIES), atol=2e-3)
    np.savez("a.npz", logits=np.eye(3, dtype=int))
    assert hm.io.read("a.npz", input="probabilities").logits[0].tolist() == [0, -np.inf, -np.inf]


# --- what is wrong with a file ------------------------------------------------------------------


def test_files_that_are_not_there_or_cannot_be_read(folder, monkeypatch):
    says("there is no file", "a.npz")
    says("is a directory", folder)
    (folder / "a.npz").write_bytes(b"")
    says("a.npz is empty", "a.npz")
    (folder / "a.pt").write_bytes(b"PK")
    says("pickles are never read", "a.pt")
    (folder / "a.txt").write_text("1 2")
    says("the name must end in one of .npy, .npz", "a.txt")
    with pytest.raises(TypeError, match="path must be a path, got int"):
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
        ({"logits": X[0]}, "array 'logits' must have shape (rows, classes), got (3,)"),
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
    monkeypatch.setattr("hotmax.io.predictions.BLOCK", 6)
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


# --- written --------------------------------------------------------------------------------------


def test_probabilities_are_written_block_by_block(folder):
    blocks = (PROBABILITIES[i : i + 3] for i in (0, 3, 6))
    hm.io.write("p.npz", blocks, shape=(7, 3), dtype=np.float32, labels=Y, classes=NAMES)
    with np.load("p.npz") as written:
        np.testing.assert_array_equal(written["probabilities"], PROBABILITIES)
        np.testing.assert_array_equal(written["labels"], Y)
        assert tuple(written["classes"]) == NAMES
    found = hm.io.read("p.npz", input="probabilities")
    np.testing.assert_array_equal(found.labels, Y)
    assert found.classes == NAMES


def test_what_cannot_be_written_leaves_nothing(folder):
    for blocks, message in (
        ([PROBABILITIES[:5]], "7 rows together, got 5"),
        ([PROBABILITIES[:, :2]], "must have 3 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            hm.io.write("p.npz", blocks, shape=(7, 3))
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        hm.io.write("p.csv", [PROBABILITIES], shape=(7, 3))
    assert list(folder.iterdir()) == []
    hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3))
    with pytest.raises(FileExistsError):
        hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3))
    hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3), force=True)
