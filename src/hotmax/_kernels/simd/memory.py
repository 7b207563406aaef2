"""Memory: cache lines, prefetch, fences, atomic counters, addresses."""

from __future__ import annotations

from typing import Any

from hotmax._kernels.compiler.compiling import IS_COMPILED, inline

if IS_COMPILED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

LINE_BYTES = 64  # of a cache line


def declare(builder: Any, name: str, result: Any, arguments: Any) -> Any:
    """A function of LLVM by name, declared once in a module."""
    try:
        return builder.module.get_global(name)
    except KeyError:
        return ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def pointer_to(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """A pointer to array[index]."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


def fetch(builder: Any, pointer: Any) -> None:
    """Prefetch the cache line at a pointer."""
    pointer, i32 = builder.bitcast(pointer, ir.IntType(8).as_pointer()), ir.IntType(32)
    kinds = [pointer.type, i32, i32, i32]
    function = declare(builder, "llvm.prefetch.p0", ir.VoidType(), kinds)
    builder.call(function, [pointer, i32(0), i32(3), i32(1)])


if IS_COMPILED:

    @intrinsic
    def prefetch(typing_context, array, index):
        """Prefetch the cache line of array[index]."""

        def generate(context, builder, signature, arguments):
            fetch(builder, pointer_to(context, builder, signature.args[0], *arguments))
            return context.get_dummy_value()

        return types.void(array, types.intp), generate

    @intrinsic
    def fence(typing_context):
        """Make non-temporal stores visible to other threads."""

        def generate(context, builder, signature, arguments):
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def claim(typing_context, turn):
        """Add 1 to turn[0] atomically; its value before."""

        def generate(context, builder, signature, arguments):
            one = ir.IntType(64)(1)
            counter = pointer_to(
                context, builder, signature.args[0], arguments[0], ir.IntType(64)(0)
            )
            return builder.atomic_rmw("add", counter, one, "monotonic")

        return types.int64(turn), generate

    @intrinsic
    def borrowed(typing_context, array):
        """The same array without a reference count.

        Numba updates the count at every slice, with atomic instructions that wait for all
        non-temporal stores to complete: some 400 ns a row.
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

else:
    from hotmax._kernels.simd.interpreted import (
        address_of as address_of,
        borrowed as borrowed,
        claim as claim,
        fence as fence,
        prefetch as prefetch,
    )


@inline
def of_row(numbers, r):
    """The number of row r, or the one number of all rows."""
    return numbers[r if numbers.size > 1 else 0]
