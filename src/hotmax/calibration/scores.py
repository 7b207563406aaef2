"""What each row scores: the arrays that all metrics are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax._softmax.functions import softmax
from hotmax.calibration.examples import Examples, absent_at, blocks_of, over_blocks, raise_first


@dataclass(frozen=True)
class Scores:
    """One number for each row. `weights` is one for each row, or one for all."""

    confidence: Array
    correct: Array
    nll: Array
    brier: Array
    predictions: Array
    weights: Array
    dtype: Any  # the type in which confidences are exact: edges of bins are rounded to it


def edge_type(examples: Examples, temperature: float) -> Any:
    """float64, but for probabilities as they came: then their own type."""
    own = examples.probabilities and temperature == 1.0 and examples.x.dtype.kind in "fV"
    return examples.x.dtype if own else np.float64


def score(examples: Examples, temperature: float) -> Scores:
    rows = examples.rows
    scores, predictions = np.empty((kernels.SCORED, rows)), np.empty(rows, np.int64)
    trouble = np.zeros((blocks_of(rows, examples.classes), 2), np.int64)

    def work(number: int, start: int, stop: int) -> None:
        part = predictions[start:stop], scores[:, start:stop]
        trouble[number] = score_rows(examples, temperature, start, stop, *part)

    over_blocks(rows, examples.classes, work)
    raise_first(trouble, examples)
    return Scores(
        scores[kernels.CONFIDENCE],
        scores[kernels.CORRECT],
        scores[kernels.LOSS],
        scores[kernels.BRIER],
        predictions,
        examples.weights,
        edge_type(examples, temperature),
    )


def score_rows(
    examples: Examples,
    temperature: float,
    start: int,
    stop: int,
    predictions: Array,
    scores: Array,
) -> tuple[int, int]:
    """Write what rows start..stop score; returns what is wrong, with which row."""
    labels, soft, weights = examples.labels_of(start, stop)
    if examples.probabilities and temperature == 1.0:
        p = np.minimum(examples.x[start:stop].astype(np.float64), 1.0)
        score_probabilities(p, labels, soft, predictions, scores)
        return kernels.FINE, start
    block, inverse = examples.tempered(start, stop, temperature)
    kind, row = kernels.row_scores(block, labels, soft, weights, inverse, predictions, scores)
    return kind, start + row


def score_probabilities(
    p: Array, labels: Array, soft: Array, predictions: Array, scores: Array
) -> None:
    """From the probabilities as they are: not a digit is changed on the way to the bins."""
    at = np.arange(len(p))
    q = soft if labels.size == 0 else np.zeros_like(p)
    if labels.size:
        q[at, labels] = 1.0
    best = p.argmax(1)
    predictions[:] = best
    scores[kernels.CONFIDENCE] = p[at, best]
    scores[kernels.CORRECT] = q[at, best]
    with np.errstate(divide="ignore"):
        losses = -np.log(p, where=q > 0, out=np.zeros_like(p))
    scores[kernels.LOSS] = (q * losses).sum(1)
    scores[kernels.BRIER] = ((p - q) ** 2).sum(1)


def row_probabilities(examples: Examples, temperature: float, start: int, stop: int) -> Array:
    """Rows start..stop as float64 probabilities; 0 in rows that are ignored."""
    if examples.probabilities and temperature == 1.0:
        p = np.minimum(examples.x[start:stop].astype(np.float64), 1.0)
    else:
        x = examples.block(start, stop, absent_at(temperature)).astype(np.float64)
        p = softmax(x, temperature=temperature)
    if examples.weights.size > 1:
        p[~(examples.weights[start:stop] > 0)] = 0.0
    return p
