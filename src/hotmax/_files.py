"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: str | os.PathLike[str], *, force: bool = True) -> Iterator[BinaryIO]:
    """A draft to write to, which takes the name `path` only when all of it is written.

    An existing file is left alone without `force`: FileExistsError, before any work.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file to write to")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {path.parent} to write {path.name} to")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already, and is not overwritten without force")
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        os.chmod(draft, permissions(path))
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def write_whole(path: str | os.PathLike[str], text: str, *, force: bool = True) -> None:
    """The text in UTF-8, as `whole` does it."""
    with whole(path, force=force) as file:
        file.write(text.encode())


def permissions(path: Path) -> int:
    """Those of the file that is replaced, or of a new one: a draft is for its owner alone."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
