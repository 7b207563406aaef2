"""How fast attention is: hotmax, PyTorch and the plain formula, interleaved in one run.

    make bench              prints the table
    make bench PUBLISH=1    also writes it into README.md

Batch 1, 8 heads, 64 features, float32, two threads for everyone. The plain formula is
softmax(q k^T / 8) v in NumPy, with hotmax's own softmax and NumPy's BLAS.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
import tables
import torch
from timing import PEAK, THREADS, Call, Check, duration, fresh_process, medians

import hotmax as hm

LENGTHS = (1024, 2048, 4096)
ROUNDS = 5


def inputs(length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 8, length, 64), np.float32) for _ in range(3)]


def plain(q: np.ndarray, k: np.ndarray, v: np.ndarray, where: np.ndarray | None) -> np.ndarray:
    z = q @ np.swapaxes(k, -1, -2)
    z *= np.float32(0.125)
    if where is not None:
        z[..., ~where] = -np.inf
    return hm.softmax(z, out=z) @ v


def calls_of(length: int, causal: bool) -> dict[str, Call]:
    q, k, v = inputs(length)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    where = np.tri(length, dtype=bool) if causal else None
    return {
        "hotmax": lambda: hm.attention(q, k, v, causal=causal),
        "torch": lambda: sdpa(*tensors, is_causal=causal),
        "plain": lambda: plain(q, k, v, where),
    }


# The peak of the process can only rise: inputs and an output are touched first.
MEMORY = (
    PEAK
    + """
import numpy as np
import hotmax as hm
hm.set_threads({threads})
def call(n):
    q, k, v = (np.ones((1, 8, n, 64), np.float32) for _ in range(3))
    return peak_above(lambda: hm.attention(q, k, v, causal=True))
call(200)
print(call({length}))
"""
)


def memory() -> list[Check]:
    """Peak memory above inputs and output, in MB."""
    checks = []
    for length in (4096, 8192, 16384):
        code = MEMORY.format(threads=THREADS, length=length)
        peak = statistics.median(int(fresh_process(code)) for _ in range(3))
        name = f"memory above inputs and output, length {length}"
        checks.append(Check(name, peak / 1e6, 100, " MB"))
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into README.md")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    about = (
        f"{tables.processor()}, {THREADS} threads. hotmax {hm.__version__}, "
        f"{tables.versions('numpy', 'numba', 'torch')}."
    )
    print(about)
    print("Times of hotmax, and of the others as a multiple of it; in brackets the bar.\n")
    header = ["attention, 8 heads, 64 features", "hotmax", "PyTorch", "plain formula"]
    cases = [(length, causal) for length in LENGTHS for causal in (False, True)]
    rows = []
    for length, causal in tables.progress(cases, "attention"):
        taken = medians(calls_of(length, causal), ROUNDS)
        name = f"length {length}{', causal' if causal else ''}"
        cells = [name, duration(taken["hotmax"])]
        for peer, bar in (("torch", 1.0), ("plain", 2.0 if length >= 2048 else None)):
            times = taken[peer] / taken["hotmax"]
            mark = f" ({bar:g}: {'met' if times >= bar else 'missed'})" if bar else ""
            cells.append(f"{times:.2f}{mark}")
        rows.append(cells)
    print(tables.plain(header, rows) + "\n")
    checks_header = ["check", "figure", "at most", ""]
    checks = [check.cells() for check in memory()]
    print(tables.plain(checks_header, checks))
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(checks_header, checks), about]
        tables.publish("attention", "\n\n".join(text))
        print("\nwritten into README.md")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
