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
    y = value(operation.name, layout.axes, given.x, given.temperature, given.where)
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


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def value(name: str, axes: tuple[int, ...], x: Any, temperature: Any, where: Any) -> Any:
    layout = Layout(x.shape, axes)
    return evaluate(name, jnp, x, temperature, where, layout)


@value.defjvp
def value_and_change(name: str, axes: tuple[int, ...], at: Any, changes: Any) -> Any:
    x, temperature, where = at
    dx, dt, _ = changes
    layout = Layout(x.shape, axes)

    def function(other: str) -> Any:
        return value(other, axes, x, temperature, where)

    point = Point(jnp, x, temperature, where, layout, function)
    return function(name), push(name, point, dx, dt)
