"""calibrate: fit a calibrator to a file of predictions, and compare before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from hotmax.view.cli.label_calibrators import method_of
from hotmax.view.cli.options import (
    COMMON,
    LABEL_READING,
    Common,
    Files,
    Flag,
    LabelReading,
    check_free,
)
from hotmax.view.cli.output import Table, progress, say, say_json
from hotmax.view.cli.row_errors import naming_the_file

if TYPE_CHECKING:
    from hotmax.calibration.method_score import MethodScore
    from hotmax.calibration.passes import Tell
    from hotmax.calibration.row_parts import RowParts, Split

SELECT = "select"


@dataclass(frozen=True)
class Holdout:
    """Which rows are held out from fitting."""

    rows: int
    seed: int
    held: Split | None  # None: no row

    @property
    def held_out(self) -> int:
        return 0 if self.held is None else self.held.count

    @property
    def fitting(self) -> Split | None:
        return None if self.held is None else replace(self.held, held=False)

    def __str__(self) -> str:
        if not self.held_out:
            return f"fitted on all {self.rows} rows, and measured on the same: that flatters"
        return (
            f"fitted on {self.rows - self.held_out} rows, measured on the other {self.held_out} "
            f"(drawn at random, seed {self.seed})"
        )


def holdout_of(rows: int, share: float, seed: int) -> Holdout:
    from hotmax._core.checks import as_seed
    from hotmax.calibration.row_parts import Split

    if not 0.0 <= share < 1.0:
        raise ValueError(f"--holdout must lie in 0..1 and be less than 1, got {share:g}")
    held = Split(as_seed(seed), share, rows, True) if share > 0.0 else None
    parts = Holdout(rows, seed, held)
    if parts.held_out == rows or (share > 0.0 and parts.held_out == 0):
        raise ValueError(f"--holdout {share:g} of {rows} rows leaves none on one side")
    return parts


def calibrate(
    *files: Files,
    method: str = "temperature",
    out: Path | None = None,
    holdout: float = 0.5,
    seed: int = 0,
    prior: float | None = None,
    force: Flag = False,
    reading: LabelReading = LABEL_READING,
    common: Common = COMMON,
) -> None:
    """Fit a calibrator to labelled logits; compare before and after.

    Example: hotmax calibrate predictions.npz --out calibrator.json

    Example: hotmax calibrate predictions.csv --method select --holdout 0.3

    Example: hotmax calibrate labels.npz --multilabel --out calibrator.json

    Example: hotmax calibrate 'shards/*.parquet' --cluster tcp://host:8786

    Parameters
    ----------
    files
        Logits and labels: .npz, .npy (with --labels), .csv, .parquet or .safetensors; several
        files, directories, patterns in quotes, or a .zarr.
    method
        temperature, ensemble, vector, matrix, quadratic, softplus, spline, class_temperature,
        dirichlet, isotonic, histogram; for two classes platt, beta and venn_abers; identity;
        stacked, a mixture of all; or select, which compares them, and mixes them if temperature is
        clearly worse.
    out
        Where to save the calibrator, as JSON: the one that was measured, fitted to the other rows.
    holdout
        The share of rows that is held out to measure on; 0: fit on all, and measure there too.
    seed
        Of the split, the same as that of report; of the bootstrap, and of the folds of select.
    prior
        For few rows, with --method temperature: the standard deviation of log T around T = 1. 1 is
        a weak one.
    force
        Overwrite the calibrator if it is there; save it even if its temperature is 0 or inf.
    """
    from hotmax.calibration.assessment import telling
    from hotmax.calibration.families import FAMILIES
    from hotmax.calibration.row_parts import row_parts
    from hotmax.calibration.temperature_fit import REMEDY, is_limit
    from hotmax.calibration.temperature_prior import as_prior
    from hotmax.calibration.verdict import level_of

    if method not in (*FAMILIES, SELECT):
        raise ValueError(f"--method must be one of {', '.join(FAMILIES)}, {SELECT}; got {method!r}")
    check_free(out, force)
    prior = as_prior(prior)
    if prior is not None and method != "temperature":
        raise ValueError(f"--prior is for --method temperature, got --method {method}")
    with progress("reading") as update, reading.open(files) as found:
        if not found.has_labels:
            raise ValueError(f"{found.name} has no labels, which calibration needs: --labels")
        if found.multilabel:
            from hotmax.view.cli.labels import calibrate_labels

            if prior is not None:
                raise ValueError("--prior is not for --multilabel")
            parts = holdout_of(found.arguments[0].shape[0], holdout, seed)
            calibrate_labels(found, method, parts, out, force, common.json)
            return
        with naming_the_file(found):
            rows = row_parts(*found.arguments)
            parts = holdout_of(rows.rows, holdout, seed)
            update("fitting", 0.0)
            calibrator, selection = fitted(rows, method, parts, prior)
            update("measuring", 0.5)
            tell = telling(update, 0.5, 1.0)
            before, after = measured(rows, calibrator, parts, tell, found.soft_labels)
        if is_limit(calibrator.parameters_.get("temperature")) and out is not None and not force:
            raise ValueError(f"{found.name}: {limit_of(calibrator)}; --force saves it all the same")
        if out is not None:
            save(calibrator, out, force)
    fit = getattr(calibrator, "fit_", None)
    if common.json:
        data: dict[str, Any] = {**found.as_data(), "rows": parts.rows, "held_out": parts.held_out}
        data |= {"seed": seed, "method": method_of(calibrator)}
        if fit is not None:
            data |= {"temperature": fit.temperature, "interval": fit.interval}
            data |= {"diagnosis": fit.diagnosis}
        if selection is not None:
            data["candidates"] = [vars(each) for each in selection.candidates]
        figures = {"before": as_data(before), "after": as_data(after)}
        say_json({**data, **figures, "out": None if out is None else str(out)})
        return
    say(str(found), str(parts))
    if selection is not None:
        say("", *map(Text, str(selection).splitlines()), "")
    if fit is not None:
        low, high = fit.interval
        say(f"temperature {fit.temperature:.4f} (95 %: {low:.4f} to {high:.4f})")
        if fit.diagnosis:
            say(str(fit).splitlines()[-1], REMEDY)
    else:
        temperature = calibrator.parameters_.get("temperature")
        more = "" if temperature is None else f", temperature {float(temperature):.4f}"
        say(f"method {method_of(calibrator)}{more}")
    say("", *compared(before, after).lines(), "")
    say(f"before  {before.verdict_sentence}", f"after   {after.verdict_sentence}")
    say(f"test of calibration, before: {level_of(before.test)}")
    say(f"written: {out}" if out else "not saved: --out calibrator.json would")


def limit_of(calibrator: Any) -> str:
    """Why a calibrator is none to save, and what to do."""
    from hotmax.calibration.temperature_fit import EXPLAINED, REMEDY

    fit = getattr(calibrator, "fit_", None)
    why = "" if fit is None else f" ({fit.diagnosis}: {EXPLAINED[fit.diagnosis]})"
    return f"the fitted temperature is {calibrator.parameters_['temperature']:g}{why}: {REMEDY}"


def fitted(
    rows: RowParts, method: str, parts: Holdout, prior: float | None = None
) -> tuple[Any, Any]:
    """(the calibrator, the Selection if there was one), fitted to the rows not held out."""
    from hotmax.calibration.calibrators import calibrator_for  # which needs scikit-learn
    from hotmax.calibration.selection import select_rows

    if method == SELECT:
        selection = select_rows(rows, parts.fitting, seed=parts.seed)
        return selection.calibrator, selection
    calibrator = calibrator_for(method, prior=prior)
    return calibrator._fit_rows(rows, parts.fitting), None


def measured(
    rows: RowParts,
    calibrator: Any,
    parts: Holdout,
    tell: Callable[[str], Tell],
    soft: bool = False,
) -> tuple[MethodScore, MethodScore]:
    """All metrics before and after calibration, by the rules of `hotmax report`."""
    from hotmax.calibration.method_score import UNCALIBRATED, method_score
    from hotmax.calibration.score_sums import Method, ScoreMethods, ScoreSums
    from hotmax.calibration.weighted_sums import WeightedSums, Weighting

    weighting = Weighting(False, True) if soft else None
    method, parameters = method_of(calibrator), calibrator.parameters_
    temperature = parameters["temperature"] if method == "temperature" else None
    methods = Method(UNCALIBRATED, 1.0), Method(method, temperature, parameters)
    kind = WeightedSums if soft else ScoreSums
    sums = rows.run(ScoreMethods(methods, parts.held, kind), tell("measuring"))
    rng = np.random.default_rng(parts.seed)
    return (
        method_score(UNCALIBRATED, 0, sums, 0, rng, weighting),
        method_score(method, calibrator.fitted_rows_, sums, 1, rng, weighting),
    )


def as_data(score: MethodScore) -> dict[str, Any]:
    return {
        "rows": float(score.reliability.counts.sum()),
        "verdict": score.verdict,
        "p_value": score.test.p_value,
        "level": score.test.level,
        "confidence": score.confidence,
        "accuracy": score.accuracy.value,
        "nll": score.nll.value,
        "nll_interval": score.nll.interval,
        "brier": score.brier.value,
        "ece": score.ece.value,
        "ece_interval": score.ece.interval,
        "ece_by_chance": score.ece_by_chance,
        "smooth_ece": score.reliability.smooth_ece,
    }


def compared(before: MethodScore, after: MethodScore) -> Table:
    both = before, after
    rows = [
        ["confidence", *(f"{one.confidence:.2%}" for one in both)],
        ["accuracy", *(f"{one.accuracy.value:.2%}" for one in both)],
        ["NLL", *(f"{one.nll.value:.5f}" for one in both)],
        ["Brier score", *(f"{one.brier.value:.5f}" for one in both)],
        ["ECE", *(f"{one.ece.value:.3%}" for one in both)],
        ["  by chance up to", *(f"{one.ece_by_chance:.3%}" for one in both)],
        ["smooth ECE", *(f"{one.reliability.smooth_ece:.3%}" for one in both)],
    ]
    for place, name, digits, scale in ((5, "ece", 1, 100.0), (3, "nll", 3, 1.0)):
        ends = ((scale * end for end in getattr(one, name).interval) for one in both)
        cells = [" to ".join(f"{end:.{digits}f}" for end in pair) for pair in ends]
        rows.insert(place, ["  95 % interval", *cells])
    return Table(("", "before", "after"), rows)


def save(calibrator: Any, out: Path, force: bool) -> None:
    check_free(out, force)  # again: it may have come meanwhile
    calibrator.save(out, force=force)
