"""Options that several commands have."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import hotmax as hm
from hotmax._core.files import check_writable


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command."""

    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Print JSON, for other programs; inf and nan as text."

    debug: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "If something goes wrong, show where."


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How a file is read."""

    labels: str | None = None
    "The labels: an array or column by its name, another file, or last or none."

    logits: str | None = None
    "The logits: an array or column by its name, or what the names of their columns begin with."

    class_names: str | None = None
    "Names of the classes: cat,dog,fox, or a file with one on each line."

    columns: str | None = None
    "The columns of a table that are logits: cat,dog,fox, a pattern, or without header 1-10."

    input: Literal["logits", "probabilities"] = "logits"
    "What the file holds."

    clip: float | None = None
    "With --input probabilities: the least probability, such as 1e-12; smaller ones count as it."

    @property
    def of_labels(self) -> bool:
        """Whether labels are independent of each other."""
        return False

    def read(self, path: str | Path | list[str]) -> hm.io.Predictions:
        found = hm.io.read(
            path,
            labels=self.labels,
            logits=self.logits,
            class_names=parse_class_names(self.class_names),
            input=self.input,
            columns=parse_columns(self.columns),
            clip=self.clip,
            multilabel=self.of_labels,
        )
        if isinstance(found, hm.io.Predictions):
            return found
        if not found.class_names:
            raise ValueError(f"{found.source}: {found.why_no_options}")
        names, source = found.class_names, found.label_source
        return hm.io.Predictions(found.logits, found.labels, names, found.source, source)


@Parameter(name="*")
@dataclass(frozen=True)
class BlockReading(Reading):
    """How files are read that may be larger than memory."""

    cluster: str | None = None
    "Workers that read the files: the address of a Dask scheduler, or its scheduler file."

    @contextmanager
    def open(self, files: Sequence[str]) -> Iterator[Input]:
        """What the files hold: in memory if it is one file that is small, else block by block."""
        if not files:
            raise ValueError("FILE requires an argument: a file, a directory or a pattern")
        if self.of_labels:
            if self.cluster is not None:
                raise ValueError("--multilabel reads files whole, without --cluster")
            several = self.read(files[0] if len(files) == 1 else list(files))
            yield Input(several.source, several, None)
            return
        if self.cluster is None and len(files) == 1 and is_small(files[0]):
            found = self.read(files[0])
            yield Input(found.source, found, None, self.input == "probabilities")
            return
        with connected(self.cluster) as client:
            source = hm.io.source(
                list(files),
                self.labels,
                logits=self.logits,
                class_names=parse_class_names(self.class_names),
                input=self.input,
                cluster=client,
                columns=parse_columns(self.columns),
                clip=self.clip,
            )
            yield Input(source.name, None, source)


@Parameter(name="*")
@dataclass(frozen=True)
class LabelReading(BlockReading):
    """The same, where labels may be independent of each other."""

    multilabel: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Labels are independent: a logit for each, and targets 0 or 1 of the same shape."

    @property
    def of_labels(self) -> bool:
        return self.multilabel


@contextmanager
def connected(cluster: str | None) -> Iterator[Any]:
    """A client of the cluster, if there is one. Its log is silent: errors are told in one line."""
    from hotmax.io.sources import client_of

    if cluster is None:
        yield None
        return
    client = client_of(cluster)
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with client:
            yield client
    finally:
        logging.disable(logged)


def is_small(name: str) -> bool:
    """Is this a single file, small enough to be read whole? What is not there is told by `read`."""
    from hotmax.io.predictions import holds_responses, is_one_file

    if not is_one_file(name):
        return False
    path = Path(name)
    if not path.is_file() or path.suffix.lower() == ".json":
        return True  # told by `read`, or with no other reader
    return path.stat().st_size <= SMALL_FILE or holds_responses(path)


@dataclass(frozen=True)
class Input:
    """The predictions that a command is about."""

    name: str
    predictions: hm.io.Predictions | None
    source: hm.io.Source | None
    probabilities: bool = False  # whether the file holds those

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Logits and labels, as functions of calibration take them."""
        if self.predictions is not None:
            return self.predictions.logits, self.predictions.labels
        return self.source, None

    @property
    def multilabel(self) -> bool:
        return self.predictions is not None and self.predictions.multilabel

    def as_data(self) -> dict[str, Any]:
        """What was taken for what, for JSON."""
        found = self.predictions or self.source
        assert found is not None
        labels = found.label_source if self.has_labels else None
        return {"source": self.name, "logits": found.logit_source, "labels": labels}

    @property
    def has_labels(self) -> bool:
        if self.predictions is not None:
            return self.predictions.labels is not None
        assert self.source is not None
        return self.source.has_labels

    @property
    def soft_labels(self) -> bool:
        """Whether the labels are probabilities of the classes."""
        if self.predictions is not None:
            return self.predictions.labels is not None and self.predictions.labels.ndim == 2
        assert self.source is not None
        return self.source.soft_labels

    @property
    def class_names(self) -> tuple[str, ...] | None:
        found = self.predictions or self.source
        assert found is not None
        return found.class_names

    def __str__(self) -> str:
        from hotmax.io.predictions import taken

        if self.predictions is not None:
            return str(self.predictions)

        assert self.source is not None
        one = self.source
        labels = f"{'soft ' * one.soft_labels}labels from {one.label_source or 'the source'}"
        return (
            f"{one.name}: {one.rows} rows, {one.classes} classes, {one.dtype}"
            f"{taken(one.logit_source)}, {labels if one.has_labels else 'no labels'}"
        )


def check_same_names(
    a: str, first: tuple[str, ...] | None, b: str, second: tuple[str, ...] | None
) -> None:
    """Raise if two files have the same number of classes, and other names, or another order."""
    if first and second and len(first) == len(second) and first != second:
        at = next(i for i, (one, two) in enumerate(zip(first, second, strict=True)) if one != two)
        raise ValueError(
            f"{a} and {b} do not have the same classes in the same order: class {at} is "
            f"{first[at]!r} in one and {second[at]!r} in the other; --columns chooses an order, "
            "and --class-names gives both the same names"
        )


COMMON, READING, BLOCK_READING = Common(), Reading(), BlockReading()  # the defaults
LABEL_READING = LabelReading()
SMALL_FILE = 1 << 26  # bytes up to which a single file is read whole

Temperature = Annotated[float, Parameter(name=("--temperature", "-T"), allow_leading_hyphen=True)]
Temperatures = Annotated[str, Parameter(name=("--temperatures", "-T"), allow_leading_hyphen=True)]
Files = Annotated[str, Parameter(name="FILE")]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def parse_class_names(given: str | None) -> list[str] | None:
    from hotmax.io.labels import text_lines

    if given is None:
        return None
    if "," not in given and os.path.isfile(given):
        return text_lines(Path(given))
    return [name.strip() for name in given.split(",")]


def parse_columns(given: str | None) -> list[str] | None:
    """Names of columns between commas."""
    return None if given is None else [name.strip() for name in given.split(",")]


def numbers(text: str, name: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers between commas, got {text!r}") from None


def check_free(path: Path | None, force: bool) -> None:
    """Complain about a result that could not be written, before the work that makes it."""
    if path is None:
        return
    try:
        check_writable(path, force=force)
    except FileExistsError:
        raise FileExistsError(f"{path} exists already: --force overwrites it") from None
