"""One output for "yes": as those of two classes; and its targets."""

from __future__ import annotations

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax.calibration.examples import INPUTS


def as_two_classes(outputs: object, *, input: str = "logits") -> Array:
    """One output for "yes" as those of two classes, "no" and "yes", which all metrics take.

    Logits x become (0, x), since sigmoid(x) is the softmax of these; probabilities p
    become (1 - p, p). The new axis is the last one.

    Args:
        outputs: Of any shape: (rows,) of a binary classifier, (rows, labels) of a multilabel one.
        input: What they are, "logits" or "probabilities".

    Example:
        >>> import hotmax as hm
        >>> hm.calibration.as_two_classes([2.0, -1.0])
        array([[ 0.,  2.],
               [ 0., -1.]])
        >>> round(hm.calibration.nll(hm.calibration.as_two_classes([2.0, -1.0]), [1, 1]), 4)
        0.7201
    """
    refuse_masked(outputs, "outputs")
    x = np.asarray(outputs)
    if x.dtype.kind not in "fiu":
        raise TypeError(f"outputs must be real numbers, got {x.dtype}")
    if input not in INPUTS:
        raise ValueError(f"input must be one of {', '.join(INPUTS)}, got {input!r}")
    x = x.astype(np.float64)
    if np.isnan(x).any():
        raise ValueError("outputs must hold no nan")
    if input == "probabilities" and not ((x >= 0.0) & (x <= 1.0)).all():
        raise ValueError("outputs must be probabilities, in 0..1")
    return np.stack([1.0 - x if input == "probabilities" else np.zeros_like(x), x], axis=-1)


def yes_or_no(targets: object, shape: tuple[int, ...]) -> Array:
    """Labels 0 and 1, of the shape of the outputs."""
    refuse_masked(targets, "targets")
    y = np.asarray(targets)
    if y.shape != shape:
        raise ValueError(f"targets must have the shape of the outputs, {shape}, got {y.shape}")
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise ValueError("targets must be 0 or 1")
    return y.astype(np.int64)
