"""Speculative decoding: which tokens of a draft stay, and what is drawn in place of one.

A token of the draft's distribution q stays with probability min(1, p / q), where p is the target's.
The first that does not is replaced by a draw from max(p - q, 0). So all tokens have distribution p.

Reference: Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding,
2023.
"""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel
from hotmax._kernels.sampling.inversion import (
    NO_CLASS,
    NOT_A_NUMBER,
    WEIGHT_BLOCK,
    exp_weights,
    invert,
    set_totals,
    total_of,
)
from hotmax._kernels.sampling.random import STREAMS, VERIFY, uniform
from hotmax._kernels.simd.memory import of_row
from hotmax._kernels.softmax.float32 import row_maximum
from hotmax._kernels.softmax.limits import sign_of

BAD_DRAFT = 8  # is subtracted from a status that is the draft's


@kernel
def probabilities_of(x, temperature, p):
    """softmax of a row into p. A status below 0 if it has none, else 0."""
    m = row_maximum(x, sign_of(x, temperature))
    if m != m or m == -np.inf:
        return NOT_A_NUMBER if m != m else NO_CLASS
    exp_weights(x, p, m, temperature)
    total = total_of(p)
    for i in range(p.size):
        p[i] /= total
    return 0


@kernel
def draw_class(weights, totals, key, row, stream):
    """A class with probabilities in proportion to weights, not all 0."""
    total, total_lo = set_totals(weights, totals)
    u, u_lo = uniform(key, row, 1, stream)
    return invert(weights, totals, total, total_lo, u, u_lo)


@kernel
def verify_rows(draft, target, tokens, out, accepted, temperature, keys, rows, streams):
    """Tokens that stay, and one more, into out; their number without it into accepted.

    draft: (rows, k, classes); target: (rows, k + 1, classes); tokens: (rows, k), below 0 behind the
    end of a shorter draft. accepted is a status below 0 where a distribution is missing.
    """
    k, classes = draft.shape[1], target.shape[2]
    p, q = np.empty(classes), np.empty(classes)
    totals = np.empty((-(-classes // WEIGHT_BLOCK), 2))
    for r in range(target.shape[0]):
        t, key = of_row(temperature, r), of_row(keys, r)
        count = 0
        while True:
            stream = of_row(streams, r) + count * STREAMS + VERIFY
            status = probabilities_of(target[r, count], t, p)
            if status < 0:
                accepted[r] = status
                break
            token = tokens[r, count] if count < k else np.int64(-1)
            if token >= 0:
                status = probabilities_of(draft[r, count], t, q)
                if status < 0:
                    accepted[r] = status - BAD_DRAFT
                    break
                if uniform(key, rows[r], 0, stream)[0] * q[token] < p[token]:
                    out[r, count] = token
                    count += 1
                    continue
                left = 0.0
                for i in range(classes):
                    q[i] = max(p[i] - q[i], 0.0)
                    left += q[i]
                if left > 0.0:  # else p and q are one, but for rounding
                    for i in range(classes):
                        p[i] = q[i]
            out[r, count] = draw_class(p, totals, key, rows[r], stream)
            accepted[r] = count
            break
