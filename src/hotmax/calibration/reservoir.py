"""A reservoir: rows drawn at random, for fits whose memory or time grows with the rows.

A row is in it by the hash of (seed, row number): an array, a file and a cluster give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hotmax._core.checks import as_integer
from hotmax.calibration.examples import Examples, no_rows
from hotmax.calibration.row_hash import RESERVOIR, hashes_of, reservoir_limit, row_hashes
from hotmax.calibration.row_parts import KeptRows, RowParts, Split

MOST_ROWS = 20_000  # to fit a calibrator with many parameters to, or prediction sets
MOST_RESERVOIR_LOGITS = 1 << 24  # in those rows, where their number is not given


@dataclass(frozen=True)
class Reservoir:
    """The job that keeps `wanted` rows, drawn by the hash of (seed, row) from those with weight."""

    wanted: int
    rows: int  # that there are to draw from, or a bound
    seed: int
    split: Split | None = None

    def __call__(self, examples: Examples) -> KeptRows:
        part = examples if self.split is None else self.split.of(examples)
        numbers = part.offset + np.arange(part.rows)
        hashes = row_hashes(self.seed, RESERVOIR, part.offset, part.offset + part.rows)
        limit = np.uint64(reservoir_limit(self.wanted, self.rows))
        index = np.flatnonzero((hashes <= limit) & (part.weight_of_rows() > 0))
        if index.size:
            part.check()  # before rows are taken out, and lose their numbers
        kept = part.taking(index)
        if kept.weights.size > 1 and (kept.weights == 1.0).all():
            kept = replace(kept, weights=np.ones(1))
        return KeptRows([(numbers[index], kept)])

    def chosen(self, kept: KeptRows) -> Examples:
        """Of the rows that were kept, the `wanted` with the smallest hashes, in order."""
        examples, numbers = kept.examples(), kept.numbers()
        if numbers.size <= self.wanted:
            return examples
        hashes = hashes_of(self.seed, RESERVOIR, numbers)
        index = np.sort(np.argpartition(hashes, self.wanted - 1)[: self.wanted])
        return examples.taking(index)


def rows_to_fit(
    rows: RowParts, max_rows: int | None, seed: int, split: Split | None = None
) -> Examples:
    """All rows, or a reservoir of them if they are more than `max_rows`; of those of a split."""
    if max_rows is None:
        most = max(min(MOST_ROWS, MOST_RESERVOIR_LOGITS // rows.classes), 1)
    else:
        most = as_integer(max_rows, "max_rows", 1)
    if rows.rows <= most:
        examples = rows.all_rows() if split is None else split.of(rows.all_rows())
    else:
        job = Reservoir(most, rows.rows if split is None else split.count, seed, split)
        examples = job.chosen(rows.run(job))
    if not examples.rows or not examples.weight_of_rows().any():
        raise no_rows()
    return examples
