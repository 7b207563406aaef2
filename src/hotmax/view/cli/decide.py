"""decide and compare: what to do with probabilities, and which of two models to take."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

import hotmax as hm
from hotmax.view.cli.label_calibrators import loaded
from hotmax.view.cli.options import (
    BLOCK_READING,
    COMMON,
    BlockReading,
    Common,
    Files,
    Flag,
    Input,
    check_free,
    check_same_names,
)
from hotmax.view.cli.output import progress, say, say_json
from hotmax.view.cli.row_errors import naming_the_file


def decide(
    *files: Files,
    error: float | None = None,
    precision: float | None = None,
    level: float = 0.05,
    costs: Path | None = None,
    calibrator: Path | None = None,
    rule: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
    force: Flag = False,
    reading: BlockReading = BLOCK_READING,
    common: Common = COMMON,
) -> None:
    """What to accept and what to hand to a person; or the cheapest decisions.

    Example: hotmax decide validation.npz --error 0.02 --out rule.json

    Example: hotmax decide new.npz --rule rule.json --out accepted.npz

    Example: hotmax decide new.npz --costs costs.csv --out decisions.npz

    Without --error, --precision, --rule or --costs: what share is handed over at each error rate.

    Parameters
    ----------
    files
        Logits, and labels where a threshold is fitted: as for calibrate.
    error, precision
        The target among accepted predictions. The threshold on confidence that is found keeps it
        with probability 1 - level.
    level
        The probability with which the guarantee may fail.
    costs
        A .csv or .npy file: a row for each true class, a column for each decision.
    calibrator
        The JSON file of a calibrator, which is applied first.
    rule
        The JSON file of a threshold, which is applied to the rows.
    out
        With --error or --precision, the JSON file to write; with --rule an .npz with the arrays
        accepted and predictions; with --costs one with decisions and expected_cost.
    seed
        Of the split of rows: some lay down thresholds, the others test them.
    force
        Overwrite the result if it is there.
    """
    from hotmax.io.one_file import existing

    chosen = [name for name, value in (
        ("--error", error), ("--precision", precision), ("--costs", costs), ("--rule", rule),
    ) if value is not None]  # fmt: skip
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} exclude each other: give one of them")
    if out is not None and not chosen:
        raise ValueError("--out needs --error, --precision, --rule or --costs")
    if out is not None and (costs or rule) and out.suffix.lower() != ".npz":
        raise ValueError(f"{out}: the name must end in .npz, which is what is written")
    check_free(out, force)
    matrix = None if costs is None else read_costs(costs)
    fitted = None if rule is None else hm.calibration.load_acceptance(existing(rule))
    with progress("reading"), reading.open(files) as found, naming_the_file(found):
        labelled = matrix is None and fitted is None
        if labelled and not found.has_labels:
            raise ValueError(f"{found.name} has no labels, which a threshold needs: --labels")
        logits, labels, input = calibrated(found, calibrator)
        if matrix is not None:
            each = (hm.calibration.decide(x, matrix, input=input) for x in blocks_of(logits))
            values = [(one.decisions, one.expected_cost) for one in each]
            arrays = joined(values, "decisions", "expected_cost")
            result: Any = hm.calibration.Decisions(
                **arrays, expected_costs=np.empty(0), costs=matrix
            )
        elif fitted is not None:
            parts = [(fitted.accept(x, input=input), x.argmax(1)) for x in blocks_of(logits)]
            arrays = joined(parts, "accepted", "predictions")
            accepted = arrays["accepted"]
            result = None
            if found.has_labels:
                result = fitted.evaluate(logits, labels, input=input)
        elif chosen:
            result = hm.calibration.acceptance(
                logits, labels, error=error, precision=precision, level=level, input=input,
                seed=seed,
            )  # fmt: skip
        else:
            result = hm.calibration.abstention(logits, labels, level=level, input=input, seed=seed)
    if out is not None:
        if matrix is not None or fitted is not None:
            write_arrays(out, arrays)
        else:
            result.save(out, force=force)
    if common.json:
        data: dict[str, Any] = {**found.as_data(), "out": None if out is None else str(out)}
        if matrix is not None:
            data |= arrays
        elif fitted is not None:
            data |= {"accepted": float(accepted.mean()), "rows": int(accepted.size)}
            if result is not None:
                wrong = result.error
                data |= {"error": {"value": wrong.value, "interval": wrong.interval}}
        else:
            data |= {
                field.name: getattr(result, field.name) for field in dataclasses.fields(result)
            }
        say_json(data)
        return
    say(str(found))
    if fitted is not None and result is None:
        say(f"{accepted.mean():.1%} of {accepted.size} rows are accepted, "
            f"{1 - accepted.mean():.1%} handed to a person")  # fmt: skip
    if result is not None:
        say(*str(result).splitlines())
    if out is not None:
        say(f"written: {out}")


def read_costs(path: Path) -> Any:
    """A matrix of numbers from .npy or text."""
    from hotmax.io.one_file import existing

    file = existing(path)
    try:
        if file.suffix.lower() == ".npy":
            return np.load(file, allow_pickle=False)
        return np.loadtxt(file, delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"{path}: costs must be a table of numbers: {error}") from None


def calibrated(found: Any, calibrator: Path | None) -> tuple[Any, Any, str]:
    """(logits, labels, input) of what was read, through a calibrator if one is named."""
    from hotmax.calibration.calibrated_source import Calibrate, calibrated_source

    logits, labels = found.arguments
    if calibrator is None:
        given = found.source is not None and found.source.input == "probabilities"
        return logits, labels, "probabilities" if given else "logits"
    fitted = loaded(calibrator, False)
    classes = logits.classes if found.source is not None else logits.shape[1]
    if classes != fitted.n_features_in_:
        raise ValueError(
            f"{found.name} has {classes} classes, and {calibrator} was fitted to "
            f"{fitted.n_features_in_}"
        )
    if found.source is not None:
        return calibrated_source(logits, fitted), None, "probabilities"
    return Calibrate(fitted, "logits")(logits), labels, "probabilities"


def blocks_of(logits: Any) -> Iterator[Any]:
    """The rows in blocks: those of a source, or all at once."""
    if isinstance(logits, hm.io.Source):
        yield from (x for x, _ in logits.blocks())
    else:
        yield logits


def joined(parts: list[tuple[Any, ...]], *names: str) -> dict[str, Any]:
    """What each block gave, put together under these names."""
    return dict(zip(names, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def write_arrays(out: Path, arrays: dict[str, Any]) -> None:
    from hotmax._core.files import whole

    with whole(out, force=True) as file:
        np.savez(file, **arrays)


def compare(
    a: Annotated[str, Parameter(name="A")],
    b: Annotated[str, Parameter(name="B")],
    /,
    *,
    calibrator_a: Path | None = None,
    calibrator_b: Path | None = None,
    reading: BlockReading = BLOCK_READING,
    common: Common = COMMON,
) -> None:
    """Compare two models, or two calibrators, on the same rows.

    Example: hotmax compare old.npz new.npz

    Example: hotmax compare test.npz test.npz --calibrator-b calibrator.json

    Parameters
    ----------
    a, b
        Logits and labels of the same rows, from two models.
    calibrator_a, calibrator_b
        The JSON files of calibrators, which are applied first.
    """
    with progress("reading"), reading.open([a]) as first, reading.open([b]) as second:
        for one in (first, second):
            if not one.has_labels:
                raise ValueError(f"{one.name} has no labels, which a comparison needs: --labels")
        check_same_names(a, first.class_names, b, second.class_names)
        p, q = (
            probabilities_of(one, path)
            for one, path in ((first, calibrator_a), (second, calibrator_b))
        )
        if (p.rows, p.classes) != (q.rows, q.classes):
            raise ValueError(
                f"{a} and {b} do not hold the same rows: their shapes are {(p.rows, p.classes)} "
                f"and {(q.rows, q.classes)}"
            )
        p.name, q.name = a, b
        result = hm.calibration.compare(p, q)
    if common.json:
        names = ("nll", "brier", "accuracy", "ece")
        changes = {
            name: {"value": getattr(result, name).value, "interval": getattr(result, name).interval}
            for name in names
        }
        say_json(
            {"a": {"source": a, **result.a}, "b": {"source": b, **result.b}, "rows": result.rows,
             "agreement": result.agreement, "change": changes}
        )  # fmt: skip
        return
    say(f"a: {first}", f"b: {second}", "", *str(result).splitlines())


def probabilities_of(found: Input, calibrator: Path | None) -> hm.io.Source:
    """The rows of an input as a source of probabilities, through a calibrator if one is named."""
    from hotmax.calibration.calibrated_source import calibrated_source

    if calibrator is not None:
        values, labels, input = calibrated(found, calibrator)
        return hm.io.source(values, labels, input=input)
    source = found.source
    if source is None:
        source = hm.io.source(*found.arguments)
    return source if source.input == "probabilities" else calibrated_source(source, Plain())


class Plain:
    """The calibrator that leaves logits as they are."""

    input = "logits"

    def predict_proba(self, logits: Any) -> Any:
        return hm.softmax(np.asarray(logits, np.float64))
