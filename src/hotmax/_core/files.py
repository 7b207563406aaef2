"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

# What os.link fails with on file systems that have no links.
NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


@contextmanager
def whole(path: str | os.PathLike[str], *, force: bool = True) -> Iterator[BinaryIO]:
    """A draft to write to, which takes the name `path` only when all of it is written.

    An existing file is left alone without `force`: FileExistsError, before any work, or at the end
    if it appeared in the meantime. With it, the file that a symbolic link points to is written.
    """
    check_writable(path, force=force)
    final = _target(Path(path)) if force else Path(path)
    draft = final.with_name(f".{final.name[:40]}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        with io.BufferedRandom(_Draft(draft, path)) as file:
            yield file
        if force:
            _replace(draft, final)
        else:
            _give_name(draft, final)
    finally:
        with suppress(FileNotFoundError):  # it has its name, or was never made
            os.unlink(draft)


def write_whole(path: str | os.PathLike[str], text: str, *, force: bool = True) -> None:
    """The text in UTF-8, as `whole` does it."""
    with whole(path, force=force) as file:
        file.write(text.encode())


def check_writable(path: str | os.PathLike[str], *, force: bool) -> None:
    """Raise OSError if `whole` could not write to `path`."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file to write to")
    if os.path.lexists(path) and not force:
        dangling = "" if path.exists() else ", a symbolic link to nothing"
        raise FileExistsError(
            f"{path} exists already{dangling}, and is not overwritten without force"
        )
    final = _target(path)
    if final.is_symlink():
        raise OSError(f"{path} is a symbolic link that leads back to itself")
    if final.exists() and not final.is_file():
        raise OSError(f"{path} is a device or a pipe, not a file that can be replaced")
    if not final.parent.is_dir():
        raise FileNotFoundError(f"there is no directory {final.parent} to write {final.name} to")


def _target(path: Path) -> Path:
    """Where a symbolic link leads; or else the path as it was given."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


class _Draft(io.FileIO):
    """A new file whose errors (a full disk, say) name the file that it is to become."""

    def __init__(self, draft: Path, final: str | os.PathLike[str]) -> None:
        self.final = os.fspath(final)
        with self._named():
            super().__init__(draft, "x+")

    def write(self, data: Any, /) -> int:
        with self._named():
            return super().write(data)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = self.final
            raise


def _replace(draft: Path, final: Path) -> None:
    with suppress(FileNotFoundError):
        os.chmod(draft, final.stat().st_mode & 0o777)
    os.replace(draft, final)


def _give_name(draft: Path, final: Path) -> None:
    """Give the draft its name; FileExistsError if another file has taken it."""
    try:
        os.link(draft, final)
    except FileExistsError:
        raise FileExistsError(
            f"{final} has appeared in the meantime, and is not overwritten without force"
        ) from None
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        # Claim the name with an empty file: for a moment others see that instead.
        os.close(os.open(final, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            os.replace(draft, final)
        except BaseException:
            os.unlink(final)
            raise
