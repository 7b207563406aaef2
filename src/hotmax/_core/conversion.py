"""Numbers of one type into an array of another."""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import FLOAT32, Array
from hotmax._kernels.numeric.halves import (
    bfloat16_of_float32,
    float16_of_float32,
    float32_of_bfloat16,
    float32_of_float16,
)

TO_FLOAT32 = {"float16": float32_of_float16, "bfloat16": float32_of_bfloat16}
FROM_FLOAT32 = {"float16": float16_of_float32, "bfloat16": bfloat16_of_float32}


def put(source: Array, target: Array) -> None:
    """target[...] = source, faster than NumPy for half precision; out of range becomes inf."""
    small, large = (source, target) if source.itemsize == 2 else (target, source)
    if small.itemsize == 2 and large.dtype == FLOAT32 and lies_ready(source) and lies_ready(target):
        convert = (TO_FLOAT32 if small is source else FROM_FLOAT32).get(small.dtype.name)
        if convert is not None:
            convert(bits_of(source), bits_of(target))
            return
    with np.errstate(all="ignore"):
        target[...] = source


def lies_ready(array: Array) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative)


def bits_of(array: Array) -> Array:
    """A one-dimensional view; half precision as uint16, which kernels can read."""
    line = array.reshape(-1)
    return line if line.itemsize == 4 else line.view(np.uint16)
