"""Calibration by group: where predictions go wrong, with a test that accounts for all groups."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.checks import as_seed
from hotmax.calibration.binning import (
    BINS,
    CELL_POWERS,
    CONFIDENCE,
    CORRECT,
    FINE_BINS,
    ROWS,
    WEIGHT,
    add_to_cells,
    width_edges,
)
from hotmax.calibration.chance import LEVEL, SAMPLES, CalibrationTest, calibration_test
from hotmax.calibration.error_interval import binned_interval
from hotmax.calibration.estimate import Estimate
from hotmax.calibration.exact_sums import CellSums, ExactSums
from hotmax.calibration.examples import Examples, no_rows, one_temperature
from hotmax.calibration.method_score import share_estimate, union_of_cells
from hotmax.calibration.metrics import binned_error
from hotmax.calibration.row_parts import RowParts, row_parts
from hotmax.calibration.score_sums import NLL, fill_squares, normal_estimate
from hotmax.calibration.scores import score
from hotmax.calibration.verdict import verdict_of
from hotmax.calibration.weighted_sums import WeightedSums, Weighting

MOST_GROUPS = 200  # each takes about a megabyte


@dataclass(frozen=True)
class GroupScore:
    """The rows of one group.

    Attributes:
        name: Of the group.
        rows: How many.
        accuracy: With its Wilson interval.
        confidence: The mean confidence.
        gap: Mean confidence - accuracy; its interval is that of the accuracy.
        ece: With an interval that covers the true error.
        nll: The mean over rows, with 1.96 standard errors.
        test: Of the hypothesis that the predictions of this group are calibrated.
        adjusted: Its p-value times the number of groups, by Holm's rule: at most 5 % if the group
            stands out among all of them.
    """

    name: str
    rows: int
    accuracy: Estimate
    confidence: float
    gap: Estimate
    ece: Estimate
    nll: Estimate
    test: CalibrationTest
    adjusted: float

    @property
    def verdict(self) -> str:
        """Overconfident, underconfident or neither, at a level that holds for all groups."""
        if self.adjusted > LEVEL:
            return "no miscalibration found"
        return verdict_of(self.test)


@dataclass(frozen=True, eq=False)
class GroupCalibration:
    """The result of `by_group`: `groups`, in the order of their names; `level` is family-wise."""

    groups: tuple[GroupScore, ...]
    level: float = LEVEL

    @property
    def found(self) -> tuple[str, ...]:
        """The groups whose predictions are not calibrated."""
        return tuple(one.name for one in self.groups if one.adjusted <= self.level)

    def __str__(self) -> str:
        width = max(len("group"), *(len(one.name) for one in self.groups))
        lines = [
            f"{'group':<{width}}     rows     right      says  ECE (95 %)               p adj."
        ]
        for one in self.groups:
            low, high = one.ece.interval
            lines.append(
                f"{one.name:<{width}} {one.rows:>8} {one.accuracy.value:>9.1%} "
                f"{one.confidence:>9.1%}  {one.ece.value:.1%} ({low:.1%} to {high:.1%})".ljust(
                    width + 55
                )
                + f"  {one.adjusted:.3f}  {one.verdict}"
            )
        lines.append(
            f"{len(self.found)} of {len(self.groups)} groups are not calibrated; p-values are "
            f"Holm's: if all groups are calibrated, one is found in {self.level:.0%} of samples at "
            "most"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plot(self, ax: Any = None) -> Any:
        """Draw confidence and accuracy of each group on a matplotlib Axes, which is returned."""
        from hotmax.plots import plot_groups

        return plot_groups(self, ax=ax)


class GroupSums:
    """Sums over the rows of each group, in cells of confidence."""

    def __init__(self) -> None:
        self.cells: dict[int, CellSums] = {}
        self.losses: dict[int, ExactSums] = {}
        self.weighted: dict[int, WeightedSums] = {}  # in place of the two, where rows have weights

    def merge(self, other: GroupSums) -> GroupSums:
        for group in other.cells:
            if group in self.cells:
                self.cells[group].merge(other.cells[group])
                self.losses[group].merge(other.losses[group])
            else:
                self.cells[group], self.losses[group] = other.cells[group], other.losses[group]
        for group, sums in other.weighted.items():
            mine = self.weighted.get(group)
            self.weighted[group] = sums if mine is None else mine.merge(sums)
        return self


@dataclass(frozen=True, eq=False)
class GroupSumsAt:
    """The job that sums the rows of each group at a temperature."""

    codes: Array  # the group of each row of all
    temperature: float
    weighting: Weighting | None = None

    def __call__(self, examples: Examples) -> GroupSums:
        sums = GroupSums()
        codes = self.codes[examples.offset : examples.offset + examples.rows]
        codes = np.where(examples.weight_of_rows() > 0, codes, -1)
        if (codes >= 0).any():
            examples.check()  # before rows are taken out, and lose their numbers
        for group in np.unique(codes[codes >= 0]).tolist():
            part = score(examples.taking(np.flatnonzero(codes == group)), self.temperature)
            if self.weighting is not None:
                own = sums.weighted[group] = WeightedSums(1, examples.classes)
                own.add([part])
                continue
            cells, losses = CellSums(FINE_BINS, CELL_POWERS), ExactSums(2)
            edges = width_edges(FINE_BINS, part.dtype)
            add_to_cells(cells, part.confidence, part.correct, np.ones(1), edges)
            terms = np.empty((2, part.nll.size))
            fill_squares(terms, [part.nll])
            losses.add(terms)
            sums.cells[group], sums.losses[group] = cells, losses
        return sums


def holm(p_values: Array) -> Array:
    """p-values adjusted for their number by Holm's rule; none falls as the p-value rises."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(p_values.size, 0, -1)
    adjusted = np.empty(p_values.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


def as_codes(groups: object, rows: int, name: str = "groups") -> tuple[list[str], Array]:
    """(names, the number of each row's group), checked."""
    refuse_masked(groups, name)
    given = np.asarray(groups)
    if given.shape != (rows,):
        raise ValueError(f"{name} must have shape {(rows,)}, one for each row, got {given.shape}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError(f"{name}: row {int(np.argmax(~np.isfinite(given)))} has none")
    if given.dtype.kind not in "iubfUSOMT":
        raise TypeError(f"{name} must be numbers, text or dates, got {given.dtype}")
    if given.dtype.kind == "O":
        given = given.astype(str)
    found, codes = np.unique(given, return_inverse=True)
    if found.size > MOST_GROUPS:
        raise ValueError(
            f"{name}: {found.size} different values, and {MOST_GROUPS} are compared at most: "
            "join some, such as days to months"
        )
    return [str(name) for name in found.tolist()], codes.reshape(-1)


def by_group_rows(
    rows: RowParts,
    groups: object,
    temperature: float,
    seed: int,
    weighting: Weighting | None = None,
) -> GroupCalibration:
    """Calibration by group; `weighting`: where rows have weights or soft labels."""
    names, codes = as_codes(groups, rows.rows)
    sums: GroupSums = rows.run(GroupSumsAt(codes, temperature, weighting))
    there = sorted(sums.cells) or sorted(sums.weighted)
    if not there:
        raise no_rows()
    rng = np.random.default_rng(seed)
    # Enough samples for the smallest p-value to stand out among so many groups.
    samples = max(SAMPLES, 100 * len(there) - 1)
    ratios: dict[int, Array | None] = dict.fromkeys(there)
    if weighting is None:
        cells = {group: sums.cells[group].values() for group in there}
    else:
        cells = {group: fine_cells(sums.weighted[group]) for group in there}
        for group in there:
            ratios[group] = (
                sums.weighted[group]
                .residuals[0]
                .dispersion(in_bins(cells[group]), soft=weighting.soft, weighted=weighting.weighted)
            )
    tests = [calibration_test(cells[group], rng, samples, ratios[group]) for group in there]
    adjusted = holm(np.array([test.p_value for test in tests]))
    found = []
    for group, test, value in zip(there, tests, adjusted, strict=True):
        own, bins = cells[group], in_bins(cells[group])
        count = float(own[:, ROWS].sum())
        if weighting is None:
            accuracy = share_estimate(float(own[:, CORRECT].sum()), count)
            nll = normal_estimate(sums.losses[group], 0, int(count))
        else:
            accuracy = sums.weighted[group].accuracy(0)
            nll = sums.weighted[group].estimate(0, NLL)
        confidence = float(own[:, CONFIDENCE].sum()) / float(own[:, WEIGHT].sum())
        low, high = accuracy.interval
        error = binned_error(bins, "l1", False)
        found.append(
            GroupScore(
                name=names[group],
                rows=int(count),
                accuracy=accuracy,
                confidence=confidence,
                gap=Estimate(test.gap, (confidence - high, confidence - low)),
                ece=binned_interval(bins, error, "l1", rng, ratios[group]),
                nll=nll,
                test=test,
                adjusted=float(value),
            )
        )
    return GroupCalibration(tuple(found))


def fine_cells(sums: WeightedSums) -> Array:
    return union_of_cells(sums.cells[0].values(), sums.edges, FINE_BINS)


def in_bins(cells: Array) -> Array:
    bins: Array = cells.reshape(BINS, -1, cells.shape[1]).sum(1)
    return bins


def by_group(
    logits: object,
    labels: object = None,
    groups: object = None,
    *,
    temperature: object = 1.0,
    ignore_index: int | None = None,
    where: object = None,
    input: str = "logits",
    seed: int = 0,
    class_names: object = None,
) -> GroupCalibration:
    """Calibration by group (site, month, device): intervals, and a test for all groups together.

    Args:
        logits, labels, temperature, ignore_index, where, input, class_names: As in `nll`.
        groups: The group of each row: numbers, text or dates, 200 different ones at most.
        seed: Of the test, which draws labels from the predictions' own probabilities.

    Returns:
        A GroupCalibration. If all groups are calibrated, one of them is found not to be in 5 % of
        samples at most, whatever their number.

    Example:
        >>> import numpy as np, hotmax as hm
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(3000, 3)) * 3
        >>> site = rng.integers(0, 3, 3000)
        >>> temperature = np.where(site == 2, 3.0, 1.0)[:, None]        # site 2 is overconfident
        >>> labels = (logits / temperature + rng.gumbel(size=logits.shape)).argmax(1)
        >>> hm.calibration.by_group(logits, labels, site).found
        ('2',)

    Reference:
        Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    if groups is None:
        raise TypeError("groups must be given: one for each row")
    rows = row_parts(
        logits,
        labels,
        ignore_index=ignore_index,
        where=where,
        input=input,
        name="labels",
        class_names=class_names,
    )
    return by_group_rows(rows, groups, one_temperature(temperature), as_seed(seed))
