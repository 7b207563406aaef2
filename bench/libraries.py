"""hotmax on other libraries' arrays: PyTorch tensors, forward and backward, beside PyTorch itself.

make bench              prints the table
make bench PUBLISH=1    also writes it into docs/tables
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import tables
import torch
from timing import ROUNDS, THREADS, Call, duration, medians

import hotmax as hm


def there_and_back(
    function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int]
) -> Call:
    """The function and its derivative, with a derivative of the result that is no constant."""
    x = torch.randn(shape, requires_grad=True)
    g = torch.randn(shape)
    return lambda: torch.autograd.grad(function(x), x, g)


def once(function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int]) -> Call:
    x = torch.randn(shape)
    return lambda: function(x)


def ours(x: torch.Tensor) -> torch.Tensor:
    return hm.softmax(x)


def theirs(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


# name, what is called, shape, calls in a row, the least torch time / hotmax time
CASES = (
    ("softmax 4096 x 4096, forward and backward", there_and_back, (4096, 4096), 1, 1.3),
    ("softmax 4096 x 4096, forward", once, (4096, 4096), 1, None),
    ("softmax 1 x 10, one call", once, (1, 10), 1000, 1 / 3),
    ("softmax 1 x 10, forward and backward", there_and_back, (1, 10), 300, None),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the table into docs/tables")
    publish = parser.parse_args().publish
    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    header = ["on PyTorch tensors, float32", "hotmax", "PyTorch", "PyTorch / hotmax"]
    rows = []
    for name, kind, shape, loops, bar in tables.progress(CASES, "libraries"):
        taken = medians({"hotmax": kind(ours, shape), "torch": kind(theirs, shape)}, ROUNDS, loops)
        ratio = taken["torch"] / taken["hotmax"]
        verdict = "" if bar is None else f" ({bar:.2g}: {'met' if ratio >= bar else 'missed'})"
        rows.append(
            [name, duration(taken["hotmax"]), duration(taken["torch"]), f"{ratio:.2f}{verdict}"]
        )
    print(tables.plain(header, rows))
    if publish:
        tables.publish("libraries", tables.markdown(header, rows))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
