"""The decorators of kernels: `kernel`, `quick_kernel` and `inline`.

Without Numba, or with NUMBA_DISABLE_JIT=1, kernels are plain Python: right, and slow. The functions
of `simd` then come from `interpreted`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

try:
    from numba import config, njit, types

    HAS_NUMBA = True
except ImportError:  # no wheel of it for this Python or platform
    HAS_NUMBA = False

IS_COMPILED = HAS_NUMBA and not config.DISABLE_JIT

try:
    from hotmax._kernels.compiler import numba_internals

    IS_CACHED = numba_internals.is_supported()
except (ImportError, AttributeError):  # Numba, or a private part of it, is not there
    IS_CACHED = False

_checks: list[Callable[[], None]] = []


def before_loading(check: Callable[[], None]) -> None:
    """Call `check` before a kernel is first used: what it raises, every function raises.

    This costs nothing in later calls, and unlike a check at import it cannot break `import hotmax`.
    """
    _checks.append(check)


def _run_checks() -> None:
    for check in _checks:
        check()


def kernel(function: Any, nogil: bool = True) -> Any:
    """Compile with the GIL released, and cache the code on disk where a disk can be written."""
    if not IS_COMPILED:
        return np.errstate(all="ignore")(function)
    if IS_CACHED:
        return numba_internals.compile_kernel(function, _run_checks, nogil=nogil)
    return _uncached(function, nogil=nogil)


class Entry:
    """A function of a job (see `pool/jobs.py`), called by its address.

    Attributes:
        address: Where the compiled function lies. It is compiled, or loaded, when first asked for.
    """

    address: int

    def __init__(self, function: Any) -> None:
        self.function = function

    def __getattr__(self, name: str) -> Any:
        if name != "address":
            raise AttributeError(name)
        self.address = self._find()  # from now on an attribute like any other
        return self.address

    def _find(self) -> int:
        if not IS_COMPILED:
            from hotmax._kernels.pool.interpreted import address_of_function

            return address_of_function(np.errstate(all="ignore")(self.function))
        return c_address(self.compiled, types.intp)

    @cached_property
    def compiled(self) -> Any:
        options = {"nogil": True, "c_function": True}
        if IS_CACHED:
            return numba_internals.compile_kernel(self.function, _run_checks, **options)
        return _uncached(self.function, **options)


def c_address(compiled: Any, *kinds: Any) -> int:
    """The address of the C function of a kernel, compiled for these types of arguments."""
    compiled.compile(kinds)
    result = compiled.overloads[kinds]
    address: int = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return address


# int, float, or the type and number of dimensions of an array, and its layout if not contiguous.
Kind = type | tuple[np.dtype[Any], int] | tuple[np.dtype[Any], int, str]


def python_entry(compiled: Any, *kinds: Kind) -> Callable[..., Any]:
    """A kernel for these types of arguments, without Numba's look at their types at each call.

    That look takes 0.3 microseconds. The caller vouches for the types: they are not checked.
    """
    if not IS_COMPILED:
        return compiled  # type: ignore[no-any-return]
    signature = tuple(_numba_type(kind) for kind in kinds)
    compiled.compile(signature)
    entry: Callable[..., Any] = compiled.overloads[signature].entry_point
    return entry


def _numba_type(kind: Kind) -> Any:
    if isinstance(kind, tuple):
        dtype, dimensions, layout = kind if len(kind) == 3 else (*kind, "C")
        return types.Array(getattr(types, dtype.name), dimensions, layout)
    return types.intp if kind is int else types.float64


def quick_kernel(function: Any) -> Any:
    """A kernel for about a microsecond of work. It holds the GIL: releasing it takes time too."""
    return kernel(function, nogil=False)


def inline(function: Any) -> Any:
    """A function that only kernels call, always inlined, so that their loops vectorise.

    It is cached too: the next kernel, or process, that needs it compiles a third faster.
    """
    if not IS_COMPILED:
        return function
    if IS_CACHED:
        return numba_internals.compile_device_function(function, _run_checks, forceinline=True)
    return _uncached(function, forceinline=True)


def _uncached(function: Any, *, c_function: bool = False, **options: Any) -> Any:
    """Plain `njit`: the same code and results, but compiled anew, and longer, in each process."""
    compiled = njit(error_model="numpy", no_cfunc_wrapper=not c_function, **options)(function)
    compile_signature = compiled.compile

    def checked(signature: Any) -> Any:
        _run_checks()
        return compile_signature(signature)

    compiled.compile = checked
    return compiled
