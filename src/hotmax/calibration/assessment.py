"""The numbers behind a report: labelled predictions before and after calibration.

Rows are split once, at random: one half fits the calibrators, the other scores them. Rows of any
number are read in blocks, in two passes as a rule, and what is kept does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotmax.calibration import conformal
from hotmax.calibration.acceptance import TARGETS, Abstention, risk_sums
from hotmax.calibration.binning import BINS, ROWS, WEIGHT
from hotmax.calibration.chance import LEVEL
from hotmax.calibration.class_scores import (
    LEAST_CLASS_ROWS as LEAST_CLASS_ROWS,
    WORST as WORST,
    ClassScore as ClassScore,
    class_scores,
)
from hotmax.calibration.estimate import NORMAL, Estimate
from hotmax.calibration.examples import Examples
from hotmax.calibration.families import PARTS
from hotmax.calibration.method_score import (
    UNCALIBRATED,
    MethodScore,
    method_score,
    share_estimate,
)
from hotmax.calibration.mixture import logits_of
from hotmax.calibration.passes import Tell, Together
from hotmax.calibration.ranks import groups_aurc, groups_risk
from hotmax.calibration.reliability import RiskCoverage
from hotmax.calibration.request import MOST_SCORED
from hotmax.calibration.reservoir import MOST_ROWS, Reservoir
from hotmax.calibration.robust_fit import robust_intervals, scaled_weights
from hotmax.calibration.row_parts import RowParts, Split, parts_of_examples
from hotmax.calibration.score_sums import Method, ScoreMethods, ScoreSums
from hotmax.calibration.set_coverage import ConformalEvaluation
from hotmax.calibration.shape import Shape, ShapeOf, sample_size, shape_from
from hotmax.calibration.temperature import MOST_IN_MEMORY, PassFit, curve_of, fit_rows
from hotmax.calibration.temperature_fit import TemperatureFit
from hotmax.calibration.weighted_sums import (
    TotalWeights,
    WeightedSums,
    Weighting,
    WeightTotals,
)

MOST_LOGITS = 1 << 22  # in the rows that calibrators with many parameters are fitted to
MOST_CLASSES = {"matrix": 100, "dirichlet": 100, "histogram": 100, "isotonic": 100}
COVERAGES = (0.9, 0.95, 0.99)
ONE_SIDED = 1.6448536269514722  # the 95 % point of the normal distribution

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class SetScore:
    """Conformal sets on the scoring rows: `coverage` with a Wilson interval, and their sizes."""

    method: str
    promised: float
    coverage: Estimate
    mean_size: float
    single: float
    rows: int


@dataclass(frozen=True)
class Advice:
    """A method, chosen on one half of the scoring rows and judged on the other.

    Attributes:
        method: `chosen` if it gains beyond doubt on the judging rows, else "none".
        chosen: The simplest method within one standard error of the best nll of the choosing rows;
            never one whose temperature is a limit, 0 or inf.
        change: The change of nll by `chosen` on the judging rows, with its 95 % interval. A gain is
            beyond doubt if a one-sided test at the 5 % level finds it.
        choosing_rows, judging_rows: How many.
    """

    method: str
    chosen: str
    change: Estimate
    choosing_rows: int
    judging_rows: int


def advised(methods: Sequence[Method], choosing: ScoreSums, judging: ScoreSums) -> Advice:
    usable = [number for number, method in enumerate(methods) if not method.at_limit]
    chosen, change = UNCALIBRATED, Estimate(0.0, (0.0, 0.0))
    if choosing.rows and judging.rows:
        names = [methods[number].name for number in usable]
        chosen = choosing.compared(names, usable).chosen
        change = judging.change([method.name for method in methods].index(chosen))
    half_width = (change.interval[1] - change.interval[0]) / 2
    gains = change.value + ONE_SIDED / NORMAL * half_width < 0.0
    method = chosen if gains else UNCALIBRATED
    return Advice(method, chosen, change, choosing.rows, judging.rows)


@dataclass(frozen=True)
class RowWeights:
    """What is known of rows with weights or soft labels.

    Attributes:
        sample_weight, soft_labels: Whether rows have them.
        fit_effective_rows, score_effective_rows: (sum of weights)**2 / sum of squared weights of
            the rows that fit and that score: so many rows of equal weight are as certain.
    """

    sample_weight: bool
    soft_labels: bool
    fit_effective_rows: float
    score_effective_rows: float


@dataclass(frozen=True, eq=False)
class Assessment:
    """All that a report says about labelled predictions.

    Attributes:
        fit_rows, score_rows: The two halves.
        fit: The temperature of the first.
        scores: On the second; "none" first, then from the simplest on.
        advised: The method to use: `advice.method`.
        advice: How it was chosen, and what it gains on rows that had no part in the choice.
        left_out: (method, why) of calibrators that were not tried.
        worst_classes: The most overconfident classes of those predicted in LEAST_CLASS_ROWS rows
            or more, the surest first.
        risk: The risk-coverage curve before calibration.
        sets: Conformal sets; none of rows with weights or soft labels.
        set_rows: (rows of their fit, rows of their score).
        set_coverage: The randomised sets "aps" at 90 %, by confidence, size and class; or None.
        abstention: The share to hand to a person at each error rate, from these scoring rows; None
            for rows with weights or soft labels, whose errors no binomial distribution has.
        test_set: Whether the scoring rows are a test set of their own, and not drawn from all.
        weights: Of rows with weights or soft labels; None of rows that count once, with a label.
    """

    fit_rows: int
    score_rows: int
    fit: TemperatureFit
    scores: tuple[MethodScore, ...]
    advised: str
    advice: Advice
    left_out: tuple[tuple[str, str], ...]
    worst_classes: tuple[ClassScore, ...]
    risk: RiskCoverage
    sets: tuple[SetScore, ...]
    set_rows: tuple[int, int]
    set_coverage: ConformalEvaluation | None
    abstention: Abstention | None
    test_set: bool = False
    weights: RowWeights | None = None

    @property
    def before(self) -> MethodScore:
        return self.scores[0]

    def score(self, method: str) -> MethodScore:
        return next(one for one in self.scores if one.method == method)

    @property
    def verdict(self) -> str:
        """That on the predictions before calibration."""
        return self.before.verdict


def row_limit(classes: int) -> int:
    return max(min(MOST_ROWS, MOST_LOGITS // classes), 1)


def methods_to_try(classes: int) -> tuple[list[str], list[tuple[str, str]]]:
    """(methods to try, those left out and why), from the simplest on."""
    tried, left_out = [], []
    order = sorted(PARTS, key=lambda method: PARTS[method].size(classes, BINS))
    for method in order:
        if method in ("identity", "temperature"):
            continue
        if PARTS[method].two_classes and classes != 2:
            left_out.append((method, "is for two classes"))
        elif classes > MOST_CLASSES.get(method, classes):
            left_out.append((method, f"is tried on up to {MOST_CLASSES[method]} classes"))
        else:
            tried.append(method)
    return tried, left_out


def set_scores(
    fitting: Examples, scoring: Examples
) -> tuple[tuple[SetScore, ...], ConformalEvaluation]:
    """The scores, and what "aps" at the first coverage gives by group."""
    (z, y), (test, truth) = ((logits_of(part), part.labels) for part in (fitting, scoring))
    found = []
    detail = None
    for method in conformal.METHODS:
        for coverage in COVERAGES:
            fitted = conformal.fit(z, y, coverage=coverage, method=method)
            result = fitted.evaluate(test, truth)
            if method == "aps" and coverage == COVERAGES[0]:
                detail = result
            found.append(
                SetScore(
                    method=method,
                    promised=coverage,
                    coverage=share_estimate(result.coverage * result.rows, result.rows),
                    mean_size=result.mean_size,
                    single=float(result.sizes[1] / result.rows),
                    rows=result.rows,
                )
            )
    assert detail is not None
    return tuple(found), detail


@dataclass(frozen=True, eq=False)
class FirstPass:
    """What the first pass gives: the temperature, the shape, and rows to fit to and to score on."""

    fit: TemperatureFit
    shape: Shape
    fitting: Examples
    scoring: Examples
    totals: tuple[WeightTotals, ...] = ()  # of the fitting and the scoring rows, if they have any


def first_pass(
    rows: RowParts,
    scored: Split,
    seed: int,
    tell: Callable[[str], Tell],
    weighting: Weighting | None,
) -> FirstPass:
    fitted = replace(scored, held=False)
    most = row_limit(rows.classes)
    look, sample = shape_jobs(rows, seed)
    fitting = Reservoir(most, fitted.count, seed, fitted)
    scoring = Reservoir(most, scored.count, seed, scored)
    more = () if weighting is None else (TotalWeights(fitted), TotalWeights(scored))
    jobs = Together((look, sample, fitting, scoring, *more))
    if rows.rows * rows.classes <= MOST_IN_MEMORY:
        fit = fit_rows(rows, fitted)
        states = rows.run(jobs, tell("pass 1 of 2, reading the logits")).states
    else:
        search = PassFit(
            rows,
            fitted,
            lambda number: tell(f"pass {number} of {number + 1}, fitting the temperature"),
        )
        search.companion = jobs
        fit = search.run()
        assert search.likelihood is not None
        states = search.likelihood.companion_state.states
    shape = shape_from(states[0], sample.chosen(states[1]))
    kept = fitting.chosen(states[2]), scoring.chosen(states[3])
    return FirstPass(fit, shape, *kept, tuple(states[4:]))


def shape_jobs(rows: RowParts, seed: int) -> tuple[ShapeOf, Reservoir]:
    keep = rows.rows <= MOST_SCORED
    return ShapeOf(keep), Reservoir(sample_size(rows.classes), rows.rows, seed)


def shape_of_predictions(rows: RowParts, seed: int, progress: Progress) -> Shape:
    """The shape of predictions that need have no labels, in one pass."""
    look, sample = shape_jobs(rows, seed)
    progress("reading the logits", 0.0)
    tell = telling(progress, 0.0, 0.9)("pass 1 of 1, reading the logits")
    states = rows.run(Together((look, sample)), tell).states
    return shape_from(states[0], sample.chosen(states[1]))


def telling(progress: Progress, low: float, high: float) -> Callable[[str], Tell]:
    """What a pass tells, as a stage and a share of all the work between `low` and `high`."""

    def stage(name: str) -> Tell:
        def tell(done: int, parts: int, rows: int) -> None:
            text = f"{name}: {done} of {parts} blocks, {rows:,} rows"
            progress(text, low + (high - low) * done / parts)

        return tell

    return stage


def curve_on(sample: Examples, fit: TemperatureFit) -> TemperatureFit:
    """The fit with its curve, from a sample whose level is moved to that of all rows."""
    curve = curve_of(parts_of_examples(sample), fit)
    level = [nll for t, nll in curve if t == fit.temperature]
    shift = fit.nll - level[0] if level else 0.0
    return replace(fit, curve=tuple((t, nll + shift) for t, nll in curve))


def assess(
    rows: RowParts,
    seed: int,
    progress: Progress,
    first: int | None = None,
    weighting: Weighting | None = None,
) -> tuple[Shape, Assessment]:
    """Split, fit, score: in two passes over the rows, or three.

    With `first`, the rows from there on score, and those before it fit. `weighting`: where rows
    have weights or soft labels.
    """
    if rows.rows < 2:
        raise ValueError("labels need at least 2 rows: one half to fit on, one half to score on")
    if rows.whole is None and rows.rows * rows.classes <= MOST_IN_MEMORY:
        rows = parts_of_examples(rows.all_rows())
    progress("reading the logits", 0.0)
    scored = Split(seed, 0.5, rows.rows, True, first=first)
    found = first_pass(rows, scored, seed, telling(progress, 0.0, 0.4), weighting)
    fit_count, score_count, weights = rows.rows - scored.count, scored.count, None
    sample, fit = found.fitting, found.fit
    if weighting is not None:
        fitting, scoring = found.totals
        fit_count, score_count = fitting.rows, scoring.rows
        if not (fit_count and score_count):
            raise ValueError(
                "sample_weight must not be 0 in all rows to fit on, or in all rows to score on"
            )
        weights = RowWeights(
            weighting.weighted, weighting.soft, fitting.effective, scoring.effective
        )
        fit = robust_intervals(fit, sample, fitting.effective)
        sample = scaled_weights(sample)
    fit = curve_on(sample, fit)
    tried, left_out = methods_to_try(rows.classes)
    methods = [Method(UNCALIBRATED, 1.0), Method("temperature", fit.temperature)]
    for number, method in enumerate(tried):
        progress(f"fitting {method}", 0.4 + 0.2 * number / len(tried))
        try:
            parameters = PARTS[method].fit(sample, 1.0, BINS)
        except ImportError as error:
            left_out.append((method, str(error)))
            continue
        methods.append(Method(method, None, parameters))
    # One half of the scoring rows chooses a method, the other judges the choice.
    kind = ScoreSums if weighting is None else WeightedSums
    halves = [ScoreMethods(tuple(methods), replace(scored, part=part), kind) for part in (0, 1)]
    number = rows.passes + 1
    tell = telling(progress, 0.6, 0.9)(f"pass {number} of {number}, scoring")
    choosing, judging = rows.run(Together(tuple(halves)), tell).states
    advice = advised(methods, choosing, judging)
    sums = choosing.merge(judging)
    rng = np.random.default_rng(seed)
    counts = [0, fit_count] + [sample.rows] * (len(methods) - 2)
    scores = [
        method_score(method.name, count, sums, number, rng, weighting)
        for number, (method, count) in enumerate(zip(methods, counts, strict=True))
    ]
    progress("prediction sets", 0.95)
    sets: tuple[SetScore, ...] = ()
    detail, abstention = None, None
    if weighting is None:
        sets, detail = set_scores(found.fitting, found.scoring)
        abstention = risk_sums(parts_of_examples(found.scoring), 1.0, seed).curve(
            np.array(TARGETS), LEVEL
        )
    cells = sums.cells[0].values()
    groups = cells[cells[:, WEIGHT] > 0]
    if isinstance(sums, WeightedSums) and sums.totals.whole:
        groups[:, ROWS] = groups[:, WEIGHT]  # whole numbers count as so many rows
    return found.shape, Assessment(
        fit_rows=fit_count,
        score_rows=score_count,
        fit=fit,
        scores=tuple(scores),
        advised=advice.method,
        advice=advice,
        left_out=tuple(left_out),
        worst_classes=class_scores(sums),
        risk=RiskCoverage(*groups_risk(groups), groups_aurc(groups)),
        sets=sets,
        set_rows=(found.fitting.rows, found.scoring.rows),
        set_coverage=detail,
        abstention=abstention,
        test_set=first is not None,
        weights=weights,
    )
