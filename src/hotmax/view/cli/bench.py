"""bench: softmax here, beside whoever else is installed.

All take turns in one run, warmed up, in an order that moves on from round to round; medians; the
same number of threads for all that can be told.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import hotmax as hm
from hotmax.view.cli.options import COMMON, Common
from hotmax.view.cli.output import Table, progress, say, say_json

if TYPE_CHECKING:
    import numpy as np

    from hotmax._core.arrays import Array
else:
    from hotmax.view.cli.deferred import np

WARM = 0.02  # s of untimed calls before each turn: a processor at rest takes ms to speed up
BURST = 3  # timed calls in a turn
LEAST = 2e-4  # s that is timed at once: a shorter call is repeated

SHAPES = ((1, 10), (100_000, 10), (1024, 1024), (16, 128_256))

Call = Callable[[], object]


def bench(
    *,
    rounds: int = 5,
    common: Common = COMMON,
) -> None:
    """Time softmax beside the libraries that are installed here.

    Example: hotmax bench

    Parameters
    ----------
    rounds
        How often each takes its turn.
    """
    if rounds < 1:
        raise ValueError(f"--rounds must be at least 1, got {rounds}")
    threads = hm.get_threads()
    results = []
    with progress("timing") as update:
        for number, shape in enumerate(SHAPES):
            x = np.random.default_rng(0).standard_normal(shape, np.float32)
            calls = calls_of(x, threads)
            stage = f"softmax {shape[0]} x {shape[1]}"

            def inner(done: float, stage: str = stage, number: int = number) -> None:
                update(stage, (number + done) / len(SHAPES))

            results.append(medians(calls, rounds, inner))
    found = versions()
    if common.json:
        cases = [
            {"shape": shape, "dtype": "float32", "seconds": times}
            for shape, times in zip(SHAPES, results, strict=True)
        ]
        say_json({"threads": threads, "versions": found, "rounds": rounds, "cases": cases})
        return
    names = list(results[0])
    rows = []
    for shape, times in zip(SHAPES, results, strict=True):
        ours = times["hotmax"]
        others = [f"{times[name] / ours:.2f}" for name in names[1:]]
        rows.append([f"{shape[0]} x {shape[1]}", duration(ours), *others])
    say("softmax of float32, rows x classes: the time of hotmax, and of the others over it")
    say("(above 1: hotmax is faster; copy: one copy of the same bytes, on one thread)", "")
    say(*Table(("", *names), rows).lines(), "")
    say(
        f"medians of {rounds} interleaved rounds; {threads} threads for hotmax and PyTorch, one "
        "for NumPy and SciPy, JAX its own"
    )
    say(", ".join(f"{name} {version}" for name, version in found.items()))


def usual(x: Array) -> Array:
    """The formula as it is usually written in NumPy."""
    exps: Array = np.exp(x - x.max(-1, keepdims=True))
    exps /= exps.sum(-1, keepdims=True)
    return exps


def calls_of(x: Array, threads: int) -> dict[str, Call]:
    out = np.empty_like(x)
    calls: dict[str, Call] = {"hotmax": lambda: hm.softmax(x), "NumPy": lambda: usual(x)}
    if installed("scipy"):
        from scipy import special

        calls["SciPy"] = lambda: special.softmax(x, axis=-1)
    if installed("torch"):
        import torch

        torch.set_num_threads(threads)
        tensor = torch.from_numpy(x)
        calls["PyTorch"] = lambda: torch.softmax(tensor, -1)
    if installed("jax"):
        import jax

        given, compiled = jax.numpy.asarray(x), jax.jit(jax.nn.softmax)
        calls["JAX"] = lambda: compiled(given).block_until_ready()
    calls["copy"] = lambda: np.copyto(out, x)
    return calls


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def medians(
    calls: dict[str, Call], rounds: int, update: Callable[[float], None]
) -> dict[str, float]:
    """The median time of one call of each, in seconds."""
    names = list(calls)
    loops = {name: loops_of(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        update(turn / rounds)
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            call, count = calls[name], loops[name]
            awake = time.perf_counter() + WARM
            while time.perf_counter() < awake:
                call()
            for _ in range(BURST):
                start = time.perf_counter()
                for _ in range(count):
                    call()
                times[name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def loops_of(call: Call) -> int:
    call()  # compiles
    call()
    start = time.perf_counter()
    call()
    return max(round(LEAST / max(time.perf_counter() - start, 1e-7)), 1)


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def versions() -> dict[str, Any]:
    names = ("hotmax", "numpy", "numba", "scipy", "torch", "jax")
    found: dict[str, Any] = {"hotmax": hm.__version__}
    found |= {name: importlib.metadata.version(name) for name in names[1:] if installed(name)}
    return {**found, "Python": platform.python_version(), "processor": processor()}


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
