"""What the sweep checks of choices: the sets that filters keep, and draws.

A class is kept or cut, drawn or not, so an error is 0 or infinite. A row whose decision lies within
2**-40 of a cut is left out: there a sum of float64s may fall on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hotmax as hm
from fuzz import wide
from fuzz.function import EXACT, Array, Extras, Function, Generator
from fuzz.hard_rows import draw_values

NEAR = wide.WIDE(2.0**-40)
LEAST = 1e-290  # a probability that is surely not 0
Decision = tuple[Array, Array]  # what is kept, and which rows are left out


def draw_drawable(rng: Generator, shape: tuple[int, int], name: str) -> Array:
    """Rows without nan or +inf, with a class that is there: others are an error to draw from."""
    x = draw_values(rng, shape, name)
    x[~(x.astype(float) < np.inf)] = 0
    x[:, rng.integers(shape[1])] = 1
    return x


# --- filters -------------------------------------------------------------------------------------

FILTERS: dict[str, tuple[Any, ...]] = {
    "top_k": (1, 2, 7, 1000),
    "top_p": (0.1, 0.7, 0.95),
    "min_p": (0.03, 0.5),
    "typical_p": (0.1, 0.7, 0.95),
    "epsilon": (1e-3, 0.2),
    "eta": (1e-3, 0.2),
    "top_n_sigma": (0.7, 1.9),
}


def draw_filter(rng: Generator, x: Array, type_name: str) -> Extras:
    name = str(rng.choice(list(FILTERS)))
    return {"filter": name, "level": FILTERS[name][rng.integers(len(FILTERS[name]))]}


class Choice:
    """Rows to choose from: how far each class lies below the largest, and its probability."""

    def __init__(self, rows: wide.Rows, extras: Extras) -> None:
        values = rows.sign * extras["x"].astype(wide.WIDE)
        # At temperature 0 there are none but the largest.
        self.present = rows.present & ((rows.size > 0) | (values == rows.top))
        self.p = rows.p
        self.values = np.where(self.present, values, -np.inf)
        self.gaps = np.where(self.present, rows.top - self.values, np.inf)
        self.weights = np.exp(rows.gap)
        self.entropy = wide.entropy(rows)

    def nobody(self) -> Array:
        return np.zeros((len(self.p), 1), bool)

    def at_least(self, amounts: Array, bound: Any) -> Decision:
        near = (np.abs(amounts - bound) <= NEAR * bound) & self.present & (self.gaps > 0)
        return (amounts >= bound) | (self.gaps == 0), near.any(-1, keepdims=True)

    def fewest(self, order: Array, share: float) -> tuple[Array, Array, Array]:
        """(which of the order's first have the share, the last one of them, is it unsure?)"""
        mass = np.cumsum(np.take_along_axis(self.p, order, 1), -1)
        enough = mass >= share
        last = np.where(enough.any(-1), np.argmax(enough, -1), order.shape[1] - 1)[:, None]
        chosen = np.arange(order.shape[1]) <= last
        near = (np.abs(mass - share) <= NEAR).any(-1, keepdims=True)
        kept = np.zeros(order.shape, bool)
        np.put_along_axis(kept, order, chosen, 1)
        return kept, np.take_along_axis(order, last, 1), near


def top_k(choice: Choice, k: int) -> Decision:
    bound = np.sort(choice.values, -1)[:, ::-1][:, min(k, choice.p.shape[1]) - 1, None]
    return choice.values >= bound, choice.nobody()


def top_p(choice: Choice, share: float) -> Decision:
    """By value; of those that tie the later first, so that a stable sort runs backwards."""
    order = np.argsort(choice.values, axis=-1, kind="stable")[:, ::-1]
    kept, _, near = choice.fewest(order, share)
    return kept, near


def min_p(choice: Choice, share: float) -> Decision:
    return choice.at_least(choice.weights, wide.WIDE(share))


def epsilon(choice: Choice, bound: float) -> Decision:
    return choice.at_least(choice.p, wide.WIDE(bound))


def eta(choice: Choice, bound: float) -> Decision:
    e = wide.WIDE(bound)
    return choice.at_least(choice.p, np.minimum(e, np.sqrt(e) * np.exp(-choice.entropy)))


def typical_p(choice: Choice, share: float) -> Decision:
    there = np.where(choice.present, choice.gaps, wide.WIDE(0))
    mean = (choice.p * there).sum(-1, keepdims=True)
    distances = np.where(choice.present, np.abs(there - mean), np.inf)
    order = np.argsort(distances, axis=-1, kind="stable")
    _, last, near = choice.fewest(order, share)
    cut, value = (np.take_along_axis(a, last, 1) for a in (distances, choice.values))
    alike = choice.values == value  # classes of one logit have one distance
    close = (np.abs(distances - cut) <= NEAR * (mean + cut)) & ~alike
    return (distances <= cut) | alike, near | close.any(-1, keepdims=True)


def top_n_sigma(choice: Choice, count: float) -> Decision:
    """By gaps over the largest, so that no square leaves the range."""
    there = np.where(choice.present, choice.gaps, wide.WIDE(0))
    number = choice.present.sum(-1, keepdims=True)
    mean = there.sum(-1, keepdims=True) / number
    off = np.where(choice.present, there - mean, wide.WIDE(0))
    bound = count * np.sqrt((off * off).sum(-1, keepdims=True) / number)
    near = (np.abs(there - bound) <= NEAR * bound) & choice.present & (there > 0)
    return choice.gaps <= bound, near.any(-1, keepdims=True)


KEPT: dict[str, Callable[[Choice, Any], Decision]] = {
    "top_k": top_k,
    "top_p": top_p,
    "min_p": min_p,
    "typical_p": typical_p,
    "epsilon": epsilon,
    "eta": eta,
    "top_n_sigma": top_n_sigma,
}


def truncate(x: Any, extras: Extras, **options: Any) -> Any:
    return hm.truncate(x, **{extras["filter"]: extras["level"]}, **options)


def truncated(rows: wide.Rows, extras: Extras, result: Array) -> Array:
    """0 where just the right classes are left as they were, and the others are cut."""
    choice = Choice(rows, extras)
    kept, unsure = KEPT[extras["filter"]](choice, extras["level"])
    want = np.where(kept & choice.present, extras["x"].astype(float), -rows.sign * np.inf)
    right = (result.astype(float) == want).all(-1, keepdims=True)
    return np.where(right | unsure, 0.0, np.inf)


# --- draws ---------------------------------------------------------------------------------------


def draw_seed(rng: Generator, x: Array, type_name: str) -> Extras:
    return {"seed": int(rng.integers(2**63)), "most": int(rng.choice([1, 2, 5, 64]))}


def possible(extras: Extras) -> Array:
    rows = wide.rows_of(extras["x"], extras["temperature"], extras["where"])
    return np.asarray(rows.p > LEAST)


def draw_different(x: Any, extras: Extras, **options: Any) -> Any:
    size = int(min(extras["most"], possible(extras).sum(-1).min()))
    return hm.sample(x, size=size, replace=False, seed=extras["seed"], **options)


def are_different(rows: wide.Rows, extras: Extras, drawn: Array) -> Array:
    ordered = np.sort(drawn, -1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(-1, keepdims=True)
    return np.where(repeated, np.inf, are_possible(rows, extras, drawn))


def are_possible(rows: wide.Rows, extras: Extras, drawn: Array) -> Array:
    """inf for a row with a draw that is no class, or one of probability 0."""
    inside = (drawn >= 0) & (drawn < rows.p.shape[1])
    p = np.take_along_axis(rows.p, np.where(inside, drawn, 0), 1)
    return np.where((inside & (p > 0)).all(-1, keepdims=True), 0.0, np.inf)


def soft_and_hard(x: Any, extras: Extras, **options: Any) -> tuple[Any, Any]:
    return tuple(
        hm.gumbel_softmax(x, seed=extras["seed"], hard=hard, **options) for hard in (False, True)
    )


def agree(rows: wide.Rows, extras: Extras, result: Any) -> Array:
    """Both are 0 where no class is, the soft row sums to 1, the hard is 1 at its largest."""
    soft, hard = (np.asarray(part).astype(float) for part in result)
    digits = wide.FORMATS[extras["type"]][0]
    absent = ~rows.present
    total = soft.sum(-1)
    right = (np.abs(total - 1) <= soft.shape[1] * 2.0 ** (1 - digits)) & (soft >= 0).all(-1)
    right &= ~((soft != 0) & absent).any(-1) & ~((hard != 0) & absent).any(-1)
    right &= ((hard == 1).sum(-1) == 1) & ((hard != 0).sum(-1) == 1)
    right &= np.take_along_axis(soft, hard.argmax(-1)[:, None], 1)[:, 0] == soft.max(-1)
    return np.where(right[:, None], 0.0, np.inf)


CHOICES = (
    Function(
        "truncate",
        bound=EXACT,
        call=truncate,
        errors=truncated,
        shared=draw_filter,
        values=draw_drawable,
        masks=False,
    ),
    Function(
        "sample: without replacement",
        bound=EXACT,
        call=draw_different,
        errors=are_different,
        draws=True,
        shared=draw_seed,
        values=draw_drawable,
        masks=False,
    ),
    Function(
        "sample",
        bound=EXACT,
        call=lambda x, extras, **options: hm.sample(
            x, size=extras["most"], seed=extras["seed"], **options
        ),
        errors=are_possible,
        draws=True,
        shared=draw_seed,
        values=draw_drawable,
        masks=False,
    ),
    Function(
        "gumbel_softmax",
        bound=EXACT,
        call=soft_and_hard,
        errors=agree,
        shared=draw_seed,
        values=draw_drawable,
        masks=False,
        axes="last",
    ),
)
