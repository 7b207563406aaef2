"""calibrate: fit a calibrator to a file of predictions, and compare before and after."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

import hotmax as hm
from hotmax.view.cli.options import COMMON, READING, Common, Flag, Reading, check_free
from hotmax.view.cli.output import Table, progress, say, say_json
from hotmax.view.cli.predictions import File, method_of, naming_the_file

if TYPE_CHECKING:
    import numpy as np

    from hotmax._core.arrays import Array
    from hotmax.calibration.method_score import MethodScore
else:
    from hotmax.view.cli.deferred import np

SELECT = "select"


@dataclass(frozen=True)
class Split:
    """Which rows are held out from fitting."""

    held: Array  # a bool for each row
    seed: int
    rng: np.random.Generator  # drew `held`, and draws the bootstrap samples

    @property
    def rows(self) -> int:
        return int(self.held.size)

    @property
    def held_out(self) -> int:
        return int(self.held.sum())

    @property
    def measured(self) -> Array:
        """The rows to measure on: those held out, or all if there are none."""
        return self.held if self.held_out else ~self.held

    def __str__(self) -> str:
        if not self.held_out:
            return f"fitted on all {self.rows} rows, and measured on the same: that flatters"
        return (
            f"fitted on {self.rows - self.held_out} rows, measured on the other {self.held_out} "
            f"(drawn at random, seed {self.seed})"
        )


def split(rows: int, holdout: float, seed: int) -> Split:
    from hotmax.calibration.holdout import held_out

    if not 0.0 <= holdout < 1.0:
        raise ValueError(f"--holdout must lie in 0..1 and be less than 1, got {holdout:g}")
    rng = np.random.default_rng(seed)
    parts = Split(held_out(rows, holdout, rng), seed, rng)
    if parts.held_out == rows or (holdout > 0.0 and parts.held_out == 0):
        raise ValueError(f"--holdout {holdout:g} of {rows} rows leaves none on one side")
    return parts


def calibrate(
    file: File,
    /,
    *,
    method: str = "temperature",
    out: Path | None = None,
    holdout: float = 0.5,
    seed: int = 0,
    force: Flag = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Fit a calibrator to labelled logits; compare before and after.

    Example: hotmax calibrate predictions.npz --out calibrator.json

    Example: hotmax calibrate predictions.csv --method select --holdout 0.3

    Parameters
    ----------
    file
        Logits and labels: .npz, .npy (with --labels), .csv, .parquet or .safetensors.
    method
        temperature, vector, matrix, dirichlet, ensemble, isotonic, histogram; for two classes
        platt and beta; identity; or select, which compares several.
    out
        Where to save the calibrator, as JSON: the one that was measured, fitted to the other rows.
    holdout
        The share of rows that is held out to measure on; 0: fit on all, and measure there too.
    seed
        Of the split, the same as that of report; of the bootstrap, and of the folds of select.
    force
        Overwrite the calibrator if it is there.
    """
    from hotmax.calibration.families import FAMILIES

    if method not in (*FAMILIES, SELECT):
        raise ValueError(f"--method must be one of {', '.join(FAMILIES)}, {SELECT}; got {method!r}")
    check_free(out, force)
    with progress("reading") as update:
        found = reading.read(file)
        if found.labels is None:
            raise ValueError(f"{file} has no labels, which calibration needs: --labels names them")
        parts = split(len(found.logits), holdout, seed)
        update("fitting", 0.0)
        with naming_the_file(found):
            calibrator, selection = fitted(found, method, parts)
            update("measuring", 0.5)
            before, after = measured(found, calibrator, parts)
        if out is not None:
            save(calibrator, out, force)
    fit = getattr(calibrator, "fit_", None)
    if common.json:
        data = {"source": found.source, "rows": parts.rows, "held_out": parts.held_out}
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
            say(str(fit).splitlines()[-1])
    else:
        temperature = calibrator.parameters_.get("temperature")
        more = "" if temperature is None else f", temperature {float(temperature):.4f}"
        say(f"method {method_of(calibrator)}{more}")
    say("", *compared(before, after).lines(), "")
    say(f"before  {before.verdict_sentence}", f"after   {after.verdict_sentence}")
    say(f"written: {out}" if out else "not saved: --out calibrator.json would")


def fitted(found: hm.io.Predictions, method: str, parts: Split) -> tuple[Any, Any]:
    """(the calibrator, the Selection if there was one), fitted to the rows not held out.

    Rows held out get weight 0 and not a copy: the logits may be mapped from a large file.
    """
    weights = None if not parts.held_out else (~parts.held).astype(np.float64)
    if method == SELECT:
        selection = hm.calibration.select(
            found.logits, found.labels, sample_weight=weights, seed=parts.seed
        )
        return selection.calibrator, selection
    from hotmax.calibration.calibrators import calibrator_for  # which needs scikit-learn

    calibrator = calibrator_for(method)
    with warnings.catch_warnings():  # a temperature of 0 is explained in the output
        warnings.simplefilter("ignore", UserWarning)
        return calibrator.fit(found.logits, found.labels, weights), None


def measured(
    found: hm.io.Predictions, calibrator: Any, parts: Split
) -> tuple[MethodScore, MethodScore]:
    """All metrics before and after calibration, by the rules of `hotmax report`."""
    from hotmax.calibration.examples import read
    from hotmax.calibration.method_score import UNCALIBRATED, method_score, scores_at, scores_by

    examples = read(found.logits, found.labels)
    before = scores_at(examples, parts.measured, 1.0)
    method, parameters = method_of(calibrator), calibrator.parameters_
    if method == "temperature":
        after = scores_at(examples, parts.measured, parameters["temperature"])
    else:
        after = scores_by(examples, parts.measured, method, parameters)
    fitted_rows = parts.rows - parts.held_out
    return (
        method_score(UNCALIBRATED, 0, before, before.nll, parts.rng),
        method_score(method, fitted_rows, after, before.nll, parts.rng),
    )


def as_data(score: MethodScore) -> dict[str, Any]:
    return {
        "rows": float(score.reliability.counts.sum()),
        "verdict": score.verdict,
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
