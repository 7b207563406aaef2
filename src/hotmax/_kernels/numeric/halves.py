"""float16 and bfloat16 to float32 and back, by their bits; NumPy converts one number at a time.

    float16    1 bit of sign, 5 of exponent, 10 of fraction
    bfloat16   the upper half of a float32

Halves are uint16, since Numba has neither type. Results are rounded to nearest, ties to
even; a nan becomes the quiet nan of its sign.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.simd.memory import borrowed
from hotmax._kernels.simd.vectors import bits32, float32_of

SIGN, SIGN32 = np.uint32(0x8000), np.uint32(0x80000000)
MAGNITUDE, MAGNITUDE32 = np.uint32(0x7FFF), np.uint32(0x7FFFFFFF)
INFINITE, INFINITE32 = np.uint32(0x7C00), np.uint32(0x7F800000)
NAN, NAN_BRAIN = np.uint32(0x7E00), np.uint32(0x7FC0)
FRACTION = np.uint32(13)  # fraction bits of a float32 beyond those of a float16
HALF = np.uint32(16)
ONE = np.uint32(1)
NORMAL, NORMAL32 = np.uint32(0x400), np.uint32(0x38800000)  # 2**-14, the smallest normal float16
SMALLEST_NORMAL, NEXT_EXPONENT = np.float32(2.0**-14), np.uint32(1 << 23)
BEYOND32 = np.uint32(0x47800000)  # 65536, past the largest float16
REBASED = np.uint32(112 << 23)  # from the exponents of float16 to those of float32
ONE_HALF, ONE_HALF32 = np.float32(0.5), np.uint32(0x3F000000)  # its last bit is the least float16
ALMOST_HALF = np.uint32(0xFFF)  # of the last bit of a float16
ALMOST_HALF_BRAIN = np.uint32(0x7FFF)


# Every operation is cast back: Numba adds two numbers of 32 bits in 64, in half as many lanes.


@inline
def bits_of_float16(half):
    """A float16 as the bits of a float32; both as uint32."""
    magnitude = np.uint32(half & MAGNITUDE)
    shifted = np.uint32(np.uint32(magnitude << FRACTION) + REBASED)
    shifted = np.uint32(shifted | INFINITE32) if magnitude >= INFINITE else shifted
    # 0 and subnormal numbers: 2**-14 too large, with the exponent of that number.
    tiny = bits32(float32_of(np.uint32(shifted + NEXT_EXPONENT)) - SMALLEST_NORMAL)
    size = tiny if magnitude < NORMAL else shifted
    return np.uint32(size | np.uint32(np.uint32(half & SIGN) << HALF))


@inline
def float16_of_bits(bits):
    """The bits of a float32 as a float16."""
    magnitude = np.uint32(bits & MAGNITUDE32)
    within = min(magnitude, BEYOND32)  # which becomes inf
    odd = np.uint32(np.uint32(within >> FRACTION) & ONE)
    rounded = np.uint32(np.uint32(np.uint32(within - REBASED) + ALMOST_HALF) + odd)
    half = np.uint32(rounded >> FRACTION)
    tiny = np.uint32(bits32(float32_of(within) + ONE_HALF) - ONE_HALF32)  # the addition rounds
    half = half if magnitude >= NORMAL32 else tiny
    half = half if magnitude <= INFINITE32 else NAN
    return np.uint32(half | np.uint32(np.uint32(bits & SIGN32) >> HALF))


@inline
def bits_of_bfloat16(half):
    return np.uint32(half << HALF)


@inline
def bfloat16_of_bits(bits):
    odd = np.uint32(np.uint32(bits >> HALF) & ONE)
    half = np.uint32(np.uint32(np.uint32(bits + ALMOST_HALF_BRAIN) + odd) >> HALF)
    is_nan = np.uint32(bits & MAGNITUDE32) > INFINITE32
    nan = np.uint32(NAN_BRAIN | np.uint32(np.uint32(bits & SIGN32) >> HALF))
    return nan if is_nan else half


@kernel
def float32_of_float16(source, target):
    source, bits = borrowed(source), borrowed(target).view(np.uint32)
    for i in range(source.size):
        bits[i] = bits_of_float16(np.uint32(source[i]))


@kernel
def float16_of_float32(source, target):
    bits, target = borrowed(source).view(np.uint32), borrowed(target)
    for i in range(target.size):
        target[i] = float16_of_bits(bits[i])


@kernel
def float32_of_bfloat16(source, target):
    source, bits = borrowed(source), borrowed(target).view(np.uint32)
    for i in range(source.size):
        bits[i] = bits_of_bfloat16(np.uint32(source[i]))


@kernel
def bfloat16_of_float32(source, target):
    bits, target = borrowed(source).view(np.uint32), borrowed(target)
    for i in range(target.size):
        target[i] = bfloat16_of_bits(bits[i])
