"""One function for NumPy arrays, and for those of other libraries.

A function is written for NumPy, beside a formula that any array library can run. What its first
argument is decides: torch tensors on the CPU share their memory with NumPy and go to the first,
with its gradient as their derivative; all others go to the formula.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hotmax._boundary import library_of

P = ParamSpec("P")
R = TypeVar("R")


def for_any_array(
    formula: Callable[..., Any], by: tuple[str, ...] = (), attends: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arrays of other libraries too; `by` names what it gives gradients for.

    `attends`: it is one of attention's, which has an autograd function of its own, and no way for
    dask's arrays.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = next(iter(signature.parameters))

        @functools.wraps(function)
        def adapted(*args: P.args, **kwargs: P.kwargs) -> R:
            first = args[0] if args else kwargs.get(name)
            library = library_of(first)
            if library is None or (attends and library == "dask"):
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if attends and library == "torch":
                from hotmax import _torch_attention

                return _torch_attention.run(function, formula, dict(bound.arguments))  # type: ignore[no-any-return]
            return run(function, formula, by, dict(bound.arguments))  # type: ignore[no-any-return]

        return adapted

    return decorate


def run(
    function: Callable[..., Any],
    formula: Callable[..., Any],
    by: tuple[str, ...],
    arguments: dict[str, Any],
) -> Any:
    library = library_of(next(iter(arguments.values())))
    wanted = arguments.pop("return_grad", False)
    if library == "torch":
        from hotmax import _torch_losses

        return _torch_losses.run(function, formula, by, arguments, wanted)
    if not wanted:
        return formula(**arguments)
    if library != "jax":
        raise TypeError("return_grad needs arrays of NumPy, torch or jax")
    return by_jax(formula, by, arguments)


def by_jax(formula: Callable[..., Any], by: tuple[str, ...], arguments: dict[str, Any]) -> Any:
    """(value, gradient of its sum): jax's own derivative of the formula."""
    import jax

    names = [name for name in by if arguments[name] is not None]

    def summed(points: dict[str, Any]) -> Any:
        value = formula(**{**arguments, **points})
        return value.sum(), value

    points = {name: arguments[name] for name in names}
    (_, value), gradients = jax.value_and_grad(summed, has_aux=True)(points)
    found = tuple(gradients.get(name) for name in by)
    return value, found if len(found) > 1 else found[0]
