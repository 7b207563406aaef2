"""The backend of dask: nothing is computed before it is asked for."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np

from hotmax._backends import dask_rows, dask_softmax
from hotmax._backends.protocol import Arguments, ArrayOperation, Backend


class Dask(Backend):
    """Lazy arrays: nothing is computed before it is asked for."""

    name = "dask"

    def from_numpy(self, array: Any, like: Any, keep_type: bool = False) -> Any:
        return da.from_array(np.asarray(array))

    def call(self, operation: ArrayOperation, arguments: Arguments) -> Any:
        if arguments.pop("return_grad", False):
            raise TypeError("return_grad needs arrays of NumPy, torch or jax")
        if operation.takes_row_formula(arguments):
            return dask_softmax.run_softmax(operation, arguments)
        if operation.row_formula is not None:
            return dask_softmax.run_weighted(**arguments)
        for name, value in arguments.items():
            refuse_masked_blocks(value, name)
        if operation.formula_only:
            return super().call(operation, arguments)
        return dask_rows.run_on_rows(operation, arguments)


def refuse_masked_blocks(x: Any, name: str) -> None:
    """Raise if the blocks of x are masked arrays, whose masks only the softmax family reads."""
    if isinstance(x, da.Array) and isinstance(x._meta, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a Dask array of masked arrays here: take their values, "
            f"dask.array.ma.getdata({name}), and for logits "
            f"where=~dask.array.ma.getmaskarray({name})"
        )


BACKEND = Dask()
