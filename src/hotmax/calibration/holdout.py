"""Rows that are held out: calibrators are fitted to the others, and measured on these."""

from __future__ import annotations

import math

import numpy as np

from hotmax._core.arrays import Array


def held_out(rows: int, share: float, rng: np.random.Generator) -> Array:
    """A bool for each row: True for a share of them, drawn at random and rounded half up."""
    count = math.floor(rows * share + 0.5)
    held = np.zeros(rows, np.bool_)
    held[rng.permutation(rows)[rows - count :]] = True
    return held
