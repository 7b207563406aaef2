"""How fast attention is: hotmax, PyTorch's own and the naive formula, interleaved in one run.

    make bench              prints the table
    make bench PUBLISH=1    also writes it into docs/tables

Batch 1, 8 heads, 64 features, float32, two threads for everyone. Naive is softmax(q k^T / 8) v, all
scores at once, as one writes it in PyTorch. In kept memory it is the same, written to cost least:
scores are computed, scaled and turned to weights in two large arrays that are kept from call to
call. The floor is hotmax's two matrix products alone, tile by tile, with no softmax between them.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
import tables
import torch
from numba import njit
from timing import PEAK, THREADS, Call, Check, duration, fresh_process, medians

import hotmax as hm
from hotmax._attention.packing import packed_columns, packed_rows
from hotmax._core import threads
from hotmax._kernels.attention.scores import TILE_KEYS, TILE_QUERIES, score_tile
from hotmax._kernels.attention.values import add_values

LENGTHS = (1024, 2048, 4096)
ROUNDS = 15


def inputs(length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, 8, length, 64), np.float32) for _ in range(3)]


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor | None) -> None:
    z = q @ k.transpose(-1, -2) * 0.125
    if hidden is not None:
        z = z.masked_fill(hidden, -torch.inf)
    torch.softmax(z, -1) @ v


def kept(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, hidden: torch.Tensor | None) -> Call:
    z, weights = (torch.empty(*q.shape[:-1], k.shape[-2]) for _ in range(2))

    def call() -> None:
        torch.matmul(q, k.transpose(-1, -2), out=z)
        z.mul_(0.125)
        if hidden is not None:
            z.masked_fill_(hidden, -torch.inf)
        torch.softmax(z, -1, out=weights)
        weights @ v

    return call


@njit(nogil=True)
def multiply(q, keys, values, scores, acc, visible, depths, factors):
    for first in range(0, keys.shape[0] * keys.shape[2] - TILE_KEYS + 1, TILE_KEYS):
        score_tile(q, keys, 0, first, first + TILE_KEYS, visible, scores, None)
        add_values(scores, first, depths, values, True, acc, None, factors)


def products(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Call:
    """The products of plain attention over whole tiles, and what share of all that is."""
    heads, length = q.shape[1:3]
    keys = [packed_rows(k[0, h], q.dtype) for h in range(heads)]
    values = [packed_columns(v[0, h], q.dtype) for h in range(heads)]
    tiles = length // TILE_QUERIES
    visible, depths = np.full(TILE_QUERIES, length), np.full(TILE_QUERIES, TILE_KEYS)

    def work(start: int, stop: int) -> None:
        scores, acc = (
            np.zeros((TILE_QUERIES, TILE_KEYS), q.dtype),
            np.zeros((TILE_QUERIES, 64), q.dtype),
        )
        for unit in range(start, stop):
            head, number = divmod(unit, tiles)
            part = q[0, head, number * TILE_QUERIES : (number + 1) * TILE_QUERIES]
            ones = np.ones(TILE_QUERIES, q.dtype)
            multiply(part, keys[head], values[head], scores, acc, visible, depths, ones)

    return lambda: threads.for_ranges(work, heads * tiles, 2)


def calls_of(length: int, causal: bool, queries: int | None = None) -> dict[str, Call]:
    q, k, v = inputs(length)
    if queries is not None:
        q = q[:, :, :queries].copy()
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
    calls = {
        "hotmax": lambda: hm.attention(q, k, v, causal=causal),
        "torch": lambda: sdpa(*tensors, is_causal=causal),
        "naive": lambda: naive(*tensors, hidden),
        "kept": kept(*tensors, hidden),
    }
    if not causal and queries is None:
        calls["floor"] = products(q, k, v)
    return calls


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
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    about = (
        f"{tables.processor()}, {THREADS} threads. hotmax {hm.__version__}, "
        f"{tables.versions('numpy', 'numba', 'torch')}."
    )
    print(about)
    print("Times of hotmax, and of the others as a multiple of it; in brackets the bar.\n")
    header = ["attention, 8 heads, 64 features", "hotmax", "PyTorch", "naive", "naive, kept memory"]
    header.append("floor")
    cases = [(length, causal, None) for length in LENGTHS for causal in (False, True)]
    rows = []
    for length, causal, queries in tables.progress([*cases, (4096, False, 1)], "attention"):
        taken = medians(calls_of(length, causal, queries), ROUNDS, 1 if queries is None else 10)
        name = f"length {length}{', causal' if causal else ''}"
        name = name if queries is None else f"{queries} query, {length} keys"
        cells = [name, duration(taken["hotmax"])]
        bars = (1.0, 2.0 if length >= 2048 else None) if queries is None else (None, None)
        for peer, bar in zip(("torch", "naive", "kept"), (*bars, None), strict=True):
            times = taken[peer] / taken["hotmax"]
            mark = f" ({bar:g}: {'met' if times >= bar else 'missed'})" if bar else ""
            cells.append(f"{times:.2f}{mark}")
        whole = (
            length // TILE_QUERIES * TILE_QUERIES * (length // TILE_KEYS * TILE_KEYS) / length**2
        )  # in whole tiles
        alone = taken["floor"] / whole / taken["hotmax"] if "floor" in taken else None
        rows.append([*cells, "" if alone is None else f"{alone:.2f}"])
    print(tables.plain(header, rows) + "\n")
    checks_header = ["check", "figure", "at most", ""]
    checks = [check.cells() for check in memory()]
    print(tables.plain(checks_header, checks))
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(checks_header, checks), about]
        tables.publish("attention", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
