"""Files of arrays: .npy, .npz and .safetensors; large ones are mapped, not loaded."""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from hotmax._boundary import Array
from hotmax.io.found import LABEL_NAMES, NONE, Found, Wanted, listed, row_place

MAPPED = 1 << 27  # bytes from which an array stays in its file
LONGEST_HEADER = 100_000_000  # bytes of JSON in a .safetensors file, as its authors have it

SAFETENSORS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # until `widened`
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}


def read_npy(path: Path, wanted: Wanted) -> Found:
    if wanted.logits is not None:
        raise ValueError(f"{path}: an .npy file has one array, without a name to choose it by")
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ValueError(f"{path} is an .npz file inside: rename it")
        file.seek(0)
        array = array_of(file, 0, path.stat().st_size, path, str(path))
    return Found(array, "the array", None, None, None, row_place)


def array_of(file: BinaryIO, start: int, size: int, path: Path, what: str) -> Array:
    """The array whose .npy form lies at `start` of a file, and ends before `size`."""
    file.seek(start)
    shape, fortran, dtype = header_of(file, what)
    offset, count = file.tell(), math.prod(shape)
    if offset + count * dtype.itemsize > size:
        raise ValueError(
            f"{what} is cut off: {size - offset} of {count * dtype.itemsize} bytes are there"
        )
    return array_at(path, dtype, shape, offset, "F" if fortran else "C")


def header_of(file: Any, what: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type, from the header of an .npy; refused if it needs pickle."""
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"its format is version {version[0]}.{version[1]}")
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{what} is not an .npy array that can be read: {reason}") from None
    if dtype.hasobject:
        raise ValueError(
            f"{what} holds Python objects, which only pickle could read: save numbers, or text "
            "as np.array(..., dtype=str)"
        )
    return shape, fortran, dtype


def array_at(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, order: Any = "C"
) -> Array:
    """The array at an offset of a file: mapped if it is large."""
    count = math.prod(shape)
    if count * dtype.itemsize >= MAPPED:
        return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))
    with path.open("rb") as file:
        file.seek(offset)
        return np.fromfile(file, dtype, count).reshape(shape, order=order)


# --- several arrays with names ----------------------------------------------------------------


def choose(
    load: Callable[[str], Array],
    names: list[str],
    path: Path,
    wanted: Wanted,
    kind: str,
    classes: tuple[str, ...] | None,
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
        classes=classes,
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
        with zipfile.ZipFile(path) as archive:
            members = {i.filename.removesuffix(".npy"): i for i in archive.infolist()}

            def load(name: str) -> Array:
                return member_of(archive, members[name], path)

            classes = class_names(load("classes"), path) if "classes" in members else None
            names = [name for name in members if name != "classes"]
            return choose(load, names, path, wanted, "array", classes)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise ValueError(f"{path} is not an .npz file, or is damaged: {error}") from None
    except (NotImplementedError, RuntimeError) as error:  # how it is compressed, or a password
        raise ValueError(f"{path} cannot be unpacked: {error}") from None


def member_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Array:
    what = f"{path}: array {info.filename.removesuffix('.npy')!r}"
    encrypted = info.flag_bits & 1
    if info.compress_type == zipfile.ZIP_STORED and info.file_size >= MAPPED and not encrypted:
        with path.open("rb") as file:
            start = start_of(file, info)
            return array_of(file, start, start + info.file_size, path, what)
    with archive.open(info) as member:
        shape, fortran, dtype = header_of(member, what)
        data = member.read()  # to the end, where the checksum is compared
    size = math.prod(shape) * dtype.itemsize
    if len(data) < size:
        raise ValueError(f"{what} is cut off: {len(data)} of {size} bytes are there")
    array = np.frombuffer(data, dtype, math.prod(shape))
    return array.reshape(shape, order="F" if fortran else "C")


def start_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: behind its own header, whose lengths may differ."""
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"{info.filename} is not where the directory says")
    name, extra = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + int(name) + int(extra)


def class_names(array: Array, path: Path) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise ValueError(
            f"{path}: array 'classes' must hold one name for each class, got {array.dtype} of "
            f"shape {array.shape}"
        )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return tuple(str(name) for name in array.tolist())


def read_safetensors(path: Path, wanted: Wanted) -> Found:
    """Eight bytes with the length of a JSON header, the header, the tensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            raise ValueError(f"{path} is not a .safetensors file, or is cut off")
        text = file.read(length)
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", {})
        classes = json.loads(metadata["classes"]) if "classes" in metadata else None
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: its header is damaged: {error}") from None
    if classes is not None and not isinstance(classes, list):
        raise ValueError(f"{path}: 'classes' in the metadata must be a JSON list of names")

    def load(name: str) -> Array:
        return tensor_of(path, name, header[name], 8 + length, size)

    names = None if classes is None else tuple(str(name) for name in classes)
    return choose(load, list(header), path, wanted, "tensor", names)


def tensor_of(path: Path, name: str, entry: Mapping[str, Any], base: int, size: int) -> Array:
    what = f"{path}: tensor {name!r}"
    try:
        kind, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{what}: its entry in the header is damaged") from None
    if kind not in SAFETENSORS:
        raise ValueError(f"{what} holds {kind}, which is not read here")
    dtype = np.dtype(SAFETENSORS[kind])
    right = min(shape, default=0) >= 0 and end - begin == math.prod(shape) * dtype.itemsize
    if not right or begin < 0 or base + end > size:
        raise ValueError(f"{what} is cut off, or its entry in the header is damaged")
    array = array_at(path, dtype, shape, base + begin)
    return widened(array) if kind == "BF16" else array


def widened(bits: Array) -> Array:
    """bfloat16 is the upper half of a float32."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
