"""Files of fitted rules, such as prediction sets: JSON that is checked against a schema."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotmax._core.files import write_whole
from hotmax._core.reading import bounded, first_line, reading, strict_json

VERSION = 1
LONGEST_FILE = 1 << 27  # bytes: thresholds of 4,194,304 classes


@dataclass(frozen=True)
class Field:
    """What a value must be: its type, and for text the words, for numbers the ends of a range."""

    kind: type
    among: tuple[Any, ...] = ()
    unknown: bool = False  # whether nan is a value

    def checked(self, name: str, value: object) -> Any:
        """The value as it was before it was written; a ValueError if it cannot be one."""
        if self.kind is list:
            if type(value) is not list:
                raise damaged(name, value)
            return [Field(float, self.among).checked(name, one) for one in value]
        if self.kind is float:
            if self.unknown and value == "nan":
                return math.nan
            if value in ("inf", "-inf"):
                value = float(str(value))
            if type(value) not in (int, float):
                raise damaged(name, value)
            value = float(value)  # type: ignore[arg-type]
        if type(value) is not self.kind:
            raise damaged(name, value)
        if self.kind is str and value not in self.among:
            raise damaged(name, value)
        if self.kind in (int, float) and not self.among[0] <= value <= self.among[1]:
            raise damaged(name, value)
        return value


def damaged(name: str, value: object) -> ValueError:
    text = repr(value)
    return ValueError(f"is damaged: {name} cannot be {text[:60] + '...' * (len(text) > 60)}")


def as_json(value: Any) -> Any:
    """inf, which JSON has no word for, as text."""
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_rule(
    path: str | os.PathLike[str], format: str, values: Mapping[str, Any], force: bool
) -> None:
    """Write a rule: whole, or not at all."""
    data = {"format": format, "version": VERSION}
    data |= {name: as_json(value) for name, value in values.items()}
    write_whole(path, json.dumps(data, allow_nan=False), force=force)


def read_rule(
    path: str | os.PathLike[str], format: str, fields: Mapping[str, Field]
) -> dict[str, Any]:
    """The values of a rule; a ValueError that names the file if it is none."""
    with reading(path):
        text = bounded(path, LONGEST_FILE, format)
        try:
            data = strict_json(text)
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {first_line(error)}") from None
        if type(data) is not dict or data.get("format") != format:
            raise ValueError(f"{path} is not a file of {format}")
        if data.get("version") != VERSION or type(data["version"]) is not int:
            raise ValueError(f"{path} has version {data.get('version')!r}, and {VERSION} is read")
        if set(data) != {"format", "version", *fields}:
            wanted = sorted(("format", "version", *fields))
            raise ValueError(
                f"{path} is damaged: it has the keys {sorted(data)[:20]}, not {wanted}"
            )
        try:
            return {name: field.checked(name, data[name]) for name, field in fields.items()}
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None
