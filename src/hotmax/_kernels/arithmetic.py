"""The shared floating-point words: bit casts, fma, error-free sums, exp and log in two words.

Two kinds of fast-math flag are used, each on one instruction and never on a whole kernel:
`add_in_any_order` may be reassociated, so that a sum vectorises; `maximum` may ignore the
sign of zero, so that it compiles to one instruction and a nan fix-up.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, config, njit, types
from numba.extending import intrinsic

LOG2E = 1.4426950408889634  # log2(e), rounded
LOG2E_LOW = 2.0355273740931033e-17  # what the rounding left over
LN2 = 0.6931471805599453
LN2_REST = 2.3190468138462996e-17
LN2_HIGH = 0.6931471803691238  # ln 2 to 33 bits: times an exponent it is exact
LN2_LOW = 1.9082149292705877e-10
ROUND64 = 6755399441055744.0  # 1.5 * 2**52: adding it rounds a float64 to an integer
TILE = 8  # rows and columns that are turned in registers
ROUND32 = np.float32(12582912.0)  # 1.5 * 2**23: the same for float32

# exp2 results carry a factor 2**BIAS until the last multiplication, which then rounds once even
# where the result is subnormal.
BIAS64 = 200
BIAS32 = 64
UNBIAS64 = 2.0**-BIAS64
UNBIAS32 = 2.0**-BIAS32
LOWEST64 = -1140.0  # 2**LOWEST is 0 in the output type, for any number of classes
LOWEST32 = -185.0


_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
_STAMP = tuple((source.name, source.stat().st_mtime, source.stat().st_size) for source in _SOURCES)


def kernel(function: Any, nogil: bool = True) -> Any:
    """Compile with the GIL released and the result cached on disk, where a disk can be written.

    A cached kernel holds the words that it uses, so an edit of any file here makes all of it stale:
    Numba by itself would look only at the kernel's own file.
    """
    options = {"nogil": nogil, "error_model": "numpy"}
    if config.DISABLE_JIT:
        return np.errstate(all="ignore")(function)
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no directory that it may write a cache to
        return njit(**options)(function)
    cache = compiled._cache
    cache._cache_file._source_stamp = _STAMP
    cache._cache_file.save = _by_signature(cache._cache_file)
    cache.load_overload = _if_the_disk_allows(cache.load_overload)
    cache.save_overload = _if_the_disk_allows(cache.save_overload)
    return compiled


def _by_signature(cache_file: Any) -> Any:
    """Save under a name that the signature gives.

    Numba counts 1, 2, 3: processes that compile at the same time give one name to two signatures,
    and whoever loads it later gets code for other types.
    """

    def save(key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        name = cache_file._index_name.removesuffix(".nbi") + f".{digest}.nbc"
        cache_file._save_data(name, data)
        cache_file._save_index({**cache_file._load_index(), key: name})

    return save


def _if_the_disk_allows(step: Any) -> Any:
    """A cache that cannot be read or written (a full disk, say) is as good as none."""

    def attempt(*arguments: Any) -> Any:
        try:
            return step(*arguments)
        except OSError:
            return None

    return attempt


def quick_kernel(function: Any) -> Any:
    """A kernel for a microsecond's work, and keeps the GIL: giving it up takes time too."""
    return kernel(function, nogil=False)


def inline(function: Any) -> Any:
    """A word of the vocabulary: compiled into whatever uses it, so that loops vectorise."""
    return njit(forceinline=True, error_model="numpy")(function)


def declare(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    """A function of LLVM's by name, declared once in a module."""
    try:
        return builder.module.get_global(name)
    except KeyError:
        return ir.Function(builder.module, ir.FunctionType(result, arguments), name)


if config.DISABLE_JIT:  # the same words in plain Python, so that kernels can be stepped through

    def bits64(x: Any) -> Any:
        return np.float64(x).view(np.int64)

    def float64_of(bits: Any) -> Any:
        return np.int64(bits).view(np.float64)

    def bits32(x: Any) -> Any:
        return np.float32(x).view(np.int32)

    def float32_of(bits: Any) -> Any:
        return np.int32(bits).view(np.float32)

    def fma(a: Any, b: Any, c: Any) -> Any:
        kind = np.float32 if isinstance(a, np.float32) else np.float64
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            return kind(a * b + c)
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if kind is np.float64:
            try:
                return np.float64(float(exact))
            except OverflowError:
                return np.float64(math.copysign(math.inf, exact))
        near = np.float32(float(exact))  # float(exact) rounds once, float32 again: mend a tie
        if math.isfinite(near):
            for other in (np.nextafter(near, -math.inf), np.nextafter(near, math.inf)):
                if abs(Fraction(float(other)) - exact) < abs(Fraction(float(near)) - exact):
                    near = other
        return near

    def add_in_any_order(a: Any, b: Any) -> Any:
        return a + b

    def maximum(a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def prefetch(array: Any, index: Any) -> None: ...

    def stream_half_line(out: Any, i: Any, source: Any, j: Any) -> None:
        out[i : i + 8] = source[j : j + 8]

    def fence() -> None: ...

    def turn_tile(source: Any, i: Any, j: Any, target: Any) -> None:
        target[j : j + TILE, i : i + TILE] = source[i : i + TILE, j : j + TILE].T

    def address_of(array: Any) -> Any:
        return array.ctypes.data

    def float32s_at(address: Any, shape: Any) -> Any:
        entries = (ctypes.c_float * math.prod(shape)).from_address(address)
        return np.ctypeslib.as_array(entries).reshape(shape)

else:

    def _cast(source: Any, target: Any, llvm_type: Any) -> Any:
        @intrinsic
        def cast(typing_context, value):
            def generate(context, builder, signature, arguments):
                return builder.bitcast(arguments[0], llvm_type)

            return target(source), generate

        return cast

    bits64 = _cast(types.float64, types.int64, ir.IntType(64))
    float64_of = _cast(types.int64, types.float64, ir.DoubleType())
    bits32 = _cast(types.float32, types.int32, ir.IntType(32))
    float32_of = _cast(types.int32, types.float32, ir.FloatType())

    @intrinsic
    def fma(typing_context, a, b, c):
        """a * b + c, rounded once."""

        def generate(context, builder, signature, arguments):
            return builder.fma(*arguments)

        kind = types.float32 if a == types.float32 else types.float64
        return kind(kind, kind, kind), generate

    @intrinsic
    def add_in_any_order(typing_context, a, b):
        """a + b inside a sum whose order the compiler may choose, so that the sum vectorises."""

        def generate(context, builder, signature, arguments):
            return builder.fadd(*arguments, flags=("reassoc", "nsz"))

        return types.float64(types.float64, types.float64), generate

    @intrinsic
    def maximum(typing_context, a, b):
        """The larger of a and b, or nan if either is nan; the sign of zero is left open."""

        def generate(context, builder, signature, arguments):
            kind = arguments[0].type
            suffix = "f32" if kind == ir.FloatType() else "f64"
            function = declare(builder, f"llvm.maximum.{suffix}", kind, [kind, kind])
            return builder.call(function, arguments, fastmath=("nsz",))

        return a(a, a), generate

    def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
        data = context.make_array(kind)(context, builder, array).data
        return builder.gep(data, [index])

    @intrinsic
    def prefetch(typing_context, array, index):
        """Ask for the cache line of array[index], to be read soon."""

        def generate(context, builder, signature, arguments):
            place = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
            place = builder.bitcast(place, ir.IntType(8).as_pointer())
            i32 = ir.IntType(32)
            function = declare(
                builder, "llvm.prefetch.p0", ir.VoidType(), [place.type, i32, i32, i32]
            )
            builder.call(function, [place, i32(0), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    @intrinsic
    def stream_half_line(typing_context, out, i, source, j):
        """out[i:i+8] = source[j:j+8] in float32, past the caches; out[i] must lie at 32 bytes."""

        def generate(context, builder, signature, arguments):
            target = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
            origin = _pointer(context, builder, signature.args[2], arguments[2], arguments[3])
            line = ir.VectorType(ir.FloatType(), 8).as_pointer()
            value = builder.load(builder.bitcast(origin, line))
            value.align = 4
            store = builder.store(value, builder.bitcast(target, line))
            store.align = 32
            flag = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
            store.set_metadata("nontemporal", flag)
            return context.get_dummy_value()

        return types.void(out, types.intp, source, types.intp), generate

    @intrinsic
    def fence(typing_context):
        """Make streamed lines visible to other threads."""

        def generate(context, builder, signature, arguments):
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def turn_tile(typing_context, source, i, j, target):
        """target[j:j+8, i:i+8] = source[i:i+8, j:j+8].T, in registers.

        Left to itself the compiler moves one entry at a time, which takes three times as long.
        """

        def generate(context, builder, signature, arguments):
            given, row, column, result = arguments
            kind = signature.args[0].dtype
            line = ir.VectorType(context.get_value_type(kind), TILE)
            size = kind.bitwidth // 8

            def lines(array_type, array, row, column):
                """Pointers to the tile's lines in an array with entries side by side."""
                whole = context.make_array(array_type)(context, builder, array)
                stride = builder.extract_value(whole.strides, 0)
                start = builder.add(
                    builder.mul(row, stride), builder.mul(column, column.type(size))
                )
                place = builder.bitcast(whole.data, ir.IntType(8).as_pointer())
                place = builder.gep(place, [start])
                for _ in range(TILE):
                    yield builder.bitcast(place, line.as_pointer())
                    place = builder.gep(place, [stride])

            tile = [
                builder.load(place, align=size)
                for place in lines(signature.args[0], given, row, column)
            ]
            # Squares of 1, 2 and 4 entries beside the diagonal change places.
            for square in (1, 2, 4):
                upper = [c + TILE - square if c & square else c for c in range(TILE)]
                lower = [c + TILE if c & square else c + square for c in range(TILE)]
                masks = [
                    ir.Constant(ir.VectorType(ir.IntType(32), TILE), m) for m in (upper, lower)
                ]
                for r in range(TILE):
                    if not r & square:
                        pair = tile[r], tile[r + square]
                        tile[r], tile[r + square] = (
                            builder.shuffle_vector(*pair, mask) for mask in masks
                        )
            for value, place in zip(
                tile, lines(signature.args[3], result, column, row), strict=True
            ):
                builder.store(value, place, align=size)
            return context.get_dummy_value()

        return types.void(source, types.intp, types.intp, target), generate

    @inline
    def address_of(array):
        return array.ctypes.data

    @intrinsic
    def _pointer_to(typing_context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

        return types.CPointer(types.float32)(types.intp), generate

    @inline
    def float32s_at(address, shape):
        """The float32 array that lies at an address."""
        return carray(_pointer_to(address), shape)


@inline
def two_sum(a, b):
    """(s, e): s = a + b rounded, and s + e = a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inline
def two_difference(a, b):
    """(d, e): d = a - b rounded, and d + e = a - b exactly."""
    d = a - b
    t = d - a
    return d, (a - (d - t)) - (b + t)


@inline
def reciprocal(high, low):
    """1 / (high + low) in two words."""
    inverse = 1.0 / high
    return inverse, inverse * (fma(-high, inverse, 1.0) - low * inverse)


@inline
def exp2_parts(y, y_low):
    """(t, power): 2**(y + y_low + BIAS64) = power * (1 + t), for -1140 <= y <= 1.

    t keeps its own digits, so that no rounding of 1 + t enters a sum. The polynomial is the
    minimax fit of (2**f - 1) / f on [-1/2, 1/2]: 2**-56 off, checked in test_arithmetic.py.
    """
    shifted = y + ROUND64
    f = (y - (shifted - ROUND64)) + y_low
    g = f * f  # even and odd powers apart: half the latency of one chain
    even = fma(4.456676030826705e-10, g, 1.0178051724308302e-07)
    odd = fma(7.072586161230777e-09, g, 1.3215442586728665e-06)
    even = fma(even, g, 1.5252733853289477e-05)
    odd = fma(odd, g, 0.00015403530441738291)
    even = fma(even, g, 0.0013333558146395995)
    odd = fma(odd, g, 0.009618129107606887)
    even = fma(even, g, 0.05550410866482166)
    odd = fma(odd, g, 0.24022650695910097)
    t = fma(f, LN2, fma(f, LN2_REST, g * fma(even, f, odd)))
    return t, float64_of((bits64(shifted) << 52) + ((1023 + BIAS64) << 52))


@inline
def with_fraction(power, t):
    """power * (1 + t) in two words."""
    high = fma(power, t, power)
    return high, fma(power, t, power - high)


@inline
def exp2_plain(y):
    """2**y in float64, right to 2**-33 relative: all that a float32 result can use. y <= 1."""
    y = -1000.0 if y < -1000.0 else y
    shifted = y + ROUND64
    f = y - (shifted - ROUND64)
    q = fma(1.5310083098701274e-05, f, 0.0001546144716266846)
    q = fma(q, f, 0.001333345453960721)
    q = fma(q, f, 0.009618056670823336)
    q = fma(q, f, 0.055504109287642774)
    q = fma(q, f, 0.24022650922336908)
    q = fma(q, f, 0.6931471805537158)
    q = fma(q, f, 1.0)
    return float64_of(bits64(q) + (bits64(shifted) << 52))


# The same fit to degree 5 (2**-28 off).
_FIT32 = (
    0.6931471880289413,
    0.24022651084212637,
    0.0555035710549399,
    0.00961803077074393,
    0.0013390866859796194,
    0.00015469735156466413,
)
_P0, _P1, _P2, _P3, _P4, _P5 = (np.float32(c) for c in _FIT32)
_Q0, _Q1, _Q2, _Q3, _Q4, _Q5 = (np.float32(c) * np.float32(2.0**BIAS32) for c in _FIT32)
_UNIT32 = np.float32(1.0)
_ZERO32 = np.float32(0.0)
_NORMAL32 = np.float32(-126.0)
_ONE32 = np.float32(2.0**BIAS32)
_SHIFT32 = np.int32(23)


@inline
def exp2_line32(x, low, slope, slope_low, origin):
    """2**(x * (slope + slope_low) - k + BIAS32), all in float32, with origin = ROUND32 - k.

    k is an integer below 2**13, so that the fma that forms f cancels with no rounding but its own.
    `low` is where the result has become 0.
    """
    x = low if x < low else x
    shifted = fma(x, slope, origin)
    f = fma(x, slope_low, fma(x, slope, origin - shifted))
    q = fma(_Q5, f, _Q4)
    q = fma(q, f, _Q3)
    q = fma(q, f, _Q2)
    q = fma(q, f, _Q1)
    q = fma(q, f, _Q0)
    q = fma(q, f, _ONE32)
    return float32_of(np.int32(bits32(q) + np.int32(bits32(shifted) << _SHIFT32)))


@inline
def exp2_narrow(y):
    """2**y in float32, for y <= 1; 0 where that is below the normal numbers, and for a nan."""
    shifted = y + ROUND32
    f = y - (shifted - ROUND32)
    q = fma(_P5, f, _P4)
    q = fma(q, f, _P3)
    q = fma(q, f, _P2)
    q = fma(q, f, _P1)
    q = fma(q, f, _P0)
    q = fma(q, f, _UNIT32)
    power = float32_of(np.int32(bits32(q) + np.int32(bits32(shifted) << _SHIFT32)))
    return power if y >= _NORMAL32 else _ZERO32


@kernel
def log1p_parts(s, s_low):
    """log(1 + s + s_low) in two words, for s >= 0, right to 2**-56 relative.

    1 + s = 2**k (1 + u), and log(1 + u) = 2 atanh(u / (2 + u)) as a series in (u / (2 + u))**2.
    """
    if s < 2.0**-60:
        return s, s_low
    whole, rest = two_sum(1.0, s)
    k = (bits64(whole) - bits64(0.7071067811865476)) >> 52
    if k == 0:
        u, u_low = s, s_low
    else:
        shrink = float64_of((1023 - k) << 52)
        u, u_low = whole * shrink - 1.0, (rest + s_low) * shrink
    v, v_low = two_sum(2.0, u)
    r = u / v
    r_low = (fma(-r, v, u) + u_low - r * (v_low + u_low)) / v
    w = r * r
    series = 1.0 / 25.0
    for odd in range(23, 1, -2):
        series = fma(series, w, 1.0 / odd)
    high, carry = two_sum(k * LN2_HIGH, 2.0 * r)
    low = carry + (k * LN2_LOW + 2.0 * (r_low + r * (w * series)))
    total = high + low
    return total, low - (total - high)
