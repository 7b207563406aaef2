"""The backend of dask: nothing is computed before it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hotmax._backends import dask_rows, dask_softmax
from hotmax._backends.protocol import Arguments, Backend
from hotmax._core.arrays import Axis
from hotmax._core.dispatch import Operation


class Dask(Backend):
    """Lazy arrays: nothing is computed before it is asked for."""

    name = "dask"

    def refuse_masked(self, x: Any, name: str) -> None:
        if isinstance(x._meta, np.ma.MaskedArray):
            raise TypeError(
                f"{name} must not be a Dask array of masked arrays here: take their values, "
                f"dask.array.ma.getdata({name}), and for logits "
                f"where=~dask.array.ma.getmaskarray({name})"
            )

    def run(
        self, operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
    ) -> Any:
        return dask_softmax.run(operation, x, axis, temperature, where, keepdims)

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
        return dask_softmax.run_weighted(
            x, weights, axis, temperature, where, return_sign, keepdims
        )

    def call(
        self,
        function: Callable[..., Any],
        formula: Callable[..., Any],
        by: tuple[str, ...],
        arguments: Arguments,
        return_grad: bool,
    ) -> Any:
        if return_grad:
            raise TypeError("return_grad needs arrays of NumPy, torch or jax")
        return dask_rows.run(function.__name__, arguments)

    def attend(
        self, function: Callable[..., Any], formula: Callable[..., Any], arguments: Arguments
    ) -> Any:
        return function(**arguments)  # which says that it takes no such arrays


BACKEND = Dask()
