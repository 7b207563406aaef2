"""Functions as kernels see them: translated for LLVM, and no more.

Numba optimises each function and makes machine code of it, and does so again for whoever calls it,
with its code inside: the third function in a row is compiled three times. Here only what Python
calls is optimised and emitted, with all that it uses. That takes a third of the time off.
"""

from __future__ import annotations

import dis
from typing import Any

from llvmlite.binding import parse_bitcode
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, compile_result


class Translation(JITCodeLibrary):  # type: ignore[misc]
    """A function in LLVM's language. There is nothing to call: environments are set in its callers.

    `apart`: it stays a function of its own in whatever uses it.
    """

    def __init__(self, codegen: Any, name: str, apart: bool = False) -> None:
        super().__init__(codegen, name)
        self.apart = apart

    def add_ir_module(self, module: Any) -> None:
        if self.apart:
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


class Translator(Compiler):  # type: ignore[misc]
    """Numba's compiler, which leaves its result in LLVM's language."""

    def compile_extra(self, function: Any) -> Any:
        """A loop among others is not always vectorised: a kernel that has one stays apart."""
        loops = any(step.opname == "FOR_ITER" for step in dis.get_instructions(function))
        apart = loops and not self.state.flags.forceinline
        codegen = self.state.targetctx.codegen()
        self.state.library = Translation(codegen, function.__qualname__, apart)
        return super().compile_extra(function)


class _Storage(CompileResultCacheImpl):  # type: ignore[misc]
    @property
    def filename_base(self) -> str:
        return f"{super().filename_base}.word"

    def rebuild(self, target: Any, payload: Any) -> Any:
        (name, bitcode), description, environment, signature, *_ = payload
        library = Translation(target.codegen(), name)
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


class WordCache(FunctionCache):  # type: ignore[misc]
    """Translations on disk, beside the kernels."""

    _impl_class = _Storage
