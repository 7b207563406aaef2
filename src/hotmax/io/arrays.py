"""Files of arrays, .npy and .npz; large arrays are mapped, not loaded."""

from __future__ import annotations

import ast
import math
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.class_labels import listed
from hotmax._core.reading import first_line, is_count
from hotmax.io.found import LABEL_NAMES, NONE, Found, Wanted, row_place

MAPPED = 1 << 27  # bytes from which an array stays in its file

# Limits, compared with what a header declares before anything of that size is read.
LONGEST_NPY_HEADER = 10_000  # bytes, as NumPy has it: Python's parser is slow on hostile text
LONGEST_DIRECTORY = 1 << 24  # bytes of an .npz's directory: some 200,000 arrays
LARGE_COUNT = 1_000_000  # entries that labels and names of classes may have beside any logits
DEFLATE_RATIO = 1032  # at best, deflate makes one byte of so many

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes
UTF8_NAME = 0x800  # the flag of a zip member whose name is in UTF-8


def read_npy(path: Path, wanted: Wanted) -> Found:
    if wanted.logits is not None:
        raise ValueError(f"{path}: an .npy file has one array, without a name to choose it by")
    if wanted.labels not in (None, NONE):
        raise ValueError(
            f"{path}: an .npy file has one array, and no {wanted.labels!r} for the labels: give a "
            "file of them, .npy, .npz, .txt or .csv"
        )
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ValueError(f"{path} is an .npz file inside: rename it")
        file.seek(0)
        array = array_of(file, 0, path.stat().st_size, path, str(path), wanted.least_mapped)
    return Found(array, "the array", None, None, None, row_place)


def array_of(
    file: BinaryIO, start: int, size: int, path: Path, what: str, least_mapped: int | None
) -> Array:
    """The array whose .npy form lies at `start` of a file, and ends at `size`."""
    file.seek(start)
    shape, fortran, dtype = header_of(file, what)
    offset = file.tell()
    check_length(what, size - offset, math.prod(shape) * dtype.itemsize)
    return array_in_file(path, dtype, shape, offset, least_mapped, "F" if fortran else "C")


def check_length(what: str, there: int, declared: int) -> None:
    """Raise unless as many bytes follow a header as it declares."""
    if there < declared:
        raise ValueError(f"{what} is cut off: {max(there, 0)} of {declared} bytes are there")
    if there > declared:
        raise ValueError(
            f"{what} is damaged: its header declares {declared} bytes, and {there} are there"
        )


def header_of(file: Any, what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type, from the header of an .npy; refused if it needs pickle."""
    try:
        shape, fortran, dtype = parsed_header(file)
    except Exception as error:  # Python's parser raises five types, and MemoryError for nesting
        reason = f"{what} is not an .npy array that can be read: {first_line(error)}"
        raise ValueError(reason) from None
    if dtype.hasobject:
        raise ValueError(
            f"{what} holds Python objects, which only pickle could read: save numbers, or text "
            "as np.array(..., dtype=str)"
        )
    return shape, fortran, dtype


def parsed_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    start = file.read(8)
    if len(start) < 8 or start[:6] != b"\x93NUMPY":
        raise ValueError("it does not begin as one")
    if start[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError(f"its format is version {start[6]}.{start[7]}")
    length = int.from_bytes(file.read(2 * start[6]), "little")
    if length > LONGEST_NPY_HEADER:
        raise ValueError(f"its header has {length} bytes, and may have {LONGEST_NPY_HEADER}")
    text = file.read(length)
    if len(text) < length:
        raise ValueError("its header is cut off")
    text = re.sub(rb"(?<=\d)L(?=[,)])", b"", text)  # Python 2 on Windows wrote shapes as (7L, 3L)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python's parser, about what is refused below
        tree = ast.parse(text.decode("latin1").strip(), mode="eval")
        fields = ast.literal_eval(tree)
        if type(fields) is not dict or set(fields) != {"descr", "fortran_order", "shape"}:
            raise ValueError("its header has not the keys descr, fortran_order and shape")
        if len(getattr(tree.body, "keys", ())) != len(fields):
            raise ValueError("a key of its header is there twice")
        shape, fortran, kind = (fields[key] for key in ("shape", "fortran_order", "descr"))
        if type(shape) is not tuple or not all(map(is_count, shape)):
            raise ValueError(f"its shape is {str(shape)[:80]}")
        if type(fortran) is not bool:
            raise ValueError("fortran_order is neither True nor False")
        if type(kind) is not str or not re.fullmatch(r"[<>|=]?[a-zA-Z]\d*(\[\w+\])?", kind):
            raise ValueError(f"its type is {str(kind)[:80]}, and numbers or text are read here")
        dtype = np.dtype(kind)
    if dtype.itemsize == 0:
        raise ValueError(f"its type {kind} has no length")
    return shape, fortran, dtype


def array_in_file(
    path: Path,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    offset: int,
    least_mapped: int | None,
    order: Any = "C",
) -> Array:
    """The array at an offset of a file: mapped if it is large."""
    count = math.prod(shape)
    if count * dtype.itemsize >= (MAPPED if least_mapped is None else least_mapped):
        return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))
    with path.open("rb") as file:
        file.seek(offset)
        return np.fromfile(file, dtype, count).reshape(shape, order=order)


# --- several arrays with names ----------------------------------------------------------------


def choose_arrays(
    load: Callable[[str], Array],
    names: list[str],
    path: Path,
    wanted: Wanted,
    kind: str,
    class_names: tuple[str, ...] | None,
) -> Found:
    """Logits and labels among the arrays of a file."""
    usual = ("probabilities", "logits") if wanted.probabilities else ("logits",)
    candidates = usual if wanted.logits is None else (wanted.logits,)
    name = next((name for name in candidates if name in names), None)
    if name is None:
        there = f"it has {listed(names)}" if names else "it has none at all"
        hint = "" if wanted.logits else ': say which by logits="..." (--logits)'
        if wanted.logits is None and "probabilities" in names:
            hint = ': say input="probabilities" (--input probabilities)'
        raise ValueError(f"{path} has no {kind} {candidates[0]!r}; {there}{hint}")
    labels = label_name(names, path, wanted, kind)
    return Found(
        logits=load(name),
        what=f"{kind} {name!r}",
        labels=None if labels is None else load(labels),
        label_source=None if labels is None else f"{kind} {labels!r}",
        class_names=class_names,
        place=row_place,
    )


def label_name(names: list[str], path: Path, wanted: Wanted, kind: str) -> str | None:
    if wanted.labels is None:
        return next((name for name in LABEL_NAMES if name in names), None)
    if wanted.labels in names:
        return wanted.labels
    if wanted.labels == NONE:
        return None
    raise ValueError(f"{path} has no {kind} {wanted.labels!r} for the labels, only {listed(names)}")


def read_npz(path: Path, wanted: Wanted) -> Found:
    try:
        with path.open("rb") as file:
            count = count_of_members(file, path.stat().st_size)
            with zipfile.ZipFile(file) as archive:
                members = checked_members(archive, file, count)

                most: int | None = None  # entries of labels and classes: no more than logits

                def load(name: str) -> Array:
                    nonlocal most
                    array = member_of(archive, members[name], path, most, wanted.least_mapped)
                    most = max(array.size, LARGE_COUNT) if most is None else most
                    return array

                names = [name for name in members if name != "classes"]
                found = choose_arrays(load, names, path, wanted, "array", None)
                if "classes" not in members:
                    return found
                return replace(found, class_names=names_in(load("classes"), path))
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        reason = first_line(error)
        raise ValueError(f"{path} is not an .npz file, or is damaged: {reason}") from None
    except (NotImplementedError, RuntimeError) as error:  # how it is compressed, or a password
        raise ValueError(f"{path} cannot be unpacked: {first_line(error)}") from None


def count_of_members(file: BinaryIO, size: int) -> int:
    """How many members the end of a zip file declares, before its directory is read.

    The record at the end is looked for as `zipfile` does: without a comment behind it, or else
    the last in the range that a comment can take.
    """
    tail_start = max(size - 22 - 0xFFFF, 0)
    file.seek(tail_start)
    tail = file.read()
    at = len(tail) - 22
    if at < 0 or tail[at : at + 4] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        raise zipfile.BadZipFile("it has no directory at its end")
    count, length = struct.unpack("<HL", tail[at + 10 : at + 16])
    locator = tail_start + at - 20
    if locator >= 56:  # a file with more than 4 GB or 65,535 members has a larger record before
        file.seek(locator - 56)
        record = file.read(76)
        if record[:4] == b"PK\x06\x06" and record[56:60] == b"PK\x06\x07":
            count, length = struct.unpack("<QQ", record[32:48])
    if length > LONGEST_DIRECTORY:
        raise zipfile.BadZipFile(
            f"its directory has {length} bytes, and may have {LONGEST_DIRECTORY}"
        )
    return int(count)


def checked_members(
    archive: zipfile.ZipFile, file: BinaryIO, count: int
) -> dict[str, zipfile.ZipInfo]:
    """The members by the names of their arrays.

    Every name is compared with the one before the member's own bytes, and their number with the
    one that is declared: damage to the directory could otherwise hide the labels.
    """
    infos = archive.infolist()
    if len(infos) != count:
        raise zipfile.BadZipFile(f"{len(infos)} arrays are found, and {count} declared")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        start_of(file, info)
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise zipfile.BadZipFile(f"two arrays have the name {name!r}")
        members[name] = info
    return members


def member_of(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    path: Path,
    most: int | None,
    least_mapped: int | None,
) -> Array:
    """The array of a member; a ValueError if its header declares more than `most` entries."""
    what = f"{path}: array {info.filename.removesuffix('.npy')!r}"
    encrypted = info.flag_bits & 1
    if info.compress_type not in COMPRESSIONS:
        raise NotImplementedError(
            f"{info.filename} is compressed by method {info.compress_type}, not by deflate"
        )
    stored = info.compress_type == zipfile.ZIP_STORED
    if info.file_size > info.compress_size * (1 if stored else DEFLATE_RATIO):
        raise zipfile.BadZipFile(
            f"{info.filename} cannot have {info.file_size} bytes, of {info.compress_size}"
        )
    limit = MAPPED if least_mapped is None else least_mapped
    if stored and info.file_size >= limit and not encrypted:
        with path.open("rb") as file:
            start = start_of(file, info)
            size = min(start + info.file_size, path.stat().st_size)
            return array_of(file, start, size, path, what, least_mapped)
    with archive.open(info) as member:
        shape, fortran, dtype = header_of(member, what)
        if most is not None and math.prod(shape) > most:
            raise ValueError(f"{what} has shape {shape}: more entries than the logits have")
        size = math.prod(shape) * dtype.itemsize
        check_length(what, info.file_size - member.tell(), size)
        data = member.read(size)
        member.read(1)  # at the end the checksum is compared
    check_length(what, len(data), size)
    array = np.frombuffer(data, dtype, math.prod(shape))
    return array.reshape(shape, order="F" if fortran else "C")


def start_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: behind its own header, whose lengths may differ."""
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{info.filename!r} is not where the directory says")
    length, extra = struct.unpack("<HH", header[26:30])
    encoding = "utf-8" if info.flag_bits & UTF8_NAME else "cp437"
    if file.read(length) != info.orig_filename.encode(encoding):
        raise zipfile.BadZipFile(f"{info.filename!r} has another name in the directory")
    return info.header_offset + 30 + int(length) + int(extra)


def names_in(array: Array, path: Path) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise ValueError(
            f"{path}: array 'classes' must hold one name for each class, got {array.dtype} of "
            f"shape {array.shape}"
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return tuple(str(name) for name in array.tolist())
