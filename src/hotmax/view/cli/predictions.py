"""report and apply: a file of predictions."""

from __future__ import annotations

import textwrap
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import hotmax as hm
from hotmax._core.class_labels import integer_names
from hotmax.view.cli.label_calibrators import fitting_reading, loaded, method_of
from hotmax.view.cli.options import (
    COMMON,
    LABEL_READING,
    Common,
    Files,
    Flag,
    Input,
    LabelReading,
    check_free,
    check_same_names,
)
from hotmax.view.cli.output import progress, say, say_json
from hotmax.view.cli.row_columns import groups_of, row_weights, weights_of_test
from hotmax.view.cli.row_errors import naming_the_file
from hotmax.view.cli.shards import apply_to_shards, write_shard

PAGE = Path("report.html")


def report(
    *files: Files,
    out: Path | None = None,
    open: Flag = False,
    title: str | None = None,
    by: str | None = None,
    calibrator: Path | None = None,
    test: str | None = None,
    seed: int = 0,
    force: Flag = False,
    sample_weight: str | None = None,
    reading: LabelReading = LABEL_READING,
    common: Common = COMMON,
) -> None:
    """Write a page about a classifier's predictions, or about a demo.

    Example: hotmax report predictions.npz --out report.html

    Example: hotmax report 'shards/*.parquet' --cluster tcp://host:8786

    Example: hotmax report validation.npz --test test.npz

    Example: hotmax report predictions.npz --by site --calibrator calibrator.json

    Example: hotmax report labels.npz --multilabel

    Example: hotmax report --open

    Parameters
    ----------
    files
        Logits, with labels if there are any: .npz, .npy, .csv, .parquet or .safetensors; several
        files, directories, patterns in quotes, or a .zarr. Without any, a small classifier is
        trained on the spot.
    out
        The page to write: report.html if nothing is said, and none with --json.
    open
        Open the page in a browser.
    title
        Of the page.
    by
        Calibration by group: an array of an .npz or a column of a table with a group for each row,
        or a file with one on each line (.txt, .npy). A table's logits are then named by --columns.
    calibrator
        The JSON file of a calibrator: the report is about its probabilities.
    test
        A file of labelled rows to score on: calibrators are then fitted to all other rows.
    seed
        Of what is drawn at random, such as the split into parts.
    force
        Overwrite the page if it is there.
    sample_weight
        The weight of each row: an array of an .npz or a column of a table by its name, or a file
        with one on each line (.txt, .npy); or none. If it is not given, an array or column with the
        name sample_weight, weight or weights is taken, where there is one.
    """
    page = out if out is not None or (common.json and not open) else PAGE
    check_free(page, force)
    with progress("reading" if files else "making the demo") as update, ExitStack() as stack:
        story: list[str] = []
        if not files:
            from hotmax.view import demo

            made = demo.predictions()
            title, story = title or made.title, [*textwrap.wrap(made.story, 88), ""]
            read = hm.io.Predictions(made.logits, made.labels, made.class_names, "the demo")
            found = Input("the demo", read, None)
        else:
            found = stack.enter_context(reading.open(files))
            title = title or Path(files[0]).name
        own = None if calibrator is None else loaded(calibrator, found.multilabel)
        groups = None if by is None else groups_of(by, files)
        if by is not None and by in (found.class_names or ()):
            raise ValueError(
                f"{found.name}: column {by!r} is that of --by, and no class: say by --columns "
                "which columns are logits"
            )
        others: tuple[Any, ...] | None = None
        weights = row_weights(sample_weight, files)
        if test is not None:
            more = reading.read(test)
            if more.labels is None:
                raise ValueError(f"{test} has no labels, which a test set needs: --labels")
            check_same_names(found.name, found.class_names, test, more.class_names)
            others = more.logits, more.labels
            if not found.multilabel:
                others = more.logits, as_named(more.labels, found.class_names)
                others += weights_of_test(sample_weight, weights, found.name, test)
        with naming_the_file(found):
            logits, labels = found.arguments
            options: Any = {"title": title, "seed": seed, "test": others, "progress": update}
            if weights is not None:
                options["sample_weight"] = weights.values
            result: Any = None
            if found.multilabel:
                if by is not None or labels is None:
                    raise ValueError("--multilabel needs targets (--labels), and takes no --by")
                given = logits, labels, found.class_names
                result = hm.report(*given, calibrator=own, multilabel=True, **options)
            else:
                result = hm.report(
                    logits,
                    as_named(labels, found.class_names),
                    found.class_names,
                    by=groups,
                    calibrator=own,
                    **options,
                )
        if page is not None:
            result.save(page, force=force)
    if common.json:
        print(result.to_json())
    else:
        taken = "" if weights is None else f", weights from {weights.source}"
        read_as = [f"{found}{taken}", ""] if files else []
        say(*story, *read_as, *str(result).splitlines(), "", f"written: {page}")
    if open and page is not None and not webbrowser.open(page.resolve().as_uri()):
        raise OSError(f"no browser could be opened; the page is {page}")


def as_named(labels: Any, names: tuple[str, ...] | None) -> Any:
    """Numbers of classes, as `hm.report` takes labels: as names, where these are whole numbers."""
    known = integer_names(names)
    return labels if known is None or labels is None or labels.ndim == 2 else known[labels]


def apply(
    calibrator: Annotated[Path, Parameter(name="CALIBRATOR")],
    /,
    *files: Files,
    out: Path,
    force: Flag = False,
    reading: LabelReading = LABEL_READING,
    common: Common = COMMON,
) -> None:
    """Turn logits into probabilities by a saved calibrator.

    Example: hotmax apply calibrator.json predictions.npz --out probabilities.npz

    Example: hotmax apply calibrator.json predictions.csv --out probabilities.csv

    Example: hotmax apply calibrator.json shards/ --out probabilities/

    Parameters
    ----------
    calibrator
        The JSON file that `hotmax calibrate --out` has written.
    files
        Logits: .npz, .npy, .csv, .parquet or .safetensors; several files, directories, or patterns
        in quotes.
    out
        An .npz to write: array probabilities, and labels and classes if the file has them; or a
        .csv or .parquet with a column for each class, and the labels. Of several files, a
        directory: an .npz for each, and manifest.json. It appears as a whole or not at all. Of one
        logit for each row both probabilities are written, that of its class last; with --multilabel
        that of "yes" for each label.
    force
        Overwrite the result if it is there.
    """
    from hotmax.io.places import files_in
    from hotmax.io.writing import check_kind

    names = files_in(list(files)) if files else []
    shards = len(names) > 1 or reading.cluster is not None
    if not shards:
        check_free(out, force)
        check_kind(out)
    fitted, reading = fitting_reading(calibrator, reading)
    if shards:
        with progress("applying") as update:
            manifest = apply_to_shards(fitted, names, out, reading, force, update)
        rows, kind = sum(shard["rows"] for shard in manifest["shards"]), manifest["dtype"]
        if common.json:
            say_json({**manifest, "rows": rows, "out": str(out)})
        else:
            say(f"written: {out}, {len(names)} shards, {rows} rows, {kind}")
        return
    with progress("reading") as update, reading.open(files) as found:
        rows, classes, kind = write_shard(fitted, calibrator, found, out, force, update)
    if common.json:
        data = {**found.as_data(), "rows": rows, "num_classes": classes, "dtype": kind.name}
        say_json({**data, "method": method_of(fitted), "out": str(out)})
    else:
        say(str(found), f"written: {out}, {rows} rows of {classes} probabilities, {kind.name}")
