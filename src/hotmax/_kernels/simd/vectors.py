"""The words that Numba lacks: vectors of WIDTH or LINE entries, fma, bit casts.

A kernel that knows best how its loop should run says so with vectors: `load` WIDTH entries, compute
with them as with numbers, `store` them. A number beside a vector stands for as many of it, in the
vector's type. What is written for numbers alone with these words serves vectors too, and so does it
long vectors: `load_line` gives LINE entries, which `halves` makes two vectors.

Two kinds of fast-math flag are used, each on one instruction and never on a whole kernel:
`add_in_any_order` may be reassociated, so that a sum vectorises; `maximum` may ignore the
sign of zero, so that it compiles to one instruction and a nan fix-up.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_cast,
    models,
    register_model,
    type_callable,
)

from hotmax._kernels.compiler.compiling import inline
from hotmax._kernels.simd.memory import declare, place_of

WIDTH = 8  # entries of a vector, and rows and columns that are turned in registers
LINE = 2 * WIDTH  # entries of a long vector: float32 numbers of a cache line


if config.DISABLE_JIT:  # the same words in plain Python, so that kernels can be stepped through

    def bits64(x: Any) -> Any:
        return np.float64(x).view(np.int64)

    def float64_of(bits: Any) -> Any:
        return np.int64(bits).view(np.float64)

    def _fma(a: Any, b: Any, c: Any) -> Any:
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

    def fma(a: Any, b: Any, c: Any) -> Any:
        vectors = [v for v in (a, b, c) if isinstance(v, np.ndarray)]
        if not vectors:
            return _fma(a, b, c)
        kind = vectors[0].dtype
        terms = (np.broadcast_to(np.asarray(v, kind), vectors[0].size) for v in (a, b, c))
        return np.array([_fma(*entries) for entries in zip(*terms, strict=True)], kind)

    def scaled_by(q: Any, shifted: Any) -> Any:
        kind, shift = (np.int32, 23) if q.dtype == np.float32 else (np.int64, 52)
        power = np.left_shift(np.asarray(shifted).view(kind), shift, dtype=kind)
        return (np.asarray(q).view(kind) + power).view(q.dtype)[()]

    def steps_above(a: Any, b: Any) -> Any:
        return np.asarray(a).view(np.uint32) - np.asarray(b).view(np.uint32)

    def add_in_any_order(a: Any, b: Any) -> Any:
        return a + b

    def maximum(a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def choose(condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)[()]

    def spread(x: Any) -> Any:
        return np.full(WIDTH, x)

    def spread_line(x: Any) -> Any:
        return np.full(LINE, x)

    def load(array: Any, i: Any) -> Any:
        return array[i : i + WIDTH].copy()

    def load_line(array: Any, i: Any) -> Any:
        return array[i : i + LINE].copy()

    def load_some(array: Any, i: Any, count: Any, fill: Any) -> Any:
        vector = np.full(WIDTH, fill, array.dtype)
        some = array[i : i + min(count, WIDTH)]
        vector[: some.size] = some
        return vector

    def store(array: Any, i: Any, vector: Any) -> None:
        array[i : i + vector.size] = vector

    def store_some(array: Any, i: Any, count: Any, vector: Any) -> None:
        count = min(count, WIDTH)
        array[i : i + count] = vector[:count]

    stream = store

    def widened(vector: Any) -> Any:
        return vector.astype(np.float64)

    def halves(line: Any) -> Any:
        return line[:WIDTH], line[WIDTH:]

    def entry(vector: Any, i: Any) -> Any:
        return vector[i]

    def any_of(condition: Any) -> Any:
        return bool(condition.any())

    def turned_vectors(*vectors: Any) -> Any:
        return tuple(np.stack(vectors).T.copy())

else:

    class Vector(types.Type):  # type: ignore[misc]
        """Numbers of one type, in as many registers as the processor needs for them."""

        def __init__(self, kind: Any, width: int = WIDTH) -> None:
            self.kind, self.width = kind, width
            super().__init__(name=f"Vector({kind}, {width})")

    @register_model(Vector)
    class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager, vector):
            entry = ir.IntType(1) if vector.kind == types.boolean else manager[vector.kind].be_type
            super().__init__(manager, vector, ir.VectorType(entry, vector.width))

    def _splat(builder: Any, value: Any, width: int) -> Any:
        line = ir.VectorType(value.type, width)
        one = builder.insert_element(ir.Constant(line, ir.Undefined), value, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
        return builder.shuffle_vector(one, ir.Constant(line, ir.Undefined), zeros)

    @lower_cast(types.Number, Vector)
    def _from_number(context, builder, source, target, value):
        number = context.cast(builder, value, source, target.kind)
        return _splat(builder, number, target.width)

    def _together(arguments: Any) -> Any:
        """The type that numbers and vectors side by side are computed in."""
        for kind in arguments:
            if isinstance(kind, Vector):
                return kind
        return arguments[0] if arguments[0] in (types.float32, types.uint32) else types.float64

    def _entry(kind: Any) -> Any:
        return kind.kind if isinstance(kind, Vector) else kind

    def _suffix(kind: Any) -> str:
        """How LLVM calls the type in the names of its functions."""
        entry = _entry(kind)
        name = f"{'i' if isinstance(entry, types.Integer) else 'f'}{entry.bitwidth}"
        return f"v{kind.width}{name}" if isinstance(kind, Vector) else name

    def _define(symbol: Any, emit: Any, compares: bool = False) -> None:
        """An operator between vectors, or between a vector and a number."""

        @type_callable(symbol)
        def typing(context):
            def result(a, b):
                if not (isinstance(a, Vector) or isinstance(b, Vector)):
                    return None
                kind = _together((a, b))
                return Vector(types.boolean, kind.width) if compares else kind

            return result

        def generate(context, builder, signature, arguments):
            kind = _together(signature.args)
            pairs = zip(arguments, signature.args, strict=True)
            return emit(builder, *(context.cast(builder, value, own, kind) for value, own in pairs))

        for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
            lower_builtin(symbol, *pair)(generate)

    _define(operator.add, lambda builder, a, b: builder.fadd(a, b))
    _define(operator.sub, lambda builder, a, b: builder.fsub(a, b))
    _define(operator.mul, lambda builder, a, b: builder.fmul(a, b))
    _define(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
    _define(operator.ne, lambda builder, a, b: builder.fcmp_unordered("!=", a, b), True)
    for _symbol, _sign in [
        (operator.lt, "<"),
        (operator.gt, ">"),
        (operator.le, "<="),
        (operator.ge, ">="),
        (operator.eq, "=="),
    ]:
        _define(_symbol, lambda builder, a, b, sign=_sign: builder.fcmp_ordered(sign, a, b), True)

    @type_callable(operator.neg)
    def _type_of_negative(context):
        return lambda vector: vector if isinstance(vector, Vector) else None

    @lower_builtin(operator.neg, Vector)
    def _negative(context, builder, signature, arguments):
        return builder.fneg(arguments[0])

    def _cast(source: Any, target: Any, llvm_type: Any) -> Any:
        @intrinsic
        def cast(typing_context, value):
            def generate(context, builder, signature, arguments):
                return builder.bitcast(arguments[0], llvm_type)

            return target(source), generate

        return cast

    bits64 = _cast(types.float64, types.int64, ir.IntType(64))
    float64_of = _cast(types.int64, types.float64, ir.DoubleType())

    @intrinsic
    def fma(typing_context, a, b, c):
        """a * b + c, rounded once."""

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            line = context.get_value_type(kind)
            name = f"llvm.fma.{_suffix(kind)}"
            return builder.call(declare(builder, name, line, [line] * 3), arguments)

        kind = _together((a, b, c))
        return kind(kind, kind, kind), generate

    @intrinsic
    def scaled_by(typing_context, q, shifted):
        """q * 2**k, where k is the integer that was added to ROUND to make `shifted`."""

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            number = _entry(kind)
            bits = ir.IntType(number.bitwidth)
            shift = bits(23 if number == types.float32 else 52)
            if isinstance(kind, Vector):
                shift = ir.Constant(ir.VectorType(bits, kind.width), [shift] * kind.width)
            whole, k = (builder.bitcast(value, shift.type) for value in arguments)
            return builder.bitcast(
                builder.add(whole, builder.shl(k, shift)), context.get_value_type(kind)
            )

        kind = _together((q, shifted))
        return kind(kind, kind), generate

    @intrinsic
    def steps_above(typing_context, a, b):
        """How many float32 numbers a lies above b > 0; huge if a is below b, infinite or nan."""

        def generate(context, builder, signature, arguments):
            line = context.get_value_type(signature.return_type)
            return builder.sub(*[builder.bitcast(value, line) for value in arguments])

        kind = _together((a, b))
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
        """The larger of a and b, or nan if either is nan; the sign of zero is left open.

        Of what `steps_above` gives, too.
        """

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            line = context.get_value_type(kind)
            whole = isinstance(_entry(kind), types.Integer)
            name = f"llvm.{'umax' if whole else 'maximum'}.{_suffix(kind)}"
            function = declare(builder, name, line, [line, line])
            return builder.call(function, arguments, fastmath=() if whole else ("nsz",))

        kind = _together((a, b))
        return kind(kind, kind), generate

    @intrinsic
    def choose(typing_context, condition, a, b):
        """a where the condition holds, else b."""

        def generate(context, builder, signature, arguments):
            condition, a, b = arguments
            return builder.select(condition, a, b)

        kind = _together((a, b))
        if isinstance(condition, Vector):
            kind = Vector(_entry(kind), condition.width)
        return kind(condition, kind, kind), generate

    def _spreading(width: int) -> Any:
        def word(typing_context, x):
            def generate(context, builder, signature, arguments):
                return arguments[0]

            return Vector(x, width)(Vector(x, width)), generate

        return word

    spread = intrinsic(_spreading(WIDTH))  # WIDTH times x
    spread_line = intrinsic(_spreading(LINE))  # LINE times x

    def _line(context: Any, builder: Any, kind: Any, vector: Any, array: Any, index: Any) -> Any:
        """A pointer to the entries of a vector from array[index] on."""
        place = place_of(context, builder, kind, array, index)
        line = context.get_value_type(Vector(kind.dtype, vector.width))
        return builder.bitcast(place, line.as_pointer())

    def _loading(width: int) -> Any:
        def word(typing_context, array, i):
            def generate(context, builder, signature, arguments):
                kind, vector = signature.args[0], signature.return_type
                place = _line(context, builder, kind, vector, *arguments)
                return builder.load(place, align=kind.dtype.bitwidth // 8)

            return Vector(array.dtype, width)(array, types.intp), generate

        return word

    # array[i : i + WIDTH], of entries side by side
    load = intrinsic(_loading(WIDTH))
    # array[i : i + LINE]: where registers are that long, half as many instructions
    load_line = intrinsic(_loading(LINE))

    def _converted(context: Any, builder: Any, vector: Any, value: Any, kind: Any) -> Any:
        """A vector in the float type of an array."""
        line = context.get_value_type(Vector(kind, vector.width))
        size = vector.kind.bitwidth
        if size == kind.bitwidth:
            return value
        return builder.fptrunc(value, line) if size > kind.bitwidth else builder.fpext(value, line)

    def _storing(streamed: bool) -> Any:
        def word(typing_context, array, i, vector):
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

        return word

    # array[i : i + vector's length] = vector, in the array's type
    store = intrinsic(_storing(streamed=False))
    # The same past the caches; array[i] must lie at a multiple of its size, or of 64 bytes.
    stream = intrinsic(_storing(streamed=True))

    def _first(builder: Any, count: Any) -> Any:
        """A condition that holds in the first `count` entries."""
        line = ir.VectorType(count.type, WIDTH)
        return builder.icmp_signed(
            "<", ir.Constant(line, list(range(WIDTH))), _splat(builder, count, WIDTH)
        )

    @intrinsic
    def load_some(typing_context, array, i, count, fill):
        """array[i : i + count], and `fill` beyond; all of a vector if count is WIDTH or more."""

        def generate(context, builder, signature, arguments):
            kind, vector = signature.args[0], signature.return_type
            line = context.get_value_type(vector)
            place = _line(context, builder, kind, vector, *arguments[:2])
            i32 = ir.IntType(32)
            first = _first(builder, arguments[2])
            name = f"llvm.masked.load.{_suffix(vector)}.p0"
            function = declare(builder, name, line, [place.type, i32, first.type, line])
            size = i32(kind.dtype.bitwidth // 8)
            return builder.call(function, [place, size, first, arguments[3]])

        vector = Vector(array.dtype)
        return vector(array, types.intp, types.intp, vector), generate

    @intrinsic
    def store_some(typing_context, array, i, count, vector):
        """array[i : i + count] = vector[:count], all of it if count is WIDTH or more."""

        def generate(context, builder, signature, arguments):
            kind = signature.args[0]
            place = _line(context, builder, kind, vector, *arguments[:2])
            value = _converted(context, builder, vector, arguments[3], kind.dtype)
            i32 = ir.IntType(32)
            first = _first(builder, arguments[2])
            name = f"llvm.masked.store.{_suffix(Vector(kind.dtype))}.p0"
            types_of = [value.type, place.type, i32, first.type]
            function = declare(builder, name, ir.VoidType(), types_of)
            size = i32(kind.dtype.bitwidth // 8)
            builder.call(function, [value, place, size, first])
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp, vector), generate

    @intrinsic
    def widened(typing_context, vector):
        """The same numbers in float64."""

        def generate(context, builder, signature, arguments):
            return _converted(context, builder, vector, arguments[0], types.float64)

        return Vector(types.float64, vector.width)(vector), generate

    @intrinsic
    def halves(typing_context, line):
        """The first WIDTH entries of a line, and the others."""

        def generate(context, builder, signature, arguments):
            kind, [whole] = signature.return_type, arguments
            places = (range(WIDTH), range(WIDTH, LINE))
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), list(p)) for p in places]
            parts = [builder.shuffle_vector(whole, whole, mask) for mask in masks]
            return context.make_tuple(builder, kind, parts)

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
    def turned_vectors(typing_context, a, b, c, d, e, f, g, h):
        """WIDTH vectors as the rows of a square, turned into its columns."""

        def generate(context, builder, signature, arguments):
            rows = list(arguments)
            # Squares of 1, 2 and 4 entries beside the diagonal change places.
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


@inline
def sum_of(v):
    """The sum of a vector's entries, in an order of its own."""
    near = (entry(v, 0) + entry(v, 4)) + (entry(v, 2) + entry(v, 6))
    far = (entry(v, 1) + entry(v, 5)) + (entry(v, 3) + entry(v, 7))
    return near + far


@inline
def maximum_of(v):
    """The largest of a vector's entries, nan if any is nan."""
    near = maximum(maximum(entry(v, 0), entry(v, 4)), maximum(entry(v, 2), entry(v, 6)))
    far = maximum(maximum(entry(v, 1), entry(v, 5)), maximum(entry(v, 3), entry(v, 7)))
    return maximum(near, far)


@inline
def turned_square(array, at, step):
    """WIDTH vectors that begin at array[at], array[at + step] and so on, turned."""
    return turned_vectors(
        load(array, at),
        load(array, at + step),
        load(array, at + 2 * step),
        load(array, at + 3 * step),
        load(array, at + 4 * step),
        load(array, at + 5 * step),
        load(array, at + 6 * step),
        load(array, at + 7 * step),
    )
