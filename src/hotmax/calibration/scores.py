"""What each row scores: the arrays that all metrics are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._boundary import Array
from hotmax._kernels import calibration as kernels
from hotmax._softmax import softmax
from hotmax.calibration.examples import Examples, blocks_of, over_blocks, raise_first


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


def score(examples: Examples, temperature: float) -> Scores:
    rows = examples.rows
    scores, predictions = np.empty((kernels.SCORED, rows)), np.empty(rows, np.int64)
    given = examples.probabilities and temperature == 1.0
    if given:
        score_probabilities(examples, scores, predictions)
    else:
        score_logits(examples, temperature, scores, predictions)
    kind = examples.x.dtype if given and examples.x.dtype.kind in "fV" else np.float64
    return Scores(
        scores[kernels.CONFIDENCE],
        scores[kernels.CORRECT],
        scores[kernels.LOSS],
        scores[kernels.BRIER],
        predictions,
        examples.weights,
        kind,
    )


def score_logits(examples: Examples, temperature: float, scores: Array, predictions: Array) -> None:
    trouble = np.zeros((blocks_of(examples.rows, examples.classes), 2), np.int64)

    def work(number: int, start: int, stop: int) -> None:
        block, inverse = examples.tempered(start, stop, temperature)
        labels, soft, weights = examples.labels_of(start, stop)
        kind, row = kernels.score(
            block,
            labels,
            soft,
            weights,
            inverse,
            predictions[start:stop],
            scores[:, start:stop],
        )
        trouble[number] = kind, start + row

    over_blocks(examples.rows, examples.classes, work)
    raise_first(trouble, examples)


def score_probabilities(examples: Examples, scores: Array, predictions: Array) -> None:
    """From the probabilities as they are: not a digit is changed on the way to the bins."""

    def work(number: int, start: int, stop: int) -> None:
        p = np.minimum(examples.x[start:stop].astype(np.float64), 1.0)
        labels, soft, _ = examples.labels_of(start, stop)
        at = np.arange(len(p))
        q = soft if labels.size == 0 else np.zeros_like(p)
        if labels.size:
            q[at, labels] = 1.0
        best = p.argmax(1)
        predictions[start:stop] = best
        scores[kernels.CONFIDENCE, start:stop] = p[at, best]
        scores[kernels.CORRECT, start:stop] = q[at, best]
        with np.errstate(divide="ignore"):
            losses = -np.log(p, where=q > 0, out=np.zeros_like(p))
        scores[kernels.LOSS, start:stop] = (q * losses).sum(1)
        scores[kernels.BRIER, start:stop] = ((p - q) ** 2).sum(1)

    over_blocks(examples.rows, examples.classes, work)


def probabilities(examples: Examples, temperature: float, start: int, stop: int) -> Array:
    """Rows start..stop as float64 probabilities; 0 in rows that are ignored."""
    if examples.probabilities and temperature == 1.0:
        p = np.minimum(examples.x[start:stop].astype(np.float64), 1.0)
    else:
        p = softmax(examples.block(start, stop).astype(np.float64), temperature=temperature)
    if examples.weights.size > 1:
        p[~(examples.weights[start:stop] > 0)] = 0.0
    return p
