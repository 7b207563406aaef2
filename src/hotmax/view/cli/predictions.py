"""report and apply: a file of predictions."""

from __future__ import annotations

import textwrap
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import hotmax as hm
from hotmax.view.cli.options import COMMON, READING, Common, Flag, Reading, check_free
from hotmax.view.cli.output import Progress, progress, say, say_json

if TYPE_CHECKING:
    import numpy as np

    from hotmax._core.arrays import Array
else:
    from hotmax.view.cli.deferred import np

BLOCK = 1 << 21  # entries that are computed together

File = Annotated[Path, Parameter(name="FILE")]


@contextmanager
def naming_the_file(found: Any) -> Iterator[None]:
    """Have errors name the file, and the row as the file counts it.

    Calibration counts the rows that it is given, which are those of a split or of a block.
    """
    from hotmax._kernels.calibration import rows as kernels
    from hotmax.calibration.examples import WRONG

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
    from hotmax._kernels.calibration import rows as kernels

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

        in_float64 = found.logits.dtype.kind != "f" or found.logits.dtype.itemsize > 4
        kind = np.dtype(np.float64 if in_float64 else np.float32)
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


def method_of(calibrator: Any) -> str:
    return str(calibrator._options()[0])


def blocks_of(logits: Array, update: Progress, stage: str) -> Iterator[tuple[int, int]]:
    rows, classes = logits.shape
    step = max(BLOCK // classes, 1)
    for start in range(0, rows, step):
        update(stage, start / rows)
        yield start, min(start + step, rows)
