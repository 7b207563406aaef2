"""A sampler with a memory: steps in the order of a library, a seed that moves on, penalties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hotmax._backends.operation import IN_MEMORY, NATIVE, dispatch, operation
from hotmax._backends.protocol import from_numpy, to_numpy
from hotmax._core.arrays import (
    Array,
    Axis,
    as_temperature,
    fill_masked,
    is_integer,
    is_real,
    normalize_axes,
    refuse_masked,
    result_type,
)
from hotmax._core.checks import as_integer
from hotmax._core.rows import RowPlan
from hotmax._kernels.numeric.arithmetic import LARGEST_FLOAT64
from hotmax._kernels.sampling.random import STREAMS
from hotmax._sampling.sample import NO_MU, check_ties, cut, draw
from hotmax._sampling.seeds import as_keys, as_seeds
from hotmax._sampling.steps import ORDERS, Number, check_step, in_order, program

REPETITION = Number("repetition", 0, float("inf"), open_low=True, open_high=True)
PENALTY_RANGE = (-float("inf"), float("inf"))
FREQUENCY = Number("frequency", *PENALTY_RANGE, open_low=True, open_high=True)
PRESENCE = Number("presence", *PENALTY_RANGE, open_low=True, open_high=True)
Biases = Mapping[int, float] | Iterable[int]
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
        self.temperature = as_temperature(to_numpy(given.get("temperature", 1.0)))
        if (self.temperature < 0).any():
            raise ValueError(f"temperature must be 0 to inf in a Sampler, got {self.temperature}")
        self.temperature = np.abs(self.temperature)  # -0.0 would turn a row upside down
        self.program = program(
            given.items() if order is None else in_order(_known(given), order),
            llama=order == "llama.cpp",
        )
        self.mirostat = check_step("mirostat", given["mirostat"]) if "mirostat" in given else None
        self.mu = NO_MU
        self.calls = 0
        self.first_tie = check_ties(ties)
        self._steps = dict(steps)
        self._seed = as_seeds(None, ()).keys[0] if seed is None else as_keys(to_numpy(seed, "seed"))

    def __repr__(self) -> str:
        steps = ", ".join(f"{name}={value}" for name, value in self._steps.items())
        return f"Sampler(order={self.order!r}, {steps})"

    def __call__(
        self, logits: object, *, tokens: object = None, where: object = None, axis: Axis = -1
    ) -> Any:
        """One class for each row. tokens: those so far, for penalties (see `penalize`)."""
        plan = self._plan(logits, tokens, where, axis)
        shape = plan.row_shape
        seeds = as_seeds(self._seed, shape)
        bounds = self._bounds(plan)
        surprise = bounds.copy()
        drawn = draw(
            plan,
            self.program,
            seeds,
            stream=self.calls * STREAMS,
            first_tie=self.first_tie,
            mu=surprise,
        )
        if self.mirostat:
            target, rate = self.mirostat
            with np.errstate(over="ignore"):  # beyond float64 it is as good as the largest number
                self.mu = np.clip(
                    bounds - rate * (surprise - target), -LARGEST_FLOAT64, LARGEST_FLOAT64
                )
        self.calls += 1
        result = drawn.reshape(shape)
        return from_numpy(result if result.ndim else result[()], logits)

    def truncate(
        self, logits: object, *, tokens: object = None, where: object = None, axis: Axis = -1
    ) -> Any:
        """The logits after penalties, with -inf where the next call would cut; draws nothing."""
        plan = self._plan(logits, tokens, where, axis)
        seeds = as_seeds(self._seed, plan.row_shape)
        bounds = self._bounds(plan)
        kept = cut(plan, self.program, seeds, self.calls * STREAMS, bounds)
        return from_numpy(kept, logits, keep_type=True)

    def _plan(self, logits: object, tokens: object, where: object, axis: Axis) -> RowPlan:
        if self.penalties:
            if tokens is None:
                raise ValueError("tokens must be given: this sampler penalizes those so far")
            logits = penalize(logits, tokens, axis=axis, **self.penalties)  # type: ignore[arg-type]
        logits, where = to_numpy(logits, "logits"), to_numpy(where, "where")
        return RowPlan(logits, axis, self.temperature, where, "logits")

    def _bounds(self, plan: RowPlan) -> Array:
        """mirostat's mu for each row."""
        if self.mirostat is None:
            return NO_MU
        if not self.mu.size:
            return np.full(plan.count, min(2.0 * self.mirostat[0], LARGEST_FLOAT64))
        if self.mu.size != plan.count:
            raise ValueError(
                f"logits must keep their {self.mu.size} rows from call to call under mirostat, "
                f"got {plan.count}"
            )
        return self.mu


def _known(steps: Mapping[str, Any]) -> dict[str, Any]:
    for name in steps:
        if name != "temperature":
            check_step(name, steps[name])
    return dict(steps)


@operation(IN_MEMORY)
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
            the rows, with one more dimension at the end. Numbers below 0 are padding. For a batch
            also a list with a sequence for each row, of any lengths.
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
    if not NATIVE.issuperset(map(type, (logits, tokens))):
        return dispatch(penalize, locals())
    factor = REPETITION.check(repetition)
    often, once = FREQUENCY.check(frequency), PRESENCE.check(presence)
    array = fill_masked(logits, "logits", -np.inf)
    result = array.astype(result_type(array.dtype))
    moved = np.moveaxis(np.atleast_1d(result), _one_axis(axis, result.ndim), -1)
    at, counts = _seen(tokens, moved.shape[:-1], moved.shape[-1])
    with np.errstate(all="ignore"):  # a number beyond the type is inf, without a word
        x = moved[at].astype(np.float64)
        scaled = np.where(x < 0, x * factor, x / factor)
        moved[at] = np.where(np.isinf(scaled), scaled, scaled - (often * counts + once))
    return result


def _one_axis(axis: object, ndim: int) -> int:
    return normalize_axes(as_integer(axis, "axis"), max(ndim, 1))[0]


def _seen(tokens: object, shape: tuple[int, ...], classes: int) -> tuple[tuple[Array, ...], Array]:
    """Where tokens came, as an index into logits with the classes last, and how often."""
    array = _tokens(tokens)
    if array.ndim == 0 or (array.ndim > 1 and array.shape[:-1] != shape):
        raise ValueError(
            f"tokens must be one sequence, or one for each row in shape {shape}, got shape "
            f"{array.shape}"
        )
    if array.size and array.max() >= classes:
        raise ValueError(
            f"tokens must be below the number of classes, {classes}, got {array.max()}"
        )
    lines = np.broadcast_to(np.maximum(array, -1).astype(np.int64), (*shape, array.shape[-1]))
    rows = np.nonzero(lines >= 0)[:-1]
    where = (*rows, lines[lines >= 0])
    flat, counts = np.unique(np.ravel_multi_index(where, (*shape, classes)), return_counts=True)
    return np.unravel_index(flat, (*shape, classes)), counts


def _tokens(given: object) -> Array:
    """Tokens as an array of ints; a list of sequences of different lengths is padded with -1.

    What is masked is padding too.
    """
    if isinstance(given, np.ma.MaskedArray) and given.dtype.kind in "iu":
        given = np.where(np.ma.getmaskarray(given), -1, given.data.astype(object))
    refuse_masked(given, "tokens")
    try:
        array = np.asarray(given)
    except ValueError:
        return _padded(given)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind in "iu":
        return array
    # Ints that no type of NumPy holds together: as objects they can at least be compared.
    each = np.array(given, dtype=object)
    if all(map(is_integer, each.flat)):
        return each
    raise TypeError(f"tokens must hold ints, got {array.dtype}")


def _padded(given: Any) -> Array:
    try:
        lines = [_tokens(to_numpy(line, "tokens")) for line in given]
    except TypeError:  # an int beside a sequence, or what is no list at all
        lines = []
    if not lines or any(line.ndim != 1 for line in lines):
        raise ValueError(
            "tokens must be one sequence of ints, or a list with one for each row, got lists of "
            "different depths or shapes"
        )
    padded = np.full((len(lines), max(line.size for line in lines)), -1, object)
    for number, line in enumerate(lines):
        padded[number, : line.size] = line
    return padded


@operation(IN_MEMORY)
def add_bias(logits: object, tokens: Biases | Sequence[Biases], *, axis: int = -1) -> Any:
    """Logits with a number added to some classes.

    Args:
        logits: Logits of any shape.
        tokens: What to add to which class, as {class: number}; -inf forbids a class. A sequence of
            classes forbids them all. For logits of two dimensions also a list of such, one for each
            row.
        axis: The classes, one axis.

    Returns:
        Logits in the shape and float type of the input.

    Example:
        >>> import hotmax as hm
        >>> hm.add_bias([1.0, 2.0, 3.0], {0: 0.5, 2: float("-inf")})
        array([ 1.5,  2. , -inf])
        >>> hm.add_bias([1.0, 2.0, 3.0], [1])
        array([  1., -inf,   3.])
        >>> hm.add_bias([[1.0, 2.0], [1.0, 2.0]], [{1: 2.0}, {}])
        array([[1., 4.],
               [1., 2.]])
    """
    if not NATIVE.issuperset(map(type, (logits, tokens))):
        return dispatch(add_bias, locals())
    array = fill_masked(logits, "logits", -np.inf)
    result = array.astype(result_type(array.dtype))
    moved = np.moveaxis(np.atleast_1d(result), _one_axis(axis, result.ndim), -1)
    classes = moved.shape[-1]
    given = tokens if isinstance(tokens, Mapping) else _listed(tokens)
    if not isinstance(given, list) or not any(_is_collection(one) for one in given):
        _add(moved, _numbers(given, classes))
    elif moved.ndim != 2 or len(given) != len(moved) or not all(map(_is_collection, given)):
        raise ValueError(
            f"tokens must be a dict or a sequence of classes, or for logits of two dimensions a "
            f"list with one for each row; got {len(given)} for rows of shape {moved.shape[:-1]}"
        )
    else:
        each = [_numbers(one if isinstance(one, Mapping) else list(one), classes) for one in given]
        for row, numbers in zip(moved, each, strict=True):
            _add(row, numbers)
    return result


def _is_collection(value: object) -> bool:
    """Is it what stands for one row, not a class?"""
    return isinstance(value, Mapping | list | tuple | set) or (
        isinstance(value, np.ndarray) and value.ndim > 0
    )


def _listed(tokens: Any) -> list[Any]:
    refuse_masked(tokens, "tokens")
    try:
        return list(tokens)
    except TypeError:
        raise TypeError(
            f"tokens must be a dict of classes and numbers or a sequence of classes, got {tokens!r}"
        ) from None


def _numbers(tokens: Mapping[int, float] | list[int], classes: int) -> dict[int, Any]:
    """The number to add for each class, checked."""
    given = tokens.items() if isinstance(tokens, Mapping) else ((one, -np.inf) for one in tokens)
    checked: dict[int, Any] = {}
    for token, number in given:
        if not is_integer(token):
            raise TypeError(f"tokens must be ints, got {token!r}")
        if not 0 <= token < classes:
            raise ValueError(f"tokens must be 0 to {classes - 1}, got {token}")
        if not is_real(number):
            raise TypeError(f"tokens must map to numbers, got {number!r} for {token}")
        try:
            value = number if isinstance(number, np.floating) else float(number)
        except OverflowError:
            raise ValueError(
                f"tokens must map to numbers that fit a float64, or inf, for {token}"
            ) from None
        if value != value:
            raise ValueError(f"tokens must not map to nan, got it for {token}")
        checked[int(token)] = value
    return checked


def _add(logits: Array, numbers: dict[int, Any]) -> None:
    """Add a number to each class named. -inf forbids any; no other changes what is infinite."""
    for token, number in numbers.items():
        x = logits[..., token]
        with np.errstate(invalid="ignore", over="ignore"):
            shifted = np.where(np.isinf(x), x, x + number)
        logits[..., token] = -np.inf if number == -np.inf else shifted
