"""Atomic counters, spinning, and calls by address: what threads in compiled code need."""

from __future__ import annotations

import platform
from typing import Any

from hotmax._kernels.compiler.compiling import IS_COMPILED, inline
from hotmax._kernels.simd.memory import declare, pointer_to

if IS_COMPILED:
    from llvmlite import ir
    from numba import carray, types
    from numba.extending import intrinsic

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")

if IS_COMPILED:

    def _atomic(operation: str) -> Any:
        @intrinsic
        def apply(typing_context, array, index, value):
            def generate(context, builder, signature, arguments):
                counter = pointer_to(context, builder, signature.args[0], *arguments[:2])
                return builder.atomic_rmw(operation, counter, arguments[2], "seq_cst")

            return types.int64(array, types.intp, types.int64), generate

        return apply

    fetch_add = _atomic("add")  # array[index] += value; the value before
    exchange = _atomic("xchg")  # array[index] = value; the value before

    @intrinsic
    def atomic_load(typing_context, array, index):
        """array[index], read anew from memory."""

        def generate(context, builder, signature, arguments):
            counter = pointer_to(context, builder, signature.args[0], *arguments)
            return builder.load_atomic(counter, "seq_cst", 8)

        return types.int64(array, types.intp), generate

    @intrinsic
    def pause(typing_context):
        """Tell the processor that this is a loop that waits."""

        def generate(context, builder, signature, arguments):
            if IS_X86:
                builder.call(declare(builder, "llvm.x86.sse2.pause", ir.VoidType(), []), [])
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def cycles(typing_context):
        """The processor's clock, in cycles; always 0 where reading it is not allowed."""

        def generate(context, builder, signature, arguments):
            i64 = ir.IntType(64)
            if not IS_X86:
                return i64(0)
            return builder.call(declare(builder, "llvm.readcyclecounter", i64, []), [])

        return types.int64(), generate

    @intrinsic
    def _pointer(typing_context, address, kind):
        """A pointer to numbers of a type, from an address."""

        def generate(context, builder, signature, arguments):
            target = context.get_value_type(signature.return_type)
            return builder.inttoptr(arguments[0], target)

        return types.CPointer(kind.dtype)(types.intp, kind), generate

    @inline
    def array_at(address, shape, kind):
        """The array of this shape and type of numbers at an address; nothing is copied."""
        return carray(_pointer(address, kind), shape)

    @intrinsic
    def call_address(typing_context, function, job):
        """Call the compiled function at an address, with the address of a job."""

        def generate(context, builder, signature, arguments):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
            function = builder.inttoptr(arguments[0], kind.as_pointer())
            builder.call(function, [arguments[1]])
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), generate

else:
    from hotmax._kernels.pool.interpreted import (
        array_at as array_at,
        atomic_load as atomic_load,
        call_address as call_address,
        cycles as cycles,
        exchange as exchange,
        fetch_add as fetch_add,
        pause as pause,
    )
