"""Kernels recorded while they are compiled, with machine code for several levels of processors.

A wheel may be built on a processor that cannot run the code for its highest level. So example calls
run code for the lowest level. The LLVM IR of each kernel, as it was before optimisation, is then
optimised and emitted for every level that is shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from llvmlite.binding import parse_bitcode
from numba import config
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.serialize import dumps

_optimize = JITCodeLibrary._optimize_final_module


class Recording:
    """What was compiled since it was made.

    Attributes:
        levels: The levels that code is emitted for.
        codes: By key, the name of a kernel and its code for each level.
    """

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        self.codes: dict[str, tuple[str, dict[str, bytes]]] = {}
        JITCodeLibrary._optimize_final_module = _keep_and_optimize

    def add(self, key: str, name: str, payload: Any, compiled: Any) -> None:
        """Record a kernel: what `_shippable` gave, and what Numba has just compiled."""
        library, own, *rest = payload
        codes = {}
        for level in self.levels:
            code = own
            if level != config.CPU_NAME:
                code = emitted(level, library, compiled.library.unoptimized)
            codes[level] = dumps((library, code, *rest))
        self.codes[key] = name, codes

    def taken(self) -> dict[str, tuple[str, dict[str, bytes]]]:
        """All codes, which are then forgotten."""
        codes, self.codes = self.codes, {}
        return codes


def _keep_and_optimize(library: Any) -> None:
    library.unoptimized = library._final_module.as_bitcode()
    _optimize(library)


def emitted(level: str, name: str, bitcode: bytes) -> bytes:
    """The object code of a module for a level."""
    codegen = _codegen(level)
    library = codegen.create_library(name)
    library._final_module = parse_bitcode(bitcode)
    _optimize(library)
    library._final_module.verify()
    code: bytes = codegen._tm.emit_object(library._final_module)
    return code


@cache
def _codegen(level: str) -> Any:
    before = config.CPU_NAME, config.CPU_FEATURES
    config.CPU_NAME, config.CPU_FEATURES = level, ""
    try:
        return JITCPUCodegen(f"hotmax for {level}")
    finally:
        config.CPU_NAME, config.CPU_FEATURES = before
