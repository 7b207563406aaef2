"""Laws of temperature. Where a subject takes none, x / T is what it is given."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hotmax.laws import truth
from hotmax.laws.cases import (
    LARGEST,
    MILD_ROWS,
    has_different_logits,
    inputs,
    mild,
    mild_row,
    round_to_type,
)
from hotmax.laws.law import Cases, Law
from hotmax.laws.probability import MILD_SEARCH, slack
from hotmax.laws.trial import Case, Trial

COOLEST = 0.5  # mild rows at any temperature above it are mild enough for exp in float32


def follows_the_truth(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype, temperature=case.temperature)
    trial.let("true", truth.softmax(case.x, case.temperature), "from mpmath")
    trial.claim(f"(np.abs(p - true) <= {slack(case)!r}).all()")


def at(temperature: float) -> Cases:
    def draw(rng: np.random.Generator, dtype: str) -> Case:
        return Case(mild_row(rng, dtype), dtype, {"temperature": temperature})

    return inputs([(row, {"temperature": temperature}) for row in MILD_ROWS], draw)


def is_at(temperature: float) -> Callable[[Case], bool]:
    return lambda case: mild(case) and case.temperature == temperature


def is_itself_at_one(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("q", "softmax", case.x, case.dtype, temperature=1.0)
    trial.claim("(p == q).all()")


def flattens(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype, temperature=case.cool)
    trial.call("q", "softmax", case.x, case.dtype, temperature=case.warm)
    trial.claim("p.max() > q.max()")
    trial.claim("-(p * np.log(p)).sum() < -(q * np.log(q)).sum()")


def warmings(rng: np.random.Generator, dtype: str) -> Case:
    while True:
        x = round_to_type(rng.uniform(-5.0, 5.0, rng.integers(2, 9)).tolist(), dtype)
        cool = float(rng.choice([0.5, 0.7, 1.0, 2.0]))
        case = Case(x, dtype, {"cool": cool, "warm": cool * float(rng.choice([1.5, 2.0, 10.0]))})
        if is_warming(case):
            return case


def is_warming(case: Case) -> bool:
    """Is the difference that temperature makes far above rounding?"""
    if not mild(case) or len(case.x) < 2 or not COOLEST <= case.cool < case.warm <= 1000.0:
        return False
    p, q = (truth.softmax(case.x, t) for t in (case.cool, case.warm))
    entropies = [-(r[r > 0] * np.log(r[r > 0])).sum() for r in (p, q)]
    return bool(p.max() - q.max() > 1e-4 and entropies[1] - entropies[0] > 1e-4 and p.min() > 1e-30)


def extremes(dtype: str) -> list[tuple[list[float], dict[str, float]]]:
    """x / T beyond the type, x - max beyond it, and -inf at infinite temperature."""
    largest = LARGEST[dtype]
    root = math.sqrt(largest)
    return [
        ([1.0, 2.0], {"temperature": 2.0}),
        ([1.0, 2.0], {"temperature": 1.0 / largest / 8.0}),
        ([root, root * 1.5], {"temperature": 0.001 / root}),
        ([-root, -root], {"temperature": 0.001 / root}),
        ([0.0, -math.inf], {"temperature": math.inf}),
        ([largest * 0.9, largest * 0.5], {"temperature": 0.1}),
        ([largest, -largest], {"temperature": largest}),
        ([1.0, 2.0], {"temperature": largest}),
    ]


def colds(rng: np.random.Generator, dtype: str) -> Case:
    """A row of some size, at a temperature of another; where x / T overflows too."""
    top = math.log10(LARGEST[dtype])
    size = 10.0 ** rng.uniform(-3.0, top - 1.0)
    x = round_to_type((rng.integers(-9, 10, rng.integers(1, 6)) * size / 10.0).tolist(), dtype)
    return Case(
        x, dtype, {"temperature": float(f"{10.0 ** rng.uniform(-top + 1.0, top - 1.0):.0e}")}
    )


def is_extreme(case: Case) -> bool:
    present = [v for v in case.x if v != -math.inf]
    return bool(present) and all(map(math.isfinite, present)) and case.temperature > 0.0


LAWS = (
    Law(
        10,
        "temperature 0",
        "softmax(x, T = 0) = 1 / k on the k largest entries, 0 elsewhere: the limit T -> 0",
        "Greedy choice is a temperature like any other, and ties must not go to the first.",
        f"{MILD_SEARCH}, at temperature 0",
        at(0.0),
        is_at(0.0),
        follows_the_truth,
        teaches=has_different_logits,
    ),
    Law(
        11,
        "temperature infinity",
        "softmax(x, T = inf) = 1 / n: the limit T -> inf",
        "The other end of every schedule of temperatures: no preference at all.",
        f"{MILD_SEARCH}, at an infinite temperature",
        at(math.inf),
        is_at(math.inf),
        follows_the_truth,
    ),
    Law(
        12,
        "temperature 1",
        "softmax(x, T = 1) = softmax(x), to the last bit",
        "Leaving the temperature out and setting it to 1 must be the same thing.",
        f"{MILD_SEARCH}, with and without a temperature of 1",
        inputs(MILD_ROWS, lambda rng, dtype: Case(mild_row(rng, dtype), dtype)),
        mild,
        is_itself_at_one,
    ),
    Law(
        13,
        "flatter as temperature rises",
        "T < U implies max softmax(x, T) > max softmax(x, U), and entropy the other way round",
        "It is what temperature is for; a sampler that sharpens when warmed is broken.",
        "rows within 5 of 0, at two temperatures from 0.5 to 20, where the effect exceeds 1e-4",
        inputs(
            [
                ([0.0, 1.0], {"cool": 1.0, "warm": 2.0}),
                ([1.0, 2.0, 3.0], {"cool": 0.5, "warm": 1.0}),
            ],
            warmings,
        ),
        is_warming,
        flattens,
    ),
    Law(
        28,
        "every temperature is a number",
        "softmax(x, T) = softmax((x - max x) / T), also where x / T is beyond the type",
        "x / T overflows to inf - inf = nan for a small T, though the result is plain.",
        "rows and temperatures of every size, also where x / T overflows; -inf at T = inf",
        inputs(extremes, colds),
        is_extreme,
        follows_the_truth,
        teaches=has_different_logits,
    ),
)
