"""The functions of the core by name, and the kernels of each."""

from __future__ import annotations

import math

from hotmax._boundary import FLOAT32, Array
from hotmax._dispatch import Operation
from hotmax._kernels import lanes, moments, softmax as kernels
from hotmax._kernels.lanes import SHORT, softmax_small

SMALL = 32  # rows

SOFTMAX = Operation(
    "softmax",
    kernels.softmax_rows,
    lanes.softmax_lanes,
    kernels.softmax_block,
    reduces=False,
    empty=0.0,
)
LOG_SOFTMAX = Operation(
    "log_softmax",
    kernels.log_softmax_rows,
    lanes.log_softmax_lanes,
    kernels.log_softmax_block,
    reduces=False,
    empty=-math.inf,
)
LOGSUMEXP = Operation(
    "logsumexp",
    kernels.logsumexp_rows,
    lanes.logsumexp_lanes,
    kernels.logsumexp_of,
    reduces=True,
    empty=None,
)
SMOOTHMAX = Operation(
    "smoothmax",
    kernels.smoothmax_rows,
    lanes.smoothmax_lanes,
    kernels.smoothmax_of,
    reduces=True,
    empty=None,
)
ENTROPY = Operation("entropy", moments.entropy_rows, None, None, reduces=True, empty=0.0)
SOFTARGMAX = Operation("softargmax", moments.softargmax_rows, None, None, reduces=True, empty=0.0)

OPERATIONS = {
    operation.name: operation
    for operation in (SOFTMAX, LOG_SOFTMAX, LOGSUMEXP, SMOOTHMAX, ENTROPY, SOFTARGMAX)
}


def softmax_of_few(x: Array, temperature: object) -> Array | None:
    """A few short rows of float32, or None for anything else: the way to a kernel is most of it."""
    if (
        x.dtype is FLOAT32
        and len(shape := x.shape) == 2
        and 0 < shape[1] <= SHORT
        and shape[0] <= SMALL
        and type(temperature) is float
        and temperature == temperature
        and softmax_small(result := x.copy(), temperature)
    ):
        return result
    return None
