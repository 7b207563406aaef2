"""Sources cut at random, and parts that can be watched while they are read."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hotmax as hm
from hotmax.calibration.source import RowBlock
from hotmax.io.parts import ArraySlice


def sample(rows=21_000, classes=4, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(rows, classes)) * 4).astype(dtype)
    return z, (z / 2 + rng.gumbel(size=z.shape)).argmax(1)


@dataclass(frozen=True, eq=False)
class Watched(ArraySlice):
    """Takes its time, and leaves a file named for the process that reads it."""

    folder: str = ""
    pause: float = 0.0

    def blocks(self) -> Iterator[RowBlock]:
        if self.folder:
            name = f"{os.getpid()}-{self.offset}-{time.monotonic_ns()}"
            Path(self.folder, name).touch()
        time.sleep(self.pause)
        return super().blocks()


def cut(z, y, seed, pieces=13, *, folder="", pause=0.0):
    """A source of `pieces` parts of random lengths, in a random order."""
    rng = np.random.default_rng(seed)
    edges = [0, *np.sort(rng.integers(1, len(z), pieces - 1)).tolist(), len(z)]
    pairs = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    parts = [Watched(a, b - a, f"part {a}", a, z, y, folder, pause) for a, b in pairs]
    order = rng.permutation(len(parts))
    return hm.io.Source([parts[i] for i in order], name="parts", classes=z.shape[1], dtype=z.dtype)
