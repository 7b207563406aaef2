"""Damaged and forged .npy, .npz and .safetensors: refused by one error, before they cost memory."""

from __future__ import annotations

import json
import os
import struct
import zipfile

import numpy as np
import pytest
from hostile import X, Y, refused, refused_in_little_memory
from safetensors.numpy import save_file

import hotmax as hm
from hotmax.io import arrays

DATA = X.tobytes()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- .npy headers -------------------------------------------------------------------------------


def npy(header, data=DATA, version=1):
    text = header if isinstance(header, bytes) else header.encode("latin1")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def fields(shape="(7, 3)", kind="'<f4'", order="False"):
    return f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    "header",
    [
        fields("(-1, 4)"),
        fields("(-7, -3)"),
        fields("(7.0, 3)"),
        fields("(True, 3)"),
        fields("7, 3"),
        fields("[7, 3]"),
        fields("'73'"),
        fields("(7, 3, 0, -1)"),
        fields("(" * 4000 + ")" * 4000),
        fields("(" + "-" * 9000 + "7, 3)"),
        fields("(7, 3"),
        fields("(10**9, 3)"),
        fields("(0x7fffffffffffffff, 0x7fffffffffffffff)"),
        fields("(0, 99999999999999999999999)"),
        fields("(" + "1, " * 100 + ")"),
        fields(kind="'<f4,<f4'"),
        fields(kind="[('a', '<f4')]"),
        fields(kind="'<f999999999999'"),
        fields(kind="'<U0'"),
        fields(kind="'|V4'"),
        fields(kind="b'<f4'"),
        fields(kind="'\\d'"),
        fields(order="2"),
        fields(order="'no'"),
        "{'descr': '<f4', 'shape': (7, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (7, 3), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, {}: (7, 3)}",
        "{'descr': '<f8', 'descr': '<f4', 'fortran_order': False, 'shape': (7, 3)}",
        "[1, 2",
        "\x00",
        "",
        "'''",
        b"\xff\xfe",
    ],
)
def test_forged_npy_headers(folder, header):
    """Before: TokenError, OverflowError and RecursionError leaked, and (-1, 4) was read."""
    (folder / "a.npy").write_bytes(npy(header))
    refused("a.npy")
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("logits.npy", npy(header))
    refused("a.npz")


def test_npy_lengths(folder):
    (folder / "a.npy").write_bytes(npy(fields("(5, 3)")))
    refused("a.npy", "its header declares 60 bytes, and 84 are there")
    (folder / "a.npy").write_bytes(npy(fields(), X.tobytes()[:-1]))
    refused("a.npy", "is cut off: 83 of 84 bytes")
    (folder / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + b"{}")
    refused("a.npy", "its header has 2147483648 bytes, and may have 10000")
    (folder / "a.npy").write_bytes(npy(fields("(7L, 3L)")))
    np.testing.assert_array_equal(hm.io.read("a.npy").logits, X)
    (folder / "a.npy").write_bytes(npy(fields(), version=2))
    np.testing.assert_array_equal(hm.io.read("a.npy").logits, X)


# --- zip ------------------------------------------------------------------------------------------


def test_a_zip_bomb_behind_a_small_header(folder):
    """Before: a member of 1 GB behind a header of 192 bytes was read to its end."""
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", npy(fields("(16, 3)"), bytes(1 << 25)))
    refused_in_little_memory("a.npz", "array 'logits' is damaged: its header declares 192 bytes")


def test_a_size_that_no_compression_reaches(folder):
    with zipfile.ZipFile("a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", npy(fields("(80000000, 3)"), b""))
    content = bytearray((folder / "a.npz").read_bytes())
    directory = content.index(b"PK\x01\x02")
    for at in (22, directory + 24):  # its uncompressed size, in both of its headers
        content[at : at + 4] = struct.pack("<I", 960_000_000)
    (folder / "a.npz").write_bytes(content)
    refused_in_little_memory("a.npz", "cannot have 960000000 bytes")


def test_names_twice_in_a_zip(folder):
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("logits.npy", npy(fields()))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("logits.npy", npy(fields(), (2 * X).tobytes()))
    refused("a.npz", "two arrays have the name 'logits'")
    with zipfile.ZipFile("a.npz", "w") as archive:
        archive.writestr("logits.npy", npy(fields()))
        archive.writestr("logits", npy(fields()))
    refused("a.npz", "two arrays have the name 'logits'")


def test_damage_to_the_directory_does_not_hide_the_labels(folder):
    np.savez("a.npz", logits=X, labels=Y)
    whole = (folder / "a.npz").read_bytes()
    assert hm.io.read("a.npz").labels is not None
    directory = whole.index(b"PK\x01\x02")
    name = whole.rindex(b"labels.npy")
    for at, byte in ((name, b"x"), (name + 5, b"\0"), (name + 9, b"z")):
        (folder / "a.npz").write_bytes(whole[:at] + byte + whole[at + 1 :])
        refused("a.npz", "has another name in the directory")
    # A comment behind the first entry that swallows the second.
    second = whole.index(b"PK\x01\x02", directory + 1)
    end = whole.index(b"PK\x05\x06")
    swallowed = bytearray(whole)
    swallowed[directory + 32 : directory + 34] = struct.pack("<H", end - second)
    (folder / "a.npz").write_bytes(swallowed)
    refused("a.npz", "1 arrays are found, and 2 declared")


def test_a_directory_that_is_too_long(folder, monkeypatch):
    np.savez("a.npz", **{f"a{i}": X for i in range(50)}, logits=X)
    hm.io.read("a.npz")
    monkeypatch.setattr(arrays, "LONGEST_DIRECTORY", 1000)
    refused("a.npz", "its directory has .* bytes, and may have 1000")


def test_a_zip_with_a_comment_or_large_records_is_read(folder):
    np.savez("a.npz", logits=X, labels=Y)
    with zipfile.ZipFile("a.npz", "a") as archive:
        archive.comment = b"written by hand"
    np.testing.assert_array_equal(hm.io.read("a.npz").labels, Y)
    np.savez("b.npz", logits=X, labels=Y)
    whole = (folder / "b.npz").read_bytes()
    end = whole.index(b"PK\x05\x06")
    length, offset = struct.unpack("<LL", whole[end + 12 : end + 20])
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, length, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (folder / "b.npz").write_bytes(whole[:end] + record + locator + last)
    np.testing.assert_array_equal(hm.io.read("b.npz").labels, Y)


def test_other_compressions_are_refused(folder):
    """A block of bzip2 of 45 bytes unpacks to 45 MB, whatever is asked for."""
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile("a.npz", "w", method) as archive:
            archive.writestr("logits.npy", npy(fields()))
        refused("a.npz", "not by deflate")


# --- safetensors ----------------------------------------------------------------------------------


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(kind="F32", shape=(7, 3), offsets=(0, 84)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "header",
    [
        {"logits": {**entry(), "shape": "73"}},
        {"logits": {**entry(), "shape": [7.0, 3]}},
        {"logits": {**entry(), "shape": [7, True]}},
        {"logits": {**entry(), "shape": ["7", 3]}},
        {"logits": {**entry(), "shape": [-7, -3]}},
        {"logits": {**entry(), "shape": {"7": 1, "3": 1}}},
        {"logits": {**entry(), "data_offsets": [0.0, 84.0]}},
        {"logits": {**entry(), "data_offsets": [0, 84, 84]}},
        {"logits": {**entry(), "data_offsets": "08"}},
        {"logits": {**entry(), "data_offsets": [-4, 80]}},
        {"logits": {**entry(), "data_offsets": [84, 0]}},
        {"logits": {**entry(), "more": 1}},
        {"logits": {**entry(), "dtype": ["F32"]}},
        {"logits": entry(), "labels": entry("I32", (7,), (40, 68))},
        {"logits": entry(), "other": entry("F8", (84,), (0, 84))},
        {"logits": entry(shape=(5, 3), offsets=(0, 60))},
        {"logits": entry(shape=(5, 3), offsets=(24, 84))},
        {"logits": entry(), "__metadata__": {"classes": 3}},
        {"logits": entry(), "__metadata__": []},
        {"logits": entry(), "__metadata__": {"classes": "[{}, [], 3]"}},
        {"logits": entry(), "__metadata__": {"classes": "[" * 5000}},
        {"logits": entry(), "__metadata__": {"classes": '["a", "b", "\\ud800"]'}},
        {"logits": [entry()]},
        [entry()],
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"logits": ' + b"9" * 5000 + b"}",
        json.dumps({"logits": entry()}).encode("utf-16"),
        json.dumps({"logits": entry()})[:-1].encode()
        + b', "logits": '
        + json.dumps(entry(offsets=(0, 84))).encode()
        + b"}",
        b'{"logits": NaN}',
    ],
)
def test_forged_safetensors_headers(folder, header):
    (folder / "a.safetensors").write_bytes(safetensors(header, X.tobytes()))
    refused("a.safetensors")


def test_safetensors_that_are_right_are_read(folder):
    save_file({"logits": X, "labels": Y, "none": np.zeros((0, 3))}, "a.safetensors")
    found = hm.io.read("a.safetensors")
    np.testing.assert_array_equal(found.labels, Y)
    (folder / "a.safetensors").write_bytes((folder / "a.safetensors").read_bytes() + b"\0")
    refused("a.safetensors", "1 bytes follow the last tensor")


def test_a_long_safetensors_header_is_not_parsed(folder):
    """Before: 90 MB of JSON took 2.3 GB."""
    (folder / "a.safetensors").write_bytes(safetensors(b"{" + b"[]," * (1 << 23) + b"}"))
    refused_in_little_memory("a.safetensors", "header has 25165826 bytes, and may have 8388608")


def test_labels_and_classes_larger_than_the_logits_are_not_read(tmp_path):
    """A small file may declare many: shapes are compared before the bytes are unpacked."""
    for name, array in (
        ("labels", np.zeros(2_000_000, np.int64)),
        ("classes", np.full(2_000_000, "ab")),
    ):
        path = tmp_path / f"{name}.npz"
        np.savez_compressed(path, logits=np.eye(2), **{name: array})
        with pytest.raises(ValueError, match="more entries than the logits have"):
            hm.io.read(path)


def test_a_tensor_has_few_dimensions(tmp_path):
    header = {"logits": {"dtype": "F4", "shape": [10**18] * 65, "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(ValueError, match="its entry in the header is damaged"):
        hm.io.read(path)


def test_what_is_no_file_is_refused(tmp_path):
    path = tmp_path / "pipe.npz"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="a device or a pipe"):
        hm.io.read(path)


def test_wrong_arguments_are_not_the_file_s_fault(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, logits=np.eye(2))
    with pytest.raises(TypeError, match="class_names must be a sequence of names, got 5"):
        hm.io.read(path, class_names=5)
