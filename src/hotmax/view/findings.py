"""What a report has found, and the sentences that say it."""

from __future__ import annotations

from dataclasses import dataclass

from hotmax.calibration.assessment import Assessment
from hotmax.calibration.by_group import GroupCalibration
from hotmax.calibration.method_score import UNCALIBRATED
from hotmax.calibration.shape import Shape
from hotmax.calibration.temperature_fit import REMEDY, is_limit
from hotmax.calibration.verdict import level_of
from hotmax.view.elements import percent

FEW_ROWS = 200  # scoring rows below which a report says that they are few
NOT_WITH_WEIGHTS = (
    "Prediction sets and shares to hand to a person are left out: their exact guarantees count "
    "rows that have one label and no weight."
)


@dataclass(frozen=True, eq=False)
class Findings:
    """The numbers of a report.

    Attributes:
        title: The heading.
        rows, num_classes: How many.
        class_names: Of the classes.
        seed: Of the split and of the bootstrap.
        shape: What needs no labels.
        assessment: What needs labels; None without.
        groups: Calibration by group, of all rows; None if it was not asked for.
    """

    title: str
    rows: int
    num_classes: int
    class_names: tuple[str, ...]
    seed: int
    shape: Shape
    assessment: Assessment | None
    groups: GroupCalibration | None = None

    @property
    def subtitle(self) -> str:
        text = f"{self.rows:,} rows, {self.num_classes:,} classes"
        if self.assessment is None:
            return f"{text}, without labels"
        one, two = self.assessment.fit_rows, self.assessment.score_rows
        return f"{text}: {one:,} rows to fit calibrators, the other {two:,} to score them"

    @property
    def weighting(self) -> list[str]:
        """That rows have weights or soft labels, and what the report leaves out for it."""
        assert self.assessment is not None
        used, said = self.assessment.weights, []
        if used is None:
            return []
        if used.sample_weight:
            said.append(
                f"weighted: the scoring rows are as certain as {used.score_effective_rows:,.0f} "
                "of equal weight"
            )
        if used.soft_labels:
            said.append(
                "soft labels: right is the mean probability that they give to the predicted class"
            )
            if not used.sample_weight:
                said[-1] += f"; {used.score_effective_rows:,.0f} rows of equal weight score"
        if self.assessment.abstention is None:
            said.append(NOT_WITH_WEIGHTS)
        return said

    @property
    def verdict(self) -> str:
        """The verdict in a sentence."""
        assert self.assessment is not None
        return self.assessment.before.verdict_sentence

    @property
    def level(self) -> str:
        """How sure the verdict is, in a sentence."""
        assert self.assessment is not None
        return f"test of calibration: {level_of(self.assessment.before.test)}"

    @property
    def temperature(self) -> str:
        """The fitted temperature, and what it does, in a sentence."""
        assert self.assessment is not None
        fit, before = self.assessment.fit, self.assessment.before
        low, high = fit.interval
        after = self.assessment.score("temperature")
        text = (
            f"temperature {fit.temperature:.3g} (95 %: {low:.3g} to {high:.3g}): "
            f"ECE {percent(before.ece.value)} before, {percent(after.ece.value)} after; "
            f"nll {before.nll.value:.4f} before, {after.nll.value:.4f} after"
        )
        return f"{text}\n{fit.diagnosis}: {REMEDY}" if is_limit(fit.temperature) else text

    @property
    def warnings(self) -> list[str]:
        """What to bear in mind: few rows, calibrators that could not be tried."""
        assert self.assessment is not None
        said = []
        used, scored = self.assessment.weights, f"Only {self.assessment.score_rows} rows score"
        count: float = self.assessment.score_rows
        if used is not None and used.score_effective_rows < 0.99 * count:
            count = used.score_effective_rows
            scored = f"The rows that score are as certain as {count:,.0f} of equal weight"
        if count < FEW_ROWS:
            said.append(
                f"{scored}: intervals are wide, and only large errors of calibration are found."
            )
        missing = [why for _, why in self.assessment.left_out if "pip install" in why]
        said += sorted(set(missing))
        return said


def choice_of(result: Assessment) -> str:
    """How the method that is advised was chosen."""
    advice = result.advice
    rows = f"{advice.choosing_rows:,} scoring rows"
    if advice.chosen == UNCALIBRATED:
        return f"advised: on {rows}, no method is better than none by one standard error"
    low, high = advice.change.interval
    judged = (
        f"{advice.change.value:+.4f} (95 %: {low:+.4f} to {high:+.4f}) on the other "
        f"{advice.judging_rows:,}"
    )
    if advice.method == UNCALIBRATED:
        return (
            f"advised: {advice.chosen}, chosen on {rows}, changes the nll by {judged}: no sure gain"
        )
    return f"advised: chosen on {rows}; it changes the nll by {judged}"
