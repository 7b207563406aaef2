"""Laws of logsumexp, log_softmax, derivatives and the loss: for subjects that have them."""

from __future__ import annotations

import math

import numpy as np

from hotmax.laws import truth
from hotmax.laws.cases import (
    LARGEST,
    MILD_ROWS,
    inputs,
    is_round,
    mild,
    mild_row,
    round_row,
    round_to_type,
)
from hotmax.laws.law import Law
from hotmax.laws.probability import MILD_SEARCH, slack
from hotmax.laws.trial import Case, Trial

TRACED_INPUTS = 10  # random inputs where autograd traces each one anew, which takes 0.15 s in jax
DIFFERENCE_STEP = {"float64": 2.0**-13, "float32": 2.0**-5}
DIFFERENCE_TOLERANCE = {"float64": 1e-6, "float32": 4e-3}  # of central differences with this step
DEEPEST = {"float64": 700.0, "float32": 80.0}  # exp of its negative is a normal number


def lies_between(trial: Trial, case: Case) -> None:
    top, n = max(case.x), len(case.x)
    tolerance = 4.0 * truth.epsilon(case.dtype) * max(abs(top), abs(top + math.log(n)), 1.0)
    trial.call("s", "logsumexp", case.x, case.dtype)
    trial.claim(f"{top!r} - {tolerance!r} <= s <= {top!r} + math.log({n}) + {tolerance!r}")


def sizes(dtype: str) -> list[list[float]]:
    big = LARGEST[dtype] / 2.0
    return [
        *MILD_ROWS,
        [1000.0, 1000.0],
        [-1000.0, -1000.0],
        [-1000.0, 1000.0],
        [big, big],
        [-big, -big, -big],
    ]


def any_size(rng: np.random.Generator, dtype: str) -> Case:
    scale = 10.0 ** float(rng.uniform(0.0, math.log10(LARGEST[dtype]) - 2.0))
    return Case(round_to_type([v * scale for v in mild_row(rng, dtype)], dtype), dtype)


def has_the_gradient(trial: Trial, case: Case) -> None:
    """By the subject's own derivative if it has one, else by central differences."""
    trial.call("p", "softmax", case.x, case.dtype)
    if trial.subject.has("logsumexp_gradient"):
        trial.differentiate("g", "logsumexp_gradient", case.x, case.dtype)
        trial.claim(f"(np.abs(g - p) <= {slack(case, 32)!r}).all()")
        return
    step = DIFFERENCE_STEP[case.dtype]
    steps = step * np.eye(len(case.x))
    trial.call("up", "logsumexp", np.array(case.x) + steps, case.dtype, of="above")
    trial.call("down", "logsumexp", np.array(case.x) - steps, case.dtype, of="below")
    trial.claim(
        f"(np.abs((up - down) / {2.0 * step!r} - p) <= {DIFFERENCE_TOLERANCE[case.dtype]!r}).all()"
    )


def has_the_jacobian(trial: Trial, case: Case) -> None:
    trial.differentiate("j", "jacobian", case.x, case.dtype)
    trial.let("true", truth.jacobian(case.x), "diag(p) - p p^T, from mpmath")
    trial.claim(f"(np.abs(j - true) <= {slack(case, 32)!r}).all()")


def keeps_its_digits(trial: Trial, case: Case) -> None:
    trial.call("p", "softmax", case.x, case.dtype)
    trial.call("l", "log_softmax", case.x, case.dtype)
    trial.claim(f"(np.abs(np.exp(l) - p) <= {slack(case, 32)!r}).all()")
    trial.let("true", truth.log_softmax(case.x), "from mpmath")
    trial.claim(f"(np.abs(l - true) <= {16.0 * truth.epsilon(case.dtype)!r} * np.abs(true)).all()")


def certain(rng: np.random.Generator, dtype: str) -> Case:
    """From even to nearly one-hot: the others lie far below the largest."""
    depth = float(rng.uniform(0.0, DEEPEST[dtype] - 5.0))
    x = rng.uniform(-depth - 5.0, -depth, rng.integers(2, 9))
    x[rng.integers(len(x))] = 0.0
    return Case(round_to_type(x.tolist(), dtype), dtype)


def is_certain(case: Case) -> bool:
    return len(case.x) > 1 and max(case.x) == 0.0 and min(case.x) >= -DEEPEST[case.dtype]


def is_p_minus_y(trial: Trial, case: Case) -> None:
    label = int(case.label)
    trial.differentiate("g", "cross_entropy_gradient", case.x, case.dtype, label)
    trial.let("true", truth.cross_entropy_gradient(case.x, label), "p - y, from mpmath")
    trial.claim(f"(np.abs(g - true) <= {slack(case, 32)!r}).all()")


def with_label(rng: np.random.Generator, dtype: str) -> Case:
    x = mild_row(rng, dtype)
    return Case(x, dtype, {"label": int(rng.integers(len(x)))})


def short_row(rng: np.random.Generator, dtype: str) -> Case:
    return Case(mild_row(rng, dtype)[:8], dtype)


def short_round(rng: np.random.Generator, dtype: str) -> Case:
    return Case(round_row(rng, dtype)[:8], dtype)


LAWS = (
    Law(
        17,
        "logsumexp is a soft maximum",
        "max x <= logsumexp(x) <= max x + log n",
        "It stands in for the maximum, and must not overflow where the maximum does not.",
        f"{MILD_SEARCH}, and the same at every size that the type holds",
        inputs(sizes, any_size),
        lambda case: len(case.x) > 0 and all(map(math.isfinite, case.x)),
        lies_between,
        needs="logsumexp",
    ),
    Law(
        18,
        "the gradient of logsumexp is softmax",
        "d logsumexp(x) / d x_i = softmax(x)_i",
        "Every gradient of a softmax model is built on it.",
        "mild rows of multiples of 1/64; autograd if the subject has it, else central differences",
        inputs(
            [row for row in MILD_ROWS if is_round(Case(tuple(row), "float64"))],
            short_round,
            TRACED_INPUTS,
        ),
        lambda case: is_round(case) and len(case.x) <= 8,
        has_the_gradient,
        needs="logsumexp",
    ),
    Law(
        19,
        "the Jacobian",
        "d p_i / d x_j = p_i (1 if i = j else 0) - p_i p_j: diag(p) - p p^T",
        "Backpropagation through softmax multiplies by it.",
        f"{MILD_SEARCH}, against mpmath",
        inputs(MILD_ROWS, short_row, TRACED_INPUTS),
        mild,
        has_the_jacobian,
        needs="jacobian",
    ),
    Law(
        20,
        "log_softmax keeps its digits",
        "exp(log_softmax(x)) = softmax(x), and near one-hot log_softmax is not rounded to 0",
        "The loss of a confident, right answer is small, not 0: its digits drive late training.",
        "rows with maximum 0 and the rest up to 700 below (80 in float32), against mpmath",
        inputs([[0.0, -20.0], [0.0, -40.0], [0.0, -80.0], [0.0, -1.0], [0.0, 0.0]], certain),
        is_certain,
        keeps_its_digits,
        needs="log_softmax",
    ),
    Law(
        21,
        "the gradient of cross entropy",
        "d cross_entropy(x, y) / d x = softmax(x) - one_hot(y)",
        "It is what a classifier is trained with.",
        f"{MILD_SEARCH}, with every label, against mpmath",
        inputs([(row, {"label": 0}) for row in MILD_ROWS], with_label),
        lambda case: mild(case) and 0 <= case.label < len(case.x),
        is_p_minus_y,
        needs="cross_entropy_gradient",
    ),
)
