"""Simulations of what calibration claims, seeded, with the bars that they must pass.

make simulate              prints the tables; 1 if a bar does not hold
make simulate PUBLISH=1    also writes docs/tables/simulate.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import tables

import hotmax as hm
from simulation import advice, decisions, intervals, labels, verdicts, weights
from simulation.models import CLASSES, SCALES

Section = tuple[str, list[str], list[list[str]], list[str]]  # title, header, rows, what fails

VERDICT_ROWS = (25, 100, 1000, 5000)
MOST_FALSE = 0.065
LABEL_ROWS = (50, 500)
ADVICE_ROWS = (100, 500)
LEAST_NONE = 0.935
LEAST_COVERAGE = 0.93


def verdict_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for classes in CLASSES:
        for kind in SCALES:
            cells = []
            for n in VERDICT_ROWS:
                false = verdicts.false_share(kind, classes, n, sets, seed)
                power = verdicts.false_share(kind, classes, n, sets // 5, seed + 1, 2.0)
                cells.append(f"{false:.1%} / {power:.0%}")
                if false > MOST_FALSE:
                    failures.append(f"verdict: {kind}, {classes} classes, {n} rows: {false:.1%}")
            rows.append([f"{classes} classes, {kind}", *cells])
            tell(rows[-1])
    title = (
        f"Verdicts on {sets} calibrated models in each cell, found wanting at the 5 % level (at "
        f"most {MOST_FALSE:.1%}) / overconfident models at temperature 2 that are found"
    )
    return title, ["model", *(f"{n:,} rows" for n in VERDICT_ROWS)], rows, failures


def agreement_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for kind, classes, n in (
        ("ordinary", 3, 100), ("one logit + 9", 10, 25), ("one logit + 9", 10, 1000),
        ("flat", 10, 1000), ("sure", 100, 100),
    ):  # fmt: skip
        real = verdicts.real_share(kind, classes, n, sets, seed)
        plain = verdicts.false_share(kind, classes, n, 5 * sets, seed)
        rows.append([f"{classes} classes, {kind}, {n:,} rows", f"{real:.1%}", f"{plain:.1%}"])
        tell(rows[-1])
        if abs(real - plain) > 4 * (0.05 * 0.95 / sets) ** 0.5:
            failures.append(f"agreement: {rows[-1]}")
    title = f"The same by the function that report and calibrate call, on {sets} models each"
    return title, ["calibrated model", "hotmax", "NumPy"], rows, failures


def weight_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for case in weights.CASES:
        for kind in weights.KINDS:
            cells = []
            for classes in weights.CLASSES:
                for n in weights.ROWS:
                    false = weights.verdict_share(case, kind, classes, n, sets, seed)
                    power = weights.verdict_share(
                        case, kind, classes, n, max(sets // 20, 10), seed + 1, 2.0
                    )
                    cells.append(f"{false:.1%} / {power:.0%}")
                    known = kind == "ordinary" or case not in weights.ONLY_ORDINARY
                    if known and false > MOST_FALSE:
                        failures.append(f"weights: {case}, {kind}, {classes}, {n}: {false:.1%}")
            rows.append([f"{case}, {kind}", *cells])
            tell(rows[-1])
    title = (
        f"Verdicts on {sets} calibrated models in each cell, whose rows have weights or soft "
        f"labels, found wanting (at most {MOST_FALSE:.1%}, but for weights of classes where few "
        "rows are wrong) / models at temperature 2 that are found"
    )
    header = [f"{k} classes, {n:,} rows" for k in weights.CLASSES for n in weights.ROWS]
    return title, ["rows", *header], rows, failures


def weight_interval_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for case in ("weights exponential", "shares of 3 annotators", "Dirichlet around p"):
        for n in (200, 1000):
            held = weights.coverage_share(case, n, sets, seed)
            rows.append([f"{case}, {n:,} rows", *(f"{held[name]:.1%}" for name in weights.COVERED)])
            tell(rows[-1])
            if min(held.values()) < LEAST_COVERAGE - 2 * (0.95 * 0.05 / sets) ** 0.5:
                failures.append(f"intervals with weights: {rows[-1]}")
    title = (
        f"Intervals that hold the figure of a population, of {sets}; at least {LEAST_COVERAGE:.0%}"
    )
    return title, ["rows", *weights.COVERED], rows, failures


def coverage_section(name: str, sets: int, seed: int) -> Section:
    metric = getattr(hm.calibration, name)
    rows, failures = [], []
    for shape in intervals.SHAPES:
        for error in intervals.ERRORS:
            true, cells = intervals.true_error(metric, shape, error), []
            for n in intervals.ROWS:
                held, own, width = intervals.coverage(metric, shape, error, n, sets, seed)
                cells.append(f"{held:.1%} ({width:.3f})")
                if held < LEAST_COVERAGE or own < 1.0:
                    failures.append(f"{name}: {shape}, {error}, {n} rows: {held:.1%}, {own:.1%}")
            rows.append([f"{shape}, true error {true:.4f}", *cells])
            tell(rows[-1])
    title = (
        f"Intervals of {name} that hold the true error, of {sets} in each cell (at least "
        f"{LEAST_COVERAGE:.0%}), and their mean width; each contains its estimate"
    )
    return title, ["error", *(f"{n:,} rows" for n in intervals.ROWS)], rows, failures


def advice_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for kind, classes in (("ordinary", 3), ("one logit + 9", 10), ("sure", 2), ("flat", 10)):
        cells = []
        for n in ADVICE_ROWS:
            none = advice.advised_share(kind, classes, n, sets, seed)
            gains = 1.0 - advice.advised_share(kind, classes, n, max(sets // 20, 5), seed + 1, 2.0)
            cells.append(f"{none:.1%} / {gains:.0%}")
            if none < LEAST_NONE:
                failures.append(f"advice: {kind}, {classes} classes, {n} rows: {none:.1%}")
        rows.append([f"{classes} classes, {kind}", *cells])
        tell(rows[-1])
    title = (
        f'Advice of "none" for {sets} calibrated models in each cell (at least {LEAST_NONE:.1%}) / '
        "advice of a calibrator for models at temperature 2; so many rows fit, and as many score"
    )
    return title, ["model", *(f"{n:,} rows" for n in ADVICE_ROWS)], rows, failures


def decision_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for n in (100, 300, 1000):
        for error in (0.05, 0.1, 0.2):
            broken = decisions.broken_share(n, error, sets, seed)
            rows.append([f"error above {error:.0%}, {n:,} rows", f"{broken:.1%}", "5% at most"])
            if broken > 0.05 + 3 * (0.05 * 0.95 / sets) ** 0.5:
                failures.append(f"acceptance: {rows[-1]}")
            tell(rows[-1])
    for groups in (5, 50):
        found = decisions.found_share(groups, 100, max(sets // 2, 20), seed)
        rows.append([f"one of {groups} calibrated groups found", f"{found:.1%}", "5% at most"])
        if found > 0.05 + 3 * (0.05 * 0.95 / max(sets // 2, 20)) ** 0.5:
            failures.append(f"groups: {rows[-1]}")
        tell(rows[-1])
    for kind in ("temperature", "near", "noise"):
        for n in (200, 2000):
            for name, held in decisions.compared_share(kind, n, sets, seed).items():
                rows.append([f"{kind}, {n:,} rows: b - a of {name} held", f"{held:.1%}", "95%"])
                if held < 0.95 - 3 * (0.05 * 0.95 / sets) ** 0.5:
                    failures.append(f"compare: {rows[-1]}")
                tell(rows[-1])
    return f"Decisions, {sets} samples each", ["claim", "share", "stated"], rows, failures


def label_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for count in (1, 5, 20):
        for kind in labels.KINDS:
            for shared in (False, True) if count == 5 else (False,):
                cells = []
                for n in LABEL_ROWS:
                    false = labels.found_share(count, n, sets, seed, kind=kind, shared=shared)
                    power = labels.found_share(
                        count, n, max(sets // 10, 10), seed + 1, kind=kind, temperature=2.0
                    )
                    cells.append(f"{false:.1%} / {power:.0%}")
                    if false > MOST_FALSE:
                        failures.append(f"labels: {count}, {kind}, {n} rows: {false:.1%}")
                more = ", drawn together" if shared else ""
                rows.append([f"{count} labels, {kind}{more}", *cells])
                tell(rows[-1])
    title = (
        f"Verdicts on {sets} calibrated models of independent labels in each cell, found wanting "
        f"at the 5 % level (at most {MOST_FALSE:.1%}) / models at temperature 2 that are found"
    )
    return title, ["model", *(f"{n:,} rows" for n in LABEL_ROWS)], rows, failures


def set_section(sets: int, seed: int) -> Section:
    rows, failures = [], []
    for method in ("lac", "aps", "raps"):
        for options in (
            {},
            {"randomize": False},
            {"allow_empty": True},
            {"class_conditional": True},
        ):
            held, error, size = decisions.set_share(
                sets, seed, method=method, penalty=0.05, free=1, **options
            )
            name = f"{method} {', '.join(options) or 'as it is'}"
            rows.append([name, f"{held:.2%} +- {error:.2%}", f"{size:.2f}"])
            fewest = 90 if options.get("class_conditional") else 500  # rows of one threshold
            above = 0.9 + 1 / (fewest + 1)
            if not 0.9 - 3 * error <= held <= above + 3 * error:
                failures.append(f"sets: {rows[-1]}")
            tell(rows[-1])
    title = f"Prediction sets at 90 %, {sets} resamples of 500 rows to fit and 500 to judge"
    return title, ["sets", "hold the label", "mean size"], rows, failures


def sections(sets: int, seed: int) -> Iterator[Section]:
    yield verdict_section(sets, seed)
    yield agreement_section(max(sets // 5, 50), seed)
    yield label_section(max(sets // 4, 50), seed)
    yield weight_section(sets, seed)
    yield weight_interval_section(max(sets // 4, 50), seed)
    yield advice_section(sets, seed)
    yield set_section(200, seed)
    yield decision_section(max(sets // 10, 50), seed)
    yield coverage_section("ece", max(sets // 4, 50), seed)
    yield coverage_section("smooth_ece", max(sets // 20, 20), seed)


def tell(row: list[str]) -> None:
    print("  ".join(row), file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=2000, help="simulations in each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--publish", action="store_true", help="write docs/tables/simulate.md")
    given = parser.parse_args()
    found = list(sections(given.sets, given.seed))
    failures = [line for section in found for line in section[3]]
    for title, header, rows, _ in found:
        print(f"\n{title}\n\n{tables.plain(header, rows)}")
    print("\n".join(["", *failures]) if failures else "\nevery bar holds")
    if given.publish and not failures:
        text = [f"Seed {given.seed}. {tables.versions('hotmax', 'numpy')}."]
        text += [
            f"## {title}\n\n{tables.markdown(header, rows)}" for title, header, rows, _ in found
        ]
        tables.publish("simulate", "\n\n".join(text))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
