"""Machine code inside the wheel: one file for each level of processors, checked before it is used.

Numba's own cache is for one exact processor. Code compiled for a level, such as x86-64-v3, runs on
every processor that has the instructions of the level, and hotmax's arithmetic gives the same bits
on all of them. So a wheel carries `compiled/x86-64-v3.bin` and the like:

    MAGIC, the digest of the header, its length, the header in JSON, and the codes one after another

The header says what the code was made from: the digest of all kernel sources, the minor versions of
Numba, llvmlite and Python, the platform and the level. If one of them differs, or the digest of the
header or of a code is wrong, the file counts as absent, and kernels are compiled.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

MAGIC = b"hotmax compiled kernels 1\n"
DIGEST = hashlib.sha256().digest_size
KERNELS = Path(__file__).parents[1]
FOLDER = KERNELS / "compiled"

# What LLVM calls a level, and the instructions that a processor of it has; the best first.
_V3 = (
    *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"),
    *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
)
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"x86-64-v4": _V4, "x86-64-v3": _V3},
    "amd64": {"x86-64-v4": _V4, "x86-64-v3": _V3},
    "aarch64": {"generic": ("neon",)},
    "arm64": {"generic": ("neon",)},
}


def levels() -> dict[str, tuple[str, ...]]:
    """The levels of processors like this one, the best first, and the instructions of each."""
    return LEVELS.get(platform.machine().lower(), {})


def sources() -> str:
    """The digest of every file below _kernels/: a kernel contains the code of what it calls."""
    digest = hashlib.sha256()
    for path in sorted(KERNELS.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(KERNELS).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def minor(version: str) -> str:
    """What a wheel pins: patch releases of Numba and llvmlite keep their interfaces."""
    return ".".join(version.split(".")[:2])


def provenance(level: str) -> dict[str, str]:
    """All that code for a level depends on, here and now."""
    import llvmlite
    import numba

    return {
        "level": level,
        "platform": sysconfig.get_platform(),
        "python": str(sys.implementation.cache_tag),
        "numba": minor(numba.__version__),
        "llvmlite": minor(llvmlite.__version__),
        "sources": sources(),
    }


class UnusableError(ValueError):
    """A file of compiled kernels that must not be used, and why."""


class Archive:
    """A file of compiled kernels. The header is checked here, each code when it is read."""

    def __init__(self, path: Path, wanted: Mapping[str, str]) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                if file.read(len(MAGIC)) != MAGIC:
                    raise UnusableError("not a file of compiled kernels")
                digest = file.read(DIGEST)
                length = int.from_bytes(file.read(8), "little")
                self.size = path.stat().st_size
                self.start = len(MAGIC) + DIGEST + 8 + length
                if self.start > self.size:
                    raise UnusableError("damaged: it ends too early")
                header = file.read(length)
        except FileNotFoundError:
            raise UnusableError("not there") from None
        except OSError as error:
            raise UnusableError(str(error.strerror)) from None
        if hashlib.sha256(header).digest() != digest:
            raise UnusableError("damaged: its header has another digest")
        content = json.loads(header)
        for name, value in wanted.items():
            if content["made"].get(name) != value:
                raise UnusableError(f"made for another {name}: {content['made'].get(name)}")
        self.codes: dict[str, list[Any]] = content["codes"]  # key: name, offset, length, digest

    def read(self, key: str) -> bytes | None:
        """The code of a key; None if there is none, or if it is damaged.

        The file is opened each time: a position in an open file is shared with forked processes.
        """
        found = self.codes.get(key)
        if found is None:
            return None
        _, offset, length, digest = found
        try:
            with self.path.open("rb") as file:
                file.seek(self.start + offset)
                code = file.read(length)
        except OSError:
            return None
        return code if hashlib.sha256(code).hexdigest() == digest else None


def write(path: Path, made: Mapping[str, str], codes: Iterable[tuple[str, str, bytes]]) -> int:
    """Write an archive of (key, name, code), and return how many there are."""
    index: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for key, name, code in sorted(codes):
        if key not in index:
            index[key] = [name, offset, len(code), hashlib.sha256(code).hexdigest()]
            parts.append(code)
            offset += len(code)
    header = json.dumps({"made": dict(made), "codes": index}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(MAGIC + hashlib.sha256(header).digest() + len(header).to_bytes(8, "little"))
        file.write(header)
        file.writelines(parts)
    return len(index)


def candidates(features: Mapping[str, bool]) -> Iterator[tuple[str, str | None]]:
    """(level, why it cannot be used here or None), the best first."""
    for level, needed in levels().items():
        absent = [name for name in needed if not features.get(name, False)]
        yield level, f"this processor has no {absent[0]}" if absent else None


@cache
def opened(features: Callable[[], Mapping[str, bool]]) -> Archive | None:
    """The archive of the best level that this processor has, if it can be used."""
    return next((found for _, found in survey(features) if isinstance(found, Archive)), None)


def survey(features: Callable[[], Mapping[str, bool]]) -> Iterator[tuple[str, Archive | str]]:
    """Each level with its archive, or why that cannot be used."""
    if not FOLDER.is_dir():
        return
    for level, obstacle in candidates(features()):
        if obstacle is not None:
            yield level, obstacle
            continue
        try:
            yield level, Archive(FOLDER / f"{level}.bin", provenance(level))
        except UnusableError as error:
            yield level, str(error)
