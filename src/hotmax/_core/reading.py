"""Files that may be damaged or forged: read within limits, or refused by one error.

What cannot be read is a ValueError of one line that begins with the file's name. Errors of the
operating system (no such file, no permission) stay OSErrors and carry the name. A MemoryError says
that memory ran out: the file may be whole.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_MESSAGE = 300  # characters, beside the name of the file
CHUNK = 1 << 20  # bytes that are read together

# What the operating system says about an offset that no file has: the file's contents are wrong.
OFFSET_ERRORS = (None, errno.EINVAL, errno.EOVERFLOW)


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one error that names the file."""
    name = os.fspath(path)
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"{name}: memory ran out while it was read: {first_line(error)}"
        ) from None
    except (ImportError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except OSError as error:
        if error.errno in OFFSET_ERRORS:
            raise ValueError(f"{name} cannot be read: {first_line(error)}") from None
        if error.filename is None:
            raise type(error)(error.errno, error.strerror, name) from None
        raise
    except ValueError as error:
        if not str(error).startswith((f"{name}:", f"{name} ")):
            raise ValueError(f"{name} cannot be read: {first_line(error)}") from None
        longest = len(str(name)) + LONGEST_MESSAGE
        if len(str(error)) > longest:  # it quotes what the file holds
            raise ValueError(str(error)[:longest] + "...") from None
        raise
    except Exception as error:  # decoders raise nearly every type for forged contents
        raise ValueError(
            f"{name} cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """The message of an error, in one line of bounded length."""
    lines = str(error).strip().splitlines()
    return lines[0][:LONGEST_MESSAGE] if lines else type(error).__name__


def shown(text: str) -> str:
    """A text from a file as an error quotes it: its beginning."""
    return repr(text if len(text) <= 80 else text[:80] + "...")


def bounded(path: str | os.PathLike[str], limit: int, what: str) -> bytes:
    """The bytes of a file; a ValueError if there are more than `limit`."""
    parts: list[bytes] = []
    total = 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while total <= limit and size <= limit:
            part = file.read(CHUNK)
            if not part:
                return b"".join(parts)
            parts.append(part)
            total += len(part)
    raise ValueError(f"{os.fspath(path)} is too long: {what} may have {limit} bytes")


def strict_json(text: bytes) -> Any:
    """JSON in UTF-8 as its standard has it: no key twice, no NaN, bounded nesting."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is there twice")
        return found

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number of JSON")

    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_count(value: object) -> bool:
    """An integer that is not negative; True, 3.0 and "3" are none."""
    return type(value) is int and value >= 0
