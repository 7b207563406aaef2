"""Seeds: which numbers a row gets."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from hotmax._core.arrays import Array, refuse_masked
from hotmax._core.checks import as_seed

OTHERS = ", or an array with one for each row"
ACCEPTED_SEEDS = f"an int from 0 to 2**64 - 1{OTHERS}"


@dataclass(frozen=True)
class Seeds:
    """A key for each row, or one for all, and the number that each row is counted by.

    Under one seed rows are told apart by their numbers. A row with a seed of its own has number 0,
    so that its draws are the same wherever it lies.
    """

    keys: Array
    rows: Array

    def part(self, rows: slice) -> tuple[Array, Array]:
        return (self.keys if self.keys.size == 1 else self.keys[rows]), self.rows[rows]


def as_seeds(seed: object, shape: tuple[int, ...]) -> Seeds:
    """The seeds of rows that lie in `shape`; fresh entropy for None."""
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.arange(count, dtype=np.int64)
    if seed is None:
        return Seeds(np.array([secrets.randbits(64)], np.uint64), numbers)
    keys = as_keys(seed)
    if keys.ndim == 0:
        return Seeds(keys.reshape(1), numbers)
    try:
        broadcast = np.broadcast_to(keys, shape)
    except ValueError:
        raise ValueError(
            f"seed must be a number or broadcast to {shape} (one for each row), got shape "
            f"{keys.shape}"
        ) from None
    return Seeds(np.ascontiguousarray(broadcast).reshape(-1), np.zeros(count, np.int64))


def as_keys(seed: object) -> Array:
    """A seed, or an array or nested list of them, as uint64 in its own shape."""
    if type(seed) is int:
        return np.array(as_seed(seed, OTHERS), np.uint64)
    refuse_masked(seed, "seed")
    if isinstance(seed, np.ndarray) and seed.dtype.kind in "iu":
        if seed.size and seed.min() < 0:
            raise ValueError(f"seed must be {ACCEPTED_SEEDS}, got {seed.min()}")
        return seed.astype(np.uint64)
    if isinstance(seed, np.ndarray) and seed.dtype != object:
        raise TypeError(f"seed must be {ACCEPTED_SEEDS}, got an array of {seed.dtype}")
    if not isinstance(seed, np.ndarray | list | tuple):
        return np.array(as_seed(seed, OTHERS), np.uint64)
    try:  # as objects: else ints on both sides of 2**63 become floats, and bools ints
        each = np.array(seed, dtype=object)
    except ValueError:
        raise ValueError(f"seed must be {ACCEPTED_SEEDS}, got a ragged list") from None
    return np.array([as_seed(one, OTHERS) for one in each.flat], np.uint64).reshape(each.shape)
