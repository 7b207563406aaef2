"""Matrix products of small tiles, each entry summed in one fixed order.

A product is computed in tiles of ROWS x LANES sums, which stay in registers while the loop runs
over the depth. Each sum starts at 0 and adds one product after the other, so its bits depend on its
own row and column only; no BLAS promises that. float32 sums take one fma for each term. float64
sums are double-doubles.

The right-hand side is packed into panels of LANES columns: panels[p, k, lane]. Packing pads the
last panel with zeros. Each line of a panel is one cache line: while it is read, the same line of
the next panel, at `upcoming`, is prefetched.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import IS_COMPILED, inline, kernel
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.simd.memory import borrowed, declare, fetch
from hotmax._kernels.simd.vectors import (
    WIDTH,
    fma,
    horizontal_sum,
    load,
    load_partial,
    splat,
    store,
    transposed_square,
)

if IS_COMPILED:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

# Size of a register tile. AVX2 has 16 registers of 8 float32: 6 x 2 hold sums, 4 operands. As
# double-doubles 2 x 2 vectors of 4 float64 take 8, and intermediate results the rest.
ROWS32, LANES32 = 6, 16
ROWS64, LANES64 = 2, 8


class Left(NamedTuple):
    """Rows of the left operand: entry (i, k) is data.flat[start + i * row + k * step]."""

    data: Any
    start: Any
    row: Any
    step: Any


class Right(NamedTuple):
    """`depth` lines of a panel: entry (k, lane) is data.flat[start + k * LANES + lane]."""

    data: Any
    start: Any
    depth: Any
    upcoming: Any  # where the next panel begins, to be prefetched


class Sums(NamedTuple):
    """A tile of the result: entry (i, lane) is hi.flat[start + i * row + lane]."""

    hi: Any
    lo: Any  # None for float32
    start: Any
    row: Any


def lanes_of(dtype: Any) -> int:
    """How many columns a panel has."""
    return LANES32 if dtype == np.float32 else LANES64


if not IS_COMPILED:

    def _dot(left, i, right, lane):
        """Entry (i, lane) of the product, as hi and lo."""
        a, b = left.data.reshape(-1), right.data.reshape(-1)
        hi, lo = b.dtype.type(0), b.dtype.type(0)
        lanes = lanes_of(b.dtype)
        for k in range(right.depth):
            x = a[left.start + i * left.row + k * left.step]
            y = b[right.start + k * lanes + lane]
            if b.dtype == np.float32:
                hi = fma(x, y, hi)
            else:
                term = x * y
                hi, carry = two_sum(hi, term)
                lo += carry + fma(x, y, -term)
        return hi, lo

    def multiply_tile(left, right, sums):
        kind = right.data.dtype
        hi, lo = sums.hi.reshape(-1), None if sums.lo is None else sums.lo.reshape(-1)
        for i in range(ROWS32 if kind == np.float32 else ROWS64):
            for lane in range(lanes_of(kind)):
                at = sums.start + i * sums.row + lane
                hi[at], rest = _dot(left, i, right, lane)
                if lo is not None:
                    lo[at] = rest

    def add_tile(left, right, sums, factors, first):
        kind = right.data.dtype
        hi, lo = sums.hi.reshape(-1), None if sums.lo is None else sums.lo.reshape(-1)
        for i in range(ROWS32 if kind == np.float32 else ROWS64):
            factor = factors[first + i]
            for lane in range(lanes_of(kind)):
                total, rest = _dot(left, i, right, lane)
                at = sums.start + i * sums.row + lane
                if lo is None:
                    hi[at] = fma(hi[at], factor, total)
                else:
                    old = hi[at] * factor
                    rest += fma(lo[at], factor, fma(hi[at], factor, -old))
                    hi[at], carry = two_sum(old, total)
                    lo[at] = carry + rest

else:

    class _Vectors:
        """The instructions of one tile, on vectors of 32 bytes."""

        def __init__(self, builder: Any, is_float32: bool) -> None:
            self.builder = builder
            self.is_float32 = is_float32
            self.number = ir.FloatType() if is_float32 else ir.DoubleType()
            self.bytes, self.width = (4, 8) if is_float32 else (8, 4)
            self.kind = ir.VectorType(self.number, self.width)
            self.rows = ROWS32 if is_float32 else ROWS64
            self.zero = ir.Constant(self.kind, [0.0] * self.width)

        def load(self, data: Any, at: Any) -> Any:
            pointer = self.builder.gep(data, [at])
            value = self.builder.load(self.builder.bitcast(pointer, self.kind.as_pointer()))
            value.align = self.bytes
            return value

        def store(self, value: Any, data: Any, at: Any) -> None:
            pointer = self.builder.gep(data, [at])
            typed = self.builder.bitcast(pointer, self.kind.as_pointer())
            store = self.builder.store(value, typed)
            store.align = self.bytes

        def splat(self, number: Any) -> Any:
            one = self.builder.insert_element(
                ir.Constant(self.kind, ir.Undefined), number, ir.IntType(32)(0)
            )
            pattern = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
            return self.builder.shuffle_vector(one, ir.Constant(self.kind, ir.Undefined), pattern)

        def fma(self, a: Any, b: Any, c: Any) -> Any:
            name = f"llvm.fma.v{self.width}f{8 * self.bytes}"
            return self.builder.call(
                declare(self.builder, name, self.kind, [self.kind] * 3), [a, b, c]
            )

        def two_sum(self, a: Any, b: Any) -> tuple[Any, Any]:
            b_ = self.builder
            s = b_.fadd(a, b)
            t = b_.fsub(s, a)
            return s, b_.fadd(b_.fsub(a, b_.fsub(s, t)), b_.fsub(b, t))

        def accumulate(self, x: Any, y: Any, total: Any, lo: Any) -> None:
            """total += x * y, a double-double for float64."""
            b_ = self.builder
            if self.is_float32:
                b_.store(self.fma(x, y, b_.load(total)), total)
                return
            term = b_.fmul(x, y)
            s, carry = self.two_sum(b_.load(total), term)
            b_.store(s, total)
            rest = self.fma(x, y, b_.fneg(term))
            b_.store(b_.fadd(b_.load(lo), b_.fadd(carry, rest)), lo)

    def _fields(context: Any, builder: Any, kind: Any, value: Any) -> list[Any]:
        """The fields of a NamedTuple: arrays as pointers to their data, integers as intp."""
        fields: list[Any] = []
        for i, field in enumerate(kind.types):
            part = builder.extract_value(value, i)
            if isinstance(field, types.Array):
                fields.append(context.make_array(field)(context, builder, part).data)
            elif field == types.none:
                fields.append(None)
            else:
                fields.append(context.cast(builder, part, field, types.intp))
        return fields

    def _tile_product(adds: bool) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            operands = zip(signature.args[:3], arguments[:3], strict=True)
            left, right, tile = (_fields(context, builder, *operand) for operand in operands)
            a, a_at, a_row, a_step = left
            b, b_at, depth, upcoming = right
            c, lo, c_at, c_row = tile
            is_float32 = signature.args[1].types[0].dtype == types.float32
            v = _Vectors(builder, is_float32)
            size = ir.IntType(64)
            sums = [
                [cgutils.alloca_once_value(builder, v.zero) for _ in range(2)]
                for _ in range(v.rows)
            ]
            sums_lo = [
                [cgutils.alloca_once_value(builder, v.zero) for _ in range(2)]
                for _ in range(v.rows)
            ]
            for row in (*sums, *sums_lo):
                for pointer in row:
                    builder.store(v.zero, pointer)
            starts = [builder.add(a_at, builder.mul(a_row, size(i))) for i in range(v.rows)]
            with cgutils.for_range(builder, depth) as loop:
                k = loop.index
                at = builder.add(b_at, builder.mul(k, size(2 * v.width)))
                line = [v.load(b, at), v.load(b, builder.add(at, size(v.width)))]
                fetch(builder, builder.gep(b, [builder.add(at, builder.sub(upcoming, b_at))]))
                step = builder.mul(k, a_step)
                for i in range(v.rows):
                    entry = v.splat(builder.load(builder.gep(a, [builder.add(starts[i], step)])))
                    for j in range(2):
                        v.accumulate(entry, line[j], sums[i][j], sums_lo[i][j])
            if adds:
                factors = context.make_array(signature.args[3])(context, builder, arguments[3]).data
            for i in range(v.rows):
                row = builder.add(c_at, builder.mul(c_row, size(i)))
                if adds:
                    pointer = builder.gep(factors, [builder.add(arguments[4], size(i))])
                    factor = v.splat(builder.load(pointer))
                for j in range(2):
                    at = builder.add(row, size(j * v.width))
                    total, rest = builder.load(sums[i][j]), builder.load(sums_lo[i][j])
                    if adds:
                        old = v.load(c, at)
                        if is_float32:
                            total = v.fma(old, factor, total)
                        else:
                            scaled = builder.fmul(old, factor)
                            lost = v.fma(old, factor, builder.fneg(scaled))
                            lost = v.fma(v.load(lo, at), factor, lost)
                            total, carry = v.two_sum(scaled, total)
                            rest = builder.fadd(carry, builder.fadd(rest, lost))
                    v.store(total, c, at)
                    if not is_float32:
                        v.store(rest, lo, at)
            return context.get_dummy_value()

        if adds:

            @intrinsic
            def add_tile(typing_context, left, right, sums, factors, first):
                """sums = factors[first + row] * sums + left . right."""
                return types.void(left, right, sums, factors, types.intp), generate

            return add_tile

        @intrinsic
        def multiply_tile(typing_context, left, right, sums):
            """sums = left . right."""
            return types.void(left, right, sums), generate

        return multiply_tile

    multiply_tile = _tile_product(adds=False)
    add_tile = _tile_product(adds=True)


@kernel
def pack_columns(x, panels, start):
    """panels[p, start + k, lane] = x[k, p * lanes + lane]."""
    x, panels = borrowed(x), borrowed(panels)
    lanes = panels.shape[2]
    n = x.shape[1]
    whole = n // lanes
    source, target = x.reshape(-1), panels.reshape(-1)
    for k in range(x.shape[0]):
        for p in range(whole):
            at = (p * panels.shape[1] + start + k) * lanes
            for j in range(0, lanes, WIDTH):
                store(target, at + j, load(source, k * n + p * lanes + j))
        for p in range(whole, panels.shape[0]):
            for j in range(lanes):
                column = p * lanes + j
                panels[p, start + k, j] = x[k, column] if column < n else 0.0


@inline
def transpose_block(source, at, step, target, to, lanes):
    """target[to + i * lanes + j] = source[at + j * step + i], for i and j below WIDTH."""
    columns = transposed_square(source, at, step)
    for i in range(WIDTH):
        store(target, to + i * lanes, columns[i])


@kernel
def pack_rows(x, panels):
    """panels[p, k, lane] = x[p * lanes + lane, k]: the panels of x transposed."""
    x, panels = borrowed(x), borrowed(panels)
    lanes = panels.shape[2]
    n, depth = x.shape
    whole = depth - depth % WIDTH
    source, target = x.reshape(-1), panels.reshape(-1)
    for p in range(panels.shape[0]):
        first, blocked = p * lanes, 0
        if first + lanes <= n:
            blocked = whole
            for k in range(0, whole, WIDTH):
                for j in range(0, lanes, WIDTH):
                    to = (p * depth + k) * lanes + j
                    transpose_block(source, (first + j) * depth + k, depth, target, to, lanes)
        for j in range(lanes):
            for k in range(blocked, depth):
                panels[p, k, j] = x[first + j, k] if first + j < n else 0.0


@kernel
def are_finite(x, step, finite):
    """finite[i] = all entries of x[i * step : (i + 1) * step] are finite."""
    x = borrowed(x)
    zero = x.dtype.type(0.0)
    line = x.reshape(-1)
    for i in range(-(-x.shape[0] // step)):
        first, last = i * step * x.shape[1], min((i + 1) * step, x.shape[0]) * x.shape[1]
        whole = first + (last - first) // WIDTH * WIDTH
        rest = splat(zero)
        for j in range(first, whole, WIDTH):
            rest = rest + load(line, j) * zero
        rest = rest + load_partial(line, whole, last - whole, zero) * zero
        finite[i] = horizontal_sum(rest) == 0.0
