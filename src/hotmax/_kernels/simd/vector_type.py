"""The Numba type of a vector, its operators, and its name in LLVM's intrinsics."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, lower_cast, models, register_model, type_callable

from hotmax._kernels.simd import WIDTH


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


def broadcast(builder: Any, value: Any, width: int) -> Any:
    """A vector of copies of one value."""
    line = ir.VectorType(value.type, width)
    one = builder.insert_element(ir.Constant(line, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(one, ir.Constant(line, ir.Undefined), zeros)


@lower_cast(types.Number, Vector)
def _from_number(context, builder, source, target, value):
    number = context.cast(builder, value, source, target.kind)
    return broadcast(builder, number, target.width)


def common_type(arguments: Any) -> Any:
    """The type that an operation between numbers and vectors is computed in."""
    for kind in arguments:
        if isinstance(kind, Vector):
            return kind
    return arguments[0] if arguments[0] in (types.float32, types.uint32) else types.float64


def entry_type(kind: Any) -> Any:
    return kind.kind if isinstance(kind, Vector) else kind


def llvm_suffix(kind: Any) -> str:
    """The name of the type in the names of LLVM intrinsics."""
    entry = entry_type(kind)
    name = f"{'i' if isinstance(entry, types.Integer) else 'f'}{entry.bitwidth}"
    return f"v{kind.width}{name}" if isinstance(kind, Vector) else name


def _define(symbol: Any, emit: Any, compares: bool = False) -> None:
    """An operator between vectors, or between a vector and a number."""

    @type_callable(symbol)
    def typing(context):
        def result(a, b):
            if not (isinstance(a, Vector) or isinstance(b, Vector)):
                return None
            kind = common_type((a, b))
            return Vector(types.boolean, kind.width) if compares else kind

        return result

    def generate(context, builder, signature, arguments):
        kind = common_type(signature.args)
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
