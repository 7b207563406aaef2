"""Seeds and steps: which random numbers a row gets."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.checks import as_seed
from hotmax._core.rows import RowPlan
from hotmax._kernels.sampling.random import STREAMS
from hotmax._sampling.steps import Number, one_for_each_row

LONGEST_REQUEST = 2**30  # positions in a request: STREAMS times that is the length of the counter
REQUEST_STEP = Number("step", 0, LONGEST_REQUEST - 1, whole=True)

OTHERS = ", or an array with one for each row"
ACCEPTED_SEEDS = f"an int from 0 to 2**64 - 1{OTHERS}"


@dataclass(frozen=True)
class Seeds:
    """A key for each row or one for all, the number that each row is counted by, and the stream.

    Under one seed rows are told apart by their numbers. A row with a seed of its own has number 0,
    so that its draws are the same wherever it lies. The stream tells a request's positions apart.
    """

    keys: Array
    rows: Array
    streams: Array

    def part(self, rows: slice) -> tuple[Array, Array, Array]:
        keys, streams = self.keys, self.streams
        return (
            keys if keys.size == 1 else keys[rows],
            self.rows[rows],
            streams if streams.size == 1 else streams[rows],
        )


def as_seeds(seed: object, plan: RowPlan, step: object = 0) -> Seeds:
    """The seeds and steps of the rows of a plan; fresh entropy for None."""
    numbers, shape = np.arange(plan.count, dtype=np.int64), plan.row_shape
    streams = as_streams(step, plan)
    if seed is None:
        return Seeds(np.array([secrets.randbits(64)], np.uint64), numbers, streams)
    keys = as_keys(seed)
    if keys.ndim == 0:
        return Seeds(keys.reshape(1), numbers, streams)
    try:
        keys = keys.reshape(shape) if keys.shape == plan.reduced_shape else keys
        broadcast = np.broadcast_to(keys, shape)
    except ValueError:
        raise ValueError(
            f"seed must be a number or broadcast to {shape} (one for each row), got shape "
            f"{keys.shape}"
        ) from None
    return Seeds(np.ascontiguousarray(broadcast).reshape(-1), np.zeros_like(numbers), streams)


def as_streams(step: object, plan: RowPlan) -> Array:
    """Where the numbers of a position in a request begin; one for all rows or one for each."""
    steps = REQUEST_STEP.check_each(0 if step is None else step)
    return np.asarray(one_for_each_row(steps, plan, "step")).astype(np.int64).reshape(-1) * STREAMS


def as_keys(seed: object) -> Array:
    """A seed, or an array or nested list of them, as uint64 in its own shape."""
    if type(seed) is int:
        return np.array(as_seed(seed, OTHERS), np.uint64)
    refuse_masked(seed, "seed")
    if isinstance(seed, np.ndarray) and seed.dtype.kind in "iu":
        if seed.size and seed.min() < 0:
            at = np.unravel_index(int(np.argmax(seed < 0)), seed.shape)
            raise ValueError(
                f"seed must be {ACCEPTED_SEEDS}, got {seed[at]}{_place(at, seed.shape)}"
            )
        return seed.astype(np.uint64)
    if isinstance(seed, np.ndarray) and seed.dtype != object:
        raise TypeError(f"seed must be {ACCEPTED_SEEDS}, got an array of {seed.dtype}")
    if not isinstance(seed, np.ndarray | list | tuple):
        return np.array(as_seed(seed, OTHERS), np.uint64)
    try:  # as objects: else ints on both sides of 2**63 become floats, and bools ints
        each = np.array(seed, dtype=object)
    except ValueError:
        raise ValueError(f"seed must be {ACCEPTED_SEEDS}, got a ragged list") from None
    keys = np.empty(each.shape, np.uint64)
    for at in np.ndindex(each.shape):
        try:
            keys[at] = as_seed(each[at], OTHERS)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error}{_place(at, each.shape)}") from None
    return keys


def _place(at: tuple[Any, ...], shape: tuple[int, ...]) -> str:
    """Which row, in an array of shape (rows,), (rows, 1) or that of the rows."""
    if not at:
        return ""
    return f" in row {int(at[0]) if shape[1:] in ((), (1,)) else tuple(map(int, at))}"
