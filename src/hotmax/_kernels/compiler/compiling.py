"""How kernels are compiled, and where their code is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numba import __version__ as numba_version, config, njit
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys

from hotmax._kernels.compiler.device_functions import Translator, WordCache
from hotmax._kernels.compiler.storage import CheckedFiles

# Every file below _kernels/: a kernel holds the code of what it calls, whichever folder that is in.
_KERNELS = Path(__file__).parent.parent
_STAMP = tuple(
    (source.relative_to(_KERNELS).as_posix(), source.stat().st_mtime, source.stat().st_size)
    for source in sorted(_KERNELS.rglob("*.py"))
)
_checks: list[Callable[[], None]] = []


def before_loading(check: Callable[[], None]) -> None:
    """Call `check` before a kernel is first used: what it raises, every function raises.

    That costs nothing at later calls, and unlike a check at import it leaves `import hotmax` alone.
    """
    _checks.append(check)


def kernel(function: Any, nogil: bool = True) -> Any:
    """Compile with the GIL released and the result kept on disk, where a disk can be written."""
    if config.DISABLE_JIT:
        return np.errstate(all="ignore")(function)
    compiled = _compiled(function, FunctionCache, nogil=nogil)
    # what kernels that call this one get; unasked, Numba would do as it does with the caller
    word = compiled.word = cache(partial(_word, function, forceinline=False))
    compiled.get_call_template = lambda *types: word().get_call_template(*types)
    compiled.get_overload = lambda signature: word().get_overload(signature)
    return compiled


def quick_kernel(function: Any) -> Any:
    """A kernel for a microsecond's work, and keeps the GIL: giving it up takes time too."""
    return kernel(function, nogil=False)


def inline(function: Any) -> Any:
    """A word of the vocabulary: compiled into whatever uses it, so that loops vectorise.

    It is kept too: the next kernel, or process, that needs it compiles a third faster.
    """
    if config.DISABLE_JIT:
        return function
    return _word(function, forceinline=True)


def _word(function: Any, **options: Any) -> Any:
    """Nobody but kernels may call it."""
    options |= {"pipeline_class": Translator, "no_cpython_wrapper": True}
    return _compiled(function, WordCache, **options)


def _compiled(function: Any, kind: type, **options: Any) -> Any:
    compiled = njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    compiled._cache = _Kept(function, kind)
    return compiled


class _Kept:
    """What was compiled of a function, on disk: looked for when it is wanted, not on import.

    A cache that cannot be read or written (a full disk, say) is as good as none: what is damaged is
    compiled and written again.
    """

    def __init__(self, function: Any, kind: type) -> None:
        self.function, self.kind = function, kind

    @cached_property
    def opened(self) -> Any:
        """Numba's cache; None if it finds no directory that it may write one to.

        What is compiled holds the words that it uses, so an edit of any file here makes all of it
        stale: Numba by itself would look only at the function's own file. It is another version,
        of which nothing is read: a word that it names may have gone.
        """
        try:
            cache = self.kind(self.function)
        except RuntimeError:
            return None
        version = (numba_version, _STAMP, cache._cache_file._source_stamp)
        folder = Path(cache.cache_path)
        cache._cache_file = CheckedFiles(folder, cache._impl.filename_base, version)
        return cache

    @property
    def cache_path(self) -> str | None:
        return None if self.opened is None else self.opened.cache_path

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Read what was compiled: it needs no more of Numba than what it calls while it runs.

        Numba would first get ready to compile, and import all that it knows of NumPy and SciPy: of
        the 0.6 s until a first result that took 0.5 s.
        """
        for check in _checks:
            check()
        if self.opened is None:
            return None
        rtsys.initialize(context)
        # Pickle and LLVM may raise anything, say, where what the code refers to has been renamed.
        with suppress(Exception):
            return self.opened._load_overload(signature, context)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save what has just been compiled, after the last step that its words left to it.

        Whatever in them asks for Python's objects (an error's arguments, print) finds them there.
        """
        for environment in compiled._find_referenced_environments():
            compiled.library.codegen.set_env(environment.env_name, environment)
        if self.opened is not None:
            with suppress(OSError):
                self.opened.save_overload(signature, compiled)
