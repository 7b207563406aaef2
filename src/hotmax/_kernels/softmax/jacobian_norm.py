"""The largest singular value of softmax's Jacobian diag(p) - p p^T, row by row."""

from __future__ import annotations

import numpy as np

from hotmax._kernels.compiler.compiling import kernel


@kernel
def jacobian_norms(p, out):
    """The largest root of sum p / (p - x) = 0: it lies between the two largest p.

    The sum rises from -inf to inf in between. Newton's method, with bisection where a step leaves
    the bracket.
    """
    for r in range(p.shape[0]):
        first, second = 0.0, 0.0
        for v in p[r]:
            if v > first:
                first, second = v, first
            elif v > second:
                second = v
        low, high = second, first
        x = 0.5 * (low + high)
        for _ in range(200):
            if not low < x < high:
                break
            total, derivative = 0.0, 0.0
            for v in p[r]:
                share = v / (v - x)
                total += share
                derivative += share / (v - x)
            if total < 0.0:
                low = x
            else:
                high = x
            step = x - total / derivative
            if not low < step < high:
                step = 0.5 * (low + high)
            if abs(step - x) <= 2.0**-52 * x:
                break
            x = step
        out[r] = x if first > second else first
        if second == 0.0:
            out[r] = 0.0
        if not np.isfinite(first + p[r].sum()):
            out[r] = np.nan
