"""decide and compare: what to do with probabilities, and which of two models to take."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

import hotmax as hm
from hotmax.view.cli.options import (
    BLOCK_READING,
    COMMON,
    READING,
    BlockReading,
    Common,
    Files,
    Flag,
    Reading,
    check_free,
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
            logits = in_memory(logits, found.name)
            result: Any = hm.calibration.decide(logits, matrix, input=input)
            arrays = {"decisions": result.decisions, "expected_cost": result.expected_cost}
        elif fitted is not None:
            logits = in_memory(logits, found.name)
            accepted = fitted.accept(logits, input=input)
            arrays = {"accepted": accepted, "predictions": logits.argmax(1)}
            known = found.has_labels and found.predictions is not None
            result = fitted.evaluate(logits, labels, input=input) if known else None
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
        data: dict[str, Any] = {"source": found.name, "out": None if out is None else str(out)}
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
    from hotmax.io.one_file import existing

    logits, labels = found.arguments
    if calibrator is None:
        given = found.source is not None and found.source.input == "probabilities"
        return logits, labels, "probabilities" if given else "logits"
    fitted = hm.calibration.load(existing(calibrator))
    x = in_memory(logits, found.name)
    if labels is None and found.source is not None and found.has_labels:
        labels = np.concatenate([y for _, y in found.source.blocks() if y is not None])
    if x.shape[1] != fitted.n_features_in_:
        raise ValueError(
            f"{found.name} has {x.shape[1]} classes, and {calibrator} was fitted to "
            f"{fitted.n_features_in_}"
        )
    p = fitted.predict_proba(hm.softmax(x) if fitted.input != "logits" else x)
    return p, labels, "probabilities"


def in_memory(logits: Any, name: str) -> Any:
    """The logits of a source as one array: what is written has a value for each row."""
    if not isinstance(logits, hm.io.Source):
        return logits
    return np.concatenate([x for x, _ in logits.blocks()])


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
    reading: Reading = READING,
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
    with progress("reading"):
        pair = [reading.read(name) for name in (a, b)]
        for one in pair:
            if one.labels is None:
                raise ValueError(f"{one.source} has no labels, which a comparison needs: --labels")
        first, second = pair
        if first.logits.shape != second.logits.shape:
            raise ValueError(
                f"{a} and {b} do not hold the same rows: their shapes are {first.logits.shape} "
                f"and {second.logits.shape}"
            )
        differ = np.flatnonzero(np.asarray(first.labels) != np.asarray(second.labels))
        if differ.size:
            raise ValueError(f"{a} and {b}: the labels of row {differ[0]} differ")
        p, q = (
            hm.softmax(np.asarray(one.logits, np.float64)) if path is None else applied(one, path)
            for one, path in zip(pair, (calibrator_a, calibrator_b), strict=True)
        )
        result = hm.calibration.compare(p, q, first.labels, input="probabilities")
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


def applied(found: Any, calibrator: Path) -> Any:
    from hotmax.io.one_file import existing

    fitted = hm.calibration.load(existing(calibrator))
    if found.logits.shape[1] != fitted.n_features_in_:
        raise ValueError(
            f"{found.source} has {found.logits.shape[1]} classes, and {calibrator} was fitted to "
            f"{fitted.n_features_in_}"
        )
    x = found.logits
    return fitted.predict_proba(hm.softmax(x) if fitted.input != "logits" else x)
