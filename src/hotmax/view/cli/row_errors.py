"""Errors of rows, told with the name of the file and the row as the file counts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hotmax._core.arrays import Array
from hotmax.view.cli.options import Input

BLOCK = 1 << 21  # entries that are looked at together


@contextmanager
def naming_the_file(input: Input) -> Iterator[None]:
    """Have errors name the file, and the row as the file counts it.

    Calibration counts the rows that it is given, which are those of a split or of a block. Blocks
    of a source name their own file.
    """
    from hotmax._kernels.calibration import rows as kernels
    from hotmax.calibration.examples import WRONG

    found = input.predictions
    if found is None:
        yield
        return
    try:
        yield
    except ValueError as error:
        source = input.name
        if found.multilabel:
            raise ValueError(f"{source}: {error}") from error
        fault = next((kind for kind, text in WRONG.items() if text in str(error)), None)
        fault = kernels.IS_EMPTY if fault is None else fault  # whose softmax is nan
        row = row_with(fault, found.logits, found.labels)
        what = str(error) if row is None else f"row {row} {WRONG[fault]}"
        if row is not None and fault == kernels.LABEL_IS_ABSENT and input.probabilities:
            what = f"row {row} gives its label probability 0: --clip 1e-12 makes that the least"
        raise ValueError(f"{source}: {what}") from error


def row_with(fault: int, logits: Array, labels: Array | None) -> int | None:
    """The first row of the file with a fault that no softmax, or no likelihood, exists for."""
    from hotmax._kernels.calibration import rows as kernels

    step = max(BLOCK // logits.shape[1], 1)
    for start in range(0, len(logits), step):
        part = logits[start : start + step]
        top = part.max(1)
        wrong = top == (np.inf if fault == kernels.HAS_INF else -np.inf)
        if fault == kernels.LABEL_IS_ABSENT and labels is not None:
            wrong = part[np.arange(len(part)), labels[start : start + step]] == -np.inf
        if wrong.any():
            return start + int(np.argmax(wrong))
    return None
