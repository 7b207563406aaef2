"""Vectors of WIDTH or LINE entries, fma and bit casts, which Numba lacks.

Where the compiler does not vectorise a loop well, a kernel uses vectors: it loads WIDTH entries
with `load`, computes with them as with numbers, and stores them with `store`. A number beside a
vector is broadcast, in the type of the vector. A function written for numbers with these functions
works for vectors too, and for long vectors: `load_line` gives LINE entries, which `halves` splits.

Two fast-math flags are used, each on one instruction and never on a whole kernel:
`add_in_any_order` may be reassociated, so that a sum vectorises; `maximum` may ignore the sign of
zero, so that it compiles to one instruction and a fix-up for nan.
"""

from __future__ import annotations

from typing import Any

from hotmax._kernels.compiler.compiling import IS_COMPILED, inline
from hotmax._kernels.simd import LINE as LINE, WIDTH as WIDTH
from hotmax._kernels.simd.memory import declare, pointer_to

if IS_COMPILED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from hotmax._kernels.simd.vector_type import (
        Vector,
        broadcast,
        common_type,
        entry_type,
        llvm_suffix,
    )

    def _cast(source: Any, target: Any, llvm_type: Any) -> Any:
        @intrinsic
        def cast(typing_context, value):
            def generate(context, builder, signature, arguments):
                return builder.bitcast(arguments[0], llvm_type)

            return target(source), generate

        return cast

    bits64 = _cast(types.float64, types.int64, ir.IntType(64))
    float64_of = _cast(types.int64, types.float64, ir.DoubleType())
    bits32 = _cast(types.float32, types.uint32, ir.IntType(32))
    float32_of = _cast(types.uint32, types.float32, ir.FloatType())

    @intrinsic
    def fma(typing_context, a, b, c):
        """a * b + c, rounded once."""

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            line = context.get_value_type(kind)
            name = f"llvm.fma.{llvm_suffix(kind)}"
            return builder.call(declare(builder, name, line, [line] * 3), arguments)

        kind = common_type((a, b, c))
        return kind(kind, kind, kind), generate

    @intrinsic
    def scaled_by(typing_context, q, shifted):
        """q * 2**k, where k is the integer that was added to ROUND to make `shifted`."""

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            number = entry_type(kind)
            bits = ir.IntType(number.bitwidth)
            shift = bits(23 if number == types.float32 else 52)
            if isinstance(kind, Vector):
                shift = ir.Constant(ir.VectorType(bits, kind.width), [shift] * kind.width)
            whole, k = (builder.bitcast(value, shift.type) for value in arguments)
            return builder.bitcast(
                builder.add(whole, builder.shl(k, shift)), context.get_value_type(kind)
            )

        kind = common_type((q, shifted))
        return kind(kind, kind), generate

    @intrinsic
    def ulps_above(typing_context, a, b):
        """How many ULPs of float32 a lies above b > 0; huge if a is below b, infinite or nan."""

        def generate(context, builder, signature, arguments):
            line = context.get_value_type(signature.return_type)
            return builder.sub(*[builder.bitcast(value, line) for value in arguments])

        kind = common_type((a, b))
        steps = Vector(types.uint32, kind.width) if isinstance(kind, Vector) else types.uint32
        return steps(kind, kind), generate

    @intrinsic
    def add_in_any_order(typing_context, a, b):
        """a + b inside a sum whose order the compiler may choose, so that the sum vectorises."""

        def generate(context, builder, signature, arguments):
            return builder.fadd(*arguments, flags=("reassoc", "nsz"))

        return types.float64(types.float64, types.float64), generate

    @intrinsic
    def maximum(typing_context, a, b):
        """The larger of a and b, or nan if either is nan; the sign of zero is unspecified.

        Also of unsigned integers, as `ulps_above` gives them.
        """

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            line = context.get_value_type(kind)
            whole = isinstance(entry_type(kind), types.Integer)
            name = f"llvm.{'umax' if whole else 'maximum'}.{llvm_suffix(kind)}"
            function = declare(builder, name, line, [line, line])
            return builder.call(function, arguments, fastmath=() if whole else ("nsz",))

        kind = common_type((a, b))
        return kind(kind, kind), generate

    @intrinsic
    def choose(typing_context, condition, a, b):
        """a where the condition holds, else b."""

        def generate(context, builder, signature, arguments):
            condition, a, b = arguments
            return builder.select(condition, a, b)

        kind = common_type((a, b))
        if isinstance(condition, Vector):
            kind = Vector(entry_type(kind), condition.width)
        return kind(condition, kind, kind), generate

    def _splatting(width: int) -> Any:
        def typing(typing_context, x):
            def generate(context, builder, signature, arguments):
                return arguments[0]

            return Vector(x, width)(Vector(x, width)), generate

        return typing

    splat = intrinsic(_splatting(WIDTH))  # WIDTH copies of x
    splat_line = intrinsic(_splatting(LINE))  # LINE copies of x

    def _line(context: Any, builder: Any, kind: Any, vector: Any, array: Any, index: Any) -> Any:
        """A pointer to the entries of a vector from array[index] on."""
        place = pointer_to(context, builder, kind, array, index)
        line = context.get_value_type(Vector(kind.dtype, vector.width))
        return builder.bitcast(place, line.as_pointer())

    def _loading(width: int) -> Any:
        def typing(typing_context, array, i):
            def generate(context, builder, signature, arguments):
                kind, vector = signature.args[0], signature.return_type
                place = _line(context, builder, kind, vector, *arguments)
                return builder.load(place, align=kind.dtype.bitwidth // 8)

            return Vector(array.dtype, width)(array, types.intp), generate

        return typing

    # array[i : i + WIDTH], of a contiguous array
    load = intrinsic(_loading(WIDTH))
    # array[i : i + LINE]: half as many instructions where registers are that long
    load_line = intrinsic(_loading(LINE))

    def _converted(context: Any, builder: Any, vector: Any, value: Any, kind: Any) -> Any:
        """A vector in the float type of an array."""
        line = context.get_value_type(Vector(kind, vector.width))
        size = vector.kind.bitwidth
        if size == kind.bitwidth:
            return value
        return builder.fptrunc(value, line) if size > kind.bitwidth else builder.fpext(value, line)

    def _storing(streamed: bool) -> Any:
        def typing(typing_context, array, i, vector):
            def generate(context, builder, signature, arguments):
                kind = signature.args[0]
                place = _line(context, builder, kind, vector, *arguments[:2])
                value = _converted(context, builder, vector, arguments[2], kind.dtype)
                size = kind.dtype.bitwidth // 8
                whole = min(vector.width * size, 64)
                stored = builder.store(value, place, align=whole if streamed else size)
                if streamed:
                    flag = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
                    stored.set_metadata("nontemporal", flag)
                return context.get_dummy_value()

            return types.void(array, types.intp, vector), generate

        return typing

    # array[i : i + vector's length] = vector, in the array's type
    store = intrinsic(_storing(streamed=False))
    # A non-temporal store; array[i] must be aligned to the vector's size, or to 64 bytes.
    stream = intrinsic(_storing(streamed=True))

    def _first(builder: Any, count: Any) -> Any:
        """A condition that holds in the first `count` entries."""
        line = ir.VectorType(count.type, WIDTH)
        return builder.icmp_signed(
            "<", ir.Constant(line, list(range(WIDTH))), broadcast(builder, count, WIDTH)
        )

    @intrinsic
    def load_partial(typing_context, array, i, count, fill):
        """array[i : i + count], and `fill` beyond; all of a vector if count is WIDTH or more."""

        def generate(context, builder, signature, arguments):
            kind, vector = signature.args[0], signature.return_type
            line = context.get_value_type(vector)
            place = _line(context, builder, kind, vector, *arguments[:2])
            i32 = ir.IntType(32)
            first = _first(builder, arguments[2])
            name = f"llvm.masked.load.{llvm_suffix(vector)}.p0"
            function = declare(builder, name, line, [place.type, i32, first.type, line])
            size = i32(kind.dtype.bitwidth // 8)
            return builder.call(function, [place, size, first, arguments[3]])

        vector = Vector(array.dtype)
        return vector(array, types.intp, types.intp, vector), generate

    @intrinsic
    def store_partial(typing_context, array, i, count, vector):
        """array[i : i + count] = vector[:count], all of it if count is WIDTH or more."""

        def generate(context, builder, signature, arguments):
            kind = signature.args[0]
            place = _line(context, builder, kind, vector, *arguments[:2])
            value = _converted(context, builder, vector, arguments[3], kind.dtype)
            i32 = ir.IntType(32)
            first = _first(builder, arguments[2])
            name = f"llvm.masked.store.{llvm_suffix(Vector(kind.dtype))}.p0"
            types_of = [value.type, place.type, i32, first.type]
            function = declare(builder, name, ir.VoidType(), types_of)
            size = i32(kind.dtype.bitwidth // 8)
            builder.call(function, [value, place, size, first])
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp, vector), generate

    @intrinsic
    def to_float64(typing_context, vector):
        """The same numbers in float64."""

        def generate(context, builder, signature, arguments):
            return _converted(context, builder, vector, arguments[0], types.float64)

        return Vector(types.float64, vector.width)(vector), generate

    @intrinsic
    def halves(typing_context, line):
        """The first and the last WIDTH entries of a long vector."""

        def generate(context, builder, signature, arguments):
            kind, [whole] = signature.return_type, arguments
            parts = (range(WIDTH), range(WIDTH, LINE))
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), list(p)) for p in parts]
            vectors = [builder.shuffle_vector(whole, whole, mask) for mask in masks]
            return context.make_tuple(builder, kind, vectors)

        return types.UniTuple(Vector(line.kind), 2)(line), generate

    @intrinsic
    def entry(typing_context, vector, i):
        """The i-th entry of a vector."""

        def generate(context, builder, signature, arguments):
            return builder.extract_element(*arguments)

        return vector.kind(vector, types.intp), generate

    @intrinsic
    def any_of(typing_context, condition):
        """Does the condition hold in any entry?"""

        def generate(context, builder, signature, arguments):
            bits = ir.IntType(condition.width)
            return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], bits), bits(0))

        return types.boolean(condition), generate

    @intrinsic
    def transposed_vectors(typing_context, a, b, c, d, e, f, g, h):
        """The columns of a square, given its rows as WIDTH vectors."""

        def generate(context, builder, signature, arguments):
            rows = list(arguments)
            # Blocks of 1, 2 and 4 entries beside the diagonal are swapped.
            for square in (1, 2, 4):
                upper = [c + WIDTH - square if c & square else c for c in range(WIDTH)]
                lower = [c + WIDTH if c & square else c + square for c in range(WIDTH)]
                masks = [
                    ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), m) for m in (upper, lower)
                ]
                for r in range(WIDTH):
                    if not r & square:
                        pair = rows[r], rows[r + square]
                        rows[r], rows[r + square] = (
                            builder.shuffle_vector(*pair, mask) for mask in masks
                        )
            return context.make_tuple(builder, signature.return_type, rows)

        return types.UniTuple(a, WIDTH)(*[a] * WIDTH), generate

else:
    from hotmax._kernels.simd.interpreted import (
        add_in_any_order as add_in_any_order,
        any_of as any_of,
        bits32 as bits32,
        bits64 as bits64,
        choose as choose,
        entry as entry,
        float32_of as float32_of,
        float64_of as float64_of,
        fma as fma,
        halves as halves,
        load as load,
        load_line as load_line,
        load_partial as load_partial,
        maximum as maximum,
        scaled_by as scaled_by,
        splat as splat,
        splat_line as splat_line,
        store as store,
        store_partial as store_partial,
        stream as stream,
        to_float64 as to_float64,
        transposed_vectors as transposed_vectors,
        ulps_above as ulps_above,
    )


@inline
def horizontal_sum(v):
    """The sum of a vector's entries, in a fixed order."""
    near = (entry(v, 0) + entry(v, 4)) + (entry(v, 2) + entry(v, 6))
    far = (entry(v, 1) + entry(v, 5)) + (entry(v, 3) + entry(v, 7))
    return near + far


@inline
def horizontal_maximum(v):
    """The largest of a vector's entries, nan if any is nan."""
    near = maximum(maximum(entry(v, 0), entry(v, 4)), maximum(entry(v, 2), entry(v, 6)))
    far = maximum(maximum(entry(v, 1), entry(v, 5)), maximum(entry(v, 3), entry(v, 7)))
    return maximum(near, far)


@inline
def transposed_square(array, at, step):
    """WIDTH vectors that begin at array[at], array[at + step] and so on, transposed."""
    return transposed_vectors(
        load(array, at),
        load(array, at + step),
        load(array, at + 2 * step),
        load(array, at + 3 * step),
        load(array, at + 4 * step),
        load(array, at + 5 * step),
        load(array, at + 6 * step),
        load(array, at + 7 * step),
    )
