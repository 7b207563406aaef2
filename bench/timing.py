"""The clock of all benchmarks: everyone interleaved in one run, warmed up, medians.

In each round all take a turn (a rest, calls that are not timed, three that are), and the order
moves on by one from round to round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

THREADS = 2
ROUNDS = 7
BURST = 3  # timed calls in a turn
WARM = 0.05  # s of untimed calls at the start of a turn: a processor at rest takes ms to speed up
REST = 0.25  # s before each turn: PyTorch's threads keep spinning for a while after their work

Call = Callable[[], object]


@dataclass
class Check:
    """A figure that is not a ratio to a peer, and the most that it may be."""

    name: str
    figure: float
    bar: float
    unit: str = ""

    def cells(self) -> list[str]:
        met = "met" if self.figure <= self.bar else "missed"
        return [self.name, f"{self.figure:.2f}{self.unit}", f"{self.bar:g}{self.unit}", met]


def copier(x: np.ndarray, out: np.ndarray | None) -> Call:
    """A copy of x in two halves on two threads, into `out` or a new array."""
    pool = ThreadPoolExecutor(1)
    flat = x.reshape(-1)
    half = flat.size // 2

    def copy() -> None:
        target = (np.empty_like(x) if out is None else out).reshape(-1)
        other = pool.submit(np.copyto, target[half:], flat[half:])
        np.copyto(target[:half], flat[:half])
        other.result()

    return copy


def medians(calls: dict[str, Call], rounds: int, loops: int = 1) -> dict[str, float]:
    """The median time of one call of each, in seconds."""
    names = list(calls)
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            call = calls[name]
            time.sleep(REST)
            awake = time.perf_counter() + WARM
            while time.perf_counter() < awake:
                call()
            for _ in range(BURST):
                start = time.perf_counter()
                for _ in range(loops):
                    call()
                times[name].append((time.perf_counter() - start) / loops)
    return {name: statistics.median(values) for name, values in times.items()}


# For a fresh process: the bytes that a call needs above what is there and what it returns. Linux
# remembers the most that a process ever had, so that mark is set back first.
PEAK = """
def peak_above(call):
    def status(key):
        return int(open("/proc/self/status").read().split(key)[1].split()[0]) * 1024
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS:")
    result = call()
    return status("VmHWM:") - before - getattr(result, "nbytes", 0)
"""


def fresh_process(code: str) -> str:
    """What code prints in a process of its own, with compiled modules kept, as installing does."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
