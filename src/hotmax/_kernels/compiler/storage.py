"""Compiled code on disk, checked by its digest before it is unpickled.

Unpickling damaged bytes may raise any exception or call any function, and LLVM crashes on truncated
machine code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

DIGEST = hashlib.sha256().digest_size


class CheckedFiles:
    """The compiled code of one function: a file for each signature, named after it.

    Numba numbers its files 1, 2, 3 in an index: processes that compile at the same time give one
    number to two signatures, and a later process loads code for other types.
    """

    def __init__(
        self,
        folder: Path,
        base: str,
        version: object,
        dumps: Callable[[object], bytes] = pickle.dumps,
    ) -> None:
        self.folder, self.base, self.version = folder, base, repr(version).encode()
        self.dumps = dumps

    def path(self, key: object) -> Path:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self.folder / f"{self.base}.{name}.nbc"

    def load(self, key: object) -> Any:
        """The code saved for a key; None if there is none, or if it is damaged or out of date."""
        entry = self._read(self.path(key))
        return None if entry is None or entry[0] != key else entry[1]

    def save(self, key: object, code: object) -> None:
        data = self.dumps((key, code))
        path = self.path(key)
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            draft.write_bytes(self._digest(data) + data)
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise

    def keys(self) -> Iterator[Any]:
        """The keys of all the code that can be loaded."""
        for path in self.folder.glob(f"{self.base}.*.nbc"):
            if (entry := self._read(path)) is not None:
                yield entry[0]

    def count(self) -> int:
        """How many codes can be loaded."""
        paths = self.folder.glob(f"{self.base}.*.nbc")
        return sum(self._checked(path) is not None for path in paths)

    def _read(self, path: Path) -> Any:
        data = self._checked(path)
        return None if data is None else pickle.loads(data)

    def _checked(self, path: Path) -> bytes | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        digest, data = content[:DIGEST], content[DIGEST:]
        return data if digest == self._digest(data) else None

    def _digest(self, data: bytes) -> bytes:
        return hashlib.sha256(self.version + data).digest()
