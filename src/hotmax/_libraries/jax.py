"""jax arrays: the generic path, with derivative rules, under jit, grad and vmap."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hotmax._boundary import Axis
from hotmax._derivatives import Point, push
from hotmax._dispatch import Operation
from hotmax._generic import Given, Layout, evaluate, weighted, words


def run(
    operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
) -> Any:
    given = Given(jnp, x, axis, temperature, where, wide(), is_traced(x, temperature))
    layout, heat = given.layout, given.temperature
    if isinstance(heat, float):
        heat = words(jnp, heat, given.x)
    y = value(operation.name, layout.axes, given.x, heat, given.where)
    if operation.reduces and not keepdims:
        y = jnp.reshape(y, layout.kept())
    return y.astype(given.dtype)


def run_weighted(
    x: Any,
    weights: Any,
    axis: Axis,
    temperature: Any,
    where: Any,
    return_sign: bool,
    keepdims: bool,
) -> Any:
    return weighted(
        jnp, x, weights, axis, temperature, where, return_sign, keepdims,
        wide=wide(), traced=is_traced(x, temperature, weights),
    )  # fmt: skip


def wide() -> Any:
    """The type that integers are computed in: jax has float64 only if it was switched on."""
    return jnp.result_type(float)


def is_traced(*arrays: Any) -> bool:
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


# Jitted: one program for all temperatures, where jax would compile a hundred operations apart, and
# call each by itself. A number as temperature comes in two words, with all its digits.
@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@partial(jax.jit, static_argnums=(0, 1))
def value(name: str, axes: tuple[int, ...], x: Any, heat: Any, where: Any) -> Any:
    x = jnp.asarray(x)  # numerical checks of derivatives hand in NumPy arrays
    return evaluate(name, jnp, x, heat, where, Layout(x.shape, axes))


@value.defjvp
@partial(jax.jit, static_argnums=(0, 1))
def value_and_change(name: str, axes: tuple[int, ...], at: Any, changes: Any) -> Any:
    x, heat, where = jnp.asarray(at[0]), at[1], at[2]

    def function(other: str) -> Any:
        return value(other, axes, x, heat, where)

    fixed = isinstance(heat, tuple)
    point = Point(jnp, x, heat[0] if fixed else heat, where, Layout(x.shape, axes), function)
    return function(name), push(name, point, changes[0], 0.0 if fixed else changes[1])
