"""Arrays of any library that keeps to the array API: array_api_strict, cupy and others."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from hotmax._backends.call_arguments import CallArguments, apply_row_formula
from hotmax._backends.protocol import ArrayOperation, Backend


class ArrayAPI(Backend):
    """The generic formulas, and nothing that only some libraries have."""

    name = "array_api"

    def from_numpy(self, array: Any, like: Any, keep_type: bool = False) -> Any:
        return array_namespace(like).asarray(np.asarray(array), **self.placement(like))

    def call(self, operation: ArrayOperation, arguments: dict[str, Any]) -> Any:
        if not operation.takes_row_formula(arguments):
            return super().call(operation, arguments)
        xp = array_namespace(arguments["x"])
        checked = CallArguments(xp, *(arguments[n] for n in ("x", "axis", "temperature", "where")))
        with np.errstate(all="ignore"):  # strict arrays are NumPy's underneath
            y = apply_row_formula(
                operation, xp, checked.x, checked.temperature, checked.where, checked.layout
            )
        if operation.reduces and not arguments["keepdims"]:
            y = xp.reshape(y, checked.layout.kept())
        return y if y.dtype == checked.dtype else xp.astype(y, checked.dtype)


BACKEND = ArrayAPI()
