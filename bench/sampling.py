"""How fast draws are: hotmax beside transformers' warpers and torch.multinomial, in one run.

    make bench              prints the table
    make bench PUBLISH=1    also writes it into docs/tables

Everyone has two threads and the same float32 logits, normal(0, 3).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tables
import torch
from timing import THREADS, Call, Check, duration, medians
from transformers.generation import logits_process as warpers

import hotmax as hm
from hotmax.integrations.transformers import LogitsProcessor

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


def logits_of(rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, 128256), np.float32) * np.float32(3)


def one_row() -> Check:
    x = logits_of(1)[0]
    taken = medians(
        {"hotmax": lambda: hm.sample(x, temperature=TEMPERATURE, top_p=0.9, seed=0)}, ROUNDS
    )
    return Check("top_p=0.9, one row of 128256", taken["hotmax"] * 1e3, 1, " ms")


def settings_and_penalties() -> list[Check]:
    """What a setting for each row, and a penalty, cost beside one setting for all."""
    x, rng = logits_of(32), np.random.default_rng(1)
    history = rng.integers(0, x.shape[1], (32, 4096))
    options: dict[str, Any] = {"temperature": TEMPERATURE, "top_p": 0.9, "seed": 0}
    each = {
        "temperature": np.full(32, TEMPERATURE),
        "top_p": np.full(32, 0.9),
        "seed": np.arange(32),
        "step": np.arange(32),
    }
    penalty = {"tokens": history, "repetition_penalty": 1.1}
    taken = medians(
        {
            "one": lambda: hm.sample(x, **options),
            "each": lambda: hm.sample(x, **each),
            "penalty": lambda: hm.sample(x, **options, **penalty),
        },
        2 * ROUNDS,
    )
    return [
        Check("a setting for each row over one for all", taken["each"] / taken["one"], 1.2, "x"),
        Check("a penalty over 4096 tokens over none", taken["penalty"] / taken["one"], 1.1, "x"),
    ]


def adapter_calls() -> dict[str, Call]:
    """Scores to the next tokens of 8 rows: the adapter, and transformers' warpers and draws."""
    t = torch.from_numpy(logits_of(8))
    ids = torch.zeros((8, 5), dtype=torch.int64)
    options = {"temperature": TEMPERATURE, "top_k": 50, "top_p": 0.9}
    processor = LogitsProcessor(seeds=range(8), **options)
    chain = (
        warpers.TemperatureLogitsWarper(TEMPERATURE),
        warpers.TopKLogitsWarper(50),
        warpers.TopPLogitsWarper(0.9),
    )

    def theirs() -> torch.Tensor:
        scores = t
        for warper in chain:
            scores = warper(ids, scores)
        return torch.multinomial(torch.softmax(scores, -1), 1)

    return {"hotmax": lambda: processor(ids, t).argmax(-1), "theirs": theirs}


def top_calls() -> dict[str, Call]:
    x = logits_of(32)
    t = torch.from_numpy(x)
    return {
        "hotmax": lambda: hm.top_logprobs(x, 20),
        "theirs": lambda: torch.topk(torch.log_softmax(t, -1), 20),
    }


OTHERS: tuple[tuple[str, float, Any], ...] = (
    ("top-20 log-probabilities, 32 x 128256", 5, top_calls),
    ("adapter of transformers, 8 x 128256", 1, adapter_calls),
)


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
    cases = [(case.name, case.bar, partial(calls_of, case)) for case in CASES]
    for name, bar, calls in tables.progress([*cases, *OTHERS], "sampling"):
        taken = medians(calls(), ROUNDS)
        ratio = taken["theirs"] / taken["hotmax"]
        times = [duration(taken["hotmax"]), duration(taken["theirs"]), f"{ratio:.1f}"]
        rows.append([name, *times, f"{bar:g}", "met" if ratio >= bar else "missed"])
    print(tables.plain(header, rows) + "\n")
    checks_header = ["check", "figure", "at most", ""]
    checks = [check.cells() for check in (one_row(), *settings_and_penalties())]
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
