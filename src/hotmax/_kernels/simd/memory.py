"""Memory: cache lines, prefetch, fences, scratch, addresses."""

from __future__ import annotations

from typing import Any

from hotmax._kernels.compiler.compiling import IS_COMPILED, inline

if IS_COMPILED:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
    from numba.np.arrayobj import populate_array

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

    @intrinsic(prefer_literal=True)
    def stack_array(typing_context, count, kind):
        """Scratch for a constant number of entries, at a cache line, until the kernel returns.

        Only for kernels: inlined into another function, its memory ends with it. np.empty takes
        some 40 ns, which a small call would notice.
        """
        if not isinstance(count, types.IntegerLiteral):
            return None
        array_type = types.Array(kind.dtype, 1, "C")

        def generate(context, builder, signature, arguments):
            number, intp = context.get_data_type(array_type.dtype), ir.IntType(64)
            with builder.goto_entry_block():
                data = builder.alloca(number, ir.Constant(ir.IntType(32), count.literal_value))
                data.align = LINE_BYTES
            size = context.get_abi_sizeof(number)
            array = context.make_array(array_type)(context, builder)
            populate_array(
                array,
                data=data,
                shape=[intp(count.literal_value)],
                strides=[intp(size)],
                itemsize=intp(size),
                meminfo=None,
            )
            return array._getvalue()

        return array_type(count, kind), generate

    @inline
    def address_of(array):
        return array.ctypes.data

else:
    from hotmax._kernels.simd.interpreted import (
        address_of as address_of,
        borrowed as borrowed,
        fence as fence,
        prefetch as prefetch,
        stack_array as stack_array,
    )


@inline
def of_row(numbers, r):
    """The number of row r, or the one number of all rows."""
    return numbers[r if numbers.size > 1 else 0]
