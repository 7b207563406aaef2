"""Arrays as places in memory: cache lines, addresses, and the numbers of a row."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, config, types
from numba.extending import intrinsic

from hotmax._kernels.compiler.compiling import inline

LINE_BYTES = 64  # of a cache line


def declare(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    """A function of LLVM's by name, declared once in a module."""
    try:
        return builder.module.get_global(name)
    except KeyError:
        return ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def place_of(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """A pointer to array[index]."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


def fetch(builder: Any, place: Any) -> None:
    """Ask for the cache line of a place, to be read soon."""
    place, i32 = builder.bitcast(place, ir.IntType(8).as_pointer()), ir.IntType(32)
    kinds = [place.type, i32, i32, i32]
    function = declare(builder, "llvm.prefetch.p0", ir.VoidType(), kinds)
    builder.call(function, [place, i32(0), i32(3), i32(1)])


if config.DISABLE_JIT:  # the same words in plain Python

    def prefetch(array: Any, index: Any) -> None: ...

    def fence() -> None: ...

    _claiming = threading.Lock()

    def claim(turn: Any) -> Any:
        with _claiming:
            turn[0] += 1
            return turn[0] - 1

    def borrowed(array: Any) -> Any:
        return array

    def address_of(array: Any) -> Any:
        return array.ctypes.data

    def float32s_at(address: Any, shape: Any) -> Any:
        entries = (ctypes.c_float * math.prod(shape)).from_address(address)
        return np.ctypeslib.as_array(entries).reshape(shape)

else:

    @intrinsic
    def prefetch(typing_context, array, index):
        """Ask for the cache line of array[index]."""

        def generate(context, builder, signature, arguments):
            fetch(builder, place_of(context, builder, signature.args[0], *arguments))
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    @intrinsic
    def fence(typing_context):
        """Make streamed lines visible to other threads."""

        def generate(context, builder, signature, arguments):
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def claim(typing_context, turn):
        """turn[0], which goes up by 1: no other thread gets the same number."""

        def generate(context, builder, signature, arguments):
            one = ir.IntType(64)(1)
            place = place_of(context, builder, signature.args[0], arguments[0], ir.IntType(64)(0))
            return builder.atomic_rmw("add", place, one, "monotonic")

        return types.int64(turn), generate

    @intrinsic
    def borrowed(typing_context, array):
        """The same array, with nobody who counts its users.

        Numba counts them at every slice, with instructions that wait until all that was streamed
        has arrived: some 400 ns a row.
        """

        def generate(context, builder, signature, arguments):
            kind = signature.return_type
            if kind == types.none:
                return context.get_dummy_value()
            ours = context.make_array(kind)(context, builder, arguments[0])
            ours.meminfo = ours.meminfo.type(None)
            ours.parent = ours.parent.type(None)
            return ours._getvalue()

        return array(array), generate

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
def of_row(numbers, r):
    """The number of row r, or the one that all rows share."""
    return numbers[r if numbers.size > 1 else 0]
