"""The search: try a law on its inputs, and shrink what breaks it to the smallest found."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hotmax.laws.cases import round_to_type
from hotmax.laws.law import Law
from hotmax.laws.subjects import Subject
from hotmax.laws.trial import Broken, Case, Counterexample, Refused, Trial

SHORT_ROW = 64  # rows up to here are shortened and simplified number by number


@dataclass(frozen=True)
class LawResult:
    """What came of one law.

    Args:
        law: The law.
        holds: True; False: see the counterexample; None: not applicable.
        counterexample: The smallest input found for which it does not hold.
        detail: How much was tried, what came back instead, or why it does not apply.
    """

    law: Law
    holds: bool | None
    counterexample: Counterexample | None
    detail: str


def teaches(law: Law, case: Case) -> bool:
    """Does this input show what is wrong with a softmax that fails on it?"""
    return law.teaches is None or law.teaches(case)


def run(law: Law, subject: Subject, axis: int, seed: int) -> LawResult:
    """Try a law on a subject."""
    if not subject.has(law.needs):
        return LawResult(law, None, None, f"has no {law.needs}")
    tried, worst, refusals = 0, 0.0, {}
    for dtype in filter(subject.takes, law.dtypes):
        rng = np.random.default_rng([seed, law.number, law.dtypes.index(dtype)])
        for case in sorted(law.cases(rng, dtype), key=lambda case: not teaches(law, case)):
            if not law.domain(case):
                continue
            try:
                trial = attempt(law, subject, axis, case)
            except Refused as refusal:
                refusals[dtype] = str(refusal)
                break
            if trial.error or trial.false:
                smallest, trial = shrink(law, subject, axis, case, trial)
                example = trial.counterexample(smallest)
                return LawResult(law, False, example, example.summary)
            tried, worst = tried + 1, max(worst, trial.worst)
    if not tried:
        said = "; ".join(f"{dtype}: {refusal}" for dtype, refusal in refusals.items())
        return LawResult(law, None, None, f"refuses {said}" if said else "has no such type")
    detail = f"{tried} inputs" + (f", worst error {worst:.2f} ULP" if worst else "")
    return LawResult(law, True, None, detail + "".join(f", refuses {dtype}" for dtype in refusals))


def attempt(law: Law, subject: Subject, axis: int, case: Case) -> Trial:
    """One trial; `error` or `false` says what is broken."""
    trial = Trial(subject, axis, law.refusable)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.suppress(Broken):
            law.check(trial, case)
    return trial


def shrink(law: Law, subject: Subject, axis: int, case: Case, trial: Trial) -> tuple[Case, Trial]:
    """The smallest case found that still breaks the law, is in its domain and teaches as before."""
    left = law.attempts
    must_teach = teaches(law, case)
    if len(case.x) > SHORT_ROW and len(set(case.x)) == 1:
        case, trial = shorten(law, subject, axis, case, trial)
    seen = {_key(case)}
    progress = True
    while progress:
        progress = False
        for candidate in simpler(case):
            if _key(candidate) in seen or cost(candidate) >= cost(case):
                continue
            seen.add(_key(candidate))
            if not law.domain(candidate) or (must_teach and not teaches(law, candidate)):
                continue
            if left == 0:
                return case, trial
            left -= 1
            try:
                next_trial = attempt(law, subject, axis, candidate)
            except Refused:
                continue
            if next_trial.error or next_trial.false:
                case, trial, progress = candidate, next_trial, True
                break
    return case, trial


def shorten(law: Law, subject: Subject, axis: int, case: Case, trial: Trial) -> tuple[Case, Trial]:
    """A long row of equal numbers, bisected to within 1% of the length that breaks the law.

    No closer: each length is compiled anew by jax, which takes half a second.
    """
    whole = 0  # a length at which it holds
    while len(case.x) - whole > 1 + len(case.x) // 100:
        candidate = replace(case, x=case.x[: (whole + len(case.x)) // 2])
        next_trial = attempt(law, subject, axis, candidate)
        if next_trial.error or next_trial.false:
            case, trial = candidate, next_trial
        else:
            whole = len(candidate.x)
    return case, trial


def _key(case: Case) -> str:
    """Told apart by their digits: nan equals itself here, and 0.0 is not -0.0."""
    return repr((case.x, sorted(case.extra.items())))


def cost(case: Case) -> tuple[float, ...]:
    """Fewer numbers first, then shorter ones, then smaller ones."""
    numbers = [*Counter(case.x).items(), *((v, 1) for v in case.extra.values())]
    digits = sum(count * len(repr(v)) for v, count in numbers)
    size = sum(count * min(abs(v), 1e300) for v, count in numbers if not math.isnan(v))
    return (len(case.x), digits, size)


def simpler(case: Case) -> Iterator[Case]:
    """Cases that may be smaller: parts left out, then numbers made plainer."""
    x = case.x
    if len(x) > SHORT_ROW and len(set(x)) == 1:
        yield replace(case, x=round_to_type([0.0], case.dtype) * len(x))
        return
    size = len(x) // 2
    while size >= 1:
        for start in range(0, len(x), size)[:SHORT_ROW]:
            yield replace(case, x=x[:start] + x[start + size :])
        size //= 2
    for name, value in case.extra.items():
        for plainer in plainer_numbers(value):
            yield replace(case, extra={**case.extra, name: plainer})
    if len(x) > SHORT_ROW:
        yield replace(case, x=(x[0],) * len(x))
        return
    for i, value in enumerate(x):
        for plainer in plainer_numbers(value):
            fitted = round_to_type([plainer], case.dtype)
            yield replace(case, x=x[:i] + fitted + x[i + 1 :])


def plainer_numbers(value: float) -> Iterator[float]:
    if isinstance(value, int):
        yield from (0, 1, -value, int(value / 2), value - 1 if value > 0 else value + 1)
        return
    yield from (0.0, 1.0)
    if not math.isfinite(value):
        return
    yield -value
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        yield float(f"{value:.0e}")
        yield math.copysign(10.0 ** math.floor(math.log10(abs(value))), value)
    yield float(round(value))
    for part in (0.5, 0.75, 0.9):
        yield float(math.trunc(value * part))
    for digits in (1, 2, 3):
        yield float(f"{value:.{digits}g}")
