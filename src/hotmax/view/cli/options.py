"""Options that several commands have."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

import hotmax as hm


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

    input: Literal["logits", "probabilities"] = "logits"
    "What the file holds."

    def read(self, path: Path) -> hm.io.Predictions:
        found = hm.io.read(
            path,
            labels=self.labels,
            logits=self.logits,
            class_names=parse_class_names(self.class_names),
            input=self.input,
        )
        if isinstance(found, hm.io.Predictions):
            return found
        if not found.class_names:
            raise ValueError(f"{found.source}: {found.why_no_options}")
        names, source = found.class_names, found.label_source
        return hm.io.Predictions(found.logits, found.labels, names, found.source, source)


COMMON, READING = Common(), Reading()  # the defaults

Temperature = Annotated[float, Parameter(name=("--temperature", "-T"), allow_leading_hyphen=True)]
Temperatures = Annotated[str, Parameter(name=("--temperatures", "-T"), allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def parse_class_names(given: str | None) -> list[str] | None:
    if given is None:
        return None
    if "," not in given and os.path.isfile(given):
        from hotmax.io.labels import text_lines

        return text_lines(Path(given))
    return [name.strip() for name in given.split(",")]


def numbers(text: str, name: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers between commas, got {text!r}") from None


def check_free(path: Path | None, force: bool) -> None:
    """Complain about a result that could not be written, before the work that makes it."""
    from hotmax._core.files import check_writable

    if path is None:
        return
    try:
        check_writable(path, force=force)
    except FileExistsError:
        raise FileExistsError(f"{path} exists already: --force overwrites it") from None
