"""A sampler with a memory: steps in the order of a library, a seed that moves on, penalties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hotmax._boundary import Array, Axis, Rows, as_array, as_temperature, result_type
from hotmax._kernels.random import STREAMS
from hotmax._random import as_seeds
from hotmax._sampling import NOTHING, check_ties, cut, draw, rows_of
from hotmax._steps import ORDERS, Number, check_step, in_order, program
from hotmax._transfer import like, numpy_of

REPETITION = Number("repetition", 0, float("inf"), open_low=True, open_high=True)
PENALTY_RANGE = (-float("inf"), float("inf"))
FREQUENCY = Number("frequency", *PENALTY_RANGE, open_low=True, open_high=True)
PRESENCE = Number("presence", *PENALTY_RANGE, open_low=True, open_high=True)
PENALTIES = {"repetition": REPETITION, "frequency": FREQUENCY, "presence": PRESENCE}


class Sampler:
    """Draws tokens step by step, as a library of the field would: the same order, the same ties.

    "hf" (transformers): temperature, top_k, top_p, min_p, typical_p, epsilon, eta.
    "vllm": temperature, min_p, top_k, top_p.
    "llama.cpp": top_n_sigma, top_k, typical_p, top_p, min_p, xtc, and temperature last, so that the
    filters see probabilities at temperature 1.

    In all of them penalties come first. Ties: in hf and vllm top_k keeps all that tie with the
    k-th, top_p drops the first of those that tie at its cut, and typical_p keeps all; in llama.cpp
    each keeps just as many as it needs, the first ones. At least one class always stays. A step
    that a library lacks follows its own, and top_n_sigma comes before top_k.

    Args:
        steps: What to do, by name: temperature (0 to inf, or one for each row), top_k, top_p,
            min_p, typical_p, epsilon, eta and top_n_sigma as in `sample`;
            xtc=(probability, threshold): with that probability, drop all classes of at least that
            threshold but the least likely of them;
            mirostat=(surprise, rate): keep classes whose surprise in bits is at most mu, which
            begins at twice the target and learns from each draw (version 2);
            dynamic_temperature=(low, high, exponent): the temperature goes from low to high as
            the entropy goes from 0 to its most;
            repetition, frequency, presence as in `penalize`.
        order: "hf", "vllm" or "llama.cpp"; None for the order of `steps`, with the ties of hf.
        seed: As in `sample`; each call takes new numbers from it. None for fresh entropy.
        ties: As in `sample`.

    Example:
        >>> import hotmax as hm
        >>> sampler = hm.Sampler({"temperature": 0.7, "top_p": 0.9}, order="vllm", seed=1)
        >>> logits = [[1.0, 2.0, 3.0, 0.0], [3.0, 2.0, 1.0, 0.0]]
        >>> [sampler(logits).tolist() for _ in range(3)]
        [[2, 0], [2, 0], [1, 0]]
        >>> sampler
        Sampler(order='vllm', temperature=0.7, top_p=0.9)

    Reference:
        Basu et al., Mirostat, 2021; p-e-w, Exclude Top Choices, 2024 (XTC).
    """

    def __init__(
        self,
        steps: Mapping[str, Any],
        *,
        order: str | None = "hf",
        seed: object = None,
        ties: str = "even",
    ) -> None:
        if not isinstance(steps, Mapping):
            raise TypeError(f"steps must be a dict of names and numbers, got {steps!r}")
        if order is not None and order not in ORDERS:
            raise ValueError(f'order must be "hf", "vllm", "llama.cpp" or None, got {order!r}')
        self.order = order
        self.penalties = {n: PENALTIES[n].check(v) for n, v in steps.items() if n in PENALTIES}
        given = {name: value for name, value in steps.items() if name not in PENALTIES}
        self.temperature = as_temperature(numpy_of(given.get("temperature", 1.0)))
        if (self.temperature < 0).any():
            raise ValueError(f"temperature must be 0 to inf in a Sampler, got {self.temperature}")
        self.temperature = np.abs(self.temperature)  # -0.0 would turn a row upside down
        self.program = program(
            given.items() if order is None else in_order(_known(given), order),
            llama=order == "llama.cpp",
        )
        self.mirostat = check_step("mirostat", given["mirostat"]) if "mirostat" in given else None
        self.mu = NOTHING
        self.calls = 0
        self.first_tie = check_ties(ties)
        self._steps = dict(steps)
        self._seed = as_seeds(None, ()).keys[0] if seed is None else numpy_of(seed, "seed")

    def __repr__(self) -> str:
        steps = ", ".join(f"{name}={value}" for name, value in self._steps.items())
        return f"Sampler(order={self.order!r}, {steps})"

    def __call__(
        self, logits: object, *, tokens: object = None, where: object = None, axis: Axis = -1
    ) -> Any:
        """One class for each row. tokens: those so far, for penalties (see `penalize`)."""
        rows = self._rows(logits, tokens, where, axis)
        shape = rows.shape_of_numbers(False)
        seeds = as_seeds(self._seed, shape)
        bounds = self._bounds(rows)
        surprise = bounds.copy()
        drawn = draw(
            rows,
            self.program,
            seeds,
            stream=self.calls * STREAMS,
            first_tie=self.first_tie,
            mu=surprise,
        )
        if self.mirostat:
            target, rate = self.mirostat
            self.mu = bounds - rate * (surprise - target)
        self.calls += 1
        result = drawn.reshape(shape)
        return like(result if result.ndim else result[()], logits)

    def truncate(
        self, logits: object, *, tokens: object = None, where: object = None, axis: Axis = -1
    ) -> Any:
        """The logits after penalties, with -inf where the next call would cut; draws nothing."""
        rows = self._rows(logits, tokens, where, axis)
        seeds = as_seeds(self._seed, rows.shape_of_numbers(False))
        bounds = self._bounds(rows)
        kept = cut(rows, self.program, seeds, self.calls * STREAMS, bounds)
        return like(kept, logits, keep_type=True)

    def _rows(self, logits: object, tokens: object, where: object, axis: Axis) -> Rows:
        if self.penalties:
            if tokens is None:
                raise ValueError("tokens must be given: this sampler penalizes those so far")
            logits = penalize(logits, tokens, axis=axis, **self.penalties)  # type: ignore[arg-type]
        return rows_of(logits, axis, self.temperature, where)

    def _bounds(self, rows: Rows) -> Array:
        """mirostat's mu for each row."""
        if self.mirostat is None:
            return NOTHING
        if not self.mu.size:
            return np.full(rows.count, 2.0 * self.mirostat[0])
        if self.mu.size != rows.count:
            raise ValueError(
                f"logits must keep their {self.mu.size} rows from call to call under mirostat, "
                f"got {rows.count}"
            )
        return self.mu


def _known(steps: Mapping[str, Any]) -> dict[str, Any]:
    for name in steps:
        if name != "temperature":
            check_step(name, steps[name])
    return dict(steps)


def penalize(
    logits: object,
    tokens: object,
    *,
    repetition: float = 1.0,
    frequency: float = 0.0,
    presence: float = 0.0,
    axis: int = -1,
) -> Any:
    """Logits made smaller at tokens that came before.

    First a logit x of such a token becomes x / repetition if positive, else x * repetition; then
    frequency * count + presence is taken off.

    Args:
        logits: Logits of any shape.
        tokens: Those so far: a sequence of ints for all rows, or an array of ints in the shape of
            the rows, with one more dimension at the end. Numbers below 0 are padding.
        repetition: A number above 0; above 1 discourages.
        frequency: Taken off once for each time that a token came.
        presence: Taken off if it came at all.
        axis: The classes, one axis.

    Returns:
        Logits in the shape and float type of the input.

    Example:
        >>> import hotmax as hm
        >>> hm.penalize([2.0, -1.0, 0.5], [0, 1, 1], repetition=2.0, frequency=0.25)
        array([ 0.75, -2.5 ,  0.5 ])

    Reference:
        Keskar et al., CTRL, 2019 (repetition); the frequency and presence penalties are OpenAI's.
    """
    factor = REPETITION.check(repetition)
    often, once = FREQUENCY.check(frequency), PRESENCE.check(presence)
    array = as_array(numpy_of(logits, "logits"), "logits")
    result = array.astype(result_type(array.dtype))
    moved = np.moveaxis(np.atleast_1d(result), _one_axis(axis), -1)
    at, counts = _seen(tokens, moved.shape[:-1], moved.shape[-1])
    x = moved[at].astype(np.float64)
    x = np.where(x < 0, x * factor, x / factor) - (often * counts + once)
    with np.errstate(over="ignore"):  # a number beyond float16 is inf, without a word
        moved[at] = x
    return like(result, logits, keep_type=True)


def _one_axis(axis: object) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis must be one int here, got {axis!r}")
    return int(axis)


def _seen(tokens: object, shape: tuple[int, ...], classes: int) -> tuple[tuple[Array, ...], Array]:
    """Where tokens came, as an index into logits with the classes last, and how often."""
    array = np.asarray(numpy_of(tokens, "tokens"))
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"tokens must hold ints, got {array.dtype}")
    if array.size and array.max() >= classes:
        raise ValueError(
            f"tokens must be below the number of classes, {classes}, got {array.max()}"
        )
    if array.ndim == 0 or (array.ndim > 1 and array.shape[:-1] != shape):
        raise ValueError(
            f"tokens must be one sequence, or one for each row in shape {shape}, got shape "
            f"{array.shape}"
        )
    lines = np.broadcast_to(array, (*shape, array.shape[-1])).astype(np.int64)
    rows = np.nonzero(lines >= 0)[:-1]
    where = (*rows, lines[lines >= 0])
    flat, counts = np.unique(np.ravel_multi_index(where, (*shape, classes)), return_counts=True)
    return np.unravel_index(flat, (*shape, classes)), counts


def bias(logits: object, tokens: Mapping[int, float] | Iterable[int], *, axis: int = -1) -> Any:
    """Logits with a number added to some classes.

    Args:
        logits: Logits of any shape.
        tokens: What to add to which class, as {class: number}; -inf forbids a class. A sequence of
            classes forbids them all.
        axis: The classes, one axis.

    Returns:
        Logits in the shape and float type of the input.

    Example:
        >>> import hotmax as hm
        >>> hm.bias([1.0, 2.0, 3.0], {0: 0.5, 2: float("-inf")})
        array([ 1.5,  2. , -inf])
        >>> hm.bias([1.0, 2.0, 3.0], [1])
        array([  1., -inf,   3.])
    """
    array = as_array(numpy_of(logits, "logits"), "logits")
    if not isinstance(tokens, Mapping):
        tokens = dict.fromkeys(list(numpy_of(tokens, "tokens")), -np.inf)
    result = np.moveaxis(array.astype(result_type(array.dtype)), _one_axis(axis), -1)
    for token, number in tokens.items():
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            raise TypeError(f"tokens must be ints, got {token!r}")
        if not 0 <= token < result.shape[-1]:
            raise ValueError(f"tokens must be 0 to {result.shape[-1] - 1}, got {token}")
        if isinstance(number, bool) or not isinstance(number, int | float | np.number):
            raise TypeError(f"tokens must map to numbers, got {number!r} for {token}")
        if number != number:
            raise ValueError(f"tokens must not map to nan, got it for {token}")
        x = result[..., token]
        absent = (x == -np.inf) | (number == -np.inf)  # and no number brings a class back
        with np.errstate(invalid="ignore", over="ignore"):
            result[..., token] = np.where(absent, -np.inf, x + number)
    return like(np.moveaxis(result, -1, _one_axis(axis)), logits, keep_type=True)
