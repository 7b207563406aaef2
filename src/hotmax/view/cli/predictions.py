"""report, calibrate and apply: a file of predictions."""

from __future__ import annotations

import textwrap
import warnings
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from rich.text import Text

import hotmax as hm
from hotmax._core.arrays import Array
from hotmax._kernels.calibration import rows as kernels
from hotmax.calibration.examples import WRONG, read
from hotmax.calibration.families import FAMILIES
from hotmax.calibration.holdout import held_out
from hotmax.calibration.method_score import (
    UNCALIBRATED,
    MethodScore,
    method_score,
    scores_at,
    scores_by,
)
from hotmax.view.cli.options import COMMON, READING, Common, Flag, Reading, check_free
from hotmax.view.cli.output import Progress, Table, progress, say, say_json

BLOCK = 1 << 21  # entries that are computed together
SELECT = "select"

File = Annotated[Path, Parameter(name="FILE")]


@contextmanager
def naming_the_file(found: Any) -> Iterator[None]:
    """Have errors name the file, and the row as the file counts it.

    Calibration counts the rows that it is given, which are those of a split or of a block.
    """
    try:
        yield
    except ValueError as error:
        source = getattr(found, "source", "the demo")
        fault = next((kind for kind, text in WRONG.items() if text in str(error)), None)
        fault = kernels.IS_EMPTY if fault is None else fault  # whose softmax is nan
        row = row_with(fault, found.logits, found.labels)
        what = str(error) if row is None else f"row {row} {WRONG[fault]}"
        raise ValueError(f"{source}: {what}") from error


def row_with(fault: int, logits: Array, labels: Array | None) -> int | None:
    """The first row of the file with a fault that no softmax, or no likelihood, exists for."""
    step = max(BLOCK // logits.shape[1], 1)
    for start in range(0, len(logits), step):
        part = logits[start : start + step]
        top = part.max(1)
        wrong = top == (np.inf if fault == kernels.HAS_INF else -np.inf)
        if fault == kernels.LABEL_IS_ABSENT and labels is not None:
            wrong = part[np.arange(len(part)), labels[start : start + step]] == -np.inf
        if wrong.any():
            return start + int(np.argmax(wrong))
    return None


def report(
    file: Annotated[Path | None, Parameter(name="FILE")] = None,
    /,
    *,
    out: Path = Path("report.html"),
    open: Flag = False,
    title: str | None = None,
    seed: int = 0,
    force: Flag = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Write a page about a classifier's predictions, or about a demo.

    Example: hotmax report predictions.npz --out report.html

    Example: hotmax report --open

    Parameters
    ----------
    file
        Logits, with labels if there are any: .npz, .npy, .csv, .parquet or .safetensors. Without
        it, a small classifier is trained on the spot.
    out
        The page to write.
    open
        Open the page in a browser.
    title
        Of the page.
    seed
        Of what is drawn at random, such as the split into parts.
    force
        Overwrite the page if it is there.
    """
    check_free(out, force)
    with progress("reading" if file else "making the demo") as update:
        if file is None:
            from hotmax.view import demo

            found: Any = demo.predictions()
            title, story = title or found.title, [*textwrap.wrap(found.story, 88), ""]
        else:
            found = reading.read(file)
            title, story = title or file.name, []
        with naming_the_file(found):
            result = hm.report(
                found.logits,
                found.labels,
                found.class_names,
                title=title,
                seed=seed,
                progress=update,
            )
        result.save(out, force=force)
    if common.json:
        print(result.to_json())
    else:
        say(*story, *str(result).splitlines(), "", f"written: {out}")
    if open and not webbrowser.open(out.resolve().as_uri()):
        raise OSError(f"no browser could be opened; the page is {out}")


# --- calibrate --------------------------------------------------------------------------------


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


def method_of(calibrator: Any) -> str:
    return str(calibrator._options()[0])


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


def blocks_of(logits: Array, update: Progress, stage: str) -> Iterator[tuple[int, int]]:
    rows, classes = logits.shape
    step = max(BLOCK // classes, 1)
    for start in range(0, rows, step):
        update(stage, start / rows)
        yield start, min(start + step, rows)


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


# --- apply ------------------------------------------------------------------------------------


def apply(
    calibrator: Annotated[Path, Parameter(name="CALIBRATOR")],
    file: File,
    /,
    *,
    out: Path,
    force: Flag = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Turn logits into probabilities by a saved calibrator.

    Example: hotmax apply calibrator.json predictions.npz --out probabilities.npz

    Parameters
    ----------
    calibrator
        The JSON file that `hotmax calibrate --out` has written.
    file
        Logits: .npz, .npy, .csv, .parquet or .safetensors.
    out
        An .npz to write: array probabilities, and labels and classes if the file has them.
    force
        Overwrite the result if it is there.
    """
    check_free(out, force)
    if out.suffix.lower() != ".npz":
        raise ValueError(f"{out}: the name must end in .npz, which is what is written")
    hm.io.predictions.existing(calibrator)
    fitted = hm.calibration.load(calibrator)
    with progress("reading") as update:
        found = reading.read(file)
        rows, classes = found.logits.shape
        if classes != fitted.n_features_in_:
            raise ValueError(
                f"{file} has {classes} classes, and {calibrator} was fitted to "
                f"{fitted.n_features_in_}"
            )

        def blocks() -> Iterator[Array]:
            for start, stop in blocks_of(found.logits, update, "applying"):
                x = found.logits[start:stop]
                with naming_the_file(found):
                    p = fitted.predict_proba(hm.softmax(x) if fitted.input != "logits" else x)
                yield p

        wide = found.logits.dtype.kind != "f" or found.logits.dtype.itemsize > 4
        kind = np.dtype(np.float64 if wide else np.float32)
        hm.io.write(
            out,
            blocks(),
            shape=(rows, classes),
            dtype=kind,
            labels=found.labels,
            class_names=found.class_names,
            force=force,
        )
    if common.json:
        data = {"source": found.source, "rows": rows, "num_classes": classes, "dtype": kind.name}
        say_json({**data, "method": method_of(fitted), "out": str(out)})
    else:
        say(f"written: {out}, {rows} rows of {classes} probabilities, {kind.name}")
