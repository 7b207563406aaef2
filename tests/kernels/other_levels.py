"""Results of kernels that were optimised for another level than the one that they run on.

LLVM's optimiser chooses the widths of vectors and the order of sums; what follows emits the same
operations in instructions. So code optimised for x86-64-v4 and emitted for x86-64-v3 has the bits
that it has on a processor with AVX-512.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import llvmlite.binding as llvm
from numba.core.registry import cpu_target


def print_bits(optimised_for: str, names: tuple[str, ...]) -> None:
    """The calls of the snapshot whose names begin with one of these."""
    codegen = cpu_target.target_context.codegen()
    if optimised_for:
        target = llvm.Target.from_triple(llvm.get_process_triple())
        machine = target.create_target_machine(
            cpu=optimised_for, features="", opt=3, reloc="static", codemodel="jitdefault", jit=True
        )
        codegen._tm = machine  # the passes ask this one; code is emitted by the engine's own
    sys.modules["arrays"] = SimpleNamespace(KINDS={})
    import snapshot

    calls = [*snapshot.core_calls(), *snapshot.other_calls(), *snapshot.calibration_calls()]
    chosen = [(label, call) for label, call in calls if label.partition(": ")[2].startswith(names)
              or label.startswith(names)]  # fmt: skip
    print(json.dumps({label: snapshot.bits_of(call()) for label, call in chosen}))
