"""Biases and penalties of a row, and how often tokens came.

Tokens so far and biases are ragged: flat arrays, with the bounds of each row's part in them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel


class Edits(NamedTuple):
    """What changes the logits of rows. Bounds and penalties are of length 1, or one for each row.

    Bounds are (start, stop).
    """

    bias_tokens: Any
    biases: Any
    bias_bounds: Any  # (1 or rows, 2)
    tokens: Any  # those so far; below 0 is padding
    bounds: Any  # (1 or rows, 2)
    penalties: Any  # (1 or rows, 3): repetition, frequency, presence


@inline
def line_of(table, r):
    """Row r of a table that has one for each row, or one for all."""
    return table[r if table.shape[0] > 1 else 0]


@kernel
def edit_row(x, r, temperature, edits, counts, out):
    """out = the logits of row r with biases added, then tokens so far penalized.

    They are rounded to the type of out after each of both. A bias of -inf forbids a class; no other
    changes what is infinite. counts: scratch, one int for each class.
    """
    forbidden = math.copysign(np.inf, -temperature)
    for i in range(x.size):
        out[i] = x[i]
    part = line_of(edits.bias_bounds, r)
    for j in range(part[0], part[1]):
        token, bias = edits.bias_tokens[j], edits.biases[j]
        value = np.float64(out[token])
        if bias == -np.inf:
            out[token] = forbidden
        elif abs(value) < np.inf:
            out[token] = value + bias
    part, penalties = line_of(edits.bounds, r), line_of(edits.penalties, r)
    for j in range(part[0], part[1]):
        if edits.tokens[j] >= 0:
            counts[edits.tokens[j]] = 0
    for j in range(part[0], part[1]):
        if edits.tokens[j] >= 0:
            counts[edits.tokens[j]] += 1
    for j in range(part[0], part[1]):
        token = edits.tokens[j]
        if token >= 0 and counts[token] > 0:
            value = np.float64(out[token])
            value = value * penalties[0] if value < 0.0 else value / penalties[0]
            if abs(value) != np.inf:
                value = value - (penalties[1] * counts[token] + penalties[2])
            out[token] = value
            counts[token] = 0


@kernel
def count_tokens(tokens, bounds, rows, counts, found):
    """The different tokens of each row, as (row, token, count) in the lines of found. Their number.

    counts: zeros, one for each class.
    """
    number = 0
    for r in range(rows):
        part = line_of(bounds, r)
        for j in range(part[0], part[1]):
            if tokens[j] >= 0:
                counts[tokens[j]] += 1
        for j in range(part[0], part[1]):
            token = tokens[j]
            if token >= 0 and counts[token] > 0:
                found[number, 0], found[number, 1], found[number, 2] = r, token, counts[token]
                counts[token] = 0
                number += 1
    return number
