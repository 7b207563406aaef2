"""Gumbel-softmax: samples that are nearly one-hot, and that gradients pass through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.call_arguments import CallArguments
from hotmax._backends.layout import Layout, constant, type_name
from hotmax._backends.protocol import Backend, backend_of, is_traced, numpy_of, placement
from hotmax._core import threads
from hotmax._core.arrays import (
    FLOATS,
    Array,
    Axis,
    Rows,
    as_mask,
    as_temperature,
    is_foreign,
    split_mask,
)
from hotmax._core.dispatch import range_of
from hotmax._kernels.sampling.random import NOISE, gumbel_rows
from hotmax._sampling.seeds import as_seeds
from hotmax._softmax.functions import softmax


def gumbel_noise(shape: tuple[int, ...], axis: Axis, seed: object) -> Array:
    """-log(-log u) for each entry of `shape`, in float64, by seed, row and class."""
    rows = Rows(np.broadcast_to(np.float64(0.0), shape), axis, 1.0, None)
    seeds = as_seeds(numpy_of(seed, "seed"), rows.shape_of_numbers(False))
    flat = np.empty((rows.count, rows.classes))

    def work(start: int, stop: int) -> None:
        gumbel_rows(flat, seeds.keys, seeds.rows, NOISE, start, stop)

    if flat.size:
        threads.for_ranges(work, rows.count, range_of(rows.count, rows.classes))
    target = np.empty(shape)
    turned = rows.turn(target) if rows.axes else target
    turned[...] = flat.reshape(turned.shape)
    return target


def gumbel_softmax(
    logits: object,
    temperature: object = 1.0,
    *,
    hard: bool = False,
    seed: object = None,
    where: object = None,
    axis: Axis = -1,
) -> Any:
    """softmax((x + G) / T) with Gumbel noise G: a draw from softmax(x), made soft.

    The largest entry lies at class c with the probability softmax(x)[c]. As T tends to 0 the result
    tends to one-hot, and as T grows to uniform. Below 0 it is a draw from softmin(x), made soft:
    softmax((x - G) / T).

    Args:
        logits: As x in `softmax`.
        temperature, where, axis: As in `softmax`.
        hard: True for one-hot; its gradient is that of the soft sample (straight through).
        seed: As in `sample`. Inside `jax.jit` it must be given, and every call has the noise of
            that seed.

    Returns:
        Samples in the shape and float type of the input; each row sums to 1.

    Example:
        >>> import hotmax as hm
        >>> hm.gumbel_softmax([1.0, 2.0, 3.0], temperature=0.5, seed=0).round(3)
        array([0.273, 0.019, 0.708])
        >>> hm.gumbel_softmax([1.0, 2.0, 3.0], hard=True, seed=0)
        array([0., 0., 1.])

    Reference:
        Jang, Gu and Poole, Categorical reparameterization with Gumbel-softmax, 2017; Maddison, Mnih
        and Teh, The concrete distribution, 2017.
    """
    if not isinstance(hard, bool):
        raise TypeError(f"hard must be True or False, got {hard!r}")
    backend = backend_of(logits)
    if backend is not None and backend.has_gradients:
        if seed is None and is_traced(logits):
            raise ValueError(
                "seed must be given while jax traces: fresh noise would be drawn once, and compiled"
            )
        return _differentiable(backend, logits, temperature, hard, seed, where, axis)
    x, present = split_mask(logits, "logits")
    if present is not None:
        where = present if where is None else present & as_mask(where)
    rows = Rows(x, axis, temperature, where)
    mask = None if where is None else as_mask(where)
    noise = gumbel_noise(rows.shape, axis, seed)
    t = as_temperature(temperature)
    with np.errstate(all="ignore"):
        noisy = upright(np, rows.x.astype(np.float64), t, noise, axis, mask)
        size = in_units(np, t, t)
    if hard:
        soft = one_of_the_largest(np, noisy, axis, where)
    else:
        soft = softmax(noisy, axis=axis, temperature=size, where=where)
    return soft.astype(rows.dtype)


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

    They are turned by the sign of the temperature, and the maximum is taken off before noise is
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


def _differentiable(
    backend: Backend,
    logits: Any,
    temperature: object,
    hard: bool,
    seed: object,
    where: Any,
    axis: Axis,
) -> Any:
    """For libraries with gradients: their own sum, so that gradients pass; halves in float32."""
    noise = gumbel_noise(tuple(logits.shape), axis, seed)
    xp = array_namespace(logits)
    if where is not None and not is_foreign(where):
        where = constant(xp, as_mask(where), logits)
    if where is not None and type_name(where) != "bool":
        raise TypeError(f"where must hold bools, got {where.dtype}")
    if where is not None:
        check_mask_shape(where, tuple(logits.shape))
    kind = logits.dtype if type_name(logits) in FLOATS else backend.widest_float(xp)
    x = xp.astype(logits, xp.float32 if "16" in type_name(logits) else kind)
    noise, detach = backend.from_numpy(noise, x, keep_type=True), backend.stop_gradient
    given = CallArguments(xp, x, axis, temperature, where)
    t = given.temperature
    if isinstance(t, float):
        size: Any = float(in_units(np, t, t))
        t = xp.asarray(t, dtype=x.dtype, **placement(x))
    elif not is_foreign(temperature):
        numbers = as_temperature(temperature)
        size = in_units(np, numbers, numbers)
    else:
        size = in_units(xp, temperature, detach(temperature))
    noisy = upright(xp, x, detach(t), noise, axis, given.where, detach)
    soft = softmax(noisy, axis=axis, temperature=size, where=where)
    if hard:  # the difference is 0, and has the gradient of the soft sample
        peak = one_of_the_largest(xp, detach(noisy), axis, where)
        soft = peak + (soft - detach(soft))
    return xp.astype(soft, kind)
