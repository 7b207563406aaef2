"""How kernels are compiled, and where their code is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit
from numba.core.runtime import rtsys

_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
_STAMP = tuple((source.name, source.stat().st_mtime, source.stat().st_size) for source in _SOURCES)


def kernel(function: Any, nogil: bool = True) -> Any:
    """Compile with the GIL released and the result cached on disk, where a disk can be written.

    A cached kernel holds the words that it uses, so an edit of any file here makes all of it stale:
    Numba by itself would look only at the kernel's own file.
    """
    options = {"nogil": nogil, "error_model": "numpy", "no_cfunc_wrapper": True}
    if config.DISABLE_JIT:
        return np.errstate(all="ignore")(function)
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # Numba found no directory that it may write a cache to
        return njit(**options)(function)
    cache = compiled._cache
    cache._cache_file._source_stamp = _STAMP
    cache._cache_file.save = _by_signature(cache._cache_file)
    cache.load_overload = _if_the_disk_allows(_only_loading(cache))
    cache.save_overload = _if_the_disk_allows(cache.save_overload)
    return compiled


def _by_signature(cache_file: Any) -> Any:
    """Save under a name that the signature gives.

    Numba counts 1, 2, 3: processes that compile at the same time give one name to two signatures,
    and whoever loads it later gets code for other types.
    """

    def save(key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        name = cache_file._index_name.removesuffix(".nbi") + f".{digest}.nbc"
        cache_file._save_data(name, data)
        cache_file._save_index({**cache_file._load_index(), key: name})

    return save


def _only_loading(cache: Any) -> Any:
    """Read a compiled kernel, which needs no more of Numba than what it calls while it runs.

    Numba would first get ready to compile, and import all that it knows of NumPy and SciPy: of the
    0.6 s until a first result that took 0.5 s.
    """

    def load(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)
        return cache._load_overload(signature, context)

    return load


def _if_the_disk_allows(step: Any) -> Any:
    """A cache that cannot be read or written (a full disk, say) is as good as none."""

    def attempt(*arguments: Any) -> Any:
        try:
            return step(*arguments)
        except OSError:
            return None

    return attempt


def quick_kernel(function: Any) -> Any:
    """A kernel for a microsecond's work, and keeps the GIL: giving it up takes time too."""
    return kernel(function, nogil=False)


def inline(function: Any) -> Any:
    """A word of the vocabulary: compiled into whatever uses it, so that loops vectorise."""
    only = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # nobody else calls it
    return njit(forceinline=True, error_model="numpy", **only)(function)
