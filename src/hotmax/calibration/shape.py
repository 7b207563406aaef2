"""The shape of predictions, which needs no labels: how sure, how many classes, how sensitive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax._softmax.saturation import Saturation
from hotmax.calibration.binning import BINS, width_edges
from hotmax.calibration.examples import Examples, step_of

SATURATION = 1 << 21  # logits to look at for saturation, at most
SWEPT = 1 << 20  # for the temperatures
TEMPERATURES = np.geomspace(0.1, 10.0, 25)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Shape:
    """What softmax makes of logits.

    Attributes:
        confidence: The mean of the largest probability.
        entropy: Its mean, in nats.
        effective: QUANTILES over rows of exp(entropy), the effective number of classes.
        confidence_edges, confidence_shares: Histogram of the largest probability.
        effective_edges, effective_shares: Histogram of the effective number of classes.
        temperatures: At which the next two are the mean confidence and the mean entropy of
            `swept_rows` rows, evenly spaced.
        slope: How much the mean confidence changes if the temperature rises by 10 %.
        saturation: Of `saturation.rows` rows, evenly spaced.
    """

    confidence: float
    entropy: float
    effective: tuple[float, ...]
    confidence_edges: Array
    confidence_shares: Array
    effective_edges: Array
    effective_shares: Array
    temperatures: Array
    confidence_at: Array
    entropy_at: Array
    swept_rows: int
    slope: float
    saturation: Saturation


def confidences(logits: Array, temperature: float = 1.0) -> Array:
    """The largest probability of each row, from logits whose largest is finite."""
    largest: Array = hm.softmax(logits, temperature=temperature).max(1)
    return largest.astype(np.float64)


def every(examples: Examples, most: int) -> Array:
    """Evenly spaced rows with `most` logits or fewer, as float64."""
    count = max(most // examples.classes, 1)
    step = -(-examples.rows // count)
    return examples.taking(slice(None, None, step)).block(0, count).astype(np.float64)


def complain(examples: Examples, block: Array, start: int) -> None:
    """Say what is wrong with the first row that is no distribution."""
    row = int(np.argmax(~np.isfinite(block.max(1))))
    values = block[row]
    kind = kernels.IS_EMPTY
    if np.isnan(values).any():
        kind = kernels.HAS_NAN
    elif np.isposinf(values).any():
        kind = kernels.HAS_INF
    examples.complain(kind, start + row)


def shape_of_predictions(examples: Examples, progress: Callable[[str, float], None]) -> Shape:
    rows, classes = examples.rows, examples.classes
    sure, entropies = np.empty(rows), np.empty(rows)
    step = 4 * step_of(classes)
    for start in range(0, rows, step):
        progress("reading the logits", 0.2 * start / rows)
        block = examples.block(start, min(start + step, rows))
        if not np.isfinite(block.max(1)).all():
            complain(examples, block, start)
        here = slice(start, start + len(block))
        sure[here] = confidences(block)
        entropies[here] = hm.entropy(block)
    effective = np.exp(entropies)
    edges = np.geomspace(1.0, classes, min(4 * classes, 24) + 1)
    effective = np.clip(effective, edges[0], edges[-1])
    progress("looking at temperatures", 0.2)
    sample = every(examples, SWEPT)
    means = [confidences(sample, t).mean() for t in TEMPERATURES]
    warmer, now = confidences(sample, 1.1).mean(), confidences(sample).mean()
    return Shape(
        confidence=float(sure.mean()),
        entropy=float(entropies.mean()),
        effective=tuple(map(float, np.quantile(effective, QUANTILES))),
        confidence_edges=width_edges(BINS),
        confidence_shares=np.histogram(sure, width_edges(BINS))[0] / rows,
        effective_edges=edges,
        effective_shares=np.histogram(effective, edges)[0] / rows,
        temperatures=TEMPERATURES,
        confidence_at=np.array(means),
        entropy_at=np.array([hm.entropy(sample, temperature=t).mean() for t in TEMPERATURES]),
        swept_rows=len(sample),
        slope=float(warmer - now),
        saturation=hm.saturation(every(examples, SATURATION)),
    )
