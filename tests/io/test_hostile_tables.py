"""Damaged and forged tables and texts; errors of memory and disk, which are no damage."""

from __future__ import annotations

import struct
import time
import zlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import X, refused, refused_in_little_memory

import hotmax as hm
from hotmax._core import reading
from hotmax.io import arrays, labels as label_files, parquet, safetensors, text_tables as tables


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b" \n", b" , ,\n"])
def test_blank_lines(folder, line):
    (folder / "a.csv").write_bytes(line * 3_000_000)
    start = time.perf_counter()
    refused("a.csv", "of the first lines are blank")
    (folder / "y.txt").write_bytes(b"0\n" + line.replace(b",", b" ") * 2_000_000 + b"1\n")
    np.save("x.npy", X)
    refused("x.npy", "blank lines", "y.txt", labels="y.txt")
    assert time.perf_counter() - start < 5


def test_blank_lines_between_rows_are_read(folder, monkeypatch):
    monkeypatch.setattr(tables, "BLANK_LINES", 3)
    (folder / "a.csv").write_text("\n\ncat,dog,label\n" + '1,"2",0\n\n' * 40)
    assert hm.io.read("a.csv").logits.shape == (40, 2)


def test_lines_and_texts_that_are_too_long(folder, monkeypatch):
    monkeypatch.setattr(tables, "LONGEST_LINE", 1000)
    monkeypatch.setattr(reading, "CHUNK", 300)
    monkeypatch.setattr(tables, "CHUNK", 300)
    (folder / "a.csv").write_text("1,2\n" * 400)
    assert hm.io.read("a.csv").logits.shape == (400, 2)
    (folder / "a.csv").write_text("1,2\n" * 400 + "1," * 600 + "\n")
    refused("a.csv", "a line is longer than 1000 bytes")
    np.save("x.npy", X)
    monkeypatch.setattr(label_files, "LONGEST_TEXT", 1000)
    (folder / "y.txt").write_text("0\n" * 501)
    refused("x.npy", "is too long: a text file .* may have 1000 bytes", "y.txt", labels="y.txt")


def test_one_long_label_does_not_widen_all(folder):
    """Before: an array of text was as wide as its longest entry: 40 kB for each label."""
    rows = ["0.5,1.5,a"] * 20_000 + ["0.5,1.5," + "b" * 100_000]
    (folder / "a.csv").write_text("\n".join(rows))
    (folder / "y.txt").write_text("\n".join(row[8:] for row in rows))
    np.save("x.npy", np.zeros((len(rows), 2)))
    pq.write_table(pa.table({"x": np.zeros(len(rows)), "y": [r[8:] for r in rows]}), "a.parquet")
    names = ["c", "d"]
    refused_in_little_memory("a.csv", "label 'a' at line 1 is none of", class_names=names)
    refused_in_little_memory("x.npy", "is none of", "y.txt", labels="y.txt", class_names=names)
    refused_in_little_memory("a.parquet", "is none of", class_names=names)
    message = refused("a.csv", "is none of", class_names=["a", "c"])
    assert len(message) < 200


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ("0\n" * 6 + "9" * 30, "is text, and the classes have no names"),
        ("0\n" * 6 + "1_0", "is text"),
        ("0\n" * 6 + "-" * 30, "is text"),
        ("0\n" * 6 + "9" * 18, "label 9{18} at line 7 is out of range"),
        ("0\n" * 6 + "1" * 5000, r"label '1{80}\.\.\.' at line 7"),
        ("0\n" * 6 + "\ud800".encode("utf-8", "surrogatepass").decode("latin1"), "line 7 is text"),
    ],
)
def test_label_files(folder, labels, match):
    """Before: StopIteration leaked for integers that int64 does not hold."""
    np.save("x.npy", X)
    (folder / "y.txt").write_text(labels)
    refused("x.npy", match, "y.txt", labels="y.txt")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.full(7, 1e300), r"label 1e\+300 at row 0 is not a whole number"),
        (np.full(7, np.inf), "label inf at row 0"),
        (np.full(7, 2**64 - 1, np.uint64), r"label 1.84467e\+19 at row 0 is out of range"),
        (np.array([b"\xff"] * 7), "'utf-8' codec can't decode"),
        (np.frombuffer(b"\xff" * 28, "<U1"), "character"),
    ],
)
def test_label_arrays(folder, labels, match):
    np.savez("a.npz", logits=X, labels=labels)
    refused("a.npz", match)
    np.save("x.npy", X)
    np.save("y.npy", labels)
    refused("x.npy", match, "y.npy", labels="y.npy")


def test_many_names_with_one_twice(folder):
    """Before: the second of a pair was looked for in all before it, for each."""
    names = [str(i) for i in range(50_000)]
    names[-1] = names[-2]
    np.savez("a.npz", logits=np.zeros((2, 50_000), np.float32), classes=names)
    start = time.perf_counter()
    refused("a.npz", "two classes have the name '49998'")
    assert time.perf_counter() - start < 3


# --- parquet --------------------------------------------------------------------------------------


def table(**columns):
    pq.write_table(pa.table(columns), "a.parquet")


def test_page_checksums_are_verified(folder):
    x = np.random.default_rng(0).normal(size=(2, 1000))
    content = {"cat": x[0], "dog": x[1]}
    for checksums in (True, False):
        pq.write_table(
            pa.table(content),
            "a.parquet",
            write_page_checksum=checksums,
            use_dictionary=False,
            compression="none",
        )
        np.testing.assert_array_equal(hm.io.read("a.parquet").logits, x.T)
        damaged = bytearray((folder / "a.parquet").read_bytes())
        damaged[damaged.index(x[0].tobytes()[:80]) + 9] ^= 1
        (folder / "a.parquet").write_bytes(damaged)
        if checksums:
            refused("a.parquet", "could not verify page integrity, CRC checksum")
        else:
            assert (hm.io.read("a.parquet").logits != x.T).sum() == 1


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([Decimal("1.5")] * 2), r"decimal128\(2, 1\)"),
        (pa.array([{"x": 1.0}] * 2), "struct<x: double>"),
        (pa.array([[[1.0]]] * 2), "list<.*list<.*>>"),
        (pa.array([0, 1], pa.timestamp("s")), r"timestamp\[ms\]"),
        (pa.array([["a"]] * 2), "list<.*string>"),
    ],
)
def test_columns_of_other_types_go_by_their_names(folder, column, kind):
    """Before: "holds text"."""
    table(cat=[0.5, 1.5], dog=column, label=[0, 1])
    refused("a.parquet", f"column 'dog' holds {kind}")
    table(cat=[0.5, 1.5], dog=column)
    refused("a.parquet", f"column 'dog' holds {kind}")
    table(cat=[0.5, 1.5], dog=[0.5, 1.5], label=column)
    refused("a.parquet", f"column 'label' holds {kind}, and labels are integers or text")


def test_a_parquet_footer_that_is_too_long(folder, monkeypatch):
    table(cat=[0.5, 1.5], dog=[1.0, 2.0])
    whole = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[:-8] + struct.pack("<I", 1 << 30) + b"PAR1")
    refused("a.parquet", "its metadata has 1073741824 bytes")
    (folder / "a.parquet").write_bytes(whole)
    monkeypatch.setattr(parquet, "LONGEST_FOOTER", 100)
    refused("a.parquet", "100 are read at most")


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowMemoryError("malloc of size 64 failed"),
        pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily"),
    ],
)
def test_memory_that_runs_out_is_not_damage(folder, monkeypatch, error):
    table(logits=X.tolist())

    def fail(*arguments):
        raise error

    monkeypatch.setattr(parquet, "fill", fail)
    with pytest.raises(MemoryError, match=r"a\.parquet: memory ran out .*(malloc of|worker)"):
        hm.io.read("a.parquet")


def test_memory_that_runs_out_in_numpy(folder, monkeypatch):
    np.save("a.npy", X)
    monkeypatch.setattr(arrays, "array_in_file", lambda *a: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(MemoryError, match=r"a\.npy: memory ran out"):
        hm.io.read("a.npy")


# --- what the operating system says, and the limits ----------------------------------------------


def test_errors_of_the_disk_keep_their_type_and_name_the_file(folder, monkeypatch):
    np.save("a.npy", X)
    failure = OSError(5, "Input/output error")
    monkeypatch.setattr(arrays, "array_in_file", lambda *a: (_ for _ in ()).throw(failure))
    with pytest.raises(OSError, match=r"Input/output error: 'a\.npy'"):
        hm.io.read("a.npy")


def test_the_guard_itself():
    for error, kind in (
        (StopIteration(), ValueError),
        (RecursionError("deep\nand more"), ValueError),
        (OSError("no number"), ValueError),
        (OSError(22, "Invalid argument"), ValueError),
        (FileNotFoundError(2, "gone", "x"), FileNotFoundError),
        (ImportError("pip install"), ImportError),
        (zlib.error("bad"), ValueError),
    ):
        with pytest.raises(kind) as caught, reading.reading("x"):
            raise error
        assert "\n" not in str(caught.value)
    with pytest.raises(KeyboardInterrupt), reading.reading("x"):
        raise KeyboardInterrupt


def test_a_file_without_an_end(folder):
    with pytest.raises(ValueError, match="/dev/zero is too long"):
        reading.bounded("/dev/zero", 1 << 22, "this")


def test_the_limits_are_those_that_the_docstring_states():
    said = hm.io.read.__doc__
    mebibyte = 1 << 20
    for text, limit in (
        ("10,000 bytes | the header of an .npy", arrays.LONGEST_NPY_HEADER),
        ("16 MiB | the directory of an .npz", arrays.LONGEST_DIRECTORY / mebibyte),
        ("1032 times its bytes | a compressed array", arrays.DEFLATE_RATIO),
        ("8 MiB | the header of a .safetensors", safetensors.LONGEST_TENSOR_HEADER / mebibyte),
        ("64 MiB | the metadata of a .parquet", parquet.LONGEST_FOOTER / mebibyte),
        ("16 MiB | a line of a .csv", tables.LONGEST_LINE / mebibyte),
        ("64 MiB | a text file of labels", label_files.LONGEST_TEXT / mebibyte),
        ("100,000 blank lines more than rows", label_files.BLANK_LINES),
    ):
        assert f"| {text}" in said
        assert float(text.split()[0].replace(",", "")) == limit


def test_blank_lines_that_end_in_carriage_returns(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_bytes(b"0\n" + b"\r" * 200_000 + b"1\n")
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"labels\.txt has more than 100000 blank lines"):
        hm.io.read(tmp_path / "a.npy", labels=path)
