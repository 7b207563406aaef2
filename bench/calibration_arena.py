"""How good calibrators are on real predictions: ours, probmetrics', netcal's and scikit-learn's.

    make calibration-arena                        prints the tables
    make calibration-arena PUBLISH=1              also writes docs/tables/arena.md
    make calibration-arena SETS_OF="a.npz b.npz"  also on these: arrays predictions, ground_truth;
                                                  a folder stands for all .npz files in it

Without them, on 2,000 rows of each set in tests/data. A file of the same name takes the place of
its excerpt. Half of the rows of each set, drawn at random, fit; the others are scored.
Probabilities count as 1e-12 at least. "above best" is the excess of nll over the best method of
probmetrics, and its standard error over rows. `select` and probmetrics are also compared on other
splits of each set.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tables

import hotmax as hm
from hotmax.calibration.families import PARTS

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
PEERS = {"probmetrics": "probmetrics==1.3.0", "netcal": "netcal"}
PROBMETRICS = (
    "temp-scaling",
    "ts-mix",
    "ets",
    "svs",
    "sms",
    "logistic",
    "logistic-mix",
    "isotonic",
)
PROBMETRICS_TWO = (
    "linear-scaling",
    "affine-scaling",
    "quadratic-scaling",
    "isotonic",
    "logistic-mix",
)
SMALLEST = 1e-12
SELECT = "hotmax select"
SPLITS = 10  # beside the first, on which every method is tried
Fit = Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]


def ours(method: str) -> Fit:
    def fit(p: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        if method == "select":
            return hm.calibration.select(p, y, input="probabilities").calibrator.predict_proba
        fitted = hm.calibration.Calibrator(method, input="probabilities").fit(p, y)
        return fitted.predict_proba

    return fit


def of_probmetrics(method: str) -> Fit:
    def fit(p: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        if method == "ets":
            from probmetrics.calibrators import ETSCalibrator

            calibrator = ETSCalibrator(loss="ce")
        else:
            from probmetrics.calibrators import get_calibrator

            calibrator = get_calibrator(method)
        calibrator.fit(p, y)
        return calibrator.predict_proba

    return fit


def of_netcal(method: str) -> Fit:
    def fit(p: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        from netcal import binning, scaling

        kind = getattr(scaling, method, None) or getattr(binning, method)
        calibrator = kind()
        calibrator.fit(p, y)

        def apply(q: np.ndarray) -> np.ndarray:
            r = calibrator.transform(q)
            return np.stack([1 - r, r], axis=1) if r.ndim == 1 else r

        return apply

    return fit


def of_sklearn(method: str) -> Fit:
    def fit(p: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=1000).fit(np.log(p), y)

        def apply(q: np.ndarray) -> np.ndarray:
            found = np.full(q.shape, SMALLEST)
            found[:, model.classes_] = model.predict_proba(np.log(q))
            return found

        return apply

    return fit


def methods_for(classes: int) -> dict[str, Fit]:
    found = {SELECT: ours("select")}
    for name, family in PARTS.items():
        if classes == 2 or not family.two_classes:
            found[f"hotmax {name}"] = ours(name)
    found["scikit-learn logistic"] = of_sklearn("logistic")
    if importlib.util.find_spec("probmetrics"):
        names = PROBMETRICS_TWO if classes == 2 else PROBMETRICS
        found |= {f"probmetrics {name}": of_probmetrics(name) for name in names}
    if importlib.util.find_spec("netcal"):
        for name in ("TemperatureScaling", "HistogramBinning", "IsotonicRegression"):
            found[f"netcal {name}"] = of_netcal(name)
    return found


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as data:
        p = np.maximum(data["predictions"].astype(np.float64), SMALLEST)
        return p / p.sum(1, keepdims=True), data["ground_truth"].astype(np.int64).reshape(-1)


def splits_of(path: Path) -> list[str]:
    """How `select` compares with the best method of probmetrics on other halves of the rows."""
    p, y = read(path)
    methods = {
        name: fit
        for name, fit in methods_for(p.shape[1]).items()
        if name == SELECT or name.startswith("probmetrics")
    }
    ours, best, gaps = [], [], []
    for seed in tables.progress(range(1, SPLITS + 1), f"{path.stem}, splits"):
        order = np.random.default_rng(seed).permutation(len(y))
        fit, test = np.array_split(order, 2)
        losses = {}
        for name, method in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                q = np.maximum(np.asarray(method(p[fit], y[fit])(p[test]), np.float64), SMALLEST)
            q /= q.sum(1, keepdims=True)
            losses[name] = -np.log(q[np.arange(len(test)), y[test]])
        mine = losses.pop(SELECT)
        peer = min(losses.values(), key=np.mean)
        gap = mine - peer
        ours.append(mine.mean())
        best.append(peer.mean())
        gaps.append(gap.mean() / (gap.std() / np.sqrt(len(gap))))
    within = sum(gap <= 1.0 for gap in gaps)
    return [
        path.stem,
        f"{np.mean(ours):.5f}",
        f"{np.mean(best):.5f}",
        f"{within} of {SPLITS}",
        f"{max(gaps):+.2f}",
    ]


def measure(path: Path) -> tuple[list[list[str]], int, int]:
    p, y = read(path)
    order = np.random.default_rng(0).permutation(len(y))
    fit, test = np.array_split(order, 2)
    losses, rows, failed = {}, {}, {}
    for name, method in tables.progress(list(methods_for(p.shape[1]).items()), path.stem):
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                q = np.asarray(method(p[fit], y[fit])(p[test]), np.float64)
        except Exception as error:  # a peer's failure is a line of the table, ours is an error
            if name.startswith("hotmax"):
                raise
            failed[name] = [name, f"{type(error).__name__}", "", "", "", ""]
            continue
        seconds = time.process_time() - start
        q = np.maximum(q, SMALLEST)
        q /= q.sum(1, keepdims=True)
        losses[name] = -np.log(q[np.arange(len(test)), y[test]])
        brier = float(hm.calibration.brier(q, y[test], input="probabilities"))
        ece = float(hm.calibration.ece(q, y[test], input="probabilities"))
        rows[name] = [f"{losses[name].mean():.5f}", f"{brier:.5f}", f"{ece:.2%}", f"{seconds:.2f}"]
    peers = [name for name in losses if name.startswith("probmetrics")] or list(losses)
    best = min(peers, key=lambda name: losses[name].mean())
    table = []
    for name in sorted(losses, key=lambda name: losses[name].mean()):
        gap = losses[name] - losses[best]
        above = f"{gap.mean():+.5f} ({gap.std() / np.sqrt(len(gap)):.5f})"
        table.append([name, *rows[name], above])
    return table + list(failed.values()), len(fit), len(test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="more sets: .npz, or folders of them")
    parser.add_argument("--publish", action="store_true", help="write docs/tables/arena.md")
    options = parser.parse_args()
    absent = [name for name in PEERS if not importlib.util.find_spec(name)]
    if absent:
        print(
            "not installed: "
            + ", ".join(absent)
            + "; pip install torch==2.13.0 && pip install "
            + " ".join(PEERS[name] for name in absent)
        )
    sets = {path.name: path for path in sorted(DATA.glob("*.npz"))}
    for given in options.files:
        found = sorted(given.glob("*.npz")) if given.is_dir() else [given]
        if not found:
            parser.error(f"{given} holds no .npz files")
        sets |= {path.name: path for path in found}
    texts = []
    for path in sets.values():
        table, fit, test = measure(path)
        header = ["method", "nll", "Brier", "ECE", "CPU s", "above best (error)"]
        title = f"{path.stem}: {fit} rows fit, {test} score"
        print(f"\n{title}\n{tables.plain(header, table)}", flush=True)
        texts.append(f"## {title}\n\n{tables.markdown(header, table)}")
    if "probmetrics" not in absent:
        header = ["set", "select", "best peer", "within one error", "worst, in errors"]
        table = [splits_of(path) for path in sets.values()]
        title = f"{SPLITS} other splits: mean nll of select, and of the best method of probmetrics"
        print(f"\n{title}\n{tables.plain(header, table)}", flush=True)
        texts.append(f"## {title}\n\n{tables.markdown(header, table)}")
    peers = [name for name in PEERS if name not in absent]
    if options.publish:
        about = tables.versions("numpy", "scipy", "scikit-learn", *peers)
        tables.publish("arena", "\n\n".join([*texts, f"{tables.processor()}; {about}."]))


if __name__ == "__main__":
    main()
