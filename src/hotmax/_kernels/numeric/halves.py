"""float16 and bfloat16 to float32 and back, by their bits; NumPy converts one number at a time.

    float16    1 bit of sign, 5 of exponent, 10 of fraction
    bfloat16   the upper half of a float32

Halves are passed as uint16, since Numba has neither type. Results are rounded to nearest, ties to
even; a nan becomes the quiet nan of its sign.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.simd.memory import borrowed

SIGN, SIGN32 = np.uint32(0x8000), np.uint32(0x80000000)
MAGNITUDE, MAGNITUDE32 = np.uint32(0x7FFF), np.uint32(0x7FFFFFFF)
INFINITE, INFINITE32 = np.uint32(0x7C00), np.uint32(0x7F800000)
NAN, NAN_BRAIN = np.uint32(0x7E00), np.uint32(0x7FC0)
FRACTION = np.uint32(13)  # fraction bits of a float32 beyond those of a float16
HALF = np.uint32(16)
ONE = np.uint32(1)
NORMAL, NORMAL32 = np.uint32(0x400), np.uint32(0x38800000)  # 2**-14, the smallest normal float16
BEYOND32 = np.uint32(0x47800000)  # 65536, past the largest float16
REBASED = np.uint32(112 << 23)  # from the exponents of float16 to those of float32
TINY, PER_TINY = np.float32(2.0**-24), np.float32(2.0**24)  # the smallest float16
ALMOST_HALF = np.uint32(0xFFF)  # of the last bit of a float16
ALMOST_HALF_BRAIN = np.uint32(0x7FFF)


@kernel
def float32_of_float16(source, target):
    source, target = borrowed(source), borrowed(target)
    bits = target.view(np.uint32)
    small = 0
    for i in range(source.size):
        half = np.uint32(source[i])
        magnitude = half & MAGNITUDE
        shifted = (magnitude << FRACTION) + REBASED
        shifted = shifted | INFINITE32 if magnitude >= INFINITE else shifted
        bits[i] = shifted | ((half & SIGN) << HALF)
        small += 1 if magnitude < NORMAL else 0
    if small > 0:  # 0 and subnormal numbers
        for i in range(source.size):
            half = np.uint32(source[i])
            size = np.float32(np.int32(half & MAGNITUDE)) * TINY
            size = -size if half & SIGN else size
            target[i] = size if (half & MAGNITUDE) < NORMAL else target[i]


@kernel
def float16_of_float32(source, target):
    source, target = borrowed(source), borrowed(target)
    bits = source.view(np.uint32)
    for i in range(source.size):
        magnitude = bits[i] & MAGNITUDE32
        odd = (magnitude >> FRACTION) & ONE
        half = (magnitude - REBASED + ALMOST_HALF + odd) >> FRACTION
        tiny = np.rint(min(abs(source[i]), np.float32(1.0)) * PER_TINY)
        half = half if magnitude >= NORMAL32 else np.uint32(np.int32(tiny))
        half = half if magnitude < BEYOND32 else INFINITE
        half = half if magnitude <= INFINITE32 else NAN
        target[i] = half | ((bits[i] & SIGN32) >> HALF)


@kernel
def float32_of_bfloat16(source, target):
    source, target = borrowed(source), borrowed(target)
    bits = target.view(np.uint32)
    for i in range(source.size):
        bits[i] = np.uint32(source[i]) << HALF


@kernel
def bfloat16_of_float32(source, target):
    source, target = borrowed(source), borrowed(target)
    bits = source.view(np.uint32)
    for i in range(source.size):
        odd = (bits[i] >> HALF) & ONE
        half = (bits[i] + ALMOST_HALF_BRAIN + odd) >> HALF
        is_nan = (bits[i] & MAGNITUDE32) > INFINITE32
        target[i] = NAN_BRAIN | ((bits[i] & SIGN32) >> HALF) if is_nan else half
