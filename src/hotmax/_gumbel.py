"""Gumbel-softmax: samples that are nearly one-hot, and that gradients pass through."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax import _threads
from hotmax._boundary import Array, Axis, Rows, as_array, as_mask, library_of, result_type
from hotmax._dispatch import range_of
from hotmax._foreign import is_traced
from hotmax._generic import Layout, place
from hotmax._kernels.random import NOISE, gumbel_rows
from hotmax._random import as_seeds
from hotmax._softmax import softmax
from hotmax._transfer import like, numpy_of


def gumbel_noise(shape: tuple[int, ...], axis: Axis, seed: object) -> Array:
    """-log(-log u) for each entry of `shape`, in float64, by seed, row and class."""
    rows = Rows(np.broadcast_to(np.float64(0.0), shape), axis, 1.0, None)
    seeds = as_seeds(seed, rows.shape_of_numbers(False))
    flat = np.empty((rows.count, rows.classes))

    def work(start: int, stop: int) -> None:
        gumbel_rows(flat, seeds.keys, seeds.rows, NOISE, start, stop)

    if flat.size:
        _threads.for_ranges(work, rows.count, range_of(rows.count, rows.classes))
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
    tends to one-hot, and as T grows to uniform.

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
    library = library_of(logits)
    if library in ("torch", "jax"):
        if seed is None and is_traced(logits):
            raise ValueError(
                "seed must be given while jax traces: fresh noise would be drawn once, and compiled"
            )
        return _differentiable(logits, temperature, hard, seed, where, axis)
    x = as_array(logits, "logits")
    noise = gumbel_noise(x.shape, axis, seed)
    wide, mask = x.astype(np.float64), None if where is None else as_mask(where)
    noisy = (wide - largest(np, wide, axis, mask)) + noise
    if hard:
        soft = one_of_the_largest(np, noisy, axis, where)
    else:
        soft = softmax(noisy, axis=axis, temperature=temperature, where=where)
    return soft.astype(result_type(x.dtype))


def largest(xp: Any, x: Any, axis: Axis, where: Any) -> Any:
    """The largest finite entry of each row: without it, noise keeps its digits in the sum."""
    allowed = xp.isfinite(x) if where is None else xp.isfinite(x) & where
    layout = Layout(tuple(x.shape), axis)
    if not layout.classes:
        return 0.0
    rows = layout.rows(xp, xp.where(allowed, x, xp.zeros_like(x) - math.inf))
    top = xp.reshape(xp.max(rows, axis=-1, keepdims=True), layout.reduced)
    return xp.where(xp.isfinite(top), top, xp.zeros_like(top))


def one_of_the_largest(xp: Any, x: Any, axis: Axis, where: Any) -> Any:
    """hardmax with all the mass on the first that tie."""
    peak = softmax(x, axis=axis, temperature=0.0, where=where)
    layout = Layout(tuple(x.shape), axis)
    if not layout.classes:
        return peak
    rows = layout.rows(xp, peak)
    first = xp.expand_dims(xp.argmax(rows, axis=-1), axis=-1)
    numbers = xp.arange(layout.classes, **({} if xp is np else place(x)))
    hot = xp.astype(numbers == first, rows.dtype)
    return layout.entries(xp, xp.where(rows > 0, hot, rows))


def _differentiable(
    logits: Any, temperature: object, hard: bool, seed: object, where: Any, axis: Axis
) -> Any:
    """For torch and jax: their own sum, so that gradients pass; halves in float32."""
    noise = gumbel_noise(tuple(logits.shape), axis, numpy_of(seed, "seed"))
    xp = array_namespace(logits)
    if where is not None and library_of(where) is None:
        where = xp.asarray(as_mask(where), **place(logits))
    if library_of(logits) == "torch":
        torch = sys.modules["torch"]
        kind = logits.dtype if logits.is_floating_point() else torch.float64
        half = kind in (torch.float16, torch.bfloat16)
        x, detach = logits.to(torch.float32 if half else kind), torch.Tensor.detach
        noise = like(noise, x, keep_type=True)
    else:
        jax = sys.modules["jax"]
        floats = jax.numpy.issubdtype(logits.dtype, jax.numpy.floating)
        kind = logits.dtype if floats else jax.numpy.result_type(float)
        x = logits.astype(jax.numpy.result_type(kind, jax.numpy.float32))
        noise, detach = jax.numpy.asarray(noise, x.dtype), jax.lax.stop_gradient
    noisy = (x - largest(xp, detach(x), axis, where)) + noise
    soft = softmax(noisy, axis=axis, temperature=temperature, where=where)
    if hard:  # the difference is 0, and has the gradient of the soft sample
        peak = one_of_the_largest(xp, detach(noisy), axis, where)
        soft = peak + (soft - detach(soft))
    return soft.to(kind) if library_of(logits) == "torch" else soft.astype(kind)
