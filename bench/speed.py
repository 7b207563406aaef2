"""How fast: hotmax, SciPy, PyTorch, JAX and a plain copy, interleaved in one run.

    make bench              prints the tables
    make bench PUBLISH=1    also writes them into docs/tables

Everyone has two threads (SciPy uses one; JAX has a pool of its own, as large as the machine) and
the same numbers in the same type. Everyone is warmed up and called at its best: PyTorch with `out=`
where an output is given, JAX compiled and waited for. A figure is a median over rounds; in each
round all take a turn (a rest, calls that are not timed, three that are), and the order moves on by
one from round to round. A fresh output lies in memory that the process has used before, but for the
row "in new pages".
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
from collections.abc import Callable

import jax
import numpy as np
import scipy.special
import tables
import torch
from comparisons import TIMED, Timed
from timing import (
    ROUNDS,
    THREADS,
    Call,
    Check,
    copier,
    duration,
    fresh_process,
    medians,
    reuse_memory,
)

import hotmax as hm

PEERS = ("scipy", "torch", "jax", "copy")


def compiled(function: Callable[..., jax.Array], x: np.ndarray, axis: int) -> Call:
    run = jax.jit(lambda a: function(a, axis=axis))
    x_jax = jax.numpy.asarray(x)
    return lambda: run(x_jax).block_until_ready()


def calls_of(timed: Timed) -> dict[str, Call]:
    """A call for hotmax and each of PEERS. Nothing stands between the clock and the library's own
    function: at 1 x 10 a wrapper would count."""
    x, axis = timed.make(), timed.axis
    t = torch.from_numpy(x)
    ours, torchs = getattr(hm, timed.function), getattr(torch, timed.function)
    scipys = getattr(scipy.special, timed.function)
    calls = {
        "hotmax": lambda: ours(x, axis=axis),
        "scipy": lambda: scipys(x, axis=axis),
        "torch": lambda: torchs(t, axis),
        "jax": compiled(getattr(jax.nn, timed.function), x, axis),
        "copy": x.copy if x.size < 1000 else copier(x, None),
    }
    if timed.out:
        out, t_out = np.empty_like(x), torch.empty_like(t)
        calls["hotmax"] = lambda: ours(x, axis=axis, out=out)
        calls["torch"] = lambda: torchs(t, axis, out=t_out)
    if timed.out or timed.function == "logsumexp":
        calls["copy"] = copier(x, np.empty_like(x))
    return calls


def growth() -> list[Check]:
    """The time of four times the work over that of one: 4 if cost grows linearly."""
    checks = []
    for name, small, large in [
        ("4 times the rows: 4096 -> 16384 of 4096 classes", (4096, 4096), (16384, 4096)),
        ("4 times the classes: 4096 -> 16384 in 4096 rows", (4096, 4096), (4096, 16384)),
        ("4 times the classes: 16384 -> 65536 in 512 rows", (512, 16384), (512, 65536)),
        ("4 times the classes: 8 -> 32 in 1,000,000 rows", (1_000_000, 8), (1_000_000, 32)),
    ]:
        calls = {}
        for size in (small, large):
            x = np.random.default_rng(0).standard_normal(size, np.float32)
            calls[str(size)] = functools.partial(hm.softmax, x, out=np.empty_like(x))
        taken = medians(calls, ROUNDS)
        checks.append(Check(name, taken[str(large)] / taken[str(small)], 4.4))
    return checks


# The peak of the process (ru_maxrss) can only rise, so the input, and an output of the same size,
# are touched first: what the call adds on top is its own, seen or not by tracemalloc. A small call
# of the same kind has loaded the kernels before.
MEMORY = """
import resource, sys, tracemalloc
import numpy as np
import hotmax as hm
hm.set_threads({threads})
def call(x, out):
    {call}
small = np.ones({small}, np.{dtype})
call(small, np.empty_like(small))
x = np.ones({shape}, np.{dtype})
out = np.ones_like(x)
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tracemalloc.start()
call(x, out)
traced = tracemalloc.get_traced_memory()[1]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(max(traced, peak * unit))
"""


def memory() -> list[Check]:
    """Peak memory above input and output, in MB."""
    checks = []
    for name, call, shape, dtype in [
        ("softmax 4096 x 4096", "hm.softmax(x, out=out)", (4096, 4096), "float32"),
        ("softmax 4096 x 4096 axis 0", "hm.softmax(x, axis=0, out=out)", (4096, 4096), "float32"),
        ("softmax 32 x 128256", "hm.softmax(x, out=out)", (32, 128256), "float32"),
        ("softmax 1,000,000 x 10", "hm.softmax(x, out=out)", (1_000_000, 10), "float32"),
        ("softmax 1 x 20,000,000", "hm.softmax(x, out=out)", (1, 20_000_000), "float32"),
        ("softmax 4096 x 4096 float16", "hm.softmax(x, out=out)", (4096, 4096), "float16"),
        ("softmax 4096 x 4096 float64", "hm.softmax(x, out=out)", (4096, 4096), "float64"),
        ("log_softmax 4096 x 4096", "hm.log_softmax(x, out=out)", (4096, 4096), "float32"),
        ("logsumexp 4096 x 4096", "hm.logsumexp(x)", (4096, 4096), "float32"),
    ]:
        small = (shape[0], 48) if "axis=0" in call else (min(shape[0], 3), min(shape[1], 5000))
        code = MEMORY.format(call=call, shape=shape, small=small, dtype=dtype, threads=THREADS)
        figures = [int(fresh_process(code)) for _ in range(3)]
        peak = statistics.median(figures)
        checks.append(Check(f"memory above the output: {name}", peak / 1e6, 2, " MB"))
    return checks


FIRST_CALL = """
import time
import numpy as np
import hotmax as hm
x = np.ones({shape}, np.float32)
start = time.perf_counter()
hm.{function}(x)
print(time.perf_counter() - start)
"""

IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def starting() -> list[Check]:
    """What a new process pays: the import, and the first call with kernels in the cache."""
    fresh_process(IMPORT.format("hotmax"))  # warms the disk's cache
    taken: dict[str, list[float]] = {"numba": [], "hotmax": []}
    for _ in range(9):
        for module, times in taken.items():
            times.append(float(fresh_process(IMPORT.format(module))))
    extra = statistics.median(taken["hotmax"]) - statistics.median(taken["numba"])
    checks = [Check("import hotmax over import numba", extra, 0.2, " s")]
    for function, shape in [
        ("softmax", (1, 10)),
        ("softmax", (64, 4096)),
        ("log_softmax", (64, 4096)),
        ("logsumexp", (64, 4096)),
    ]:
        code = FIRST_CALL.format(function=function, shape=shape)
        fresh_process(code)  # fills the cache if it is empty
        first = statistics.median(float(fresh_process(code)) for _ in range(5))
        name = f"first call, warm cache: {function} {shape[0]} x {shape[1]}"
        checks.append(Check(name, first, 0.5, " s"))
    return checks


def cells(timed: Timed, taken: dict[str, float]) -> list[str]:
    def ratio(peer: str) -> str:
        times = taken[peer] / taken["hotmax"]
        if peer not in timed.bars:
            return f"{times:.2f}"
        bar = timed.bars[peer]
        return f"{times:.2f} ({bar:g}: {'met' if times >= bar else 'missed'})"

    return [timed.name, duration(taken["hotmax"]), *map(ratio, PEERS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    jax.config.update("jax_enable_x64", True)

    about = (
        f"{tables.processor()}, {THREADS} threads (SciPy 1; JAX its own pool). "
        f"hotmax {hm.__version__}, {tables.versions('numpy', 'numba', 'scipy', 'torch', 'jax')}."
    )
    print(about)
    print("Times of hotmax, and of each other one as a multiple of it: above 1, hotmax is faster.")
    print("In brackets the bar. The copy is a plain copy of the same bytes on two threads.\n")
    header = ["case (float32 unless said)", "hotmax", "SciPy", "PyTorch", "JAX", "copy"]
    rows = []
    for timed in tables.progress(TIMED, "speed"):
        short = np.prod(timed.shape) < 1000  # turns of milliseconds: a disturbance fills one
        rounds, loops = (3 * ROUNDS, 1000) if short else (ROUNDS, 1)
        reuse_memory(not timed.new_pages)
        rows.append(cells(timed, medians(calls_of(timed), rounds, loops)))
    reuse_memory(False)
    print(tables.plain(header, rows) + "\n")

    checks_header = ["check", "figure", "at most", ""]
    checks = []
    for part in tables.progress([growth, memory, starting], "checks"):
        checks += [check.cells() for check in part()]
    print(tables.plain(checks_header, checks))

    if publish:
        text = [
            tables.markdown(header, rows),
            tables.markdown(checks_header, checks),
            about,
        ]
        tables.publish("speed", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
