"""Files of tensors, .safetensors; large tensors are mapped, not loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotmax._core.arrays import Array
from hotmax._core.reading import first_line, is_count, strict_json
from hotmax.io.arrays import array_in_file, choose_arrays
from hotmax.io.found import Found, Wanted

MOST_TENSOR_DIMENSIONS = 64  # of a tensor, as in NumPy
LONGEST_TENSOR_HEADER = 1 << 23  # bytes of a .safetensors header, which takes 25 times that parsed

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


def read_safetensors(path: Path, wanted: Wanted) -> Found:
    """Eight bytes with the length of a JSON header, the header, the tensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= size - 8:
            raise ValueError(f"{path} is not a .safetensors file, or is cut off")
        if length > LONGEST_TENSOR_HEADER:
            raise ValueError(
                f"{path}: its header has {length} bytes, and may have {LONGEST_TENSOR_HEADER}"
            )
        text = file.read(length)
    try:
        header = strict_json(text)
        if type(header) is not dict:
            raise ValueError("it is not a JSON object")
        names = class_list(header.pop("__metadata__", {}))
    except ValueError as error:
        raise ValueError(f"{path}: its header is damaged: {first_line(error)}") from None
    tensors = {name: tensor_entry(path, name, entry) for name, entry in header.items()}
    check_offsets(path, tensors, size - 8 - length)

    def load(name: str) -> Array:
        return tensor_of(path, name, tensors[name], 8 + length, wanted.least_mapped)

    return choose_arrays(load, list(header), path, wanted, "tensor", names)


def class_list(metadata: object) -> tuple[str, ...] | None:
    """The names of the classes, a JSON list in the metadata, which maps text to text."""
    if type(metadata) is not dict or not all(type(text) is str for text in metadata.values()):
        raise ValueError("the metadata must map text to text")
    if "classes" not in metadata:
        return None
    names = strict_json(metadata["classes"].encode("utf-8"))
    if type(names) is not list or not all(type(name) in (str, int) for name in names):
        raise ValueError("'classes' in the metadata must be a JSON list of names")
    return tuple(str(name) for name in names)


@dataclass(frozen=True)
class Tensor:
    """An entry of a .safetensors header."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def tensor_entry(path: Path, name: str, entry: object) -> Tensor:
    damaged = ValueError(f"{path}: tensor {name!r}: its entry in the header is damaged")
    if type(entry) is not dict or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise damaged
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(kind) is not str or type(shape) is not list or type(offsets) is not list:
        raise damaged
    if len(offsets) != 2 or len(shape) > MOST_TENSOR_DIMENSIONS:
        raise damaged
    if not all(map(is_count, [*shape, *offsets])):
        raise damaged
    return Tensor(kind, tuple(shape), *offsets)


def check_offsets(path: Path, tensors: Mapping[str, Tensor], size: int) -> None:
    """Tensors lie one behind another, without gaps, overlaps or anything behind the last."""
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        known = np.dtype(SAFETENSORS[tensor.kind]) if tensor.kind in SAFETENSORS else None
        length = tensor.end - tensor.begin
        right = known is None or length == math.prod(tensor.shape) * known.itemsize
        if not right or length < 0 or tensor.begin != end or tensor.end > size:
            raise ValueError(
                f"{path}: tensor {name!r} is cut off, or its entry in the header is damaged"
            )
        end = tensor.end
    if end != size:
        raise ValueError(f"{path} is damaged: {size - end} bytes follow the last tensor")


def tensor_of(path: Path, name: str, tensor: Tensor, base: int, least_mapped: int | None) -> Array:
    if tensor.kind not in SAFETENSORS:
        raise ValueError(f"{path}: tensor {name!r} holds {tensor.kind}, which is not read here")
    kind = np.dtype(SAFETENSORS[tensor.kind])
    array = array_in_file(path, kind, tensor.shape, base + tensor.begin, least_mapped)
    return widened(array) if tensor.kind == "BF16" else array


def widened(bits: Array) -> Array:
    """bfloat16 is the upper half of a float32."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
