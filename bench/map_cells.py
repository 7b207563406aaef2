"""The cells of the map of shapes: which there are, and what is called in each.

Two thirds of the cells are fixed, a grid over rows and classes for each function and float type.
A third is drawn anew in each run, so that nothing can be tuned to the cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.special
import torch
from timing import Others, paced_medians

import hotmax as hm

FUNCTIONS = ("softmax", "log_softmax", "logsumexp")
DTYPES = ("float32", "float64")
CLASSES = (2, 10, 32, 100, 1000, 4096, 32_000, 128_256)
ROWS = (1, 8, 64, 512, 4096, 32_768, 262_144)
ENTRIES = 2**24  # at most, in one cell
SHAPES = tuple((rows, classes) for classes in CLASSES for rows in ROWS if rows * classes <= ENTRIES)
CELLS = 393

# The quick map: shapes where calls, threads and loops each cost most.
QUICK_SHAPES = (
    (1, 100),
    (64, 32),
    (512, 100),
    (64, 1000),
    (1000, 1000),
    (8, 128_256),
    (100_000, 10),
)
QUICK_CELLS = 60

SCIPY_ENTRIES = 2**20  # SciPy is timed up to here: beyond, one call takes tenths of a second
CHECKED_ENTRIES = 2**20  # results are compared up to here

DISTURBED = 0.3  # processors in use by others: a median of turns stands less, not more
TRIES = 2

Names = dict[str, object]


@dataclass
class Cell:
    """A statement for each library, and the names that they use.

    `inference` is torch.inference_mode, on for all but gradients. `tolerance` is how far results of
    the libraries may differ, relative to 1 and to themselves: the statements compute the same.
    """

    name: str
    statements: Mapping[str, str]
    make: Callable[[], Names]
    inference: bool = True
    tolerance: float = 1e-4
    function: str = ""
    dtype: str = ""
    rows: int = 0
    classes: int = 0
    drawn: bool = False
    times: dict[str, float] = field(default_factory=dict)
    others: float = 0.0  # processors that others used meanwhile

    @property
    def disturbed(self) -> bool:
        return self.others >= DISTURBED

    @property
    def ratio(self) -> float:
        """The time of PyTorch over that of hotmax: above 1, hotmax is faster."""
        return self.times["torch"] / self.times["hotmax"]

    def measure(self, rounds: int, seconds: float, scipy_rounds: int = 0) -> dict[str, float]:
        """The median time of each library; SciPy's apart, in fewer rounds, and not if 0.

        Measured again if others used the processors meanwhile: PyTorch's threads then wait for each
        other for milliseconds, and hotmax would look a thousand times as fast.
        """
        with torch.inference_mode(self.inference):
            names = {"hm": hm, "torch": torch, "scipy": scipy.special, **self.make()}
            pair = {library: self.statements[library] for library in ("hotmax", "torch")}
            if self.rows * self.classes <= CHECKED_ENTRIES:
                self.check(names)
            for _ in range(TRIES):
                watch = Others()
                taken = paced_medians(pair, names, rounds, seconds)
                self.others = watch.share()
                if not self.disturbed:
                    break
            if scipy_rounds and "scipy" in self.statements:
                alone = {"scipy": self.statements["scipy"]}
                taken |= paced_medians(alone, names, scipy_rounds, seconds)
        return taken

    def check(self, names: Names) -> None:
        """Whether the libraries compute the same."""
        results = {name: eval(code, dict(names)) for name, code in self.statements.items()}
        wanted = numbers(results.pop("torch"))
        for name, result in results.items():
            for a, b in zip(numbers(result), wanted, strict=True):
                np.testing.assert_allclose(
                    a, b, self.tolerance, self.tolerance, err_msg=f"{self.name}: {name}"
                )


def numbers(result: object) -> list[np.ndarray]:
    """Results as float64 arrays: of tuples, tensors and arrays of any float type."""
    if isinstance(result, tuple):
        return [array for part in result for array in numbers(part)]
    if isinstance(result, torch.Tensor):
        result = result.detach().double().numpy()
    return [np.asarray(result, np.float64).reshape(-1)]


def logits(rows: int, classes: int, dtype: str = "float32") -> np.ndarray:
    """Normal deviates; a large array repeats a block, which saves half of the time of a run."""
    block = np.random.default_rng(0).standard_normal(min(rows * classes, 2**20), dtype)
    return np.resize(block, (rows, classes))


def shared_tensor(x: np.ndarray) -> torch.Tensor:
    """A tensor in the memory of x; torch takes no array of ml_dtypes, so its bits go over."""
    if x.dtype == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def grid_cell(function: str, dtype: str, rows: int, classes: int, drawn: bool = False) -> Cell:
    def make() -> Names:
        x = logits(rows, classes, dtype)
        return {"x": x, "t": shared_tensor(x)}

    statements = {"hotmax": f"hm.{function}(x)", "torch": f"torch.{function}(t, -1)"}
    if rows * classes <= SCIPY_ENTRIES:
        statements["scipy"] = f"scipy.{function}(x, -1)"
    name = f"{function} {dtype} {rows} x {classes}"
    return Cell(
        name,
        statements,
        make,
        function=function,
        dtype=dtype,
        rows=rows,
        classes=classes,
        drawn=drawn,
    )


def drawn_shape(rng: np.random.Generator) -> tuple[int, int]:
    """Classes, then rows, each uniform on a logarithmic scale."""
    classes = round(math.exp(rng.uniform(math.log(min(CLASSES)), math.log(max(CLASSES)))))
    rows = int(math.exp(rng.uniform(0, math.log(ENTRIES / classes))))
    return rows, classes


def grid(seed: int, quick: bool = False) -> list[Cell]:
    """The fixed cells, and as many drawn ones as make CELLS, in an order drawn too.

    A slow spell of the machine then falls on cells of all kinds.
    """
    shapes, count = (QUICK_SHAPES, QUICK_CELLS) if quick else (SHAPES, CELLS)
    kinds = [(function, dtype) for function in FUNCTIONS for dtype in DTYPES]
    cells = [grid_cell(*kind, *shape) for shape in shapes for kind in kinds]
    rng = np.random.default_rng(seed)
    for i in range(count - len(cells)):
        cells.append(grid_cell(*kinds[i % len(kinds)], *drawn_shape(rng), drawn=True))
    return [cells[i] for i in rng.permutation(len(cells))]
