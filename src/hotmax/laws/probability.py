"""Laws of probability, and of softmax as a function: what mathematics alone demands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotmax.laws import truth
from hotmax.laws.cases import (
    MILD,
    MILD_ROWS,
    draw_mild,
    inputs,
    is_round,
    mild,
    mild_row,
    round_row,
    round_to_type,
)
from hotmax.laws.law import Law
from hotmax.laws.trial import Case, Trial

MILD_SEARCH = "mild rows (up to 33 logits in [-30, 30]): normal, ties, integers, near one-hot"


def slack(case: Case, least: int = 8) -> float:
    """Room for rounding: a few units in the last place, and one for each term of a sum."""
    return (len(case.x) + least) * truth.epsilon(case.dtype)


def non_negative(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.claim("(p >= 0).all()")


def sums_to_one(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.claim(f"abs(math.fsum(p) - 1) <= {slack(case)!r}")


def additive(trial: Trial, case: Case) -> None:
    merged = truth.logsumexp(case.x[:2])
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call(
        "q", "softmax", round_to_type([merged, *case.x[2:]], case.dtype), case.dtype, of="merged"
    )
    trial.claim(f"abs(q[0] - (p[0] + p[1])) <= {slack(case, 64)!r}")


def keeps_order(trial: Trial, case: Case) -> None:
    order = sorted(range(len(case.x)), key=lambda i: case.x[i])
    steps = list(enumerate(np.diff([case.x[i] for i in order]).tolist()))
    trial.call("p", "softmax", case.x, case.dtype)
    trial.let("order", order, "of the logits, rising")
    if len(set(case.x)) == 1:  # 0 / 0 of a formula that divides is another law's matter
        trial.claim("np.isnan(p).any() or (np.diff(p[order]) == 0).all()")
        return
    trial.claim("(np.diff(p[order]) >= 0).all()")
    if same := [i for i, step in steps if step == 0.0]:
        trial.claim(f"(np.diff(p[order])[{same}] == 0).all()")
    if apart := [i for i, step in steps if step >= 0.01]:
        trial.claim(f"(np.diff(p[order])[{apart}] > 0).all()")


def close_together(rng: np.random.Generator, dtype: str) -> Case:
    """Mild rows, some of neighbouring numbers: the order of two that differ by one bit counts."""
    if rng.integers(2):
        return draw_mild(rng, dtype)
    base = round_to_type([rng.uniform(-3.0, 3.0)], dtype)[0]
    steps = rng.integers(-4, 5, rng.integers(2, 9))
    return Case(tuple(float(base + s * truth.spacing(np.array(base), dtype)) for s in steps), dtype)


def divides(x: Sequence[float]) -> bool:
    """Whether not all are equal, and the sum is not 0: where a formula that divides by a sum, which
    is no softmax, gives numbers. A counterexample then shows what is wrong with them, not a nan.
    """
    return len(set(x)) > 1 and sum(x) != 0.0


def unchanged_by_a_shift(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("q", "softmax", [v + case.shift for v in case.x], case.dtype, of="shifted")
    undefined = "np.isnan(p + q).any() or " if len(set(case.x)) == 1 else ""
    trial.claim(f"{undefined}(np.abs(p - q) <= {slack(case, 16)!r} * p).all()")


def shifts(rng: np.random.Generator, dtype: str) -> Case:
    return Case(round_row(rng, dtype), dtype, {"shift": float(rng.integers(-30, 31))})


def is_shift(case: Case) -> bool:
    return is_round(case) and abs(case.shift) <= MILD and case.shift == round(case.shift)


def changed_by_a_scale(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("q", "softmax", [v * case.scale for v in case.x], case.dtype, of="scaled")
    trial.claim("np.abs(p - q).max() > 0.001")


def scales(rng: np.random.Generator, dtype: str) -> Case:
    while True:
        scale = float(rng.choice([0.25, 0.5, 2.0, 4.0]))
        case = Case(
            round_to_type(rng.uniform(-3, 3, rng.integers(2, 6)).tolist(), dtype),
            dtype,
            {"scale": scale},
        )
        if is_scale(case):
            return case


def is_scale(case: Case) -> bool:
    """Does the scale make a difference that is plain to see?"""
    if not mild(case) or len(case.x) < 2 or case.scale not in (0.25, 0.5, 2.0, 4.0):
        return False
    scaled = tuple(v * case.scale for v in case.x)
    apart = np.abs(truth.softmax(case.x) - truth.softmax(scaled)).max()
    return bool(max(abs(v) for v in scaled) <= MILD and apart > 0.01)


def equivariant(trial: Trial, case: Case) -> None:
    turn = int(case.turn)
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("q", "softmax", np.roll(case.x, turn), case.dtype, of="turned")
    trial.claim(f"(np.abs(q - np.roll(p, {turn})) <= {slack(case, 64)!r} * q).all()")


def turns(rng: np.random.Generator, dtype: str) -> Case:
    x = mild_row(rng, dtype, 2)
    return Case(x, dtype, {"turn": int(rng.integers(1, len(x)))})


def is_turn(case: Case) -> bool:
    return mild(case) and 0 < case.turn < len(case.x)


def gives_the_sigmoid(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.let("true", truth.softmax(case.x), "1 / (1 + exp(-(b - a))), from mpmath")
    trial.claim(f"(np.abs(p - true) <= {16 * truth.epsilon(case.dtype)!r} * true).all()")


def pairs(rng: np.random.Generator, dtype: str) -> Case:
    return Case(round_row(rng, dtype, 2)[:2], dtype)


LAWS = (
    Law(
        1,
        "non-negative",
        "p_i >= 0",
        "A probability below 0 has no meaning, and its logarithm is nan.",
        MILD_SEARCH,
        inputs(MILD_ROWS, draw_mild),
        mild,
        non_negative,
    ),
    Law(
        2,
        "sums to 1",
        "sum p_i = 1, within rounding",
        "What falls short of 1 is lost to every loss and every sample drawn.",
        MILD_SEARCH,
        inputs(MILD_ROWS, draw_mild),
        mild,
        sums_to_one,
    ),
    Law(
        3,
        "additive over disjoint events",
        "P(a or b) = P(a) + P(b): classes merged into one of logit log(exp a + exp b) get the sum",
        "Classes can be grouped after the fact, as tokens into words, without changing the rest.",
        f"{MILD_SEARCH}, the first two classes merged",
        inputs([row for row in MILD_ROWS if len(row) > 1], lambda r, d: Case(mild_row(r, d, 2), d)),
        lambda case: mild(case) and len(case.x) >= 2,
        additive,
        teaches=lambda case: divides(case.x),
    ),
    Law(
        4,
        "keeps order",
        "x_i >= x_j implies p_i >= p_j, and x_i = x_j implies p_i = p_j to the last bit",
        "The most likely class is the one with the largest logit, and a tie stays a tie.",
        f"{MILD_SEARCH}, and rows of neighbouring numbers",
        inputs(MILD_ROWS, close_together, 80),
        mild,
        keeps_order,
        teaches=lambda case: divides(case.x),
    ),
    Law(
        5,
        "unchanged by a shift",
        "softmax(x + c) = softmax(x)",
        "Only differences of logits carry meaning; subtracting the maximum relies on it.",
        "mild rows of multiples of 1/64, shifted by whole numbers up to 30, so that x + c is exact",
        inputs(
            [(row, {"shift": c}) for row in ([0.0, 1.0], [1.0, 2.0, 3.0]) for c in (1.0, -2.0)],
            shifts,
        ),
        is_shift,
        unchanged_by_a_shift,
        teaches=lambda case: divides(case.x) and divides([v + case.shift for v in case.x]),
    ),
    Law(
        6,
        "changed by a scale",
        "softmax(k x) != softmax(x), unless all x_i are equal or k = 1",
        "The size of logits is their confidence; what ignores it is not softmax.",
        "rows within 3 of 0, times 1/4, 1/2, 2 and 4, where softmax changes by more than 0.01",
        inputs([([0.0, 1.0], {"scale": 2.0}), ([1.0, 2.0, 3.0], {"scale": 0.5})], scales),
        is_scale,
        changed_by_a_scale,
    ),
    Law(
        7,
        "equivariant under permutation",
        "softmax(x[order]) = softmax(x)[order]",
        "Classes have no places: renumbering them may only renumber the result.",
        f"{MILD_SEARCH}, turned round by every number of places",
        inputs([([1.0, 2.0], {"turn": 1}), ([1.0, 3.0, 2.0], {"turn": 2})], turns),
        is_turn,
        equivariant,
    ),
    Law(
        16,
        "two classes give the sigmoid",
        "softmax([a, b])_2 = 1 / (1 + exp(a - b))",
        "Logistic regression is the case of two classes; it also fixes the base, e.",
        "pairs of multiples of 1/64 within 30 of 0, against mpmath",
        inputs([[0.0, 1.0], [0.0, 0.0], [0.0, -20.0], [-1.0, 2.0]], pairs),
        lambda case: is_round(case) and len(case.x) == 2,
        gives_the_sigmoid,
        teaches=lambda case: divides(case.x),
    ),
)
