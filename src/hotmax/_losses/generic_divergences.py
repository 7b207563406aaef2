"""KL and distillation on arrays of other libraries, by the formulas of the kernels.

The formulas are explained in `_kernels/losses/divergence.py`. For distillation gaps are differences
of logits, and tau = |T|; for KL gaps are divided by T, and tau = 1.

A library differentiates these formulas itself. Its gradients are right while (x - y) / T^2, and the
loss, are within the type; beyond they may be nan. (The kernels have no such limit.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hotmax._backends.protocol import Array, placement, stop_gradient
from hotmax._core.arrays import Axis
from hotmax._core.checks import check_reduction
from hotmax._softmax.generic_problem import LogitsProblem, reduced_losses

TERMS = 20  # of the series of e^v for abs(v) <= 1


def exp_excess(at: LogitsProblem, v: Array) -> Array:
    """(e^v - 1 - v) / v^2 for abs(v) <= 1, from its series."""
    total = at.zeros(v)
    for k in range(TERMS, 2, -1):
        total = (total + 1.0) * v / k
    return 0.5 * (total + 1.0)


def log1p_over_itself(at: LogitsProblem, s: Array) -> Array:
    """log(1 + s) / s for s >= 0."""
    xp, small = at.xp, s < 0.01
    one = xp.ones_like(s)
    little, total = xp.where(small, s, at.zeros(s)), at.zeros(s)
    for k in range(10, 0, -1):
        total = 1.0 / k - little * total
    more = xp.where(small, one, s)
    return xp.where(small, total, xp.log1p(more) / more)


def centred_gaps(at: LogitsProblem, p: Array, gap: Array, both: Array) -> Array:
    """The gaps less their mean under p: the largest class first, and the mean of the rest twice.

    Classes without mass are left out of the mean: a gradient would meet 0 times their gap, which
    may be inf.
    """
    xp, none = at.xp, at.zeros(gap)
    counts = both & (p != 0)
    most = xp.max(xp.where(both, p, none), axis=-1, keepdims=True)
    at_most = xp.astype(both & (p == most), gap.dtype)
    number = xp.sum(at_most, axis=-1, keepdims=True)
    u = gap - xp.sum(at_most * gap, axis=-1, keepdims=True) / xp.where(
        number > 0, number, xp.ones_like(number)
    )
    for _ in range(2):
        mean = xp.sum(p * xp.where(counts, u, none), axis=-1, keepdims=True)
        u = xp.where(both, u - mean, none)
    return u


def near(
    at: LogitsProblem,
    p: Array,
    q: Array,
    logs: Array,
    gap: Array,
    both: Array,
    elsewhere: Array,
    tau: Array,
) -> tuple[Array, Array]:
    """(tau^2 KL, where it can be had from here) of every row: q near p, no class of p missing.

    `logs` is log(q / p). q / (p e^v) is one number for all classes of a row, `ratio`; it is taken
    from the largest of p, where v has all its digits.
    """
    xp, none = at.xp, at.zeros(gap)
    u = centred_gaps(at, p, gap, both)
    v = u / tau
    small = xp.abs(v) <= 1
    most = xp.max(xp.where(both, p, none), axis=-1, keepdims=True)
    at_most = both & (p == most)
    number = xp.sum(xp.astype(at_most, gap.dtype), axis=-1, keepdims=True)
    log_ratio = xp.sum(xp.where(at_most, logs - v, none), axis=-1, keepdims=True)
    log_ratio = log_ratio / xp.where(number > 0, number, xp.ones_like(number))
    usual = (log_ratio > -0.7) & (log_ratio < math.inf)
    scaled = q / xp.exp(xp.where(usual, log_ratio, xp.zeros_like(log_ratio)))  # p e^v
    large = both & ~small & (scaled < 2) & (xp.abs(v) < math.inf)
    little = xp.where(small, u, none)
    series = p * little * little * exp_excess(at, xp.where(small, v, none))
    finite = xp.where(xp.isfinite(tau), tau, xp.ones_like(tau))
    v = xp.where(large, v, none)
    rest = xp.where(large, scaled, none) - p - p * xp.where(p != 0, v, none)
    terms = xp.where(both, series, none) + finite * (finite * xp.where(large, rest, none))
    total = xp.sum(terms, axis=-1)
    tau, finite = xp.squeeze(tau, axis=-1), xp.squeeze(finite, axis=-1)
    share = total / tau / tau
    holds = (share < 1) & (elsewhere < 0.5) & xp.all(small | large | ~both, axis=-1)
    holds = holds & xp.squeeze(usual, axis=-1)
    nothing = at.zeros(share)
    value = total * log1p_over_itself(at, xp.where(holds, share, nothing))
    some = (elsewhere > 0) & holds
    missed = -xp.log1p(-xp.where(some, elsewhere, nothing))
    beyond = xp.where(some & ~xp.isfinite(tau), nothing + math.inf, nothing)
    value = value + finite * (finite * missed) + beyond
    return value, holds


def divergences(
    first: LogitsProblem, second: LogitsProblem, tau: Array, gap: Array, limit: Array
) -> Array:
    """tau^2 KL of every row, given its gaps; at the `limit` T = 0 no mass is no class."""
    xp = first.xp
    if not first.classes:  # two empty rows do not differ
        return xp.squeeze(xp.zeros_like(tau), axis=-1)
    p, q = first.probabilities(), second.probabilities()
    none = first.zeros(p)
    there = first.present() & ~(limit & (p == 0))
    known = second.present() & ~(limit & (q == 0))
    both = there & known & xp.isfinite(gap)
    logs, others = first.logs(), second.logs()
    elsewhere = xp.sum(xp.where(there, none, q), axis=-1)
    ratios = xp.where(both, others, none) - xp.where(both, logs, none)
    gap = xp.where(both, gap, none)
    value, holds = near(first, p, q, ratios, gap, both, elsewhere, tau)
    lacking = xp.any(there & ~known, axis=-1)
    holds = holds & ~xp.any(there & ~both, axis=-1)
    use = xp.expand_dims(~holds, axis=-1) & there & known & (p > 0)
    apart = xp.where(use, logs, none) - xp.where(use, others, none)
    flat_tau = xp.squeeze(tau, axis=-1)
    far = xp.sum(xp.where(use, p * apart, none), axis=-1)
    far = flat_tau * (flat_tau * xp.where(holds, xp.ones_like(far), far))
    value = xp.where(holds, value, far)
    value = xp.where(lacking, first.zeros(value) + math.inf, value)
    unknown = xp.any((p != p) | (q != q), axis=-1)
    return xp.where(unknown, first.zeros(value) + math.nan, value)


def same_shape(a: Array, b: Array, first: str, second: str) -> None:
    if tuple(a.shape) != tuple(np.shape(b)):
        raise ValueError(
            f"{first} and {second} must have one shape, got {tuple(a.shape)} and {np.shape(b)}"
        )


def temperature_column(at: LogitsProblem) -> Array:
    """The temperature of every row, of length 1 along the classes."""
    shape = (*at.layout.kept(), 1)
    return at.xp.zeros(shape, dtype=at.x.dtype, **placement(at.x)) + at.row_temperatures()


def without_infinity(at: LogitsProblem, temperature: Array) -> Array:
    """Rows with +inf as rows with 0 there, and no other class: the same at every temperature."""
    xp, x, mask = at.xp, at.rows(at.x), at.mask()
    infinity = xp.where(temperature < 0, -xp.ones_like(temperature), xp.ones_like(temperature))
    infinity = infinity * math.inf
    infinite = x == infinity if mask is None else (x == infinity) & mask
    some = xp.any(infinite, axis=-1, keepdims=True)
    nan = xp.any(x != x if mask is None else (x != x) & mask, axis=-1, keepdims=True)
    return xp.where(some & ~nan, xp.where(infinite, at.zeros(x), at.zeros(x) - infinity), x)


def kl_divergence(
    logits_p: Array,
    logits_q: Array,
    axis: Axis = -1,
    temperature: Any = 1.0,
    where: Any = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    same_shape(logits_p, logits_q, "logits_p", "logits_q")
    first = LogitsProblem(logits_p, axis, temperature, where)
    second = LogitsProblem(first.constant(logits_q), axis, temperature, where)
    xp, t = first.xp, temperature_column(first)
    zero = t == 0
    t = xp.where(zero, xp.ones_like(t), t)
    x, y = first.rows(first.x), second.rows(second.x)
    there = first.present() & second.present()
    gap = xp.where(there, y, first.zeros(y)) - xp.where(there, x, first.zeros(x))
    gap = xp.where(zero, first.zeros(gap), gap / t)
    losses = divergences(first, second, xp.ones_like(t), gap, zero)
    return reduced_losses(first, losses, reduction, float(math.prod(first.layout.kept())))


def distillation_loss(
    student: Array,
    teacher: Array,
    temperature: Any = 1.0,
    axis: Axis = -1,
    where: Any = None,
    reduction: str = "mean",
) -> Array:
    check_reduction(reduction)
    same_shape(student, teacher, "student", "teacher")
    at = LogitsProblem(student, axis, temperature, where)
    fixed = LogitsProblem(stop_gradient(at.constant(teacher)), axis, temperature, where)
    xp, t = at.xp, temperature_column(at)
    zero = t == 0
    nonzero = xp.where(zero, xp.ones_like(t), t)
    at.temperature = fixed.temperature = xp.reshape(nonzero, at.layout.reduced)
    for one in (at, fixed):
        one.x = one.entries(without_infinity(one, nonzero))
    x, z = at.rows(at.x), fixed.rows(fixed.x)
    there = at.present() & fixed.present()
    gap = xp.where(there, x, at.zeros(x)) - xp.where(there, z, at.zeros(z))
    gap = xp.where(nonzero < 0, -gap, gap)
    losses = divergences(fixed, at, xp.abs(nonzero), gap, xp.zeros_like(zero))
    flat = xp.squeeze(zero, axis=-1) & (losses == losses)
    losses = xp.where(flat, at.zeros(losses), losses)
    return reduced_losses(at, losses, reduction, float(math.prod(at.layout.kept())))
