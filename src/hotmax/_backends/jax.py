"""jax arrays: the generic path, with derivative rules, under jit, grad and vmap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hotmax._backends.call_arguments import (
    CallArguments,
    apply_row_formula,
    temperature_hi_lo,
)
from hotmax._backends.derivatives import DerivativePoint, push
from hotmax._backends.layout import Layout
from hotmax._backends.operation import OPERATIONS
from hotmax._backends.protocol import Arguments, Array, ArrayOperation, Backend, Formula


class Jax(Backend):
    """Arrays of jax, on any device, known or traced."""

    name = "jax"
    takes_values = True

    def to_numpy(self, x: Array, name: str = "x") -> Any:
        if is_tracer(x):
            raise TypeError(f"{name} is traced, as inside jax.jit: call this outside of it")
        return np.asarray(x)

    def from_numpy(self, array: Any, like: Array, keep_type: bool = False) -> Array:
        array = np.asarray(array)
        kind = jax.dtypes.canonicalize_dtype(array.dtype)
        if keep_type and jnp.issubdtype(like.dtype, jnp.floating):
            kind = like.dtype
        return jnp.asarray(array.astype(kind))

    def is_traced(self, x: Array) -> bool:
        return is_tracer(x)

    def stop_gradient(self, x: Array) -> Array:
        return jax.lax.stop_gradient(x)

    def placement(self, like: Array) -> dict[str, Any]:
        return {}  # jax moves arrays itself, and takes no hint while it traces

    def widest_float(self, xp: Any) -> Any:
        return widest_jax_float()

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
        recomputed = jax.checkpoint(lambda h, y: function(h, y, *shared))
        return jax.lax.map(lambda tile: recomputed(*tile), tiles).reshape(-1)[:count]

    def vjp(self, formula: Formula, points: Arguments, options: Arguments, g: Array) -> Arguments:
        _, pull = jax.vjp(lambda at: formula(**at, **options), points)
        gradients: Arguments = pull(g)[0]
        return gradients

    def call(self, operation: ArrayOperation, arguments: Arguments) -> Any:
        if operation.takes_row_formula(arguments):
            return run_row_formula(operation, arguments)
        formula = operation.formula
        assert formula is not None
        if not arguments.pop("return_grad", False):
            return formula(**arguments)
        by = operation.differentiable
        names = [name for name in by if arguments[name] is not None]

        def summed(points: Arguments) -> Any:
            value = formula(**{**arguments, **points})
            return value.sum(), value

        points = {name: arguments[name] for name in names}
        (_, value), gradients = jax.value_and_grad(summed, has_aux=True)(points)
        found = tuple(gradients.get(name) for name in by)
        return value, found if len(found) > 1 else found[0]


BACKEND = Jax()


def widest_jax_float() -> Any:
    """The type that integers are computed in: jax has float64 only if it was switched on."""
    return jnp.result_type(float)


def is_tracer(array: Any) -> bool:
    return isinstance(array, jax.core.Tracer)


def run_row_formula(operation: ArrayOperation, arguments: Arguments) -> Any:
    """One of the softmax family."""
    x, axis, where = arguments["x"], arguments["axis"], arguments["where"]
    checked = CallArguments(jnp, x, axis, arguments["temperature"], where)
    layout, temperature = checked.layout, checked.temperature
    if isinstance(temperature, float):
        temperature = temperature_hi_lo(jnp, temperature, checked.x)
    y = value(operation.name, layout.axes, checked.x, temperature, checked.where)
    if operation.reduces and not arguments["keepdims"]:
        y = jnp.reshape(y, layout.kept())
    return y.astype(checked.dtype)


# Jitted as one program for all temperatures: otherwise jax compiles a hundred operations, and calls
# them one by one. A temperature that is a number is passed as a double-double, with all its digits.
@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@partial(jax.jit, static_argnums=(0, 1))
def value(name: str, axes: tuple[int, ...], x: Any, temperature: Any, where: Any) -> Any:
    x = jnp.asarray(x)  # numerical checks of derivatives hand in NumPy arrays
    layout = Layout(x.shape, axes)
    return apply_row_formula(OPERATIONS[name], jnp, x, temperature, where, layout)


@value.defjvp
@partial(jax.jit, static_argnums=(0, 1))
def value_and_change(name: str, axes: tuple[int, ...], at: Any, changes: Any) -> Any:
    x, temperature, where = jnp.asarray(at[0]), at[1], at[2]

    def function(other: str) -> Any:
        return value(other, axes, x, temperature, where)

    fixed = isinstance(temperature, tuple)
    t = temperature[0] if fixed else temperature
    point = DerivativePoint(jnp, x, t, where, Layout(x.shape, axes), function)
    by_temperature = None if fixed else changes[1].astype(x.dtype)
    return function(name), push(name, point, changes[0], by_temperature)
