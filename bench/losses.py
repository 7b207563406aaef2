"""How fast the losses are, and how much memory they take, beside PyTorch's.

    make bench              prints the tables
    make bench PUBLISH=1    also writes them into docs/tables

Value and gradient of a float32 loss: forward plus backward for PyTorch. Both have two threads and
the same numbers, and are warmed up; a figure is a median over interleaved rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tables
import torch
from timing import THREADS, Call, Check, duration, fresh_process, medians

import hotmax as hm

F = torch.nn.functional


@dataclass(frozen=True)
class Timed:
    name: str
    make: Callable[[], dict[str, Call]]
    bar: float
    rounds: int


def cross_entropy(rows: int, classes: int) -> Callable[[], dict[str, Call]]:
    def make() -> dict[str, Call]:
        x = np.random.default_rng(0).standard_normal((rows, classes), np.float32)
        y = np.random.default_rng(1).integers(0, classes, rows)
        t, labels = torch.from_numpy(x).requires_grad_(), torch.from_numpy(y)

        def theirs() -> None:
            t.grad = None
            F.cross_entropy(t, labels).backward()

        return {"hotmax": lambda: hm.cross_entropy(x, y, return_grad=True), "torch": theirs}

    return make


def linear(rows: int, features: int, classes: int) -> Callable[[], dict[str, Call]]:
    def make() -> dict[str, Call]:
        rng = np.random.default_rng(0)
        h = rng.standard_normal((rows, features), np.float32)
        w = rng.standard_normal((classes, features), np.float32) * np.float32(features**-0.5)
        y = rng.integers(0, classes, rows)
        hidden, weight = (torch.from_numpy(a).requires_grad_() for a in (h, w))
        labels = torch.from_numpy(y)

        def theirs() -> None:
            hidden.grad = weight.grad = None
            F.cross_entropy(hidden @ weight.T, labels).backward()

        return {
            "hotmax": lambda: hm.linear_cross_entropy(h, w, y, return_grad=True),
            "torch": theirs,
        }

    return make


TIMED = (
    Timed("cross_entropy 1,000,000 x 10", cross_entropy(1_000_000, 10), 3, 7),
    Timed("cross_entropy 8192 x 32000", cross_entropy(8192, 32_000), 2.5, 3),
    Timed("linear_cross_entropy 4096 x 512 x 32000", linear(4096, 512, 32_000), 1, 2),
)

# Peak memory of the process (VmHWM, which `clear_refs` sets back) above what it held before the
# call. A small call of the same kind has loaded all code before.
MEMORY = """
import numpy as np
{imports}
def held(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
def inputs(rows, features, classes):
    rng = np.random.default_rng(0)
    return (rng.standard_normal((rows, features), np.float32),
            rng.standard_normal((classes, features), np.float32),
            rng.integers(0, classes, rows))
{call}
call(*inputs({small}))
given = inputs({large})
open("/proc/self/clear_refs", "w").write("5")
before = held("VmRSS")
result = call(*given)
print(held("VmHWM") - before)
"""

OURS = """
import hotmax as hm
hm.set_threads(2)
"""
TORCH = """
import torch
torch.set_num_threads(2)
F = torch.nn.functional
"""
# The logits of cross_entropy itself are hidden: (rows, classes).
CALLS = {
    "cross_entropy": """
def call(h, w, y):
    return hm.cross_entropy(h, y % h.shape[1], return_grad=True)
""",
    "linear": """
def call(h, w, y):
    return hm.linear_cross_entropy(h, w, y, return_grad=True)
""",
    "torch cross_entropy": """
def call(h, w, y):
    t = torch.from_numpy(h).requires_grad_()
    F.cross_entropy(t, torch.from_numpy(y % h.shape[1])).backward()
    return t.grad
""",
    "torch linear": """
def call(h, w, y):
    a, b = torch.from_numpy(h).requires_grad_(), torch.from_numpy(w).requires_grad_()
    F.cross_entropy(a @ b.T, torch.from_numpy(y)).backward()
    return a.grad, b.grad
""",
}


def peak(call: str, small: tuple[int, ...], large: tuple[int, ...]) -> float:
    """Bytes above the inputs, results among them."""
    imports = TORCH if call.startswith("torch") else OURS
    code = MEMORY.format(
        imports=imports,
        call=CALLS[call],
        small=", ".join(map(str, small)),
        large=", ".join(map(str, large)),
    )
    return float(fresh_process(code))


def memory() -> list[Check]:
    shape, small = (8192, 32_000, 1), (64, 32_000, 1)
    above = peak("cross_entropy", small, shape) - 4 * shape[0] * shape[1]
    theirs = peak("torch cross_entropy", small, shape) - 4 * shape[0] * shape[1]
    checks = [
        Check("cross_entropy 8192 x 32000: memory above the gradient", above / 1e6, 10, " MB"),
        Check("PyTorch's: memory above the gradient", theirs / 1e6, np.inf, " MB"),
    ]
    shape, small = (4096, 512, 32_000), (64, 512, 1000)
    ours, theirs = peak("linear", small, shape), peak("torch linear", small, shape)
    checks += [
        Check("linear_cross_entropy: memory, with all gradients", ours / 1e6, np.inf, " MB"),
        Check("PyTorch's: memory, with all gradients", theirs / 1e6, np.inf, " MB"),
        Check("the first over the second", ours / theirs, 0.1),
    ]
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    about = (
        f"{tables.processor()}, {THREADS} threads. "
        f"hotmax {hm.__version__}, {tables.versions('numpy', 'numba', 'torch')}."
    )
    print(about)
    header = ["value and gradient, float32", "hotmax", "PyTorch", "times", "at least", ""]
    rows = []
    for timed in tables.progress(TIMED, "losses"):
        taken = medians(timed.make(), timed.rounds)
        times = taken["torch"] / taken["hotmax"]
        met = "met" if times >= timed.bar else "missed"
        spans = [duration(taken[name]) for name in ("hotmax", "torch")]
        rows.append([timed.name, *spans, f"{times:.2f}", f"{timed.bar:g}", met])
    print(tables.plain(header, rows) + "\n")
    checks_header = ["check", "figure", "at most", ""]
    checks = [check.cells() for check in memory()]
    checks = [[a, b, "", ""] if c.startswith("inf") else [a, b, c, d] for a, b, c, d in checks]
    print(tables.plain(checks_header, checks))
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(checks_header, checks), about]
        tables.publish("losses", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
