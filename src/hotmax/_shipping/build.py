"""Compile everything, in as many processes as there are processors.

For this machine (`hotmax compile`) the code goes to where a first call would put it. For a wheel
(`python -m hotmax._shipping.build FOLDER`) it is compiled for each level of processors like this
one, and each level becomes one file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from hotmax._core import threads
from hotmax._kernels.compiler import shipped

Codes = dict[str, tuple[str, dict[str, bytes]]]  # by key: name, and code for each level
# Libraries that fit calibrators have threads of their own, which spin: twice the processor's time.
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
BuildProgress = Callable[[str, float], None]


def compile_unit(unit: str, levels: tuple[str, ...]) -> Codes:
    """In a process of its own: make the calls of a unit; what they compiled, for these levels."""
    from hotmax._kernels.compiler import numba_internals, recording
    from hotmax._shipping import calls

    threads.set_threads(2)  # so that the loops of threads are compiled too
    if levels and numba_internals.RECORDING is None:
        numba_internals.RECORDING = recording.Recording(levels)
    calls.run(unit)
    return numba_internals.RECORDING.taken() if levels else {}


def compile_all(
    processes: int | None = None,
    progress: BuildProgress | None = None,
    levels: tuple[str, ...] = (),
) -> Codes:
    """Compile what all public functions need; return the code for these levels, if any."""
    from hotmax._shipping import calls

    units = [unit for unit in calls.units() if calls.is_installed(unit)]
    codes: Codes = {}
    failures: list[str] = []
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = ProcessPoolExecutor(processes or allowed, mp_context=get_context("spawn"))
    with environment(**ONE_THREAD), workers as pool:
        jobs = {pool.submit(compile_unit, unit, levels): unit for unit in units}
        for number, job in enumerate(as_completed(jobs), 1):
            error = job.exception()
            if error is None:
                codes |= job.result()
            else:
                failures.append(f"{jobs[job]}: {type(error).__name__}: {error}")
            if progress is not None:
                progress(jobs[job], number / len(units))
    if failures:
        raise RuntimeError("example calls failed:\n" + "\n".join(failures))
    return codes


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Variables that processes started here inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def build(folder: Path, levels: list[str], progress: BuildProgress | None = None) -> None:
    """Write one archive for each level into the folder."""
    start = time.monotonic()
    lowest = list(shipped.levels())[-1]  # what example calls run, whatever this processor has
    with tempfile.TemporaryDirectory() as cache:
        target = {"NUMBA_CPU_NAME": lowest, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}
        with environment(**target):
            codes = compile_all(progress=progress, levels=tuple(levels))
    for level in levels:
        path = folder / f"{level}.bin"
        entries = ((key, name, code[level]) for key, (name, code) in codes.items())
        count = shipped.write(path, shipped.provenance(level), entries)
        print(f"{path.name}: {count} kernels, {path.stat().st_size / 1e6:.1f} MB")
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    given = sys.argv[2:] or list(shipped.levels())
    begun = time.monotonic()

    def show(unit: str, share: float) -> None:
        print(f"{share:4.0%} {time.monotonic() - begun:4.0f} s {unit}", flush=True)

    build(Path(sys.argv[1]), given, show)
