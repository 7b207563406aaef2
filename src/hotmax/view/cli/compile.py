"""compile: all kernels for this machine, ahead of the first calls."""

from __future__ import annotations

import time

from hotmax.view.cli.options import COMMON, Common
from hotmax.view.cli.output import progress, say, say_json


def compile(
    *,
    processes: int | None = None,
    common: Common = COMMON,
) -> None:
    """Compile all kernels now, so that no first call has to.

    A wheel with compiled kernels needs this only where the processor is older than its levels.

    Example: hotmax compile

    Parameters
    ----------
    processes
        How many at once; as many as there are processors, if not given.
    """
    from hotmax._kernels.compiler.compiling import IS_CACHED
    from hotmax._shipping.build import compile_all
    from hotmax.view.cli.doctor import cached_kernels

    if processes is not None and processes < 1:
        raise ValueError(f"--processes must be at least 1, got {processes}")
    if not IS_CACHED:
        raise ValueError("kernels cannot be kept here: hotmax doctor says why")
    start = time.monotonic()
    with progress("compiling") as update:
        compile_all(processes, lambda unit, done: update(f"compiled {unit}", done))
    seconds, kernels = time.monotonic() - start, sum(cached_kernels().values())
    if common.json:
        say_json({"seconds": seconds, "kernels": kernels})
    else:
        say(f"{kernels} kernels are compiled, in {seconds:.0f} s")
