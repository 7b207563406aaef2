"""jax arrays: the generic path, with derivative rules, under jit, grad and vmap."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hotmax._boundary import Axis
from hotmax._derivatives import Point, push
from hotmax._dispatch import Operation
from hotmax._generic import Given, Layout, evaluate, weighted


def run(
    operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
) -> Any:
    given = Given(jnp, x, axis, temperature, where, wide(), is_traced(x, temperature))
    layout = given.layout
    heat = given.temperature
    fixed = heat if isinstance(heat, float) else None
    heat = None if isinstance(heat, float) else heat
    y = value(operation.name, layout.axes, fixed, given.x, heat, given.where)
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


# A temperature that is a number stays one, with all its digits: `fixed`, and then `heat` is None.
@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def value(
    name: str, axes: tuple[int, ...], fixed: float | None, x: Any, heat: Any, where: Any
) -> Any:
    x = jnp.asarray(x)  # numerical checks of derivatives hand in NumPy arrays
    return evaluate(name, jnp, x, heat if fixed is None else fixed, where, Layout(x.shape, axes))


@value.defjvp
def value_and_change(
    name: str, axes: tuple[int, ...], fixed: float | None, at: Any, changes: Any
) -> Any:
    x, heat, where = jnp.asarray(at[0]), at[1], at[2]

    def function(other: str) -> Any:
        return value(other, axes, fixed, x, heat, where)

    temperature = heat if fixed is None else fixed
    point = Point(jnp, x, temperature, where, Layout(x.shape, axes), function)
    return function(name), push(name, point, changes[0], 0.0 if fixed is not None else changes[1])
