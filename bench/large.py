"""Data larger than memory: peak memory and passes of commands, and workers beside threads.

    PYTHONPATH=tests .venv/bin/python bench/large.py --publish --rows 100_000_000

With --folder the files are kept there, and so is what was measured: a run that was stopped goes on.
Each command runs in a process of its own. Memory is the most that the process holds by itself
(RssAnon, which leaves out mapped files) above what it holds after `import hotmax`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tables
from timing import fresh_process

import hotmax as hm

CLASSES, BLOCK = 10, 1_000_000
BAR = 400  # MB
REPEATS = 3
IDLE = 1.6  # what a pure CPU task gains at least from a second worker on an idle machine

COMMAND = """
import json, re, threading, time
from pathlib import Path
import hotmax as hm
from hotmax.calibration.row_parts import RowParts
from hotmax.view.cli import main

def held():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before, most, passes = held(), 0, []
def watch():
    global most
    while True:
        most = max(most, held())
        time.sleep(0.01)

run = RowParts.run
def counted(self, job, tell=None):
    passes.append(self.rows)
    return run(self, job, tell)

RowParts.run = counted
threading.Thread(target=watch, daemon=True).start()
assert main({arguments}) == 0
print()
print(json.dumps([(most - before) / 1000, passes.count({rows})]))
"""


def make_files(folder: Path, rows: int) -> None:
    """Logits in x.npy and labels in y.npy, and both in x.parquet: the same block over and over."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    z = rng.standard_normal((BLOCK, CLASSES), np.float32) * 4
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    z_file = np.lib.format.open_memmap(folder / "x.npy", "w+", z.dtype, (rows, CLASSES))
    y_file = np.lib.format.open_memmap(folder / "y.npy", "w+", y.dtype, (rows,))
    columns = {f"c{k}": z[:, k] for k in range(CLASSES)} | {"label": y}
    table = pa.table(columns)
    # Without dictionaries, which would make a small file of rows that are repeated.
    with pq.ParquetWriter(folder / "x.parquet", table.schema, use_dictionary=False) as writer:
        for start in range(0, rows, BLOCK):
            here = min(BLOCK, rows - start)
            z_file[start : start + here], y_file[start : start + here] = z[:here], y[:here]
            writer.write_table(table.slice(0, here), row_group_size=BLOCK)


def memory_rows(folder: Path, rows: int) -> list[list[str]]:
    commands = {
        "report, .npy": ["report", "x.npy", "--labels", "y.npy", "--out", "report.html"],
        "calibrate, .npy": ["calibrate", "x.npy", "--labels", "y.npy"],
        "calibrate, .parquet": ["calibrate", "x.parquet"],
        "evaluate, .parquet": ["evaluate", "x.parquet"],
    }
    found = []
    for name, (command, *arguments) in tables.progress(list(commands.items()), "memory"):
        given = [
            str(folder / word) if word.startswith(("x.", "y.", "report.")) else word
            for word in arguments
        ]
        done = folder / f"{name.replace(', ', '')}.json"
        if not done.exists():
            code = COMMAND.format(arguments=[command, *given], rows=rows)
            done.write_text(fresh_process(code).splitlines()[-1])
        peak, passes = json.loads(done.read_text())
        found.append([f"{name}, {rows:,} x {CLASSES}", f"{peak:.0f} MB", f"{BAR} MB", str(passes)])
    return found


def spin(steps: int) -> int:
    """Work for one processor that touches no memory."""
    total = 0
    for i in range(steps):
        total ^= i * i
    return total


def seconds(call: Callable[[], object]) -> float:
    """The median of a few calls, after one."""
    call()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def worker_rows(folder: Path) -> tuple[list[list[str]], str]:
    """`evaluate` by threads and by workers, and what a pure CPU task gains from a second worker.

    Also a remark, if that is so little that the processors had other work.
    """
    from distributed import Client, LocalCluster

    files = str(folder / "x.npy"), str(folder / "y.npy")
    taken: dict[str, float] = {}
    for threads in (1, 2):
        hm.set_threads(threads)
        source = hm.io.source(*files)
        taken[f"{threads} threads"] = seconds(lambda s=source: hm.calibration.evaluate(s))
    control = {}
    for workers in (1, 2):
        with (
            LocalCluster(workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            source = hm.io.source(*files, cluster=client)
            taken[f"{workers} workers"] = seconds(lambda s=source: hm.calibration.evaluate(s))
            counter = itertools.count(2_000_000)
            control[workers] = seconds(
                lambda c=client, n=counter: c.gather([c.submit(spin, next(n)) for _ in range(8)])
            )
    gain = taken["1 workers"] / taken["2 workers"]
    possible = control[1] / control[2]
    remark = ""
    if possible < IDLE:
        remark = (
            f"A pure CPU task gained less than {IDLE}: both processors had other work, so that the "
            "second table says nothing of how workers scale."
        )
    rows = [
        ["two workers beside two threads, time", f"{taken['2 workers'] / taken['2 threads']:.2f}"],
        ["1 -> 2 threads, times faster", f"{taken['1 threads'] / taken['2 threads']:.2f}"],
        ["1 -> 2 workers, times faster", f"{gain:.2f}"],
        ["the same for a pure CPU task", f"{possible:.2f}"],
        ["share of what that gains", f"{gain / possible:.2f}"],
    ]
    return rows, remark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write docs/tables/large.md")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", help="where files are kept, for a further run")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        name = given.folder or stack.enter_context(tempfile.TemporaryDirectory())
        if not (Path(name) / "x.parquet").exists():
            make_files(Path(name), given.rows)
        memory = memory_rows(Path(name), given.rows)
        workers, remark = worker_rows(Path(name))
    first = ["command", "memory above the interpreter", "bar", "passes"]
    second = [f"evaluate, {given.rows:,} x {CLASSES}, .npy", "ratio"]
    for head, lines in ((first, memory), (second, workers)):
        print(tables.plain(head, lines), end="\n\n")
    about = f"{tables.versions('hotmax', 'dask', 'distributed', 'pyarrow')}; {tables.processor()}."
    print(*filter(None, [remark, about]), sep="\n\n")
    if given.publish:
        parts = [tables.markdown(first, memory), tables.markdown(second, workers), remark, about]
        tables.publish("large", "\n\n".join(filter(None, parts)))


if __name__ == "__main__":
    main()
