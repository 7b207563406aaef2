"""Rows through biases, penalties and filters: draws from what is left, or the logits of it."""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.sampling.edits import edit_row
from hotmax._kernels.sampling.filters import filter_row, shifted_logit
from hotmax._kernels.sampling.inversion import (
    NO_CLASS,
    NOT_A_NUMBER,
    TOO_FEW,
    WEIGHT_BLOCK,
    exp_weights,
    invert,
    set_totals,
)
from hotmax._kernels.sampling.random import COIN, DRAW, NOISE, gumbel, uniform
from hotmax._kernels.sampling.selection import find_cut
from hotmax._kernels.simd.memory import of_row


@inline
def log_of_total(total, total_lo):
    """The logarithm of a sum of weights, the largest of which is 1: exact near 1."""
    return math.log1p((total - 1.0) + total_lo)


@kernel
def draw_distinct(candidates, n, m, t, key, row, stream, out, logs, log_total):
    """As many different classes as out is long, in the order of their draws; False if too few.

    Gumbel top-k: the largest of (x - m) / T plus Gumbel noise are draws without replacement. The
    weights of the candidates are given.
    """
    value, index = candidates.value, candidates.index
    weights, keys = candidates.weights, candidates.keys
    count = 0
    for i in range(n):
        if weights[i] > 0.0:
            noise = gumbel(key, row, index[i], stream + NOISE)
            keys[count] = shifted_logit(value[i], m, t) + noise
            index[count] = index[i]
            value[count] = value[i]
            count += 1
    if count < out.size:
        return False
    cut, _ = find_cut(keys[:count], None, float(out.size), False, weights, weights)
    best = 0
    for i in range(count):
        if keys[i] >= cut:
            keys[best] = keys[i]
            index[best] = index[i]
            value[best] = value[i]
            best += 1
    if best < out.size:  # cannot happen, since no key is nan; guards against reading past the end
        return False
    order = np.argsort(-keys[:best])
    for d in range(out.size):
        out[d] = index[order[d]]
        if logs.size:
            logs[d] = shifted_logit(value[order[d]], m, t) - log_total
    return True


@kernel
def sample_rows(
    x, out, logs, temperature, keys, rows, streams, mu, steps, edits, edited, candidates, first_tie,
    replace,
):  # fmt: skip
    """Draws from rows after the steps. mu[r], where given, becomes the surprise of the first draw.

    Mirostat adapts mu by that surprise, in bits. logs: where given, log-probabilities of the draws
    among what the steps have left. edited: scratch for a row, or empty without `edits`.
    """
    value, index, weights = candidates.value, candidates.index, candidates.weights
    totals = np.empty((-(-x.shape[1] // WEIGHT_BLOCK), 2))
    for r in range(x.shape[0]):
        own_temperature, key, stream = of_row(temperature, r), of_row(keys, r), of_row(streams, r)
        source = x[r]
        if edited.size:
            edit_row(x[r], r, own_temperature, edits, candidates, edited)
            source = edited
        coin = uniform(key, rows[r], 0, stream + COIN)[0]
        surprise = mu[r] if mu.size else 0.0
        n, m, t = filter_row(source, r, own_temperature, surprise, coin, steps, candidates)
        if n == 0:
            out[r, :] = NOT_A_NUMBER if m != m else NO_CLASS
            continue
        if first_tie and own_temperature == 0.0 and replace:
            out[r, :] = index[0]
            if logs.size:
                logs[r, :] = 0.0
            if mu.size:
                mu[r] = 0.0  # the draw was certain
            continue
        exp_weights(value[:n], weights[:n], m, t)
        block_totals = totals[: -(-n // WEIGHT_BLOCK)]
        total, total_lo = set_totals(weights[:n], block_totals)
        log_total = log_of_total(total, total_lo) if logs.size else 0.0
        if not replace:
            own_logs = logs[r] if logs.size else weights[:0]
            if not draw_distinct(
                candidates, n, m, t, key, rows[r], stream, out[r], own_logs, log_total
            ):
                out[r, :] = TOO_FEW
            continue
        for d in range(out.shape[1]):
            u, u_lo = uniform(key, rows[r], d, stream + DRAW)
            at = invert(weights[:n], block_totals, total, total_lo, u, u_lo)
            out[r, d] = index[at]
            if logs.size:
                logs[r, d] = shifted_logit(value[at], m, t) - log_total
            if d == 0 and mu.size:
                mu[r] = math.log2(total) - math.log2(weights[at])


@kernel
def truncate_rows(
    x, out, temperature, keys, rows, streams, mu, steps, edits, edited, candidates, status
):
    """Rows with -inf where the steps cut (inf at a temperature below 0). out may be x."""
    n = x.shape[1]
    index = candidates.index
    for r in range(x.shape[0]):
        t = of_row(temperature, r)
        source = x[r]
        if edited.size:
            edit_row(x[r], r, t, edits, candidates, edited)
            source = edited
        coin = uniform(of_row(keys, r), rows[r], 0, of_row(streams, r) + COIN)[0]
        surprise = mu[r] if mu.size else 0.0
        left, m, _ = filter_row(source, r, t, surprise, coin, steps, candidates)
        status[r] = left if left > 0 else (NOT_A_NUMBER if m != m else NO_CLASS)
        absent = math.copysign(np.inf, -t)
        start = 0
        for j in range(left):
            for i in range(start, index[j]):
                out[r, i] = absent
            out[r, index[j]] = source[index[j]]
            start = index[j] + 1
        for i in range(start, n):
            out[r, i] = absent
