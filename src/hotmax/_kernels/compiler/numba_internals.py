"""The private parts of Numba that hotmax relies on: a cache of its own, and device functions.

Numba optimises each function and emits machine code for it, and does so again inside every caller:
the third function in a chain is compiled three times. Here only what Python calls is optimised and
emitted, with everything that it uses. What kernels call is translated to LLVM IR and no further (a
device function). That takes a third off the time to compile.

`compile_kernel`, `compile_device_function` and `is_supported` are the interface. Where the private
parts are not those of a tested version, `compiling` uses plain `njit` without a cache.
"""

from __future__ import annotations

import dis
import hashlib
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from llvmlite.binding import get_host_cpu_features, parse_bitcode
from numba import __version__ as numba_version, config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, compile_result
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from hotmax._kernels.compiler import shipped
from hotmax._kernels.compiler.storage import CheckedFiles

# From the first of these versions up to, not including, the second: as in pyproject.toml.
TESTED = (0, 62), (0, 70)

# What the code below calls or overrides.
REQUIRED: dict[Any, tuple[str, ...]] = {
    JITCodeLibrary: (
        "add_ir_module",
        "get_pointer_to_function",
        "serialize_using_object_code",
        "_optimize_final_module",
        "_finalize_final_module",
        "_ensure_finalized",
        "_get_module_for_linking",
        "_set_compiled_object",
        "enable_object_caching",
    ),
    Compiler: ("compile_extra",),
    CompileResultCacheImpl: ("filename_base", "rebuild"),
    FunctionCache: ("_impl_class", "_load_overload", "save_overload", "cache_path"),
    Dispatcher: ("compile", "get_call_template", "get_overload"),
    type(rtsys): ("initialize",),
}

# Every file below _kernels/: a kernel contains the code of what it calls, in whichever folder.
_KERNELS = Path(__file__).parent.parent
_STAMP = tuple(
    (source.relative_to(_KERNELS).as_posix(), source.stat().st_mtime, source.stat().st_size)
    for source in sorted(_KERNELS.rglob("*.py"))
)


def is_supported() -> bool:
    """Whether this is a tested version of Numba, with all the private parts used here."""
    major, minor = (int(part) for part in numba_version.split(".")[:2])
    return TESTED[0] <= (major, minor) < TESTED[1] and all(
        hasattr(owner, name) for owner, names in REQUIRED.items() for name in names
    )


def compile_kernel(function: Any, before_loading: Any, **options: Any) -> Any:
    """Compile a function that Python calls. Kernels that call it get a device function instead."""
    compiled = _dispatcher(function, FunctionCache, before_loading, **options)
    device_function = compiled.device_function = cache(
        partial(compile_device_function, function, before_loading, forceinline=False)
    )
    # Otherwise Numba would link this kernel's own, already optimised code into the caller.
    compiled.get_call_template = lambda *types: device_function().get_call_template(*types)
    compiled.get_overload = lambda signature: device_function().get_overload(signature)
    return compiled


def compile_device_function(function: Any, before_loading: Any, **options: Any) -> Any:
    """Translate a function that only kernels call."""
    options |= {"pipeline_class": DeviceCompiler, "no_cpython_wrapper": True}
    return _dispatcher(function, DeviceFunctionCache, before_loading, **options)


def _dispatcher(
    function: Any, kind: type, before_loading: Any, *, c_function: bool = False, **options: Any
) -> Any:
    compiled = njit(error_model="numpy", no_cfunc_wrapper=not c_function, **options)(function)
    compiled._cache = LazyCache(function, kind, before_loading)
    return compiled


class LazyCache:
    """The compiled code of a function on disk, opened at its first call, not at import.

    A cache that cannot be read or written (a full disk, say) counts as none. Damaged code is
    compiled and written again.
    """

    def __init__(self, function: Any, kind: type, before_loading: Any) -> None:
        self.function, self.kind, self.before_loading = function, kind, before_loading

    @cached_property
    def opened(self) -> Any:
        """Numba's cache; None if it finds no directory that it may write to.

        Compiled code contains the device functions that it uses, so an edit of any file in
        _kernels/ makes all of it stale; Numba by itself would compare only the function's own file.
        Stale code counts as another version and is not unpickled: a name in it may be gone.
        """
        try:
            cache = self.kind(self.function)
        except RuntimeError:
            return None
        version = (numba_version, _STAMP, cache._cache_file._source_stamp)
        folder = Path(cache.cache_path)
        cache._cache_file = CheckedFiles(folder, cache._impl.filename_base, version, dumps)
        return cache

    @property
    def cache_path(self) -> str | None:
        return None if self.opened is None else self.opened.cache_path

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load compiled code without preparing Numba to compile.

        Numba would first import all that it knows of NumPy and SciPy: 0.5 s of the 0.6 s until a
        first result.
        """
        self.before_loading()
        rtsys.initialize(context)
        kernel = self.kind is FunctionCache
        # Pickle and LLVM may raise anything, for example where a name in the code is gone.
        if kernel and (archive := archive_in_use()) is not None:
            with suppress(Exception):
                code = archive.read(_shipping_key(self.function, signature))
                if code is not None:
                    return _rebuild_shipped(context, pickle.loads(code))
        if self.opened is not None:
            with suppress(Exception):
                loaded = self.opened._load_overload(signature, context)
                if loaded is not None:
                    return loaded
        if kernel:
            _announce(self.function.__name__, self.opened is not None)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save what has just been compiled, and set the environments of its device functions.

        Code in a device function that needs Python objects (the arguments of an error, print)
        looks them up in its environment, which only the machine code of a caller has.
        """
        for environment in compiled._find_referenced_environments():
            compiled.library.codegen.set_env(environment.env_name, environment)
        if self.opened is not None:
            with suppress(OSError):
                self.opened.save_overload(signature, compiled)
        if RECORDING is not None and self.kind is FunctionCache:
            key = _shipping_key(self.function, signature)
            name = f"{self.function.__module__}.{self.function.__qualname__}"
            RECORDING.add(key, name, _shippable(compiled._reduce()), compiled)


# Kernels that are to be shipped, as they are compiled; None unless a wheel is being built.
RECORDING: Any = None

_announced = False


def _announce(name: str, kept: bool) -> None:
    """Tell whoever sits at a terminal, once, why the first call takes seconds."""
    global _announced
    if not _announced and sys.stderr is not None and sys.stderr.isatty():
        often = "once" if kept else "in this process only, as no folder can be written"
        print(f"hotmax: compiling kernels, {often}: {name} ...", file=sys.stderr)
    _announced = True


def _codegen() -> Any:
    from numba.core.registry import cpu_target

    return cpu_target.target_context.codegen()


@cache
def host_features() -> Mapping[str, bool]:
    """The instructions of this processor, by LLVM's names."""
    features: Mapping[str, bool] = get_host_cpu_features()
    return features


def archive_in_use() -> shipped.Archive | None:
    """The shipped kernels; None if there are none for this processor, or Numba is told otherwise.

    Whoever asks Numba for another processor, for checks of indices or for symbols of a debugger
    gets what was asked for.
    """
    if config.CPU_NAME or config.CPU_FEATURES is not None or config.DISABLE_JIT:
        return None
    if config.BOUNDSCHECK or config.DEBUGINFO_DEFAULT or config.OPT != 3:
        return None
    return shipped.opened(host_features)


def _shipping_key(function: Any, signature: Any) -> str:
    """What code is found by in an archive: Numba's key, without the processor."""
    cells = function.__closure__ or ()
    closure = dumps(tuple(cell.cell_contents for cell in cells)) if cells else b""
    parts = (
        function.__module__,
        function.__qualname__,
        repr(signature),
        hashlib.sha256(function.__code__.co_code).hexdigest(),
        hashlib.sha256(closure).hexdigest(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _shippable(payload: Any) -> Any:
    """What a call needs of a kernel: machine code, and the symbols that it defines.

    Without the bitcode it is half as long. Other kernels take the device function instead of it.
    """
    (name, _, (code, _)), description, environment, signature, *_, environments = payload
    engine = _codegen()._engine
    names = (
        description.llvm_func_name,
        description.llvm_cpython_wrapper_name,
        description.llvm_cfunc_wrapper_name,
    )
    symbols = tuple(symbol for symbol in names if engine.is_symbol_defined(symbol))
    return name, code, symbols, description, environment, signature, environments


def _rebuild_shipped(target: Any, payload: Any) -> Any:
    """A kernel from what `_shippable` gave."""
    name, code, symbols, description, environment, signature, environments = payload
    codegen = target.codegen()
    library = codegen.create_library(name)
    library.enable_object_caching()
    library._set_compiled_object(code)
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(symbols)
    result = compile_result(
        typing_context=target.typing_context,
        target_context=target,
        entry_point=target.get_executable(library, description, environment),
        signature=signature,
        objectmode=False,
        lifted=(),
        fndesc=description,
        library=library,
        environment=environment,
        referenced_envs=environments,
    )
    for referenced in environments:
        codegen.set_env(referenced.env_name, referenced)
    return result


class DeviceCodeLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A function in LLVM IR. It has no machine code: environments are set in its callers.

    `noinline`: it stays a function of its own inside whatever uses it.
    """

    def __init__(self, codegen: Any, name: str, noinline: bool = False) -> None:
        super().__init__(codegen, name)
        self.noinline = noinline

    def add_ir_module(self, module: Any) -> None:
        if self.noinline:
            for function in module.functions:
                if not function.is_declaration:
                    function.attributes.add("noinline")
        super().add_ir_module(module)

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None: ...

    def serialize_using_object_code(self) -> tuple[str, bytes]:
        return self.name, self._get_module_for_linking().as_bitcode()


class DeviceCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, which stops at LLVM IR."""

    def compile_extra(self, function: Any) -> Any:
        """Keep a kernel with a loop out of line: inlined, a loop is not always vectorised."""
        loops = any(step.opname == "FOR_ITER" for step in dis.get_instructions(function))
        noinline = loops and not self.state.flags.forceinline
        codegen = self.state.targetctx.codegen()
        self.state.library = DeviceCodeLibrary(codegen, function.__qualname__, noinline)
        return super().compile_extra(function)


class _DeviceCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    @property
    def filename_base(self) -> str:
        return f"{super().filename_base}.device"

    def rebuild(self, target: Any, payload: Any) -> Any:
        (name, bitcode), description, environment, signature, *_ = payload
        library = DeviceCodeLibrary(target.codegen(), name)
        library._final_module = library._shared_module = parse_bitcode(bitcode)
        library._finalized = True
        return compile_result(
            typing_context=target.typing_context,
            target_context=target,
            entry_point=target.get_executable(library, description, environment),
            signature=signature,
            objectmode=False,
            lifted=(),
            fndesc=description,
            library=library,
            environment=environment,
        )


class DeviceFunctionCache(FunctionCache):  # type: ignore[misc]
    """Device functions on disk, beside the kernels."""

    _impl_class = _DeviceCacheImpl
