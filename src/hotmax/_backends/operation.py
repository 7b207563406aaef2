"""One function for NumPy arrays, and for those of other libraries.

A function is written for NumPy, beside a formula that any array library can run. What its first
argument is decides: torch tensors on the CPU share their memory with NumPy and go to the first,
with its gradient as their derivative; so do blocks of dask arrays; all others go to the formula.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from hotmax._backends.protocol import backend_of
from hotmax._core.arrays import as_mask, refuse_masked

P = ParamSpec("P")
R = TypeVar("R")


def for_any_array(
    formula: Callable[..., Any], by: tuple[str, ...] = (), attends: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arrays of other libraries too; `by` names what it gives gradients for.

    `attends`: it is one of attention's, which has an autograd function of its own.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = next(iter(signature.parameters))

        @functools.wraps(function)
        def adapted(*args: P.args, **kwargs: P.kwargs) -> R:
            backend = backend_of(args[0] if args else kwargs.get(name))
            if backend is None:
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            check_masks(arguments)
            if attends:
                return backend.attend(function, formula, arguments)
            return_grad = arguments.pop("return_grad", False)
            return backend.call(function, formula, by, arguments, return_grad)

        return adapted

    return decorate


def check_masks(arguments: dict[str, Any]) -> None:
    """Masked arrays of NumPy beside arrays of another library: only `where` has a place for them.

    The libraries drop the mask of any other. Dask's blocks may be masked arrays themselves.
    """
    for name, value in arguments.items():
        backend = backend_of(value)
        if name == "where" and isinstance(value, np.ma.MaskedArray):
            arguments[name] = as_mask(value)
        elif backend is None:
            refuse_masked(value, name)
        else:
            backend.refuse_masked(value, name)
