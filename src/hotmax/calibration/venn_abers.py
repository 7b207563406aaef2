"""Venn-Abers calibration for two classes: isotonic regression with the new row added, both ways.

For a score s the calibration rows get one more, (s, 0) and then (s, 1); isotonic regression gives
p0 and p1 at s, and p1 / (1 - p0 + p1) is the probability (Vovk, Petej and Fedorova, 2015). Both are
constant on the scores and between them, and are computed for all at once: what isotonic
regression of a prefix ends with is one pooled block and that of a shorter prefix, so that
one number for each prefix tells all of it; so for suffixes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hotmax._core.arrays import Array
from hotmax.calibration.examples import Examples
from hotmax.calibration.two_classes import two_class, two_probabilities, two_sided

Parameters = dict[str, Any]
LARGEST_ODDS = 700.0


def log_odds(yes: Array, no: Array) -> Array:
    """Rounded, so that a shift of the logits leaves ties as they are."""
    odds: Array = np.round(np.clip(yes - no, -LARGEST_ODDS, LARGEST_ODDS), 9)
    return odds


def last_blocks(weight: Array, hits: Array) -> list[tuple[int, float, float]]:
    """(start, weight, hits) of the last pooled block of each prefix of rows in rising order."""
    found: list[tuple[int, float, float]] = []
    for i, (w, h) in enumerate(zip(weight.tolist(), hits.tolist(), strict=True)):
        start = i
        while start > 0:
            before, w2, h2 = found[start - 1]
            if h2 * w < h * w2:  # the block before is lower: it stays
                break
            start, w, h = before, w + w2, h + h2
        found.append((start, w, h))
    return found


def with_one_more(weight: Array, hits: Array, label: float) -> Array:
    """The isotonic value of one more row with a label: before, at and after each score in turn.

    2 m + 1 values for m scores: the place 2 i + 1 is at score i, 2 i between i - 1 and i.
    """
    left = last_blocks(weight, hits)
    # Suffixes are prefixes of the rows in reverse, with misses for hits.
    right = last_blocks(weight[::-1], (weight - hits)[::-1])
    m = len(weight)
    values = np.empty(2 * m + 1)
    for place in range(2 * m + 1):
        tied = place % 2
        i = place // 2
        w, h = 1.0, label
        if tied:
            w, h = w + float(weight[i]), h + float(hits[i])
        low, high = i - 1, m - i - 1 - tied  # the prefix that ends before, the suffix after
        moved = True
        while moved:
            moved = False
            if low >= 0:
                start, w2, h2 = left[low]
                if h2 * w >= h * w2:
                    low, w, h, moved = start - 1, w + w2, h + h2, True
            if high >= 0:
                start, w2, misses = right[high]
                h2 = w2 - misses
                if h2 * w <= h * w2:
                    high, w, h, moved = start - 1, w + w2, h + h2, True
        values[place] = h / w
    return values


def fit_venn_abers(examples: Examples, penalty: float, bins: int) -> Parameters:
    yes, no, q, w = two_sided(examples)
    scores, place = np.unique(log_odds(yes, no), return_inverse=True)
    weight, hits = np.bincount(place, w), np.bincount(place, w * q)
    low, high = with_one_more(weight, hits, 0.0), with_one_more(weight, hits, 1.0)
    # A score around which nothing changes is no knot.
    pairs = np.stack([low, high])
    same = (pairs[:, 1::2] == pairs[:, :-2:2]).all(0) & (pairs[:, 1::2] == pairs[:, 2::2]).all(0)
    distinct = np.flatnonzero(~same) if not same.all() else np.array([0])
    sides = np.concatenate(
        [np.stack([2 * distinct, 2 * distinct + 1], axis=1).ravel(), [2 * distinct[-1] + 2]]
    )
    return {"knots": scores[distinct], "low": low[sides], "high": high[sides]}


def apply_venn_abers(x: Array, parameters: Parameters) -> Array:
    knots = np.asarray(parameters["knots"])
    yes, no = two_class(x)
    odds = log_odds(yes, no)
    place = np.searchsorted(knots, odds, "left") + np.searchsorted(knots, odds, "right")
    p0, p1 = np.asarray(parameters["low"])[place], np.asarray(parameters["high"])[place]
    with np.errstate(divide="ignore"):
        return two_probabilities(x, np.log(p1) - np.log1p(-p0))
