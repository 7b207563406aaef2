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
from hotmax.calibration.examples import WRONG
from hotmax.calibration.families import FAMILIES
from hotmax.view.cli.options import COMMON, READING, Common, Flag, Reading, check_free
from hotmax.view.cli.output import Progress, Table, progress, say, say_json

BLOCK = 1 << 21  # entries that are computed together
SELECT = "select"
SAME = 0.01  # of confidence and accuracy: closer than this is called calibrated

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
                found.logits, found.labels, found.classes, title=title, seed=seed, progress=update
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
    count = round(rows * holdout)
    if count == rows or (holdout > 0.0 and count == 0):
        raise ValueError(f"--holdout {holdout:g} of {rows} rows leaves none on one side")
    held = np.zeros(rows, bool)
    held[np.random.default_rng(seed).permutation(rows)[:count]] = True
    return Split(held, seed)


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
        Of the split, and of the folds of select.
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
            before, after = measured(found, calibrator, parts, update)
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
        heat = calibrator.parameters_.get("temperature")
        more = "" if heat is None else f", temperature {float(heat):.4f}"
        say(f"method {method_of(calibrator)}{more}")
    say("", *compared(before, after).lines(), "")
    say(f"before  {verdict(before)}", f"after   {verdict(after)}")
    say(f"written: {out}" if out else "not saved: --out calibrator.json would")


def method_of(calibrator: Any) -> str:
    return str(calibrator._options()[0])


def fitted(found: hm.io.Predictions, method: str, parts: Split) -> tuple[Any, Any]:
    """(the calibrator, the Selection if there was one), fitted to the rows not held out.

    Rows held out get weight 0 and not a copy: the logits may be mapped from a large file.
    """
    cal = hm.calibration
    weights = None if not parts.held_out else (~parts.held).astype(np.float64)
    if method == SELECT:
        selection = cal.select(found.logits, found.labels, sample_weight=weights, seed=parts.seed)
        return selection.calibrator, selection
    calibrator: Any = (
        cal.TemperatureScaling() if method == "temperature" else cal.Calibrator(method)
    )
    with warnings.catch_warnings():  # a temperature of 0 is explained in the output
        warnings.simplefilter("ignore", UserWarning)
        return calibrator.fit(found.logits, found.labels, weights), None


def measured(
    found: hm.io.Predictions, calibrator: Any, parts: Split, update: Progress
) -> tuple[Any, Any]:
    """All metrics before and after, some rows at a time."""
    assert found.labels is not None
    states = [hm.calibration.EvaluationState(classwise=False) for _ in range(2)]
    temperature = calibrator.parameters_.get("temperature")
    scaled = method_of(calibrator) == "temperature"
    for start, stop in blocks_of(found.logits, update, "measuring"):
        rows = parts.measured[start:stop]
        if not rows.any():
            continue
        x, y = found.logits[start:stop][rows], found.labels[start:stop][rows]
        states[0].update(x, y)
        if scaled:
            states[1].update(x, y, temperature=temperature)
        else:  # a probability that has underflowed is the smallest number that has not
            p = np.maximum(calibrator.predict_proba(x), 5e-324)
            states[1].update(p, y, input="probabilities")
    return states[0].result(), states[1].result()


def blocks_of(logits: Array, update: Progress, stage: str) -> Iterator[tuple[int, int]]:
    rows, classes = logits.shape
    step = max(BLOCK // classes, 1)
    for start in range(0, rows, step):
        update(stage, start / rows)
        yield start, min(start + step, rows)


def confidence_of(result: Any) -> float:
    """The mean confidence, from the bins."""
    diagram = result.reliability
    there = diagram.counts > 0
    weights = diagram.counts[there]
    return float(weights @ diagram.confidence[there] / weights.sum())


def verdict(result: Any) -> str:
    says, right = confidence_of(result), result.accuracy
    word = "overconfident" if says > right else "underconfident"
    if abs(says - right) < SAME:
        word = "calibrated on average"
    return f"{word}: says {100 * says:.1f} %, is right {100 * right:.1f} %"


FIGURES = {"accuracy": ".2%", "nll": ".5f", "brier": ".5f", "ece": ".3%", "smooth_ece": ".3%"}
NAMES = {"nll": "NLL", "brier": "Brier score", "ece": "ECE", "smooth_ece": "smooth ECE"}


def as_data(result: Any) -> dict[str, float]:
    figures = {name: float(getattr(result, name)) for name in (*FIGURES, "nll_error")}
    return {"rows": float(result.rows), "confidence": confidence_of(result), **figures}


def compared(before: Any, after: Any) -> Table:
    both = as_data(before), as_data(after)
    rows = [["confidence", *(f"{data['confidence']:.2%}" for data in both)]]
    rows += [
        [NAMES.get(name, name), *(format(data[name], form) for data in both)]
        for name, form in FIGURES.items()
    ]
    errors = [f"{data['nll_error']:.5f}" for data in both]
    rows.insert(3, ["  standard error", *errors])
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
            classes=found.classes,
            force=force,
        )
    if common.json:
        data = {"source": found.source, "rows": rows, "classes": classes, "dtype": kind.name}
        say_json({**data, "method": method_of(fitted), "out": str(out)})
    else:
        say(f"written: {out}, {rows} rows of {classes} probabilities, {kind.name}")
