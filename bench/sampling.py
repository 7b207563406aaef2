"""How fast draws are: hotmax beside transformers' warpers and torch.multinomial, in one run.

    make bench              prints the table
    make bench PUBLISH=1    also writes it into docs/tables

Everyone has two threads and the same float32 logits, normal(0, 3).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tables
import torch
from timing import THREADS, Call, Check, duration, medians
from transformers.generation import logits_process as warpers

import hotmax as hm

ROUNDS = 5
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, int]
    bar: float
    options: dict[str, Any] = field(default_factory=dict)
    warpers: tuple[Any, ...] = ()


CASES = (
    Case(
        "top_p=0.9, 32 x 128256", (32, 128256), 10, {"top_p": 0.9}, (warpers.TopPLogitsWarper(0.9),)
    ),
    Case("top_k=50, 32 x 128256", (32, 128256), 4, {"top_k": 50}, (warpers.TopKLogitsWarper(50),)),
    Case("no filter, 64 x 128256", (64, 128256), 3),
    Case("no filter, 1,000,000 x 10", (1_000_000, 10), 3),
)


def calls_of(case: Case) -> dict[str, Call]:
    x = np.random.default_rng(0).standard_normal(case.shape, np.float32) * np.float32(3)
    t = torch.from_numpy(x)
    chain = (warpers.TemperatureLogitsWarper(TEMPERATURE), *case.warpers)

    def theirs() -> torch.Tensor:
        scores = t
        for warper in chain:
            scores = warper(None, scores)
        return torch.multinomial(torch.softmax(scores, -1), 1)

    return {
        "hotmax": lambda: hm.sample(x, temperature=TEMPERATURE, seed=0, **case.options),
        "theirs": theirs,
    }


def one_row() -> Check:
    x = np.random.default_rng(0).standard_normal(128256, np.float32) * np.float32(3)
    taken = medians(
        {"hotmax": lambda: hm.sample(x, temperature=TEMPERATURE, top_p=0.9, seed=0)}, ROUNDS
    )
    return Check("top_p=0.9, one row of 128256", taken["hotmax"] * 1e3, 1, " ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    about = (
        f"{tables.processor()}, {THREADS} threads. "
        f"hotmax {hm.__version__}, {tables.versions('numpy', 'numba', 'torch', 'transformers')}."
    )
    print(about)
    header = [f"one draw a row, T = {TEMPERATURE}", "hotmax", "theirs", "times as fast", "bar", ""]
    rows = []
    for case in tables.progress(CASES, "sampling"):
        taken = medians(calls_of(case), ROUNDS)
        ratio = taken["theirs"] / taken["hotmax"]
        times = [duration(taken["hotmax"]), duration(taken["theirs"]), f"{ratio:.1f}"]
        met = "met" if ratio >= case.bar else "missed"
        rows.append([case.name, *times, f"{case.bar:g}", met])
    print(tables.plain(header, rows) + "\n")
    checks_header = ["check", "figure", "at most", ""]
    checks = [one_row().cells()]
    print(tables.plain(checks_header, checks))
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(checks_header, checks), about]
        tables.publish("sampling", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
