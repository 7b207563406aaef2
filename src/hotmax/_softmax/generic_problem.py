"""Logits and targets as arrays of other libraries: jax, torch, the array API.

What the generic losses and derivatives are written in. Targets are checked if their values
are known; while jax traces a function they are not, and a label out of range makes its loss nan.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.call_arguments import temperature_hi_lo
from hotmax._backends.layout import Layout, constant, type_name
from hotmax._backends.protocol import Array, is_traced, placement, values_of
from hotmax._core.arrays import Axis, as_temperature, is_other_library
from hotmax._core.checks import as_class_numbers
from hotmax._softmax.functions import log_softmax, softmax


def in_compute_type(x: Array) -> Array:
    """Half precision as float32, integers as floats."""
    xp, kind = array_namespace(x), type_name(x)
    if kind in ("float16", "bfloat16"):
        return xp.astype(x, xp.float32)
    if kind in ("float32", "float64"):
        return x
    return xp.astype(x, default_float(xp))


def default_float(xp: Any) -> Any:
    """The type that the library gives a Python float."""
    return xp.asarray(1.0).dtype


class LogitsProblem:
    """Logits as rows of classes, their log-probabilities, and which classes are there."""

    def __init__(self, x: Array, axis: Axis, temperature: Any, where: Any) -> None:
        self.xp = array_namespace(x)
        self.given = x
        self.x = in_compute_type(x)
        self.axis, self.temperature, self.where = axis, temperature, where
        self.layout = Layout(tuple(x.shape), axis)
        self.classes = self.layout.classes

    def rows(self, array: Array) -> Array:
        return self.layout.rows(self.xp, array)

    def entries(self, rows: Array) -> Array:
        return self.layout.entries(self.xp, rows)

    def constant(self, array: Any) -> Array:
        """An array from elsewhere, as one of this library, on the same device."""
        if not is_other_library(array):
            return constant(self.xp, np.asarray(array), self.x)
        return array

    def row_temperatures(self) -> Any:
        """The temperature: a number, or an array of length 1 along the classes."""
        t = self.temperature
        if not is_other_library(t):
            t = as_temperature(t)
            if t.size == 1 and t.ndim <= len(self.layout.shape):
                return float(t.reshape(()))
        t = self.xp.astype(self.constant(t), self.x.dtype)
        broadcast = self.xp.broadcast_to(t, self.layout.reduced)
        return self.layout.rows(self.xp, broadcast, 1)

    def mask(self) -> Array | None:
        if self.where is None:
            return None
        return self.rows(self.xp.broadcast_to(self.constant(self.where), self.layout.shape))

    def present(self) -> Array:
        t = self.row_temperatures()
        if isinstance(t, float):
            there = self.rows(self.x) != -math.copysign(math.inf, t)
        else:
            limits = self.xp.where(t < 0, self.xp.ones_like(t), -self.xp.ones_like(t)) * math.inf
            there = self.rows(self.x) != limits
        mask = self.mask()
        return there if mask is None else there & mask

    def options(self) -> dict[str, Any]:
        return {"axis": self.axis, "temperature": self.temperature, "where": self.where}

    def logs(self) -> Array:
        return self.rows(log_softmax(self.x, **self.options()))

    def probabilities(self) -> Array:
        """Probabilities; 0 where `where` excludes a class, in rows of nan too."""
        p, mask = self.rows(softmax(self.x, **self.options())), self.mask()
        return p if mask is None else self.xp.where(mask, p, self.zeros(p))

    def zeros(self, like: Array) -> Array:
        return self.xp.zeros_like(like)

    def result(self, value: Array) -> Array:
        """In the type that the logits came in."""
        kind = self.given.dtype if "float" in type_name(self.given) else value.dtype
        return value if value.dtype == kind else self.xp.astype(value, kind)

    def divisor(self) -> Array:
        """The temperature in the type of x, an array of no axes or of length 1 along the classes.

        What does not fit the type becomes 0 or inf, the limits.
        """
        t = self.row_temperatures()
        return temperature_hi_lo(self.xp, t, self.x)[0] if isinstance(t, float) else t

    def divided(self, v: Array) -> Array:
        """v / T; 0 if v is, at T = 0 too."""
        t, xp = self.divisor(), self.xp
        if t.ndim:
            t = xp.reshape(t, (*t.shape, *(1,) * (v.ndim - t.ndim)))
        nothing = v == 0
        return xp.where(nothing, self.zeros(v), xp.where(nothing, xp.ones_like(v), v) / t)


def label_column(at: LogitsProblem, targets: Any, ignore_index: Any) -> tuple[Array, Array]:
    """(class numbers as (..., 1), which of them count); -1 where ignored or out of range."""
    shape = at.layout.kept()
    if is_traced(targets):
        labels = targets
        known = (labels >= 0) & (labels < at.classes)
        counted = at.xp.ones_like(known) if ignore_index is None else labels != ignore_index
        labels = at.xp.where(known & counted, labels, -at.xp.ones_like(labels))
    else:
        numbers = as_class_numbers(values_of(targets), shape, at.classes, ignore_index)
        labels = at.constant(numbers.reshape(shape))
        counted = labels >= 0
    return at.xp.expand_dims(labels, axis=-1), counted


def hot(at: LogitsProblem, labels: Array) -> Array:
    """True at the class of each label."""
    device = placement(at.x)
    return at.xp.arange(at.classes, **device) == labels


def outside(at: LogitsProblem, right: Array, counted: Array) -> Array:
    """Rows whose label is out of range: found only now if it was traced."""
    return counted & ~at.xp.any(right, axis=-1)


def reduced_losses(at: LogitsProblem, losses: Array, reduction: str, count: Any) -> Array:
    if reduction == "none":
        return at.result(losses)
    total = at.xp.sum(losses)
    if reduction == "mean":
        if isinstance(count, float):
            total = total / count if count else total * 0.0
        else:
            some = count > 0
            one = at.xp.ones_like(count)
            # Nothing counted makes 0, unless a label out of range has made the sum nan.
            total = at.xp.where(some, total / at.xp.where(some, count, one), total * 0.0)
    return at.result(total)


def quiet(at: LogitsProblem, counted: Array) -> Array:
    """The logits with 0 in the rows that are ignored, so that their values have no effect."""
    kept = at.xp.reshape(counted, at.layout.reduced)
    return at.xp.where(kept, at.x, at.zeros(at.x))


def unknown(at: LogitsProblem, logs: Array) -> Array:
    """nan for rows that are nan, though their target may have no weight; else 0."""
    bad = at.xp.any(logs != logs, axis=-1)
    zero = at.xp.zeros(bad.shape, dtype=logs.dtype, **placement(at.x))
    return at.xp.where(bad, zero + math.nan, zero)
