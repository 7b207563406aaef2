"""Matrix products of small tiles, entry by entry in one fixed order: sums that never change.

A product is cut into tiles of ROWS x LANES sums that stay in registers while the depth runs through
them. Every sum starts at 0 and adds one product after the other, so its bits depend on its own row
and column and on nothing around them; no BLAS promises that. float32 sums take one fma for each
term. float64 sums are kept in two words.

The right-hand side is packed into panels of LANES columns: panels[p, k, lane]. Packing pads the
last panel with zeros. A line of a panel is a line of the cache: while one is read, the same line
of the panel that comes next, at `upcoming`, is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.numeric.arithmetic import two_sum
from hotmax._kernels.simd.memory import borrowed, declare, fetch
from hotmax._kernels.simd.vectors import (
    WIDTH,
    fma,
    load,
    load_some,
    spread,
    store,
    sum_of,
    turned_square,
)

# Sums in registers. AVX2 has 16 registers of 8 float32: 6 x 2 hold sums, 4 are for operands. In two
# words 2 x 2 vectors of 4 float64 take 8, and the arithmetic between them the rest.
ROWS32, LANES32 = 6, 16
ROWS64, LANES64 = 2, 8


def lanes_of(dtype: Any) -> int:
    """Columns of a panel."""
    return LANES32 if dtype == np.float32 else LANES64


if config.DISABLE_JIT:

    def _dot(a, a_at, a_step, b, b_at, depth):
        a, b = a.reshape(-1), b.reshape(-1)
        total, low = b.dtype.type(0), b.dtype.type(0)
        lanes = lanes_of(b.dtype)
        for k in range(depth):
            x, y = a[a_at + k * a_step], b[b_at + k * lanes]
            if b.dtype == np.float32:
                total = fma(x, y, total)
            else:
                term = x * y
                total, carry = two_sum(total, term)
                low += carry + fma(x, y, -term)
        return total, low

    def multiply_tile(a, a_at, a_row, a_step, b, b_at, depth, c, low, c_at, c_row, upcoming):
        rows = ROWS32 if b.dtype == np.float32 else ROWS64
        c, low = c.reshape(-1), None if low is None else low.reshape(-1)
        for i in range(rows):
            for j in range(lanes_of(b.dtype)):
                total, rest = _dot(a, a_at + i * a_row, a_step, b, b_at + j, depth)
                c[c_at + i * c_row + j] = total
                if low is not None:
                    low[c_at + i * c_row + j] = rest

    def add_tile(
        a, a_at, a_row, a_step, b, b_at, depth, c, low, c_at, c_row, factors, first, upcoming
    ):  # fmt: skip
        rows = ROWS32 if b.dtype == np.float32 else ROWS64
        c, low = c.reshape(-1), None if low is None else low.reshape(-1)
        for i in range(rows):
            factor = factors[first + i]
            for j in range(lanes_of(b.dtype)):
                total, rest = _dot(a, a_at + i * a_row, a_step, b, b_at + j, depth)
                at = c_at + i * c_row + j
                if low is None:
                    c[at] = fma(c[at], factor, total)
                else:
                    old = c[at] * factor
                    rest += fma(low[at], factor, fma(c[at], factor, -old))
                    c[at], carry = two_sum(old, total)
                    low[at] = carry + rest

else:

    class _Vectors:
        """The instructions of one tile, on vectors of 32 bytes."""

        def __init__(self, builder: Any, narrow: bool) -> None:
            self.builder = builder
            self.narrow = narrow
            self.number = ir.FloatType() if narrow else ir.DoubleType()
            self.bytes, self.width = (4, 8) if narrow else (8, 4)
            self.kind = ir.VectorType(self.number, self.width)
            self.rows = ROWS32 if narrow else ROWS64
            self.zero = ir.Constant(self.kind, [0.0] * self.width)

        def load(self, data: Any, at: Any) -> Any:
            place = self.builder.gep(data, [at])
            value = self.builder.load(self.builder.bitcast(place, self.kind.as_pointer()))
            value.align = self.bytes
            return value

        def store(self, value: Any, data: Any, at: Any) -> None:
            place = self.builder.gep(data, [at])
            store = self.builder.store(value, self.builder.bitcast(place, self.kind.as_pointer()))
            store.align = self.bytes

        def spread(self, number: Any) -> Any:
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

        def accumulate(self, x: Any, y: Any, total: Any, low: Any) -> None:
            """total += x * y, in two words for float64."""
            b_ = self.builder
            if self.narrow:
                b_.store(self.fma(x, y, b_.load(total)), total)
                return
            term = b_.fmul(x, y)
            s, carry = self.two_sum(b_.load(total), term)
            b_.store(s, total)
            rest = self.fma(x, y, b_.fneg(term))
            b_.store(b_.fadd(b_.load(low), b_.fadd(carry, rest)), low)

    def _tile_product(adds: bool) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kinds = signature.args
            a_at, a_row, a_step = arguments[1:4]
            b_at, depth = arguments[5:7]
            c_at, c_row = arguments[9:11]
            upcoming = arguments[-1]
            narrow = kinds[4].dtype == types.float32

            def data(index: int) -> Any:
                return context.make_array(kinds[index])(context, builder, arguments[index]).data

            v = _Vectors(builder, narrow)
            a, b, c = data(0), data(4), data(7)
            low = None if narrow else data(8)
            size = ir.IntType(64)
            sums = [
                [cgutils.alloca_once_value(builder, v.zero) for _ in range(2)]
                for _ in range(v.rows)
            ]
            lows = [
                [cgutils.alloca_once_value(builder, v.zero) for _ in range(2)]
                for _ in range(v.rows)
            ]
            for row in (*sums, *lows):
                for place in row:
                    builder.store(v.zero, place)
            starts = [builder.add(a_at, builder.mul(a_row, size(i))) for i in range(v.rows)]
            with cgutils.for_range(builder, depth) as loop:
                k = loop.index
                at = builder.add(b_at, builder.mul(k, size(2 * v.width)))
                right = [v.load(b, at), v.load(b, builder.add(at, size(v.width)))]
                fetch(builder, builder.gep(b, [builder.add(at, builder.sub(upcoming, b_at))]))
                step = builder.mul(k, a_step)
                for i in range(v.rows):
                    left = v.spread(builder.load(builder.gep(a, [builder.add(starts[i], step)])))
                    for j in range(2):
                        v.accumulate(left, right[j], sums[i][j], lows[i][j])
            for i in range(v.rows):
                row = builder.add(c_at, builder.mul(c_row, size(i)))
                if adds:
                    place = builder.add(arguments[12], size(i))
                    factor = v.spread(builder.load(builder.gep(data(11), [place])))
                for j in range(2):
                    at = builder.add(row, size(j * v.width))
                    total, rest = builder.load(sums[i][j]), builder.load(lows[i][j])
                    if adds:
                        old = v.load(c, at)
                        if narrow:
                            total = v.fma(old, factor, total)
                        else:
                            scaled = builder.fmul(old, factor)
                            lost = v.fma(old, factor, builder.fneg(scaled))
                            lost = v.fma(v.load(low, at), factor, lost)
                            total, carry = v.two_sum(scaled, total)
                            rest = builder.fadd(carry, builder.fadd(rest, lost))
                    v.store(total, c, at)
                    if not narrow:
                        v.store(rest, low, at)
            return context.get_dummy_value()

        i = types.intp
        if adds:

            @intrinsic
            def add_tile(
                typing_context,
                a,
                a_at,
                a_row,
                a_step,
                b,
                b_at,
                depth,
                c,
                low,
                c_at,
                c_row,
                factors,
                first,
                upcoming,
            ):
                return types.void(a, i, i, i, b, i, i, c, low, i, i, factors, i, i), generate

            return add_tile

        @intrinsic
        def multiply_tile(
            typing_context, a, a_at, a_row, a_step, b, b_at, depth, c, low, c_at, c_row, upcoming
        ):
            return types.void(a, i, i, i, b, i, i, c, low, i, i, i), generate

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
def turn_block(source, at, step, target, to, lanes):
    """target[to + i * lanes + j] = source[at + j * step + i], for i and j below WIDTH."""
    turned = turned_square(source, at, step)
    for i in range(WIDTH):
        store(target, to + i * lanes, turned[i])


@kernel
def pack_rows(x, panels):
    """panels[p, k, lane] = x[p * lanes + lane, k]: the columns of x transposed."""
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
                    turn_block(source, (first + j) * depth + k, depth, target, to, lanes)
        for j in range(lanes):
            for k in range(blocked, depth):
                panels[p, k, j] = x[first + j, k] if first + j < n else 0.0


@kernel
def are_finite(x, step, clean):
    """clean[i]: is there neither inf nor nan in rows i * step and on of x?"""
    x = borrowed(x)
    zero = x.dtype.type(0.0)
    line = x.reshape(-1)
    for i in range(-(-x.shape[0] // step)):
        first, last = i * step * x.shape[1], min((i + 1) * step, x.shape[0]) * x.shape[1]
        whole = first + (last - first) // WIDTH * WIDTH
        rest = spread(zero)
        for j in range(first, whole, WIDTH):
            rest = rest + load(line, j) * zero
        rest = rest + load_some(line, whole, last - whole, zero) * zero
        clean[i] = sum_of(rest) == 0.0
