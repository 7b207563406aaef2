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
def different_tokens(tokens, part, seen, found):
    """The different tokens of tokens[part[0]:part[1]], in order of their first place. Their number.

    seen: scratch for one bit of each class, which stays in the first-level cache.
    """
    for w in range(seen.size):
        seen[w] = 0
    count = 0
    for j in range(part[0], part[1]):
        token = tokens[j]
        if token >= 0:
            word, bit = seen[token >> 6], np.int64(1) << (token & 63)
            if word & bit == 0:
                seen[token >> 6] = word | bit
                found[count] = token
                count += 1
    return count


@inline
def penalized(value, often, penalties):
    """A logit of a token that came so often; what becomes infinite stays so."""
    raised, lowered = value * penalties[0], value / penalties[0]
    value = raised if value < 0.0 else lowered
    taken = value - (penalties[1] * often + penalties[2])
    return value if abs(value) == np.inf else taken


@kernel
def edit_row(x, r, temperature, edits, scratch, out):
    """out = the logits of row r with biases added, then tokens so far penalized.

    They are rounded to the type of out after each of both. A bias of -inf forbids a class; no other
    changes what is infinite. scratch: Candidates, whose contents are lost.
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
    if part[0] == part[1]:
        return
    found, values, often = scratch.index, scratch.value, scratch.weights
    seen = scratch.keys[: (x.size + 63) // 64].view(np.int64)
    count = different_tokens(edits.tokens, part, seen, found)
    if penalties[1] != 0.0:
        for i in range(count):
            often[found[i]] = 0.0
        for j in range(part[0], part[1]):
            if edits.tokens[j] >= 0:
                often[edits.tokens[j]] += 1.0
    # Three loops, the second of which is vectorised: one takes twice as long.
    for i in range(count):
        values[i] = out[found[i]]
    if penalties[1] != 0.0:
        for i in range(count):
            values[i] = penalized(values[i], often[found[i]], penalties)
    else:
        for i in range(count):
            values[i] = penalized(values[i], 1.0, penalties)
    for i in range(count):
        out[found[i]] = values[i]


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
