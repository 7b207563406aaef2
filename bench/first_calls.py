"""What a new process waits for: first calls with nothing compiled, compiled here, or from a wheel.

    make wheel                builds the wheel, without which its column is empty
    make first-calls          prints the table
    make first-calls PUBLISH=1    also writes it into docs/tables

Each call is the first of its process, timed after the imports. "Nothing compiled" has an empty
cache; "compiled here" the cache that this left; "from the wheel" has the files of the wheel in
dist/, and nowhere to keep anything. `hotmax compile` then fills an empty cache on all processors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import tables

DIST = Path(__file__).resolve().parent.parent / "dist"
CALLS = {
    "softmax of a list": "hm.softmax([1.0, 2.0, 3.0])",
    "softmax, 64 x 4096 float32": "hm.softmax(x)",
    "cross entropy with its gradient": "hm.cross_entropy(x, labels, return_grad=True)",
    "sample with top_p": "hm.sample(x, top_p=0.9, seed=0)",
    "attention": "hm.attention(q, q, q)",
    "its gradient": "hm.attention_vjp(q, q, q, q)",
    "SoftmaxRegression": "hm.SoftmaxRegression(max_iter=5).fit(z, of_z)",
    "report, 500 x 10": "hm.report(z, of_z)",
}
PROGRAM = """
import time, warnings
import numpy as np
import sklearn.isotonic, sklearn.linear_model
import hotmax as hm
warnings.simplefilter("ignore")
random = np.random.default_rng(0)
x, labels = random.normal(size=(64, 4096)).astype(np.float32), np.arange(64)
q = random.normal(size=(2, 64, 32)).astype(np.float32)
z, of_z = random.normal(size=(500, 10)).astype(np.float32) * 3, np.arange(500) % 10
for _ in range(2):
    start = time.perf_counter()
    {call}
    print(time.perf_counter() - start)
"""
COMMANDS = ("hotmax --version", "hotmax --help", "hotmax --wrong")
ROUNDS = 5


def times(call: str, **environment: str) -> tuple[float, float]:
    """Of the first and the second call in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    first, second = map(float, done.stdout.split())
    return first, second


def command_time(command: str) -> float:
    """The median, from its start to its end."""
    program = [sys.executable, "-m", "hotmax_command", *command.split()[1:]]
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(program, capture_output=True, check=False)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def compile_time(folder: Path) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "hotmax_command", "compile"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


def unpacked_wheel(folder: Path) -> dict[str, str]:
    """The environment of a process that takes hotmax from the wheel in dist/; {} if none is."""
    found = [path for path in DIST.glob("*.whl") if "none-any" not in path.name]
    if not found:
        return {}
    with zipfile.ZipFile(found[0]) as archive:
        archive.extractall(folder)
    return {"PYTHONPATH": str(folder), "NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}


def measured(folder: Path) -> list[list[str]]:
    wheel = unpacked_wheel(folder / "wheel")
    rows = []
    for i, (name, call) in enumerate(tables.progress(list(CALLS.items()), "first calls")):
        here = {"NUMBA_CACHE_DIR": str(folder / str(i))}
        empty, _ = times(call, **here)
        more = [times(call, **here) for _ in range(3)]
        warm, again = (statistics.median(taken) for taken in zip(*more, strict=True))
        shipped = [times(call, **wheel)[0] for _ in range(3)] if wheel else []
        cells = [empty, warm, statistics.median(shipped) if shipped else None, again]
        rows.append([name, *("" if s is None else f"{s:.2f} s" for s in cells)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the table into docs/tables")
    publish = parser.parse_args().publish
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls = measured(folder)
        commands = [[command, f"{command_time(command):.2f} s"] for command in COMMANDS]
        commands.append(["hotmax compile", f"{compile_time(folder / 'all'):.0f} s"])
    header = ["first call", "nothing compiled", "compiled here", "from the wheel", "second call"]
    about = f"{tables.versions('hotmax', 'numba', 'llvmlite')}; {tables.processor()}."
    print(tables.plain(header, calls))
    print()
    print(tables.plain(["command", "time"], commands))
    print(about)
    if publish:
        found = [tables.markdown(header, calls), tables.markdown(["command", "time"], commands)]
        tables.publish("first_calls", "\n\n".join([*found, about]))


if __name__ == "__main__":
    main()
