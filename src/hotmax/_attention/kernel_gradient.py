"""attention forward and backward by kernels, on NumPy arrays, for the autograd of a library."""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._attention.backward import Backward, sum_to_shape
from hotmax._attention.forward import attention_forward
from hotmax._attention.heads import Heads
from hotmax._backends.protocol import KernelGradient
from hotmax._core.arrays import Array


def forward(arguments: dict[str, Any]) -> tuple[Array, Array] | None:
    """(the result, the numbers of each query); None at temperature 0, where attention jumps."""
    heads = Heads(**arguments)
    return None if heads.has_infinite_beta else attention_forward(heads)


def backward(
    arguments: dict[str, Any],
    found: tuple[Array, Array],
    gradients: tuple[Array | None, Array | None],
    wanted: list[str],
) -> dict[str, Any]:
    """The gradients by the arguments that are wanted; `gradients` are by result and logsumexp."""
    heads, (out, numbers), (dout, by_logsumexp) = Heads(**arguments), found, gradients
    if dout is None:
        dout = np.zeros(out.shape, heads.kind)
    work = Backward(heads, dout, out, numbers, by_logsumexp)
    by_name: dict[str, Any] = {}
    if any(name in wanted for name in ("q", "k", "v", "temperature")):
        by_name["q"], by_name["k"], by_name["v"] = work.run()
    if "temperature" in wanted:
        by_name["temperature"] = work.temperature(by_name["q"])
    if "bias" in wanted:
        by_name["bias"] = work.bias(np.asarray(arguments["bias"]))
    if "sink" in wanted:
        by_name["sink"] = work.sink()
    return {name: sum_to_shape(by_name[name], np.asarray(arguments[name])) for name in wanted}


ATTENTION_GRADIENT = KernelGradient(
    ("q", "k", "v", "temperature", "bias", "sink"), forward, backward
)
