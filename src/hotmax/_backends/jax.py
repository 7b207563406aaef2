"""jax arrays: the generic path, with derivative rules, under jit, grad and vmap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hotmax._backends.derivatives import Point, push
from hotmax._backends.protocol import Arguments, Array, Backend
from hotmax._core.arrays import Axis
from hotmax._core.dispatch import Operation
from hotmax._softmax.generic import Given, Layout, evaluate, weighted, words


class Jax(Backend):
    """Arrays of jax, on any device, known or traced."""

    name = "jax"
    has_gradients = takes_values = True

    def to_numpy(self, x: Array, name: str = "x") -> Any:
        if is_traced(x):
            raise TypeError(f"{name} is traced, as inside jax.jit: call this outside of it")
        return np.asarray(x)

    def from_numpy(self, array: Any, like: Array, keep_type: bool = False) -> Array:
        array = np.asarray(array)
        kind = jax.dtypes.canonicalize_dtype(array.dtype)
        if keep_type and jnp.issubdtype(like.dtype, jnp.floating):
            kind = like.dtype
        return jnp.asarray(array.astype(kind))

    def is_traced(self, x: Array) -> bool:
        return is_traced(x)

    def stop_gradient(self, x: Array) -> Array:
        return jax.lax.stop_gradient(x)

    def placement(self, like: Array) -> dict[str, Any]:
        return {}  # jax moves arrays itself, and takes no hint while it traces

    def widest_float(self, xp: Any) -> Any:
        return wide()

    def map_tiles(
        self,
        function: Callable[..., Array],
        rows: Array,
        labels: Array,
        shared: tuple[Any, ...],
        step: int,
    ) -> Array:
        """Tiles of one size, the last one filled up with rows that are left out of the result."""
        count, features = rows.shape
        more = -count % step
        tiles = (
            jnp.pad(rows, ((0, more), (0, 0))).reshape(-1, step, features),
            jnp.pad(labels, (0, more)).reshape(-1, step),
        )
        again = jax.checkpoint(lambda h, y: function(h, y, *shared))
        return jax.lax.map(lambda tile: again(*tile), tiles).reshape(-1)[:count]

    def vjp(self, function: Callable[[Arguments], Array], points: Arguments, g: Array) -> Arguments:
        _, pull = jax.vjp(function, points)
        gradients: Arguments = pull(g)[0]
        return gradients

    def run(
        self, operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
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
        self,
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

    def call(
        self,
        function: Callable[..., Any],
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        return_grad: bool,
    ) -> Any:
        if not return_grad:
            return formula(**arguments)
        names = [name for name in by if arguments[name] is not None]

        def summed(points: Arguments) -> Any:
            value = formula(**{**arguments, **points})
            return value.sum(), value

        points = {name: arguments[name] for name in names}
        (_, value), gradients = jax.value_and_grad(summed, has_aux=True)(points)
        found = tuple(gradients.get(name) for name in by)
        return value, found if len(found) > 1 else found[0]


BACKEND = Jax()


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
    by_heat = None if fixed else changes[1].astype(x.dtype)
    return function(name), push(name, point, changes[0], by_heat)
