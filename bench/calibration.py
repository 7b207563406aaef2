"""How fast calibration is: hotmax beside scikit-learn, probmetrics and torchmetrics.

    make bench              prints the tables
    make bench PUBLISH=1    also writes them into docs/tables

Everyone has two threads and the same float32 logits, already in its own kind of array. hotmax's fit
includes its checks, the likelihood at temperature 1 and the interval, which the others do not give.
A peer that is not installed is said to be missing.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time

import numpy as np
import tables
import torch
from threadpoolctl import threadpool_limits
from timing import PEAK, THREADS, Call, Check, duration, fresh_process, medians

import hotmax as hm
from hotmax.calibration import ece, fit_temperature

ROUNDS = 2  # where peers take seconds
PEERS = ("scikit-learn", "probmetrics", "torchmetrics")


def sample(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident logits, and labels drawn at temperature 2."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((rows, classes), np.float32) * 3
    noise = rng.gumbel(size=(rows, classes)).astype(np.float32)
    return z, (z / 2 + noise).argmax(1)


def fits(z: np.ndarray, labels: np.ndarray) -> dict[str, Call]:
    calls: dict[str, Call] = {"hotmax": lambda: fit_temperature(z, labels)}
    try:
        from sklearn.calibration import _TemperatureScaling

        calls["scikit-learn"] = lambda: _TemperatureScaling().fit(z, labels)
    except ImportError:
        pass
    try:
        from probmetrics.calibrators.temperature_scaling import TemperatureScalingCalibrator
        from probmetrics.distributions import CategoricalLogits

        given, truth = CategoricalLogits(torch.from_numpy(z)), torch.from_numpy(labels)
        calls["probmetrics"] = lambda: TemperatureScalingCalibrator()._fit_torch_impl(given, truth)
    except ImportError:
        pass
    return calls


def errors(z: np.ndarray, labels: np.ndarray) -> dict[str, Call]:
    calls: dict[str, Call] = {"hotmax": lambda: ece(z, labels)}
    try:
        from torchmetrics.functional.classification import multiclass_calibration_error

        given, truth = torch.from_numpy(z), torch.from_numpy(labels)
        calls["torchmetrics"] = functools.partial(
            multiclass_calibration_error, given, truth, z.shape[1], 15, validate_args=False
        )
    except ImportError:
        pass
    return calls


CASES = [
    ("fit_temperature 1,000,000 x 10", fits, (1_000_000, 10), 15),
    ("fit_temperature 50,000 x 1000", fits, (50_000, 1000), 15),
    ("ece 1,000,000 x 10", errors, (1_000_000, 10), 3),
]


def measure(calls: dict[str, Call]) -> dict[str, float]:
    """Medians; where peers take seconds a call, of fewer calls than by the common clock."""
    if "torchmetrics" in calls:
        return medians(calls, 7)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(0.3)
            for _ in range(3 if name == "hotmax" else 1):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


MEMORY = (
    PEAK
    + """
import numpy as np, hotmax as hm
hm.set_threads({threads})
rng = np.random.default_rng(0)
small = rng.standard_normal((300, {classes}), np.float32)
hm.calibration.fit_temperature(small, rng.integers(0, {classes}, 300))
z = rng.standard_normal(({rows}, {classes}), np.float32)
labels = rng.integers(0, {classes}, {rows})
labels[::2] = z[::2].argmax(1)
print(peak_above(lambda: hm.calibration.fit_temperature(z, labels)))
"""
)


def checks() -> list[Check]:
    found = []
    for rows, classes in ((1_000_000, 10), (50_000, 1000)):
        code = MEMORY.format(rows=rows, classes=classes, threads=THREADS)
        peak = statistics.median(int(fresh_process(code)) for _ in range(3))
        name = f"extra memory: fit_temperature {rows:,} x {classes}"
        found.append(Check(name, peak / 1e6, 40, " MB"))
    calls = {}
    for rows in (500_000, 2_000_000):
        z, labels = sample(rows, 10)
        calls[str(rows)] = functools.partial(fit_temperature, z, labels)
    taken = medians(calls, 3)
    ratio = taken["2000000"] / taken["500000"]
    found.append(Check("4 times the rows: fit_temperature 500,000 -> 2,000,000 x 10", ratio, 4.4))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    torch.set_num_threads(THREADS)
    header = ["case (float32)", "hotmax", *PEERS]
    rows = []
    with threadpool_limits(THREADS):
        for name, make, shape, bar in tables.progress(CASES, "calibration"):
            for warm in make(*sample(200, shape[1])).values():
                warm()
            taken = measure(make(*sample(*shape)))
            cells = [name, duration(taken["hotmax"])]
            for peer in PEERS:
                if peer in taken:
                    times = taken[peer] / taken["hotmax"]
                    met = "met" if times >= bar else "missed"
                    cells.append(f"{times:.1f} ({bar}: {met})")
                else:
                    expected = (peer == "torchmetrics") == (make is errors)
                    cells.append("missing" if expected else "")
            rows.append(cells)
    print(tables.plain(header, rows) + "\n")
    more_header = ["check", "figure", "at most", ""]
    more = [check.cells() for check in checks()]
    print(tables.plain(more_header, more))
    about = (
        f"{tables.processor()}, {THREADS} threads. hotmax {hm.__version__}, "
        f"{tables.versions('numpy', 'numba', 'scikit-learn', 'torch')}."
    )
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(more_header, more), about]
        tables.publish("calibration", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
