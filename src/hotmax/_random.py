"""Seeds: which numbers a row gets."""

from __future__ import annotations

import operator
import secrets
from dataclasses import dataclass

import numpy as np

from hotmax._boundary import Array

ACCEPTED = "an int from 0 to 2**64 - 1, or an array with one for each row"


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
    if isinstance(seed, np.ndarray) and seed.ndim == 0:
        seed = seed[()]
    if isinstance(seed, np.ndarray | list | tuple):
        return Seeds(_spread(seed, shape), np.zeros(count, np.int64))
    if isinstance(seed, bool | np.bool_) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be {ACCEPTED}, got {seed!r}")
    number = operator.index(seed)
    if not 0 <= number < 2**64:
        raise ValueError(f"seed must be {ACCEPTED}, got {number}")
    return Seeds(np.array([number], np.uint64), numbers)


def _spread(seed: object, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(seed)
    except OverflowError:
        raise ValueError(f"seed must be {ACCEPTED}, got a larger number") from None
    if array.dtype.kind not in "iu":
        raise TypeError(f"seed must be {ACCEPTED}, got an array of {array.dtype}")
    if array.size and array.min() < 0:
        raise ValueError(f"seed must be {ACCEPTED}, got {array.min()}")
    try:
        spread = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"seed must be a number or broadcast to {shape} (one for each row), got shape "
            f"{array.shape}"
        ) from None
    return np.ascontiguousarray(spread, np.uint64).reshape(-1)
