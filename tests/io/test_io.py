"""Files of logits: every kind gives the same; labels, probabilities; what is written."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
from prediction_files import X, says, table
from safetensors.numpy import save_file

import hotmax as hm
from hotmax.io import arrays, parquet

Y = np.array([0, 2, 1, 1, 0, 2, 2])
NAMES = ("cat", "dog", "fox")
PROBABILITIES = np.exp(X) / np.exp(X).sum(1, keepdims=True)


def text(rows, header=None):
    out = io.StringIO()
    csv.writer(out).writerows(([header] if header else []) + rows)
    return out.getvalue()


def rows_with(labels, x=X):
    return [[*map(repr, row), label] for row, label in zip(x.tolist(), labels, strict=True)]


def save_csv(path, labels=Y, header=(*NAMES, "label")):
    path.write_text(text(rows_with(labels), header))


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
    assert found.class_names == NAMES
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
    found = hm.io.read("x.npy", labels="names.txt", class_names=NAMES)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.label_source == "names.txt"


def test_a_name_in_the_file_comes_before_a_file_of_that_name(folder):
    np.savez("a.npz", logits=X, truth=Y)
    (folder / "truth").write_text("\n".join("0" * 7))
    np.testing.assert_array_equal(hm.io.read("a.npz", labels="truth").labels, Y)
    says("labels are read from .npy", "a.npz", labels=str(folder / "truth"))


def test_parquet_lists(folder):
    table("a.parquet", id=list("abcdefg"), logits=X.tolist(), target=[NAMES[y] for y in Y])
    found = hm.io.read("a.parquet", class_names=NAMES)
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
    assert found.class_names == ("cat", "dog")
    assert found.label_source == f"column {name!r}"


def test_the_label_is_the_last_column_if_it_is_text(folder):
    found = read_text(folder, "cat,dog,animal\n0.5,2,dog\n1.5,0,cat\n")
    assert found.labels.tolist() == [1, 0]
    found = read_text(folder, "0.5,2,dog\n1.5,0,cat\n", class_names=["cat", "dog"])
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
    assert found.class_names == NAMES
    found = read_text(folder, "cat,dog,fox\n0.5,2,1\n1.5,0,0\n", labels="last")
    assert found.labels.tolist() == [1, 0]
    found = read_text(folder, "cat,dog,kind\n0.5,2,1\n1.5,0,0\n", labels="kind")
    assert found.labels.tolist() == [1, 0]


def test_columns_by_what_their_names_begin_with(folder):
    content = "id,score_cat,score_dog,label\nx1,0.5,2,dog\nx2,1.5,0,cat\n"
    found = read_text(folder, content, logits="score_")
    assert found.class_names == ("cat", "dog")
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
        assert found.class_names == ("cat", "dog")
        assert found.labels.tolist() == [1]
        assert found.logits.tolist() == [[0.5, 2.0]]
    (folder / "a.tsv").write_text("0.5\t1\n")
    assert hm.io.read("a.tsv").logits.tolist() == [[0.5, 1.0]]


def test_names_that_are_numbers(folder):
    found = read_text(folder, "0,1,2,label\n0.5,2,1,2\n1.5,0,0,0\n")
    assert found.class_names == ("0", "1", "2")
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
    says("probabilities must be at least 0", "c.npz", input="probabilities")
    with pytest.raises(ValueError, match="input must be"):
        hm.io.read("a.npz", input="scores")


def test_half_precision_and_integer_probabilities(folder):
    np.savez("a.npz", logits=PROBABILITIES.astype(np.float16))
    found = hm.io.read("a.npz", input="probabilities")
    assert found.logits.dtype == np.float32
    np.testing.assert_allclose(found.logits, np.log(PROBABILITIES), atol=2e-3)
    np.savez("a.npz", logits=np.eye(3, dtype=int))
    assert hm.io.read("a.npz", input="probabilities").logits[0].tolist() == [0, -np.inf, -np.inf]


# --- written --------------------------------------------------------------------------------------


def test_probabilities_are_written_block_by_block(folder):
    blocks = (PROBABILITIES[i : i + 3] for i in (0, 3, 6))
    hm.io.write("p.npz", blocks, shape=(7, 3), dtype=np.float32, labels=Y, class_names=NAMES)
    with np.load("p.npz") as written:
        np.testing.assert_array_equal(written["probabilities"], PROBABILITIES)
        np.testing.assert_array_equal(written["labels"], Y)
        assert tuple(written["classes"]) == NAMES
    found = hm.io.read("p.npz", input="probabilities")
    np.testing.assert_array_equal(found.labels, Y)
    assert found.class_names == NAMES


def test_what_cannot_be_written_leaves_nothing(folder):
    for blocks, message in (
        ([PROBABILITIES[:5]], "7 rows together, got 5"),
        ([PROBABILITIES[:, :2]], "must have 3 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            hm.io.write("p.npz", blocks, shape=(7, 3))
    with pytest.raises(ValueError, match=r"must end in one of \.npz"):
        hm.io.write("p.txt", [PROBABILITIES], shape=(7, 3))
    assert list(folder.iterdir()) == []
    hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3))
    with pytest.raises(FileExistsError):
        hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3))
    hm.io.write("p.npz", [PROBABILITIES], shape=(7, 3), force=True)
