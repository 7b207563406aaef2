"""The classifier that the page holds: the logits of the demo, in steps of 1 / 1024."""

from __future__ import annotations

import base64
import json

import numpy as np

from hotmax._core.arrays import Array
from hotmax.view.explorer.assemble import source_text


def digits() -> tuple[Array, Array]:
    """(logits, labels) of the 1597 digits in the explorer, from `hotmax.view.demo`.

    They are stored in the page, so that it and Python have the same numbers everywhere.

    Example:
        >>> from hotmax.view.explorer.digits import digits
        >>> logits, labels = digits()
        >>> logits.shape, labels.shape
        ((1597, 10), (1597,))
    """
    stored = json.loads(source_text("digits.json"))
    steps = np.frombuffer(base64.b64decode(stored["logits"]), "<i2")
    logits = steps.reshape(stored["rows"], stored["classes"]) / stored["scale"]
    return logits, np.array(list(map(int, stored["labels"])))
