"""Derivatives of softmax, one float64 row at a time.

Means under softmax are means of differences from the entry at the maximum. Where that entry has
nearly all the mass, a mean of the values themselves would lose the leading digits to cancellation.
"""

from __future__ import annotations

import math

import numpy as np

from hotmax._kernels.compiler.compiling import inline, kernel
from hotmax._kernels.losses.probabilities import (
    divisor_of,
    finish_division,
    first_maximum_of,
    probability_and_complement,
    write_probabilities,
)
from hotmax._kernels.numeric.double_double import two_sum
from hotmax._kernels.softmax.limits import NAN, NOTHING, PLAIN, regime
from hotmax._kernels.softmax.rows import peak_of_row, row_sums


@kernel
def probability_rows(x, p, others, temperature):
    """p and 1 - p of every entry."""
    for r in range(x.shape[0]):
        t, m = peak_of_row(x, temperature, r)
        sums = row_sums(x[r], None, m, t, x[r])
        for c in range(x.shape[1]):
            p[r, c], others[r, c] = probability_and_complement(x[r, c], m, t, sums)


@inline
def difference(a, b, unit):
    """(a - b) / unit. Quarters keep a - b in range, exactly where the unit is above 1."""
    if abs(unit) > 1.0:
        return (0.25 * a - 0.25 * b) / (0.25 * unit)
    return (a - b) / unit


@kernel
def mean_difference(p, v, base, unit):
    """The mean of (v - base) / unit under p; an entry of probability 0 is left out."""
    total, lo = 0.0, 0.0
    for c in range(p.size):
        if p[c] > 0.0:
            total, carry = two_sum(total, p[c] * difference(v[c], base, unit))
            lo += carry
    return total + lo


@kernel
def direction_unit(p, v):
    """1, or the power of two that v is divided by to keep its products in range."""
    most = 0.0
    for c in range(p.size):
        if p[c] > 0.0:
            most = max(most, abs(v[c]))
    if most > 2.0**1000:
        return 2.0**200
    return 2.0**-200 if most < 2.0**-800 else 1.0


@kernel
def direction_rows(x, v, out, temperature):
    """p (v - mean of v) / T: the Jacobian times v, from either side."""
    p = np.empty(x.shape[1])
    for r in range(x.shape[0]):
        t, m = peak_of_row(x, temperature, r)
        kind = regime(m, t)
        if kind == NAN or kind == NOTHING:
            out[r, :] = np.nan
            continue
        sums = row_sums(x[r], None, m, t, x[r])
        write_probabilities(x[r], p, 1.0, m, t, sums, None, False)
        base = v[r, first_maximum_of(x[r], math.copysign(1.0, t), m)]
        unit = direction_unit(p, v[r])
        mean = mean_difference(p, v[r], base, unit)
        divisor = divisor_of(m, t)
        for c in range(p.size):
            off = difference(v[r, c], base, unit) - mean if p[c] > 0.0 else 0.0
            out[r, c] = p[c] * off / divisor
        finish_division(out[r], t, divisor)
        if unit != 1.0:
            for c in range(p.size):
                out[r, c] *= unit


@inline
def logit_unit(temperature):
    """The unit of differences of logits: 1, or T where x - m or its square would overflow."""
    return 1.0 if 2.0**-300 < abs(temperature) < 2.0**300 else temperature


@kernel
def temperature_derivative_rows(x, out, temperature):
    """dp / dT = -p (x - mean of x) / T^2; 0 at the limits of temperature."""
    p = np.empty(x.shape[1])
    for r in range(x.shape[0]):
        t, m = peak_of_row(x, temperature, r)
        kind = regime(m, t)
        if kind == NAN or kind == NOTHING:
            out[r, :] = np.nan
            continue
        if kind != PLAIN:
            out[r, :] = 0.0
            continue
        sums = row_sums(x[r], None, m, t, x[r])
        write_probabilities(x[r], p, 1.0, m, t, sums, None, False)
        base = math.copysign(1.0, t) * m  # m is the maximum of sign(t) * x
        unit = logit_unit(t)
        mean = mean_difference(p, x[r], base, unit)
        for c in range(p.size):
            if p[c] > 0.0:
                off = difference(x[r, c], base, unit) - mean
                out[r, c] = -p[c] * off / (t / unit) / t
            else:
                out[r, c] = 0.0


@kernel
def entropy_derivative_rows(x, values, temperature):
    """d entropy / dT = variance of x / T^3; 0 at the limits of temperature."""
    p = np.empty(x.shape[1])
    for r in range(x.shape[0]):
        t, m = peak_of_row(x, temperature, r)
        kind = regime(m, t)
        if kind == NAN or kind == NOTHING:
            values[r] = np.nan
            continue
        values[r] = 0.0
        if kind != PLAIN:
            continue
        sums = row_sums(x[r], None, m, t, x[r])
        write_probabilities(x[r], p, 1.0, m, t, sums, None, False)
        base = math.copysign(1.0, t) * m
        unit = logit_unit(t)
        mean = mean_difference(p, x[r], base, unit)
        total, tiny = 0.0, 0.0
        for c in range(p.size):
            if p[c] > 0.0:
                off = (difference(x[r, c], base, unit) - mean) / (t / unit)
                if abs(off) < 2.0**-500:  # whose square is lost where that over T need not be
                    tiny += p[c] * off * (off / t)
                else:
                    total += p[c] * off * off
        values[r] = total / t if tiny == 0.0 else total / t + tiny


@kernel
def jacobian_rows(p, others, out):
    """diag(p) - p p^T."""
    for r in range(p.shape[0]):
        for i in range(p.shape[1]):
            for j in range(p.shape[1]):
                out[r, i, j] = -p[r, i] * p[r, j]
            out[r, i, i] = p[r, i] * others[r, i]


@kernel
def hessian_rows(p, others, out):
    """p[i] ((d[ij] - p[j]) (d[ik] - p[k]) - p[j] (d[jk] - p[k])), case by case."""
    n = p.shape[1]
    for r in range(p.shape[0]):
        q = p[r]
        for i in range(n):  # each product once, so that the result is symmetric to the bit
            for j in range(i + 1, n):
                for k in range(j + 1, n):
                    v = 2.0 * q[i] * q[j] * q[k]
                    out[r, i, j, k], out[r, i, k, j], out[r, j, i, k] = v, v, v
                    out[r, j, k, i], out[r, k, i, j], out[r, k, j, i] = v, v, v
        for i in range(n):
            skew = others[r, i] - q[i]  # 1 - 2 p
            for j in range(n):
                pair = -q[i] * q[j] * skew
                out[r, i, i, j] = pair
                out[r, i, j, i] = pair
                out[r, j, i, i] = pair
            out[r, i, i, i] = q[i] * others[r, i] * skew
