"""How right: the worst error of hotmax, SciPy, PyTorch and JAX against mpmath, in ULP.

    make accuracy              prints the tables
    make accuracy PUBLISH=1    also writes them into docs/tables

The rows, temperatures and references are those of the tests (tests/comparisons.py). At a
temperature other than 1 the others get x / T, as their users would write it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys

import numpy as np
import tables
from arrays import KINDS as ARRAYS
from comparisons import CASES, FUNCTIONS, HALVES, PEERS, SINGLES, Case
from reference import mp, worst_ulps

import hotmax as hm

NAMES = ("softmax", "log_softmax", "logsumexp")
LIBRARIES = ("hotmax", "scipy", "torch", "jax")
TITLES = {"hotmax": "hotmax", "scipy": "SciPy", "torch": "PyTorch", "jax": "JAX"}

# hotmax on others' arrays, where the kernels cannot go: at temperature 1, in float32 and float64.
GENERIC = {"torch, generic": "PyTorch", "jitted": "JAX, compiled"}

# The cases by the start of their names; at temperature 1 each has a line of its own.
KINDS = {
    "N(0,1) ": "normal(0, 1), 2 to 100,000 classes",
    "N(0,10)": "times 10",
    "N(0,100)": "times 100",
    "N(0,1000)": "times 1000",
    "N(0,5)": "normal(0, 5), other lengths",
    "near one-hot": "near one-hot",
    "offset": "large offsets, gaps of a few ULP",
    "ties": "ties",
    "all equal": "ties",
    "subnormal": "subnormal outcomes",
    "every size": "every size that the type holds",
    "x ": "every size that the type holds",
}
HEATS = sorted(abs(heat) for case in CASES for heat in case.temperatures)
HEATED = f"all of these, temperatures {HEATS[0]} to {HEATS[-1]}, either sign"
REFUSED = -1.0

Errors = dict[tuple[str, str, str, str], float]  # by function, type, line of the table, library


def kind_of(case: Case) -> str:
    return next(kind for start, kind in KINDS.items() if case.name.startswith(start))


def result_of(library: str, name: str, row: np.ndarray, temperature: float) -> np.ndarray | None:
    """What a library makes of it, or None if it does not take the type."""
    if library == "hotmax":
        return np.asarray(getattr(hm, name)(row, temperature=temperature))
    try:
        result = np.asarray(PEERS[library](name, row, -1, temperature))
    except (TypeError, ValueError):
        return None
    return result.astype(row.dtype) if result.dtype != row.dtype else result


def worst_of_row(result: np.ndarray, truth: np.ndarray, rounded: np.ndarray) -> float:
    """worst_ulps, but looking only at the entries that may be the worst.

    `rounded` is the truth in float64. Against it an error comes out wrong by half a ULP at most,
    or by a factor of 2 where the rounding reached a power of two.
    """
    got = result.astype(np.float64)
    if result.dtype.name not in SINGLES or not np.isfinite([got, rounded]).all():
        return worst_ulps(result, truth)
    near = np.abs(got - rounded) / np.spacing(np.abs(rounded).astype(result.dtype))
    suspects = near >= near.max() / 2 - 1
    return worst_ulps(result[suspects], truth[suspects])


def measure(number: int, kind: str) -> Errors:
    """The worst errors on one row of CASES, in one type, at all its temperatures."""
    case = CASES[number]
    row = case.row(kind)
    worst: Errors = {}
    for temperature in case.temperatures:
        line = kind_of(case) if temperature == 1.0 else HEATED
        for name in NAMES:
            function = FUNCTIONS[name]
            truth = function.truth(row, temperature)
            scale = function.scale and function.scale(row, temperature)
            rounded = np.asarray(truth).astype(np.float64)
            for library in LIBRARIES:
                result = result_of(library, name, row, temperature)
                if result is None:
                    error = REFUSED
                elif isinstance(truth, np.ndarray):
                    error = worst_of_row(result, truth, rounded)
                else:
                    error = worst_ulps(result, truth, scale)
                key = (name, kind, line, library)
                worst[key] = max(worst.get(key, error), error)
            if temperature == 1.0 and kind in SINGLES:
                for library in GENERIC:
                    result = ARRAYS[library].call(getattr(hm, name), row)
                    error = worst_ulps(result, truth, scale)
                    key = (name, kind, line, library)
                    worst[key] = max(worst.get(key, error), error)
    return worst


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def measure_all() -> Errors:
    """Over all rows and types, the long rows first, on all processors."""
    jobs = [(i, kind) for i, case in enumerate(CASES) for kind in case.types]
    jobs.sort(key=lambda job: "00000 classes" not in CASES[job[0]].name)
    worst: Errors = {}
    # Ctrl-C is the parent's business: leaving the pool ends the workers
    with multiprocessing.get_context("spawn").Pool(initializer=ignore_interrupts) as pool:
        results = [pool.apply_async(measure, job) for job in jobs]
        for result in tables.progress(results, "accuracy"):
            for key, error in result.get().items():
                worst[key] = max(worst.get(key, error), error)
    return worst


def figure(error: float) -> str:
    if error == REFUSED:
        return "refused"
    return f"{error:.2f}" if error < 1000 else f"{error:.1e}".replace("e+0", "e").replace("e+", "e")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    worst = measure_all()
    lines = [*dict.fromkeys(KINDS.values()), HEATED]
    note = (
        "The worst error in units in the last place (ULP); inf: nan or infinity where a number is "
        "due. logsumexp's is in ULP of the larger of max / T and its own value. "
        f"At temperature 1, but for the last line. Against mpmath with {mp.dps} digits. "
        f"hotmax {hm.__version__}, {tables.versions('numpy', 'scipy', 'torch', 'jax', 'mpmath')}."
    )
    print(note)
    parts = [note]

    def show(title: str, header: list[str], rows: list[list[str]]) -> None:
        print(f"\n{title}\n\n{tables.plain(header, rows)}")
        parts.extend([f"**{title}**", tables.markdown(header, rows)])

    def worst_of(name: str, kind: str, library: str, among: list[str] = lines) -> float:
        return max(worst.get((name, kind, line, library), REFUSED) for line in among)

    def bar(name: str, kind: str) -> str:
        most = worst_of(name, kind, "hotmax")
        limit = FUNCTIONS[name].tolerance[kind]
        return f"{most:.2f} ({limit:g}: {'met' if most <= limit else 'missed'})"

    for name in NAMES:
        bars = ", ".join(f"{kind} {bar(name, kind)}" for kind in SINGLES)
        header = ["case", *(f"{TITLES[at]} {kind}" for kind in SINGLES for at in LIBRARIES)]
        rows = [
            [line, *(figure(worst[name, kind, line, at]) for kind in SINGLES for at in LIBRARIES)]
            for line in lines
        ]
        show(f"{name}. The worst of hotmax, and the bar: {bars}", header, rows)

    rows = [
        [f"{name} {kind}, {what}", *(figure(worst_of(name, kind, at, among)) for at in LIBRARIES)]
        for name in NAMES
        for kind in HALVES
        for what, among in (("temperature 1", lines[:-1]), ("others", [HEATED]))
    ]
    bars = ", ".join(f"{name} {kind} {bar(name, kind)}" for name in NAMES for kind in HALVES)
    title = f"float16 and bfloat16, all cases. The worst of hotmax, and the bar: {bars}"
    show(title, ["function", *TITLES.values()], rows)

    columns = [(name, kind, at) for name in NAMES for kind in SINGLES for at in GENERIC]
    header = ["case", *(f"{name} {kind}, {GENERIC[at]}" for name, kind, at in columns)]
    rows = [
        [line, *(figure(worst[name, kind, line, at]) for name, kind, at in columns)]
        for line in lines[:-1]
    ]
    normal = max(worst["softmax", kind, lines[0], at] for kind in SINGLES for at in GENERIC)
    verdict = f"{normal:.2f} (4: {'met' if normal <= 4 else 'missed'})"
    title = (
        "hotmax on arrays of other libraries, the generic path (PyTorch off the CPU, JAX), at "
        f"temperature 1. The worst of softmax at normal(0, 1), and the bar: {verdict}"
    )
    show(title, header, rows)

    if publish:
        tables.publish("accuracy", "\n\n".join(parts))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
