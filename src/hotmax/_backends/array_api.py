"""Arrays of any library that keeps to the array API: array_api_strict, cupy and others."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.protocol import Backend
from hotmax._core.arrays import Axis
from hotmax._core.dispatch import Operation
from hotmax._softmax.generic import Given, evaluate, weighted


class ArrayAPI(Backend):
    """The generic formulas, and nothing that only some libraries have."""

    name = "array_api"

    def run(
        self, operation: Operation, x: Any, axis: Axis, temperature: Any, where: Any, keepdims: bool
    ) -> Any:
        xp = array_namespace(x)
        given = Given(xp, x, axis, temperature, where, xp.float64)
        with np.errstate(all="ignore"):  # strict arrays are NumPy's underneath
            y = evaluate(operation.name, xp, given.x, given.temperature, given.where, given.layout)
        if operation.reduces and not keepdims:
            y = xp.reshape(y, given.layout.kept())
        return y if y.dtype == given.dtype else xp.astype(y, given.dtype)

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
        xp = array_namespace(x)
        with np.errstate(all="ignore"):
            return weighted(
                xp, x, weights, axis, temperature, where, return_sign, keepdims, wide=xp.float64
            )


BACKEND = ArrayAPI()
