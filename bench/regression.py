"""How fast softmax regression is: hotmax and scikit-learn's L-BFGS, to the same gradient norm.

    make bench              prints the tables
    make bench PUBLISH=1    also writes them into docs/tables

60,000 rows, 784 columns, 10 classes of scikit-learn's make_classification: as it comes (100
informative columns, 200 that are combinations of them, noise), and with its columns scaled to
variance 1, as scikit-learn advises. Both minimise the same objective until no entry of its gradient
is larger than tol; what they reached is then worked out anew by the plain formula in float64. Two
threads each, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from typing import Any

import numpy as np
import tables
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from timing import PEAK, THREADS, Check, duration, fresh_process

import hotmax as hm

ROUNDS = 3
SHAPE = (60_000, 784, 10)
BAR = 2.0


def sample(shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    rows, columns, classes = shape
    return make_classification(
        rows,
        columns,
        n_informative=columns // 8 + 2,
        n_redundant=columns // 4 + 4,
        n_classes=classes,
        n_clusters_per_class=1,
        random_state=0,
    )


def gradient_norm(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    """The largest entry of the gradient of the mean loss and the penalty of C = 1, in float64."""
    coef = model.coef_.astype(np.float64)
    intercept = model.intercept_.astype(np.float64)
    total, last = np.zeros_like(coef), np.zeros_like(intercept)
    for start in range(0, len(x), 5000):
        rows = x[start : start + 5000].astype(np.float64)
        z = rows @ coef.T + intercept
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(p)), y[start : start + 5000]] -= 1.0
        total += p.T @ rows
        last += p.sum(axis=0)
    return float(max(np.abs(total + coef).max(), np.abs(last).max()) / len(x))


def models(tol: float) -> dict[str, Any]:
    return {
        "hotmax": hm.SoftmaxRegression(tol=tol),
        "scikit-learn": LogisticRegression(tol=tol, max_iter=10_000),
    }


def race(x: np.ndarray, y: np.ndarray, tol: float, rounds: int) -> dict[str, dict[str, Any]]:
    """Median seconds, evaluations or iterations, and the norm that was reached."""
    times: dict[str, list[float]] = {name: [] for name in models(tol)}
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, model in models(tol).items():
            time.sleep(0.3)
            start = time.perf_counter()
            model.fit(x, y)
            times[name].append(time.perf_counter() - start)
            found[name] = {
                "steps": int(np.max(model.n_iter_)),
                "norm": gradient_norm(model, x, y),
                "coef": model.coef_,
            }
    for name, values in times.items():
        found[name]["time"] = statistics.median(values)
    return found


CASES = [  # name, columns scaled, dtype, tol, rounds
    ("float64, as it comes, to 1e-3", False, np.float64, 1e-3, 1),
    ("float64, columns scaled, to 1e-3", True, np.float64, 1e-3, ROUNDS),
    ("float64, columns scaled, to 1e-4", True, np.float64, 1e-4, ROUNDS),
    ("float64, columns scaled, to 1e-6", True, np.float64, 1e-6, ROUNDS),
    ("float32, columns scaled, to 1e-4", True, np.float32, 1e-4, ROUNDS),
]

MEMORY = (
    PEAK
    + """
import sys, numpy as np, warnings
sys.path.insert(0, "bench")
from threadpoolctl import threadpool_limits
import regression, hotmax as hm
warnings.simplefilter("ignore")
hm.set_threads({threads})
with threadpool_limits({threads}):
    for shape in ((3000, 40, 10), {shape}):
        rng = np.random.default_rng(0)
        x = rng.standard_normal(shape[:2]).astype({kind!r})
        y = rng.integers(0, shape[2], shape[0])
        x[np.arange(shape[0]), y] += 1
        model = regression.models(1e-4)[{name!r}]
        peak = peak_above(lambda: model.fit(x, y))
print(peak)
"""
)


def peaks() -> list[Check]:
    """Memory above X, of hotmax; at most that of scikit-learn."""
    checks = []
    for kind in ("float64", "float32"):
        found = {}
        for name in models(1e-4):
            code = MEMORY.format(threads=THREADS, shape=SHAPE, kind=kind, name=name)
            found[name] = statistics.median(int(fresh_process(code)) for _ in range(3)) / 1e6
        what = f"memory above X, {kind} (the most: scikit-learn's)"
        checks.append(Check(what, found["hotmax"], round(found["scikit-learn"], 1), " MB"))
    return checks


def agreement() -> Check:
    """The same optimum, both with tol=1e-10: how far apart, in units of 1e-6."""
    x, y = sample()
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    ours = hm.SoftmaxRegression(tol=1e-10).fit(x, y)
    theirs = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x, y)
    apart = np.abs(ours.coef_ - theirs.coef_).max()
    return Check("coefficients apart at tol=1e-10, in 1e-6", apart / 1e-6, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/tables")
    publish = parser.parse_args().publish

    hm.set_threads(THREADS)
    warnings.simplefilter("ignore")
    about = (
        f"{tables.processor()}, {THREADS} threads. hotmax {hm.__version__}, "
        f"{tables.versions('numpy', 'numba', 'scipy', 'scikit-learn')}."
    )
    print(about + "\n")
    header = ["60,000 x 784 x 10", "hotmax", "scikit-learn", "times as fast", "iterations"]
    header.append("gradients reached")
    rows = []
    x, y = sample()
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    with threadpool_limits(THREADS):
        race(*sample((3000, 40, 10)), 1e-3, 1)
        for name, is_scaled, kind, tol, rounds in tables.progress(CASES, "regression"):
            found = race((scaled if is_scaled else x).astype(kind, copy=False), y, tol, rounds)
            ours, theirs = found["hotmax"], found["scikit-learn"]
            times = theirs["time"] / ours["time"]
            rows.append(
                [
                    name,
                    duration(ours["time"]),
                    duration(theirs["time"]),
                    f"{times:.1f} ({BAR:g}: {'met' if times >= BAR else 'missed'})",
                    f"{ours['steps']} and {theirs['steps']}",
                    f"{ours['norm']:.1e} and {theirs['norm']:.1e}",
                ]
            )
        print(tables.plain(header, rows) + "\n")
        checks_header = ["check", "figure", "at most", ""]
        checks = [check.cells() for check in [agreement(), *peaks()]]
    print(tables.plain(checks_header, checks))
    if publish:
        text = [tables.markdown(header, rows), tables.markdown(checks_header, checks), about]
        tables.publish("regression", "\n\n".join(text))
        print("\nwritten into docs/tables")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nstopped")
