"""The clock of all benchmarks: everyone interleaved in one run, warmed up, medians.

In each round all take a turn (a rest, calls that are not timed, three that are), and the order
moves on by one from round to round. `medians` takes functions and rests for a fixed time.
`paced_medians` takes statements, which it times without a wrapper, and rests until no thread
spins: it fits many cases into minutes.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


def reuse_memory(reuse: bool = True) -> None:
    """Let the process keep the memory that it frees, as allocators for servers do, or return it.

    An array of more than 32 MB lies in new pages, which the system clears when they are first
    touched: on a virtual machine for 1 to 10 times as long as the arithmetic takes, by chance. With
    memory that is reused, a fresh output costs what the library does. It holds for every library,
    since all of them allocate by malloc. Without glibc nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0 if reuse else 65536)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1 if reuse else 128 << 10)


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


IDLE = 0.2  # of one processor: below, no thread of the process spins
FEWEST_ROUNDS = 5  # with 3, one slow allocation in a cell's calls of 50 ms made its median
BATCH = 0.5e-3  # s of calls between two readings of the clock
SHORT_WARM, SHORT_TURN = 8e-3, 5e-3  # s of untimed and of timed calls in a turn, one at least


def wait_out_threads(most: float = 0.1) -> None:
    """Sleep until the threads of this process do: 2 ms in a row, but for `most` seconds at most.

    PyTorch's threads spin for some 5 ms after their work, and a pool of ours for less: measured by
    the processor time of the whole process, which includes every thread.
    """
    idle, end = 0, time.perf_counter() + most
    while idle < 2 and time.perf_counter() < end:
        start, used = time.perf_counter(), time.process_time()
        time.sleep(1e-3)
        busy = (time.process_time() - used) / (time.perf_counter() - start)
        idle = idle + 1 if busy < IDLE else 0


class Others:
    """How much of the processors others use: programs, and on a virtual machine its neighbours."""

    def __init__(self) -> None:
        self.start, self.used = time.perf_counter(), self.seconds()

    @staticmethod
    def seconds() -> float:
        """Processor seconds of all others since the machine started; without /proc, 0."""
        try:
            fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        except OSError:
            return 0.0
        user, nice, system, _, _, irq, softirq, steal = map(int, fields)
        ticks = user + nice + system + irq + softirq + steal
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()

    def share(self) -> float:
        """The processors that others used since this was made: 1 is one of them all the time."""
        return (self.seconds() - self.used) / (time.perf_counter() - self.start)


def paced_medians(
    statements: Mapping[str, str], names: Mapping[str, object], rounds: int, seconds: float
) -> dict[str, float]:
    """The median time of each statement, in seconds.

    Up to `rounds` rounds: as many as fit into `seconds`, but FEWEST_ROUNDS of them even if they do
    not. `names` are the globals of the statements.
    """
    timers, loops, turn = {}, {}, 0.0
    for name, statement in statements.items():
        timers[name] = timeit.Timer(statement, globals=dict(names))
        timers[name].timeit(1)
        once = timers[name].timeit(1)
        if once < SHORT_TURN:
            once = min(once, *timers[name].repeat(3, 1))
        loops[name] = max(1, int(BATCH / once))
        turn += 3e-3 + max(SHORT_WARM, once) + max(SHORT_TURN, once)
    times: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    for _ in range(min(rounds, max(FEWEST_ROUNDS, int(seconds / turn)))):
        order = order[1:] + order[:1]
        for name in order:
            timer, number = timers[name], loops[name]
            wait_out_threads()
            end = time.perf_counter() + SHORT_WARM
            timer.timeit(number)
            while time.perf_counter() < end:
                timer.timeit(number)
            end = time.perf_counter() + SHORT_TURN
            times[name].append(timer.timeit(number) / number)
            while time.perf_counter() < end:
                times[name].append(timer.timeit(number) / number)
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
