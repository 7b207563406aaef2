"""Gumbel-softmax in array-API operations, and what it shares with the NumPy function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.call_arguments import CallArguments
from hotmax._backends.layout import Layout, constant, type_name
from hotmax._backends.protocol import backend_of, is_traced, placement, to_numpy
from hotmax._core import threads
from hotmax._core.arrays import FLOATS, Array, Axis, as_mask, as_temperature, is_other_library
from hotmax._core.checks import as_bool
from hotmax._core.rows import RowPlan, rows_in_range
from hotmax._kernels.sampling.random import NOISE, gumbel_rows
from hotmax._sampling.seeds import as_seeds
from hotmax._softmax.functions import softmax


def gumbel_noise(shape: tuple[int, ...], axis: Axis, seed: object) -> Array:
    """-log(-log u) for each entry of `shape`, in float64, by seed, row and class."""
    plan = RowPlan(np.broadcast_to(np.float64(0.0), shape), axis)
    seeds = as_seeds(to_numpy(seed, "seed"), plan)
    flat = np.empty((plan.count, plan.classes))

    def work(start: int, stop: int) -> None:
        gumbel_rows(flat, seeds.keys, seeds.rows, NOISE, start, stop)

    if flat.size:
        threads.for_ranges(work, plan.count, rows_in_range(plan.count, plan.classes))
    target = np.empty(shape)
    plan.write_back(flat, target)
    return target


def in_units(xp: Any, value: Any, t: Any) -> Any:
    """abs(value), or above temperature 1 a quarter of it: differences of logits stay in range."""
    return xp.abs(value) * xp.where(xp.abs(t) > 1, 0.25, 1.0)


def upright(
    xp: Any,
    x: Any,
    t: Any,
    noise: Any,
    axis: Axis,
    where: Any,
    constant: Callable[[Any], Any] = lambda array: array,
) -> Any:
    """Logits whose softmax at the temperature `in_units` is the sample.

    They are multiplied by the sign of the temperature, and the maximum is taken off before noise is
    added, which keeps its digits so. Where the maximum is inf, only the noise tells its ties apart.
    `constant` stops gradients.
    """
    one = xp.ones_like(t)
    scale = xp.where(xp.abs(t) > 1, one / 4, one)
    scaled = x * xp.where(xp.signbit(t), -scale, scale)
    top = largest(xp, constant(scaled), axis, where)
    above = xp.where(scaled == top, xp.zeros_like(scaled), xp.zeros_like(scaled) - math.inf)
    return xp.where(top == math.inf, above, scaled - top) + noise * scale


def largest(xp: Any, x: Any, axis: Axis, where: Any) -> Any:
    """The largest entry of each row, with length 1 along axis; 0 if there is none."""
    layout = Layout(tuple(x.shape), axis)
    if not layout.classes:
        return xp.zeros(layout.reduced, dtype=x.dtype, **placement(x))
    allowed = x if where is None else xp.where(where, x, xp.zeros_like(x) - math.inf)
    rows = layout.rows(xp, xp.broadcast_to(allowed, layout.shape))
    top = xp.reshape(xp.max(rows, axis=-1, keepdims=True), layout.reduced)
    return xp.where(top == -math.inf, xp.zeros_like(top), top)


def one_of_the_largest(xp: Any, x: Any, axis: Axis, where: Any) -> Any:
    """hardmax with all the mass on the first that tie."""
    peak = softmax(x, axis=axis, temperature=0.0, where=where)
    layout = Layout(tuple(x.shape), axis)
    if not layout.classes:
        return peak
    rows = layout.rows(xp, peak)
    first = xp.expand_dims(xp.argmax(rows, axis=-1), axis=-1)
    numbers = xp.arange(layout.classes, **placement(x))
    hot = xp.astype(numbers == first, rows.dtype)
    return layout.entries(xp, xp.where(rows > 0, hot, rows))


def check_mask_shape(where: Any, shape: tuple[int, ...]) -> None:
    came = tuple(where.shape)
    if len(came) > len(shape) or any(
        n not in (1, m) for n, m in zip(came[::-1], shape[::-1], strict=False)
    ):
        raise ValueError(f"where must broadcast to the shape of x, {shape}, got shape {came}")


def gumbel_softmax(
    logits: Any,
    temperature: object = 1.0,
    hard: bool = False,
    seed: object = None,
    where: Any = None,
    axis: Axis = -1,
) -> Any:
    """For libraries with gradients: their own sum, so that gradients pass; halves in float32."""
    as_bool(hard, "hard")
    if seed is None and is_traced(logits):
        raise ValueError(
            "seed must be given while jax traces: fresh noise would be drawn once, and compiled"
        )
    backend = backend_of(logits)
    assert backend is not None
    noise = gumbel_noise(tuple(logits.shape), axis, seed)
    xp = array_namespace(logits)
    if where is not None and not is_other_library(where):
        where = constant(xp, as_mask(where), logits)
    if where is not None and type_name(where) != "bool":
        raise TypeError(f"where must hold bools, got {where.dtype}")
    if where is not None:
        check_mask_shape(where, tuple(logits.shape))
    kind = logits.dtype if type_name(logits) in FLOATS else backend.widest_float(xp)
    x = xp.astype(logits, xp.float32 if "16" in type_name(logits) else kind)
    noise, detach = backend.from_numpy(noise, x, keep_type=True), backend.stop_gradient
    checked = CallArguments(xp, x, axis, temperature, where)
    t = checked.temperature
    if isinstance(t, float):
        size: Any = float(in_units(np, t, t))
        t = xp.asarray(t, dtype=x.dtype, **placement(x))
    elif not is_other_library(temperature):
        numbers = as_temperature(temperature)
        size = in_units(np, numbers, numbers)
    else:
        size = in_units(xp, temperature, detach(temperature))
    noisy = upright(xp, x, detach(t), noise, axis, checked.where, detach)
    soft = softmax(noisy, axis=axis, temperature=size, where=where)
    if hard:  # the difference is 0, and has the gradient of the soft sample
        peak = one_of_the_largest(xp, detach(noisy), axis, where)
        soft = peak + (soft - detach(soft))
    return xp.astype(soft, kind)
