"""Which files a path, a directory, a pattern or an address names."""

from __future__ import annotations

import functools
import glob
import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotmax._core.reading import first_line

VERSION_KEYS = (  # of fsspec's information about a file, by one file system or another
    *("mtime", "modified", "last_modified", "lastmodified", "last-modified", "created", "updated"),
    *("etag", "checksum", "md5", "md5hash", "content_md5", "crc32c", "generation", "versionid"),
    *("content-md5", "digest", "size"),
)
# What is taken from a directory: JSON lines must be named, since they often hold other things.
SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".safetensors")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The kind of a file by its name; of a compressed one, both: ".csv.gz"."""
    parts = [part.lower() for part in Path(path).suffixes]
    return "".join(parts[-2:]) if parts[-1:] == [".gz"] else "".join(parts[-1:])


def is_remote(name: str) -> bool:
    """Is this an address such as s3://bucket/file?"""
    scheme, separator, _ = name.partition("://")
    return bool(separator) and scheme.replace("+", "").isalnum()


def is_zarr(name: str) -> bool:
    """Is this the directory of a zarr array or group?"""
    path = Path(name)
    marks = ("zarr.json", ".zarray", ".zgroup")
    return path.suffix == ".zarr" or any((path / mark).exists() for mark in marks)


def files_in(paths: object) -> list[str]:
    """The files that paths, directories and patterns name, in order; a zarr counts as one."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise TypeError(f"path must be a path, or a list of paths, got {type(paths).__name__}")
    found: list[str] = []
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path must be a path, or a list of paths, got {type(path).__name__}")
        found += files_at(os.fspath(path))
    if not found:
        raise ValueError("path must name at least one file, got none")
    return found


def files_at(name: str) -> list[str]:
    if is_remote(name):
        return remote_files(name)
    path = Path(name)
    if is_zarr(name) and (path.exists() or not glob.has_magic(name)):
        return [name]
    if path.is_dir():
        inside = sorted(str(file) for file in path.rglob("*") if is_data(file, path))
        if not inside:
            raise ValueError(f"{name} is a directory without files of {', '.join(SUFFIXES)}")
        return inside
    if not path.exists() and glob.has_magic(name):
        matching = sorted(glob.glob(name, recursive=True))
        if not matching:
            raise FileNotFoundError(f"no file matches {name}")
        return [file for match in matching for file in files_at(match)]
    return [name]


def is_data(file: Path, folder: Path) -> bool:
    """A file of a kind that is read, and not one that Spark or a draft left there."""
    inner = file.relative_to(folder).parts
    return (
        suffix_of(file) in SUFFIXES
        and file.is_file()
        and not any(part.startswith((".", "_")) for part in inner)
    )


def is_remote_data(file: str, folder: str) -> bool:
    """The same for the path of a file in a remote directory."""
    inner = file.removeprefix(folder.rstrip("/")).strip("/").split("/")
    return suffix_of(file) in SUFFIXES and not any(part.startswith((".", "_")) for part in inner)


def file_system(name: str) -> tuple[Any, str]:
    """The file system of fsspec for an address, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{name} is read by fsspec: pip install fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(name)
    except ImportError as error:  # fsspec says which package the scheme needs
        raise ImportError(f"{name} cannot be read: {first_line(error)}") from None
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {first_line(error)}") from None
    return system, path


@contextmanager
def remote(name: str) -> Iterator[None]:
    """Turn what goes wrong with a remote file system into one error that names the address."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {name}") from None
    except MemoryError:
        raise
    except Exception as error:  # every service has errors of its own
        raise OSError(
            f"{name} cannot be read: {type(error).__name__}: {first_line(error)}"
        ) from error


def remote_files(name: str) -> list[str]:
    system, path = file_system(name)
    if is_zarr(name) and not glob.has_magic(path):
        return [name]
    with remote(name):
        if glob.has_magic(path):
            found = sorted(system.glob(path))
        elif system.isdir(path):
            found = sorted(f for f in system.find(path) if is_remote_data(f, path))
        else:
            return [name]
    if not found:
        raise FileNotFoundError(f"no file matches {name}")
    return [system.unstrip_protocol(file) for file in found]


def absolute(name: str) -> str:
    """A path that means the same in every directory."""
    return name if is_remote(name) else os.path.abspath(name)


def local(name: str) -> Path:
    """The file itself, or a copy of a remote one, which is kept until the process ends.

    A file that has changed since it was copied is copied again.
    """
    if not is_remote(name):
        return Path(name)
    system, path = file_system(name)
    with remote(name):
        system.invalidate_cache()
        version = version_of(system, path)
    digest = hashlib.sha256(f"{name}\n{version}".encode()).hexdigest()[:32]
    copy = Path(copies().name) / f"{digest}{suffix_of(path)}"
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.{os.getpid()}.{threading.get_ident()}")
        with remote(name):
            system.get_file(path, str(part))
        part.replace(copy)
    return copy


def version_of(system: Any, path: str) -> str:
    """What the file system says of this version of a file: its size, when it was written."""
    info = system.info(path)
    return str(sorted((k, str(v)) for k, v in info.items() if k.lower() in VERSION_KEYS))


@contextmanager
def naming(name: str) -> Iterator[Path]:
    """The local file of a name; errors about the copy of a remote one give its address instead."""
    path = Path(name) if is_zarr(name) else local(name)
    try:
        yield path
    except (ValueError, MemoryError) as error:
        if str(path) == name or str(path) not in str(error):
            raise
        raise type(error)(str(error).replace(str(path), name)) from None


@functools.lru_cache(maxsize=1)
def copies() -> tempfile.TemporaryDirectory[str]:
    """The directory of the copies of remote files; removed at the end of the process."""
    return tempfile.TemporaryDirectory(prefix="hotmax-")
