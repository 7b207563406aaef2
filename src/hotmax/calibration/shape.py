"""The shape of predictions, which needs no labels: how sure, how many classes, how sensitive."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax._softmax.saturation import Saturation
from hotmax.calibration.binning import BINS, width_edges
from hotmax.calibration.exact_sums import ExactSums
from hotmax.calibration.examples import Examples

SATURATION = 1 << 21  # logits to look at for saturation, at most
SWEPT = 1 << 20  # for the temperatures
TEMPERATURES = np.geomspace(0.1, 10.0, 25)
ENTROPY_CELLS = 1 << 14  # of equal width, for quantiles of more rows than are kept
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
            `swept_rows` rows, drawn at random.
        slope: How much the mean confidence changes if the temperature rises by 10 %.
        saturation: Of `saturation.rows` rows, drawn at random.
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


class ShapeSums:
    """Sums and histograms of confidence and entropy; entropies themselves while rows are few."""

    def __init__(self, classes: int, keep: bool) -> None:
        self.rows = 0
        self.means = ExactSums(2)
        self.sure = np.zeros(BINS, np.int64)
        self.effective = np.zeros(effective_edges(classes).size - 1, np.int64)
        self.entropies = np.zeros(ENTROPY_CELLS, np.int64)
        self.kept: list[tuple[int, Array]] | None = [] if keep else None

    def merge(self, other: ShapeSums) -> ShapeSums:
        self.rows += other.rows
        self.means.merge(other.means)
        self.sure += other.sure
        self.effective += other.effective
        self.entropies += other.entropies
        if self.kept is not None and other.kept is not None:
            self.kept += other.kept
        return self

    def quantiles(self, classes: int) -> tuple[float, ...]:
        """Quantiles of the effective number of classes; of many rows, within cells of entropy."""
        if self.kept is not None:
            parts = [part for _, part in sorted(self.kept, key=lambda pair: pair[0])]
            exact = np.clip(np.exp(np.concatenate(parts)), 1.0, classes)
            return tuple(map(float, np.quantile(exact, QUANTILES)))
        edges = np.linspace(0.0, math.log(classes), ENTROPY_CELLS + 1)
        reached = np.concatenate([[0], np.cumsum(self.entropies)])
        entropies = np.interp(np.array(QUANTILES) * self.rows, reached, edges)
        return tuple(map(float, np.exp(entropies)))


def effective_edges(classes: int) -> Array:
    return np.geomspace(1.0, classes, min(4 * classes, 24) + 1)


@dataclass(frozen=True)
class ShapeOf:
    """The job that looks at confidence and entropy."""

    keep: bool

    def __call__(self, examples: Examples) -> ShapeSums:
        return self.add(ShapeSums(examples.classes, self.keep), examples)

    def add(self, sums: ShapeSums, examples: Examples) -> ShapeSums:
        if not (examples.weights == 1.0).all():  # rows of weight 0 are left out, others count once
            examples.check()  # before rows are taken out, and lose their numbers
            there = np.flatnonzero(examples.weight_of_rows() > 0)
            if not there.size:
                return sums
            examples = replace(examples.taking(there), offset=examples.offset)
        block = examples.block(0, examples.rows)
        if not np.isfinite(block.max(1)).all():
            complain(examples, block)
        sure, entropies = confidences(block), hm.entropy(block).astype(np.float64)
        sums.rows += examples.rows
        sums.means.add(np.stack([sure, entropies]))
        sums.sure += np.histogram(sure, width_edges(BINS))[0]
        edges = effective_edges(examples.classes)
        effective = np.clip(np.exp(entropies), edges[0], edges[-1])
        sums.effective += np.histogram(effective, edges)[0]
        cells = entropies * (ENTROPY_CELLS / math.log(examples.classes))
        cells = np.clip(cells, 0, ENTROPY_CELLS - 1).astype(np.int64)
        sums.entropies += np.bincount(cells, minlength=ENTROPY_CELLS)
        if sums.kept is not None:
            sums.kept.append((examples.offset, entropies))
        return sums


def complain(examples: Examples, block: Array) -> None:
    """Say what is wrong with the first row that is no distribution."""
    row = int(np.argmax(~np.isfinite(block.max(1))))
    values = block[row]
    kind = kernels.IS_EMPTY
    if np.isnan(values).any():
        kind = kernels.HAS_NAN
    elif np.isposinf(values).any():
        kind = kernels.HAS_INF
    examples.complain(kind, row)


def sample_size(classes: int) -> int:
    """Rows that saturation and temperatures are looked at on."""
    return max(SATURATION // classes, 1)


def shape_from(sums: ShapeSums, sample: Examples) -> Shape:
    """The shape from the sums of all rows, and from a sample of them."""
    rows, classes = sums.rows, sample.classes
    x = sample.block(0, sample.rows).astype(np.float64)
    swept = x[: max(SWEPT // classes, 1)]
    means = [confidences(swept, t).mean() for t in TEMPERATURES]
    warmer, now = confidences(swept, 1.1).mean(), confidences(swept).mean()
    return Shape(
        confidence=sums.means.value(0) / rows,
        entropy=sums.means.value(1) / rows,
        effective=sums.quantiles(classes),
        confidence_edges=width_edges(BINS),
        confidence_shares=sums.sure / rows,
        effective_edges=effective_edges(classes),
        effective_shares=sums.effective / rows,
        temperatures=TEMPERATURES,
        confidence_at=np.array(means),
        entropy_at=np.array([hm.entropy(swept, temperature=t).mean() for t in TEMPERATURES]),
        swept_rows=len(swept),
        slope=float(warmer - now),
        saturation=hm.saturation(x),
    )
