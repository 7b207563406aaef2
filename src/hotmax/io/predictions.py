"""read: logits, labels and names of classes from a file, checked."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hotmax._core import threads
from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.class_labels import in_order
from hotmax._core.reading import reading
from hotmax.calibration.examples import INPUTS
from hotmax.calibration.row_parts import is_raw
from hotmax.calibration.source import Source
from hotmax.io.found import NONE, Found, Wanted, row_place
from hotmax.io.json_lines import JSON_LINES, is_table_of_json
from hotmax.io.labels import as_labels, read_label_file
from hotmax.io.multilabel import read_labels_apart
from hotmax.io.one_file import (
    as_clip,
    as_columns,
    check_nan,
    checked_logits,
    existing,
    expect_logits,
    is_array_of_labels,
    label_file,
    logarithms,
    names_of_file,
    numbers_of_labels,
    opened,
    raw_labels,
    reader_of,
)
from hotmax.io.one_logit import (
    is_one_logit,
    pair_of_names,
    refuse_one_probability,
    said_of_pair,
    two_columns,
)
from hotmax.io.places import files_at, files_in, is_remote
from hotmax.io.token_logprobs import LOGPROB_FILES, TokenLogprobs, read_token_logprobs


@dataclass(frozen=True, eq=False)
class Predictions:
    """What `read` has found in a file.

    Attributes:
        logits: (rows, classes), read-only if they are mapped from the file.
        labels: The number of each row's class, int64; soft labels, (rows, classes) of
            probabilities, if the file has those; or None.
        class_names: The names of the classes, or None.
        source: The file.
        label_source: Where the labels come from, such as "column 'label'"; or None.
        logit_source: Where the logits come from, such as "columns 'cat' and 'dog'"; or None.
        multilabel: Whether labels are independent: `labels` then has the shape of the logits, 0 or
            1, and `class_names` are those of the labels.
    """

    logits: Array = field(repr=False)
    labels: Array | None = field(repr=False)
    class_names: tuple[str, ...] | None
    source: str
    label_source: str | None = None
    logit_source: str | None = None
    multilabel: bool = False

    def __str__(self) -> str:
        rows, classes = self.logits.shape
        what, own = ("labels", "targets") if self.multilabel else ("classes", "labels")
        labels = f"no {own}"
        if self.labels is not None:
            soft = "soft " if self.labels.ndim == 2 and not self.multilabel else ""
            labels = f"{soft}{own} from {self.label_source}"
        return (
            f"{self.source}: {rows} rows, {classes} {what}, {self.logits.dtype}"
            f"{taken(self.logit_source)}, {labels}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any,
    *,
    logits: str | None = None,
    labels: str | os.PathLike[str] | Any = None,
    class_names: Sequence[str] | None = None,
    input: str = "logits",
    columns: Sequence[str] | str | None = None,
    clip: float | None = None,
    multilabel: bool = False,
) -> Predictions | TokenLogprobs:
    """Logits, labels and names of classes from an .npz, .npy, .safetensors or .parquet, or a table.

    Tables of text are .csv and .tsv, also as .csv.gz, in UTF-8 or UTF-16, with decimal commas where
    semicolons or tabs separate; and JSON lines (.jsonl), an object for each row.

    Args:
        path: The file; its name says of what kind it is. A .json or .jsonl file may also hold
            responses of a language model's API, with log-probabilities of tokens. Or what else
            `source` takes: a
            directory, a pattern, a list of files, a zarr or Dask array, whose rows are then brought
            into memory.
        logits: The name of the array or list column; in a table with a column for each class, what
            the names of these columns begin with.
        labels: The name of the array or column; or another file (.npy, .npz, .txt), with a label
            for each row, or an array of them; "last" for the last column of a table; "none" for no
            labels.
        class_names: Names of the classes, where the file has none, or others.
        input: "probabilities" if the file holds those; their logarithms are then the logits.
        columns: The columns of a table that are logits, outright: names, or patterns such as
            "p_*"; in a file without a header places counted from 1, such as "1-10". All others are
            left out, but for the label.
        clip: The least probability, such as 1e-12, with input="probabilities": smaller ones, and 0,
            count as this.
        multilabel: Whether labels are independent: logits (rows, labels), and targets of that
            shape, 0 or 1. A table has columns logit_NAME (with input="probabilities" p_NAME) and
            label_NAME for each label; others are chosen by `columns`, and by what they begin with,
            `logits` and `labels`. The file is read whole.

    Returns:
        Predictions: logits, labels or None, class_names or None, source. For a .json or .jsonl file
        of responses with log-probabilities of tokens TokenLogprobs: perplexity always, and the same
        attributes, if answer options are listed in all of them.

    Raises:
        ValueError: What is wrong with the file, and where: a missing array, ragged rows, nan, a
            label that is no class, probabilities where logits are expected; a file that is damaged
            or exceeds a limit. The message is one line that begins with the file's name.
        OSError: If the file is not there or may not be read.
        MemoryError: If memory runs out. This says nothing against the file.

    Files may come from anywhere: nothing in them is run, and what a header declares is compared
    with the file's size and with these limits before it is read.

    | limit | of | reason |
    |---|---|---|
    | 10,000 bytes | the header of an .npy array | NumPy's own |
    | 16 MiB | the directory of an .npz | 200,000 arrays |
    | 1032 times its bytes | a compressed array of an .npz | deflate can do no better |
    | 8 MiB | the header of a .safetensors | parsed, it takes 25 times that |
    | 64 MiB | the metadata of a .parquet | 400,000 columns |
    | 16 MiB | a line of a .csv | 800,000 classes |
    | 1032 times its bytes | a table compressed by gzip | deflate can do no better |
    | 64 MiB | a text file of labels or names | 16 million labels |
    | 100,000 blank lines more than rows | any text | each takes as long as a row |

    Arrays follow their headers without gaps, overlaps or bytes left over; names are unique; the
    checksums of .npz and, where they were written, of .parquet are verified, but not those of
    arrays that are mapped.

    Example:
        >>> import tempfile, pathlib, hotmax as hm
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "predictions.csv"
        >>> _ = path.write_text("cat,dog,label\\n2.5,0.1,cat\\n0.3,1.1,dog\\n")
        >>> predictions = hm.io.read(path)
        >>> predictions.class_names, predictions.labels.tolist()
        (('cat', 'dog'), [0, 1])
        >>> folder.cleanup()
    """
    if input not in INPUTS:
        raise ValueError(f'input must be "logits" or "probabilities", got {input!r}')
    chosen, least = as_columns(columns), as_clip(clip, input)
    if multilabel:
        wanted = Wanted(logits, None, input == "probabilities", columns=chosen)
        return of_labels(path, labels, wanted, class_names, least)
    if not is_one_file(path):
        from hotmax.io.sources import source as open_source

        return gathered(
            open_source(
                path,
                labels,
                logits=logits,
                class_names=class_names,
                input=input,
                columns=columns,
                clip=clip,
            )
        )
    assert isinstance(path, str | os.PathLike)
    file = existing(path)
    if holds_responses(file):
        with reading(file):
            return read_token_logprobs(file, labels, class_names)
    reader_of(file)
    if class_names is not None and not in_order(class_names):
        raise TypeError(f"class_names must be a sequence of names, got {class_names!r}")
    threads.get_threads()  # a bad HOTMAX_NUM_THREADS is no fault of the file
    given = is_array_of_labels(labels)
    other = None if given else label_file(labels)
    apart = given or other is not None
    named = NONE if apart else (None if labels is None else str(os.fspath(labels)))
    with reading(file):
        wanted = Wanted(logits, named, input == "probabilities", columns=chosen)
        found = opened(file, wanted)
        x = checked_logits(found, file)
        one = is_one_logit(x)
        names = None if one else names_of_file(class_names, found, x.shape[1], file)
    raw, source, place, where = found.labels, found.label_source, found.place, file
    with reading(other or file):
        if other is not None:
            raw, place = read_label_file(other)
            source, where = str(other), other
        elif given:
            refuse_masked(labels, "labels")
            raw, source, where, place = np.asarray(labels), "labels", Path("labels"), row_place
        rows, count = x.shape[0], 2 if one else x.shape[1]
        if one:
            names = names_of_file(pair_of_names(found, class_names, raw, where), found, 2, file)
        if given:
            raw = raw_labels(labels, count, names)
        numbers = None if raw is None else as_labels(raw, rows, count, names, place, where)
    with reading(file):
        check_nan(x, found, file)
        if one:
            if input == "logits":
                refuse_one_probability(x, file)
            x = two_columns(x, input == "probabilities")
        if input == "probabilities":
            x = logarithms(x, file, least)
        elif not one:
            expect_logits(x, file)
    logit_source = found.logit_source or found.what
    if one:
        logit_source += f" ({said_of_pair(names, input == 'probabilities')})"
    return Predictions(x, numbers, names, str(file), source, logit_source)


def of_labels(
    path: Any, labels: Any, wanted: Wanted, class_names: Sequence[str] | None, least: float
) -> Predictions:
    """Independent labels, from one file or several."""
    names = files_in(path)
    if len(names) > 1 and (is_array_of_labels(labels) or label_file(labels) is not None):
        raise ValueError("labels of several files must be in each of them, if they are multilabel")
    parts = [read_labels_apart(name, labels, wanted, class_names, least) for name in names]
    first = parts[0]
    for name, part in zip(names[1:], parts[1:], strict=True):
        same = part[0].shape[1], part[1] is None, part[2]
        if same != (first[0].shape[1], first[1] is None, first[2]):
            raise ValueError(f"{names[0]} and {name} do not belong together: their labels differ")
    x = np.concatenate([part[0] for part in parts]) if len(parts) > 1 else first[0]
    targets = [part[1] for part in parts if part[1] is not None]
    y = np.concatenate(targets) if targets else None
    source = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return Predictions(x, y, first[2], source, first[3], first[4], True)


def taken(logit_source: str | None) -> str:
    return "" if logit_source is None else f", logits from {logit_source}"


def holds_responses(file: Path) -> bool:
    """Does a file of JSON hold responses of a language model's API, and no table?"""
    if file.suffix.lower() not in LOGPROB_FILES:
        return False
    with reading(file):
        return file.suffix.lower() not in JSON_LINES or not is_table_of_json(file)


def is_one_file(path: object) -> bool:
    """Is this the path of a single file, and not a directory, a pattern, a list or an array?"""
    if not isinstance(path, str | os.PathLike):
        return False
    name = os.fspath(path)
    return not is_remote(name) and not Path(name).is_dir() and files_at(name) == [name]


def gathered(source: Source) -> Predictions:
    """All rows of a source, in memory."""
    parts = list(source.blocks())
    x = np.concatenate([logits for logits, _ in parts])
    labels = [numbers for _, numbers in parts if numbers is not None]
    numbers = np.concatenate(labels) if labels else None
    if numbers is not None and is_raw(source) and not source.soft_labels:
        numbers = numbers_of_labels(numbers, source.classes, source.class_names, None)
    file = Path(source.name)
    check_nan(x, Found(x, "logits", None, None, None, row_place), file)
    if source.input == "probabilities":
        x = logarithms(x, file)
    where = (source.label_source or "the source") if labels else None
    return Predictions(x, numbers, source.class_names, source.name, where, source.logit_source)
