"""Files of independent labels: a logit for each label of each row, and targets 0 or 1 beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.class_labels import listed
from hotmax._core.reading import reading
from hotmax.io.found import NONE, Found, Wanted
from hotmax.io.json_lines import JSON_LINES, objects
from hotmax.io.labels import read_label_file
from hotmax.io.one_file import (
    ARRAYS,
    check_nan,
    checked_logits,
    existing,
    is_array_of_labels,
    label_file,
    names_of_file,
    opened,
    reader_of,
)
from hotmax.io.parquet import opened_parquet
from hotmax.io.places import suffix_of
from hotmax.io.tables import chosen_names, logit_source
from hotmax.io.text_tables import open_text

# What names of columns begin with, before the name of a label.
LOGIT_STARTS = ("logit_", "score_")
PROBABILITY_STARTS = ("p_", "prob_", "probability_")
TARGET_STARTS = ("label_", "target_", "y_", "true_")


def header_of_table(file: Path) -> list[str]:
    """The names of the columns of a table."""
    kind = suffix_of(file)
    if kind == ".parquet":
        with opened_parquet(file) as table:
            return list(table.schema_arrow.names)
    if kind in JSON_LINES:
        return list(next(objects(file))[1])
    header = open_text(file).header
    if header is None:
        raise ValueError(f"{file} has no header: columns of labels are known by their names")
    return header


def beginning_with(names: Sequence[str], starts: Sequence[str]) -> tuple[list[str], str]:
    """(the columns that begin with the first of these that any column begins with, which)."""
    for start in starts:
        found = [name for name in names if name.startswith(start) and name != start]
        if found:
            return found, start
    return [], ""


def without_start(name: str, starts: Sequence[str]) -> str:
    return next((name.removeprefix(start) for start in starts if name.startswith(start)), name)


def found_in_table(file: Path, wanted: Wanted) -> tuple[Found, Array | None]:
    """Logits and targets of a table with a column of each for every label."""
    names = header_of_table(file)
    starts: tuple[str, ...] = PROBABILITY_STARTS if wanted.probabilities else LOGIT_STARTS
    if wanted.logits is not None:
        starts = (wanted.logits,)
    targets: list[str] = []
    target_starts = TARGET_STARTS if wanted.labels is None else (wanted.labels,)
    if wanted.labels != NONE:
        targets, _ = beginning_with(names, target_starts)
        if not targets and wanted.labels is not None:
            raise ValueError(f"{file} has no columns {wanted.labels!r}..., only {listed(names)}")
    if wanted.columns is not None:
        logits = [names[i] for i in chosen_names(names, wanted.columns, file)]
    else:
        logits, _ = beginning_with(names, starts)
    if not logits:
        raise ValueError(
            f"{file} has no columns {' or '.join(f'{start}...' for start in starts)}, one for each "
            f"label, only {listed(names)}: say by columns=[...] (--columns) which are logits, and "
            'by what those of the targets begin with, labels="..." (--labels)'
        )
    both = sorted(set(logits) & set(targets))
    if both:
        raise ValueError(f"{file}: column {listed(both)} cannot be a logit and a target")
    labels = [without_start(name, starts) for name in logits]
    given = {without_start(name, target_starts): name for name in targets}
    if targets and set(given) != set(labels):
        raise ValueError(
            f"{file}: logits are there for the labels {listed(labels)}, and targets for "
            f"{listed(given)}"
        )
    read_columns = reader_of(file)
    table = read_columns(file, Wanted(None, NONE, wanted.probabilities, None, tuple(logits)))
    y, source = None, None
    if targets:
        ordered = [given[name] for name in labels]
        y = read_columns(file, Wanted(None, NONE, False, None, tuple(ordered))).logits
        source = logit_source(ordered, [])
    taken = logit_source(logits, [])
    return Found(table.logits, "the table", None, source, tuple(labels), table.place, taken), y


def as_targets(raw: Any, shape: tuple[int, ...], where: object) -> Array:
    """Targets 0 or 1 for each label of each row, as int64."""
    if isinstance(raw, list):
        raise ValueError(f"{where}: targets of labels must be an array, got lines of text")
    y = np.asarray(raw)
    if y.ndim == 1 and shape[1] == 1:
        y = y[:, None]
    if y.shape != shape:
        raise ValueError(
            f"{where}: targets must be 0 or 1 for each label of each row, of the shape {shape} of "
            f"the logits, got {y.shape}"
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        wrong = "" if y.dtype.kind not in "biuf" else f" {y[~np.isin(y, (0, 1))][0]:g}"
        raise ValueError(f"{where}: targets must be 0 or 1, got {y.dtype}{wrong}")
    return y.astype(np.int64)


def label_log_odds(p: Array, file: Path, least: float) -> Array:
    """The logits of probabilities of "yes"."""
    p = p.astype(np.float64)
    if not ((p >= 0.0) & (p <= 1.0)).all():
        row = int(np.argmax(~((p >= 0.0) & (p <= 1.0)).all(1)))
        raise ValueError(f"{file}: probabilities must lie in 0..1, and row {row} has others")
    if least:
        p = np.clip(p, least, 1.0 - least)
    if ((p == 0.0) | (p == 1.0)).any():
        row = int(np.argmax(((p == 0.0) | (p == 1.0)).any(1)))
        raise ValueError(
            f"{file}: row {row} has a probability of exactly 0 or 1, whose logit is infinite: "
            "--clip 1e-12 makes that the least"
        )
    odds: Array = np.log(p) - np.log1p(-p)
    return odds


def read_labels_apart(
    path: str, labels: Any, wanted: Wanted, class_names: Sequence[str] | None, least: float
) -> tuple[Array, Array | None, tuple[str, ...] | None, str | None, str]:
    """(logits, targets, names of the labels, where targets and logits come from) of one file."""
    file = existing(path)
    reader_of(file)
    given = is_array_of_labels(labels)
    refuse_masked(labels if given else None, "labels")
    other = None if given else label_file(labels)
    apart = given or other is not None
    named = NONE if apart else (None if labels is None else str(os.fspath(labels)))
    wanted = Wanted(wanted.logits, named, wanted.probabilities, None, wanted.columns)
    with reading(file):
        if suffix_of(file) in ARRAYS:
            found = opened(file, wanted)
            raw: Any = found.labels
        else:
            found, raw = found_in_table(file, wanted)
        x = checked_logits(found, file)
        names = found.class_names if class_names is None else class_names
        if names is not None and x.shape[1] == 1 and len(names) == 1:
            labels_of: tuple[str, ...] = (str(names[0]),)
        else:
            labels_of = names_of_file(class_names, found, x.shape[1], file) or ()
        check_nan(x, found, file)
    source, where = found.label_source, file
    if other is not None:
        with reading(other):
            raw, _ = read_label_file(other)
        source, where = str(other), other
    elif given:
        raw, source, where = labels, "labels", Path("labels")
    y = None if raw is None else as_targets(raw, x.shape, where)
    if wanted.probabilities:
        x = label_log_odds(x, file, least)
    elif x.dtype.kind == "f" and x.size > 1 and ((x >= 0) & (x <= 1)).all() and (x % 1 > 0).any():
        raise ValueError(
            f"{file} holds probabilities, not logits: all of them lie in 0..1; say "
            'input="probabilities" (--input probabilities)'
        )
    return x, y, labels_of or None, source, found.logit_source or found.what
