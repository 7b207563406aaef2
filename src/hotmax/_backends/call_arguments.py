"""The arguments of the softmax family on arrays of any library: checked, of one type and shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._backends.layout import Layout, bits, constant, scalar_like, type_name
from hotmax._backends.protocol import Array, ArrayOperation, hides_values, widest_float
from hotmax._core.arrays import ACCEPTED, FLOATS, Axis, as_mask, as_temperature, is_other_library


class CallArguments:
    """x, temperature and mask: checked, in the type to compute in, broadcast to the shape of x.

    Where the values of x or T are not known yet, a temperature of nan is not noticed, and makes its
    rows nan.
    """

    def __init__(self, xp: Any, x: Array, axis: Axis, temperature: Any, where: Any) -> None:
        self.xp, self.layout = xp, Layout(tuple(x.shape), axis)
        kind = type_name(x)
        if kind not in FLOATS and not kind.startswith(("int", "uint", "bool")):
            raise TypeError(f"x must hold {ACCEPTED}, got {x.dtype}")
        if kind in FLOATS:
            compute = xp.float64 if kind == "float64" else xp.float32
            self.dtype = x.dtype  # of the result
        else:
            compute = self.dtype = widest_float(xp, x)
        self.x = x if x.dtype == compute else xp.astype(x, compute)
        self.temperature = self._temperature(temperature, hides_values(x, temperature))
        self.where = None if where is None else self._mask(where)

    def _temperature(self, temperature: Any, hidden: bool) -> Any:
        if not is_other_library(temperature):
            numbers = as_temperature(temperature)
            if numbers.size == 1 and numbers.ndim <= len(self.layout.shape):
                return float(numbers.reshape(()))
            temperature = constant(self.xp, numbers, self.x)
        elif type_name(temperature) not in FLOATS and not type_name(temperature).startswith(
            ("int", "uint", "bool")
        ):
            raise TypeError(f"temperature must hold real numbers, got {temperature.dtype}")
        elif not hidden and bool(self.xp.any(temperature != temperature)):
            raise ValueError("temperature must not be nan; it may be 0, inf or negative")
        if type_name(temperature) not in (type_name(self.x), "float64"):
            temperature = self.xp.astype(temperature, self.x.dtype)
        return self._broadcast(temperature, self.layout.reduced, "temperature must be a number or")

    def _mask(self, where: Any) -> Array:
        if not is_other_library(where):
            where = constant(self.xp, as_mask(where), self.x)
        if type_name(where) != "bool":
            raise TypeError(f"where must hold bools, got {where.dtype}")
        return self._broadcast(where, self.layout.shape, "where must")

    def _broadcast(self, array: Array, shape: tuple[int, ...], claim: str) -> Array:
        came = tuple(array.shape)
        if len(came) > len(shape) or any(
            n not in (1, m) for n, m in zip(came[::-1], shape[::-1], strict=False)
        ):
            raise ValueError(f"{claim} broadcast to {shape}, got shape {came}")
        return array if came == shape else self.xp.broadcast_to(array, shape)


def apply_row_formula(
    operation: ArrayOperation,
    xp: Any,
    x: Array,
    temperature: Any,
    where: Array | None,
    layout: Layout,
) -> Array:
    """A function of the softmax family in the layout of x; reductions keep axes of length 1."""
    assert operation.row_formula is not None
    known = isinstance(temperature, float | tuple)
    t = temperature if known else layout.rows(xp, temperature, 1)
    mask = None if where is None else layout.rows(xp, where)
    result = operation.row_formula(xp, layout.rows(xp, x), t, mask)
    return layout.numbers(xp, result, True) if operation.reduces else layout.entries(xp, result)


def temperature_hi_lo(xp: Any, temperature: Any, like: Array) -> tuple[Array, Array]:
    """The temperature as a double-double of the type of `like`; a number keeps all its digits."""
    if isinstance(temperature, tuple):
        return temperature
    if isinstance(temperature, float):
        with np.errstate(all="ignore"):  # beyond float32 it becomes 0 or inf: the right limits
            hi = float(np.float32(temperature)) if bits(xp, like) == 32 else temperature
        lo = temperature - hi if math.isfinite(hi) else 0.0
        return scalar_like(xp, hi, like), scalar_like(xp, lo, like)
    hi = xp.astype(temperature, like.dtype)
    if temperature.dtype == like.dtype:
        return hi, xp.zeros_like(hi)
    rest = temperature - xp.astype(hi, temperature.dtype)  # float64 beside float32 logits
    finite = xp.abs(hi) < math.inf
    return hi, xp.where(finite, xp.astype(rest, like.dtype), xp.zeros_like(hi))
