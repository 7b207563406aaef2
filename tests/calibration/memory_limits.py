"""Functions for a Python of its own, in which memory is limited."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import numpy as np

import hotmax as hm
from hotmax.calibration import assessment, temperature
from hotmax.calibration.row_parts import RowParts

CLASSES = 10


def make_files(folder, rows):
    """Overconfident logits in x.npy and labels in y.npy, the same rows over and over."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((100_000, CLASSES), np.float32) * 4
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(1)
    z_file = np.lib.format.open_memmap(folder / "x.npy", "w+", z.dtype, (rows, CLASSES))
    y_file = np.lib.format.open_memmap(folder / "y.npy", "w+", y.dtype, (rows,))
    for start in range(0, rows, len(z)):
        z_file[start : start + len(z)] = z[: rows - start]
        y_file[start : start + len(z)] = y[: rows - start]


def data_bytes():
    """What RLIMIT_DATA counts: memory of this process alone, and no mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmData:\s+(\d+) kB", status)[1]) * 1024


def run_within(folder, names, megabytes):
    """Print the passes of functions that may take `megabytes` more than they do on few rows."""
    hm.set_threads(2)
    calibration = hm.calibration
    calls = {
        "fit": calibration.fit_temperature,
        "evaluate": calibration.evaluate,
        "conformal": calibration.conformal.fit,
        "report": hm.report,
    }
    files = str(Path(folder, "x.npy")), str(Path(folder, "y.npy"))
    few = np.load(files[0], mmap_mode="r")[:2000], np.load(files[1], mmap_mode="r")[:2000]
    most = temperature.MOST_IN_MEMORY
    temperature.MOST_IN_MEMORY = assessment.MOST_IN_MEMORY = 1000
    for name in names:  # imports what it needs, and compiles or loads its kernels
        calls[name](hm.io.source(*few))
    temperature.MOST_IN_MEMORY = assessment.MOST_IN_MEMORY = most
    limit = data_bytes() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    source = hm.io.source(*files)
    run, passes = RowParts.run, []

    def counted(self, job, tell=None):
        passes.extend([name] * (self.rows == source.rows))
        return run(self, job, tell)

    RowParts.run = counted
    for name in names:
        calls[name](source)
    print({name: passes.count(name) for name in names})


def copy_within(folder, megabytes):
    """What must fail: a copy of all logits."""
    x = np.load(Path(folder, "x.npy"), mmap_mode="r")
    limit = data_bytes() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        x.astype(np.float64)
    except MemoryError:
        print("not enough memory")
